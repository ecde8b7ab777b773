"""Print the checkpoint to ship with its guarantee, and a table of all checkpoints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_lines,
    print_rows,
    print_table,
    terminal,
)
from oversharp.diagnostics.app.console.verdict import (
    change_text,
    guarantee_text,
    number_head,
    number_row,
    place_text,
    shipping_text,
)
from oversharp.diagnostics.records.amounts import plural

if TYPE_CHECKING:
    from rich.console import Console

    from oversharp.diagnostics.verdict.recommendation import BandedChange, OutBy, Recommendation, ShippingStep

#: Status of a checkpoint that could not be compared. The reason is printed below the table.
UNKNOWN = "not to choose"
#: Reason why a checkpoint is out → word in the table, and explanation below the table.
OUT: Mapping[OutBy | None, tuple[str, str]] = {
    "band": ("significant", "some pass@k fell significantly by more than is allowed"),
    "verdict": ("verdict", "the verdict found a significant fall of pass@k in the population"),
    "estimate": ("estimate", "some pass@k fell by more than is allowed, but not significantly"),
    "expected": ("expected", "the expected fall at the worst k is more than is allowed"),
    "reach": ("unseen", "too few samples at this temperature for the largest k (--control-n)"),
    "veto": ("veto", "pass@k fell significantly on the held-out problems"),
}


def print_shipping(
    result: Sequence[Recommendation],
    *,
    store_path: Path | None = None,
    explain: bool = False,
    out: Console | None = None,
) -> None:
    """Print each recommendation, the table of changes since the base, and the next command."""
    out = out or terminal()
    if len(result) > 1:
        why = "base, problems, sampling or grader differ, so pass@k cannot be compared between them"
        print_rows([OutputRow(label="note", value=f"{len(result)} recommendations: {why}")], out)
    for place, recommendation in enumerate(result):
        if place or len(result) > 1:
            print_lines([""], out)
        if len(result) > 1:
            print_rows([OutputRow(label="series", value=", ".join(recommendation.series))], out)
        _print_recommendation(recommendation, store_path, explain, out)


def _print_recommendation(recommendation: Recommendation, store_path: Path | None, explain: bool, out: Console) -> None:
    print_rows(_rows(recommendation), out)
    if explain:
        print_rows([OutputRow(label="in words", value=recommendation.sentence)], out)
    if recommendation.recommended is None:
        return
    print_lines([""], out)
    print_table(_columns(recommendation), list(_table_rows(recommendation)), out)
    print_lines([""], out)
    print_rows(_legend_rows(recommendation), out)
    print_rows(_next_rows(recommendation, store_path), out)


def _rows(recommendation: Recommendation) -> Iterator[OutputRow]:
    chosen = recommendation.recommended
    if chosen is None or chosen.is_own_base:
        yield OutputRow(label="ship", value=shipping_text(recommendation))
    else:
        yield OutputRow(label="ship", value=place_text(chosen, recommendation), style="green")
    if chosen is None:
        return
    if chosen.path is not None:
        gone = "" if Path(chosen.path).exists() else "  (not found; the path at the time of the audit)"
        yield OutputRow(label="path", value=f"{chosen.path}{gone}", is_whole=True)
    if chosen.first is not None and chosen.pass_at_1 is not None:
        yield number_head("this", "95 % band")
        base = next((step.pass_at_1 for step in recommendation.steps if step.is_own_base), None)
        yield number_row("pass@1", base, chosen.pass_at_1, _change(chosen.first))
    if chosen.worst is not None:
        yield number_row("worst pass@k", None, None, _change(chosen.worst), f"k = {chosen.worst.k}")
    if recommendation.beyond is not None and recommendation.beyond.gain is not None:
        beyond = recommendation.beyond
        change = change_text(beyond.gain or 0.0, beyond.low, beyond.high)
        yield number_row("frontier", None, None, change, f"pass@1, base at equal pass@{beyond.k}")
    if recommendation.toss_up is not None:
        toss_up = recommendation.toss_up
        expected = f"expected {change_text(toss_up.expected_gain, None, None)} points; the base is the safe choice"
        yield OutputRow(label="toss-up", value=f"{expected} below a probability of {toss_up.needed:g}")
    yield from _guarantee_rows(recommendation)
    others = [step for step in recommendation.alternatives if step != chosen]
    if others:
        names = ", ".join(place_text(step, recommendation) for step in others)
        yield OutputRow(label="also", value=f"{names}: pass@1 may be as high")
    if any(step.is_base and step.temperature is not None for step in others):
        yield OutputRow(label="warning", value="the base at a lower temperature may be as good without any training")
    if recommendation.cannot_tell is not None:
        yield OutputRow(label="warning", value="too few problems to show of any checkpoint that it keeps pass@k")


def _guarantee_rows(recommendation: Recommendation) -> Iterator[OutputRow]:
    chosen, guarantee = recommendation.recommended, recommendation.guarantee
    if guarantee is not None:
        yield OutputRow(label="guarantee", value=guarantee_text(guarantee))
        held_out = " held-out" if recommendation.held_out else ""
        yield OutputRow(label="", value=f"over {guarantee.n_units:,}{held_out} {guarantee.units}; {guarantee.over}")
    elif recommendation.why_no_guarantee is not None:
        yield OutputRow(label="guarantee", value=f"none: {recommendation.why_no_guarantee}")
    if chosen is not None and not chosen.is_own_base and recommendation.why is not None:
        yield OutputRow(label="reason", value=recommendation.why)


def _change(change: BandedChange) -> str:
    return change_text(change.change, change.low, change.high)


def _has_temperatures(recommendation: Recommendation) -> bool:
    return any(step.temperature is not None for step in recommendation.steps)


def _columns(recommendation: Recommendation) -> Sequence[OutputColumn]:
    return (
        OutputColumn(heading="step"),
        *((OutputColumn(heading="T"),) if _has_temperatures(recommendation) else ()),
        OutputColumn(heading="pass@1, points"),
        OutputColumn(heading="worst pass@k, points"),
        OutputColumn(heading="k"),
        OutputColumn(heading="status", is_text=True),
    )


def _table_rows(recommendation: Recommendation) -> Iterator[Sequence[str] | str]:
    """Yield a table row for each checkpoint.

    With several series, also yields their names as headings.
    """
    has_several, has_temperatures = len(recommendation.series) > 1, _has_temperatures(recommendation)
    series = None
    for step in recommendation.steps:
        name = "base" if step.is_base else step.series
        if has_several and name != series:
            yield f"{name}:"
            series = name
        temperature = "" if step.temperature is None else f"{step.temperature:g}"
        changes = ("" if change is None else _change(change) for change in (step.first, step.worst))
        yield (
            str(step.step),
            *((temperature,) if has_temperatures else ()),
            *changes,
            "" if step.worst is None else str(step.worst.k),
            _status(step),
        )


def _status(step: ShippingStep) -> str:
    """Return the status of a checkpoint: recommended, out, unknown, or lower in pass@1."""
    if step.role == "recommended":
        return "◀ recommended"
    if step.role == "out" and step.out_by is not None:
        return f"out, {OUT[step.out_by][0]}"
    if step.role is None:
        return UNKNOWN if step.why else ""
    return "" if step.may_be_best else "lower pass@1"


def _legend_rows(recommendation: Recommendation) -> Iterator[OutputRow]:
    out_by = {step.out_by for step in recommendation.steps}
    for cause, (word, meaning) in OUT.items():
        if cause in out_by:
            yield OutputRow(label="out", value=f"{word}: {meaning}")
    for step in recommendation.steps:
        if step.role is None and step.why:
            yield OutputRow(label=UNKNOWN, value=f"{place_text(step, recommendation)}: {step.why}")
    problems = ""
    if recommendation.held_out:
        problems = f", on {recommendation.n_choosing} of {plural(recommendation.n_problems, 'problem')}"
    yield OutputRow(label="intervals", value=f"95 % over all rows and k together{problems}")


def _next_rows(recommendation: Recommendation, store_path: Path | None) -> Iterator[OutputRow]:
    """Yield the next command: ``diff`` of the recommended checkpoint with the base, or ``lost``."""
    chosen = recommendation.recommended
    if store_path is None or chosen is None:
        return
    store = shlex.quote(str(store_path))
    if chosen.is_base:
        yield OutputRow(
            label="next",
            value=f"oversharp lost {store} --series {shlex.quote(recommendation.series[0])}",
            is_whole=True,
        )
        return
    base = next(step for step in recommendation.steps if step.is_base)
    steps = f"--steps {base.step} {chosen.step} --series {shlex.quote(chosen.series)}"
    yield OutputRow(label="next", value=f"oversharp diff {store} {steps}", is_whole=True)
