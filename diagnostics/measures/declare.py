"""Decorators that turn a function into a measure.

The function computes the result at one checkpoint. The decorator calls it for every checkpoint, records a reason if the
input is missing, and creates the findings. The function's name is the name of the measure. ``oversharp explain`` prints
its docstring.

>>> from oversharp.diagnostics.measures.counts import SAMPLED_COUNTS, Counts
>>> @per_checkpoint(
...     input=SAMPLED_COUNTS, title="Solved", unit="share", section="coverage", plot=Plot(y_label="share")
... )
... def solved(counts: Counts) -> Interval:
...     '''Share of problems with a correct sample.'''
...     solved_P = counts.correct_P > 0
...     return Interval(mean=float(solved_P.mean()), low=None, high=None, n=len(solved_P))
>>> from oversharp.diagnostics.measures.examples import tiny_evidence
>>> rows = [("base", "q1", 4, 1), ("base", "q2", 4, 0)]
>>> [f.value for f in solved(tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", rows))]
[0.5]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Generic, NotRequired, TypedDict, TypeVar, Unpack

from oversharp.diagnostics.measures.contract import LAST, Evidence, Measure, Plot, Result, Results, Section, Unknown
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval

T = TypeVar("T")
#: Value of each checkpoint, and the reason for every checkpoint without a value.
Loaded = tuple[Mapping[str, T], Mapping[str, str]]
#: A checkpoint, the reason why it has no result (or None), and the arguments of the measure's function.
Case = tuple[str, str | None, tuple[Any, ...]]


@dataclass(frozen=True, kw_only=True)
class Input(Generic[T]):
    """Input of a measure: one value per checkpoint, which ``load`` computes from the evidence.

    ``needs`` are the required views. If one of them is empty, the findings have the reason ``missing``. ``also`` are
    optional views. ``columns`` lists the columns that ``load`` uses of a large view. ``first_round``: see ``Measure``.
    """

    load: Callable[[Evidence], Loaded[T]]
    needs: tuple[str, ...]
    missing: str
    also: tuple[str, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    first_round: bool = False


class Declared(TypedDict):
    """Fields of a measure that every decorator accepts. ``contract.Measure`` documents them."""

    title: str
    unit: str
    section: Section
    plot: Plot
    rank: NotRequired[int]
    folded: NotRequired[bool]
    signed: NotRequired[bool]


def per_checkpoint(
    *, input: Input[T], by_k: bool = False, scopes: Sequence[str] = ("all",), **declared: Unpack[Declared]
) -> Callable[[Callable[..., Results]], Measure]:
    """Declare a measure that computes ``function(value)`` at every checkpoint.

    If ``by_k``, it computes ``function(value, k)`` for every k. At a checkpoint without a value, each of ``scopes`` has
    the reason.
    """

    def cases(evidence: Evidence, values: Mapping[str, T], why: Mapping[str, str]) -> Iterator[Case]:
        for checkpoint_id in evidence.checkpoint_ids:
            yield checkpoint_id, why.get(checkpoint_id), (values.get(checkpoint_id),)

    return _declare_by_case(cases, input, by_k, scopes, True, declared)


def against_base(
    *, input: Input[T], by_k: bool = False, scopes: Sequence[str] = ("all",), **declared: Unpack[Declared]
) -> Callable[[Callable[..., Results]], Measure]:
    """Declare a measure that computes ``function(base, late)``.

    It is computed at every checkpoint except the base. If ``by_k``, it computes ``function(base, late, k)`` for every
    k. If the base has no value, no checkpoint has a result.
    """

    def cases(evidence: Evidence, values: Mapping[str, T], why: Mapping[str, str]) -> Iterator[Case]:
        for checkpoint_id, why_not in compare_with_base(evidence, why):
            yield checkpoint_id, why_not, (values.get(evidence.base_id), values.get(checkpoint_id))

    return _declare_by_case(cases, input, by_k, scopes, False, declared)


def against_previous(
    *, input: Input[T], scopes: Sequence[str] = ("all",), **declared: Unpack[Declared]
) -> Callable[[Callable[..., Results]], Measure]:
    """Declare a measure that computes ``function(before, after)`` for consecutive checkpoints."""

    def cases(evidence: Evidence, values: Mapping[str, T], why: Mapping[str, str]) -> Iterator[Case]:
        for before_id, after_id, why_not in pair_steps(evidence, why):
            yield after_id, why_not, (values.get(before_id), values.get(after_id))

    return _declare_by_case(cases, input, False, scopes, False, declared)


def per_series(
    *,
    needs: tuple[str, ...],
    missing: str,
    also: tuple[str, ...] = (),
    columns: Mapping[str, tuple[str, ...]] | None = None,
    of_base: bool = True,
    first_round: bool = False,
    **declared: Unpack[Declared],
) -> Callable[[Callable[[Evidence], Iterable[tuple[str, Results]]]], Measure]:
    """Declare a measure that computes all results by ``function(evidence)``.

    The function yields pairs of checkpoint and results.
    """

    def declare(function: Callable[[Evidence], Iterable[tuple[str, Results]]]) -> Measure:
        def compute(evidence: Evidence) -> list[Finding]:
            if not evidence.checkpoint_ids:
                return []
            return [x for i, results in function(evidence) for x in _build_findings(measure, i, results, None)]

        source = Input(
            load=_load_nothing,
            needs=needs,
            missing=missing,
            also=also,
            columns=columns or {},
            first_round=first_round,
        )
        measure = _build_measure(function, source, compute=compute, of_base=of_base, declared=declared)
        return measure

    return declare


def in_sql(
    *,
    needs: tuple[str, ...],
    missing: str,
    of_base: bool = True,
    first_round: bool = False,
    **declared: Unpack[Declared],
) -> Callable[[Callable[[], str]], Measure]:
    """Declare a measure that computes all results by a SQL query.

    ``function()`` returns the query (see ``Measure``).
    """

    def declare(function: Callable[[], str]) -> Measure:
        source = Input(load=_load_nothing, needs=needs, missing=missing, first_round=first_round)
        return _build_measure(function, source, sql=function(), of_base=of_base, declared=declared)

    return declare


def compare_with_base(evidence: Evidence, why: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield every checkpoint except the base, and why it cannot be compared, or None.

    ``why`` has the reason for each checkpoint that cannot be used.
    """
    if not evidence.checkpoint_ids:
        return
    base_id = evidence.base_id
    base_why = f"base: {why[base_id]}" if base_id in why else None
    for checkpoint_id in evidence.checkpoint_ids:
        if checkpoint_id != base_id:
            yield checkpoint_id, base_why or why.get(checkpoint_id)


def pair_steps(evidence: Evidence, why: Mapping[str, str]) -> Iterator[tuple[str, str, str | None]]:
    """Yield each pair of consecutive checkpoints, and why they cannot be compared, or None."""
    for before_id, after_id in pairwise(evidence.checkpoint_ids):
        before_why = f"previous checkpoint: {why[before_id]}" if before_id in why else None
        yield before_id, after_id, before_why or why.get(after_id)


def _declare_by_case(
    cases: Callable[[Evidence, Mapping[str, T], Mapping[str, str]], Iterator[Case]],
    input: Input[T],
    by_k: bool,
    scopes: Sequence[str],
    of_base: bool,
    declared: Declared,
) -> Callable[[Callable[..., Results]], Measure]:
    def declare(function: Callable[..., Results]) -> Measure:
        def compute(evidence: Evidence) -> list[Finding]:
            if not evidence.checkpoint_ids:
                return []
            values, why = evidence.once(input.load)
            findings: list[Finding] = []
            for checkpoint_id, why_not, arguments in cases(evidence, values, why):
                for k in evidence.ks if by_k else (None,):
                    all_arguments = arguments if k is None else (*arguments, k)
                    results = dict.fromkeys(scopes, why_not) if why_not else function(*all_arguments)
                    findings += _build_findings(measure, checkpoint_id, results, k)
            return findings

        measure = _build_measure(function, input, compute=compute, of_base=of_base, declared=declared)
        return measure

    return declare


def _build_measure(
    function: Callable[..., Any],
    source: Input[Any],
    *,
    of_base: bool,
    declared: Declared,
    compute: Callable[[Evidence], list[Finding]] | None = None,
    sql: str | None = None,
) -> Measure:
    measure = Measure(
        name=function.__name__,
        title=declared["title"],
        unit=declared["unit"],
        section=declared["section"],
        plot=declared["plot"],
        rank=declared.get("rank", LAST),
        folded=declared.get("folded", False),
        signed=declared.get("signed", False),
        needs=source.needs,
        missing=source.missing,
        also=source.also,
        columns=source.columns,
        of_base=of_base,
        first_round=source.first_round,
        compute=compute,
        sql=sql,
        doc=inspect.getdoc(function) or "",
    )
    # doctest, help() and the registry read these attributes
    for name, value in (("__module__", function.__module__), ("__doc__", function.__doc__), ("__wrapped__", function)):
        object.__setattr__(measure, name, value)
    return measure


def _build_findings(measure: Measure, checkpoint_id: str, results: Results, k: int | None) -> Iterator[Finding]:
    """Yield the findings of one checkpoint. ``k`` is used for results whose key has no k."""
    by_key: Mapping[Any, Result] = results if isinstance(results, Mapping) else {"all": results}
    for key, result in by_key.items():
        scope, own_k = key if isinstance(key, tuple) else ("all", key) if isinstance(key, int) else (key, k)
        yield build_finding(measure, checkpoint_id, result, scope=scope, k=own_k)


def build_finding(measure: Measure, checkpoint_id: str, result: Result, *, scope: str, k: int | None) -> Finding:
    """Return the finding of one result. It is unknown if the result is a reason."""
    if isinstance(result, str):
        result = Unknown(why=result)
    if isinstance(result, Interval):
        value, why, why_no_interval = result.mean, None, result.why
    else:
        value, why, why_no_interval = None, result.why, result.why_no_interval
    return Finding(
        checkpoint_id=checkpoint_id,
        measure=measure.name,
        unit=measure.unit,
        scope=scope,
        k=k,
        value=value,
        low=result.low,
        high=result.high,
        n=result.n,
        why=why,
        interval_over=result.over if result.low is not None or result.high is not None else None,
        why_no_interval=why_no_interval,
    )


def _load_nothing(evidence: Evidence) -> Loaded[None]:
    return {}, {}
