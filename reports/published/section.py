"""Section with the changes of the audit next to the changes printed in [B] and [C], as a scale for effect sizes.

The tables of [A] have no base model, so they contain no change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.comparable import differences_text
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.published import published_tables
from oversharp.reports.records import DASH, Block, Cell, Column, Missing, Section, Table
from oversharp.reports.wording import float_or_none

OWN = "own"
FULL_DATA = "oversharp.reports.published.published_tables()"
#: Method that is in the tables of both papers. The rows of other methods are folded.
PLAIN = "GRPO"
CAUTION = "Tasks, models, training and sampling differ: use this as a scale for effect sizes, not as a comparison."
#: Unit → factor that converts it to a probability or to nats. Values in unstated units are not converted.
_UNITS = {
    "percent": 0.01,
    "bits": math.log(2.0),
    "unstated": 1.0,
}
#: Decimals of a printed percentage divided by 100, which has two decimals in the papers. Rounding removes float errors.
_DECIMALS = 4


@dataclass(frozen=True, kw_only=True)
class PublishedPair:
    """Base and trained model from one published table.

    ``values`` is (metric, k) → (base, trained). Values are probabilities or nats. Token entropies are in the unit of
    the paper, which it does not state.
    """

    table: str  # such as "[B] 1"
    model: str
    method: str
    benchmark: str
    values: Mapping[tuple[str, int | None], tuple[float, float]]

    @property
    def ks(self) -> tuple[int, ...]:
        """Values of k above 1 for which the paper prints pass@k."""
        return tuple(sorted(k for metric, k in self.values if metric == "pass@k" and k is not None and k > 1))

    def levels(self, metric: str, k: int | None = None) -> tuple[float, float] | None:
        """Return the values of ``metric`` for base and trained model; None unless the paper prints both."""
        return self.values.get((metric, k))


@cache
def published_pairs() -> tuple[PublishedPair, ...]:
    """Return all pairs of base and trained model in the published tables, in printed order.

    >>> first = published_pairs()[0]
    >>> first.table, first.method, first.benchmark, first.levels("pass@k", 1)
    ('[B]\\xa01', 'GRPO', 'AMC 2023', (0.404, 0.604))
    """
    printed: dict[tuple[str, str, str], dict[str, dict[tuple[str, int | None], float]]] = {}
    for row in published_tables().to_dict("records"):
        if (value := float_or_none(row["value"])) is None or not row["benchmark"]:
            continue
        k = float_or_none(row["k"])
        where = (f"[{row['paper']}]\N{NO-BREAK SPACE}{row['table']}", str(row["model"]), str(row["benchmark"]))
        own = printed.setdefault(where, {}).setdefault(str(row["method"]), {})
        own[(str(row["metric"]), None if k is None else int(k))] = round(value * _UNITS[row["unit"]], _DECIMALS)
    return tuple(
        PublishedPair(
            table=table,
            model=model,
            method=method,
            benchmark=benchmark,
            values={at: (methods["base"][at], trained) for at, trained in values.items() if at in methods["base"]},
        )
        for (table, model, benchmark), methods in printed.items()
        if "base" in methods
        for method, values in methods.items()
        if method != "base"
    )


def nearest_k(k: int, printed: Iterable[int]) -> int:
    """Return the k of ``printed`` that is nearest to ``k`` by ratio. On ties, return the smaller.

    >>> nearest_k(100, [16, 64, 128]), nearest_k(4, [2, 8])
    (128, 2)
    """
    return min(sorted(printed), key=lambda other: abs(math.log(other / k)))


def published_section(context: Context) -> Section:
    """Build the section: the series of the audit, then the printed values at the same k or the nearest."""
    pass_pairs = tuple(pair for pair in published_pairs() if pair.levels("pass@k", 1) is not None)
    ks = _own_ks(context)
    blocks: tuple[Block, ...] = _entropies(context)
    if not ks:
        why = "the series share no k with a pass@k at base and at a later checkpoint"
        blocks = (Missing(title="Changes of pass@k here and in the papers", why=(why,)), *blocks)
    else:
        blocks = (*_changes(context, pass_pairs, ks), *blocks)
    lead = _lead(context, pass_pairs, ks) if ks else ()
    return Section(section_id="published", title="Compared with the papers", lead=lead, blocks=blocks)


def _own_ks(context: Context) -> tuple[int, ...]:
    """Return k = 1 and the largest k for which all series have a change. If some k have CIs, only these are used."""
    shared: set[int] | None = None
    for series in context.series:
        ks = context.inference_ks(series) or context.known_ks(series)
        own = {k for k in ks if context.pass_change(series, k) is not None}
        if own:
            shared = own if shared is None else shared & own
    if not shared:
        return ()
    return tuple(sorted({1, max(shared)} & shared))


def _lead(context: Context, pass_pairs: tuple[PublishedPair, ...], ks: tuple[int, ...]) -> tuple[str, ...]:
    """Return sentences on the changes of the audit, the range of the changes in the papers, and caveats.

    The verb "moved" states no direction, because the CIs are in the table only.
    """
    own: list[str] = []
    theirs: list[str] = []
    for k in ks:
        moved = [(s.name, change.delta) for s in context.series if (change := context.pass_change(s, k)) is not None]
        unit, named = ("", False) if own else (" points", len(context.series) > 1)
        each = (f"{numbers.points(delta)}{f'{unit} ({name})' if named else unit}" for name, delta in moved)
        own.append(f"pass@{k}{'' if own else ' moved'} by {numbers.listing(tuple(each))}")
        near = 1 if k == 1 else nearest_k(k, {printed for pair in pass_pairs for printed in pair.ks})
        published_levels = [levels for pair in pass_pairs if (levels := pair.levels("pass@k", near)) is not None]
        deltas = [trained - base for base, trained in published_levels]
        pairs_of = "" if theirs else " of trained model and benchmark"
        silent = len(pass_pairs) - len(deltas)
        theirs.append(
            f"{'' if theirs else 'from '}{numbers.points(min(deltas))} to {numbers.points(max(deltas))} in pass@{near} "
            f"({f'the k nearest to {k}; ' if near != k else ''}{len(deltas)} pairs{pairs_of}, "
            f"median {numbers.points(median(deltas))}{f'; the other {silent} do not print it' if silent else ''})"
        )
    unlike = differences_text(context.series)
    return (
        f"From base to last checkpoint {numbers.listing(tuple(own))}.",
        *((f"Do not compare these series with each other: {unlike}.",) if unlike else ()),
        f"The changes in [B] and [C] range {numbers.listing(tuple(theirs))}, in percentage points.",
        CAUTION,
    )


def _changes(context: Context, pass_pairs: tuple[PublishedPair, ...], ks: tuple[int, ...]) -> tuple[Table, ...]:
    plain = [_pair_row(pair, ks) for pair in pass_pairs if pair.method == PLAIN]
    others = [pair for pair in pass_pairs if pair.method != PLAIN]
    own = [_own_row(context, series, ks) for series in context.series]
    names = numbers.listing(tuple(dict.fromkeys(pair.method for pair in others)))
    return (
        Table(
            title=f"Changes from base to trained model: this audit, then {PLAIN} in the papers",
            columns=_pass_columns(ks),
            rows=(*own, *plain),
            note="Base → trained: probabilities (the papers' percentages divided by 100). Change: percentage points. "
            f"Brackets: {numbers.NINETY_FIVE} CI over problems; the papers print none for changes. "
            f"{_own_size(context)} If a paper does not print the k of this audit, the nearest k is shown. The tables "
            "with a base are [B] 1 to 3, [C] 1 and 4; [A] prints no base. All published values, at every k: "
            f"{FULL_DATA}.",
        ),
        Table(
            title=f"Changes by the other methods of the papers: {names}",
            columns=_pass_columns(ks, methods=True),
            rows=tuple(_pair_row(pair, ks) for pair in others),
            folded=True,
        ),
    )


def _own_size(context: Context) -> str:
    sizes = {
        f"{numbers.plural(len(series.problem_ids), 'problem')}, {series.samples_text()} each": None
        for series in context.series
    }
    return f"Series of this audit: {'; '.join(sizes)}."


def _head_columns(*, methods: bool = False) -> tuple[Column, ...]:
    names = ("table", "series or model", *(("method",) if methods else ()), "benchmark")
    return tuple(Column(name=name, numeric=False) for name in names)


def _pass_columns(ks: tuple[int, ...], *, methods: bool = False) -> tuple[Column, ...]:
    names: list[str] = []
    for k in ks:
        names += ["pass@1", "change"] if k == 1 else ["k", "pass@k", "change"]
    return (*_head_columns(methods=methods), *(Column(name=name) for name in names))


def _pair_row(pair: PublishedPair, ks: tuple[int, ...]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for k in ks:
        near = 1 if k == 1 else nearest_k(k, pair.ks)
        cells += [] if k == 1 else [Cell(text=str(near), sort=near)]
        if (levels := pair.levels("pass@k", near)) is None:
            cells += [DASH] * 2
        else:
            cells += [_path(*levels), POINTS.cell(round(levels[1] - levels[0], _DECIMALS), None, None)]
    return (*_pair_head(pair), *cells)


def _own_row(context: Context, series: SeriesSource, ks: tuple[int, ...]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for k in ks:
        change = context.pass_change(series, k)
        cells += [] if k == 1 else [Cell(text=str(k), sort=k)]
        if change is None:
            cells += [DASH] * 2
        else:
            cells += [_path(change.before, change.after), POINTS.cell(change.delta, change.low, change.high)]
    return (*_own_head(context, series), *cells)


def _pair_head(pair: PublishedPair) -> tuple[Cell, ...]:
    """Return the first cells of a row. The method is omitted if it is in the table's title."""
    method = () if pair.method == PLAIN else (pair.method,)
    return tuple(Cell(text=text) for text in (pair.table, pair.model, *method, pair.benchmark))


def _own_head(context: Context, series: SeriesSource) -> tuple[Cell, ...]:
    problems = context.source.problems
    tasks = sorted({str(task) for task in problems.loc[problems["problem_id"].isin(series.problem_ids), "task"]})
    return (Cell(text=OWN), Cell(text=series.name), Cell(text=numbers.listing(tuple(tasks))))


def _path(base: float, trained: float) -> Cell:
    """Return a cell with the values of base and trained model, because two columns would not fit on a page."""
    return Cell(text=f"{numbers.decimal(base, 3)} → {numbers.decimal(trained, 3)}", sort=round(base, _DECIMALS))


def _entropies(context: Context) -> tuple[Table, ...]:
    """Return a table of answer and token entropies next to [B] Table 4; empty if the audit has no such values."""
    own: list[tuple[Cell, ...]] = []
    for series in context.series:
        answer = _own_levels(context, series, "answer_entropy", scope="plug_in")
        token = _own_levels(context, series, "token_entropy", scope="all")
        if answer is not None or token is not None:
            own.append((*_own_head(context, series), *_entropy_cells(answer, token)))
    if not own:
        return ()
    theirs = [
        (*_pair_head(pair), *_entropy_cells(answer, pair.levels("token_entropy")))
        for pair in published_pairs()
        if pair.method == PLAIN and (answer := pair.levels("answer_entropy")) is not None
    ]
    names = ("answer entropy", "change", "token entropy")
    sizes = {series.n if series.first_round is None else series.first_round for series in context.series}
    counts = numbers.listing(tuple(map(str, sorted(sizes))))
    return (
        Table(
            title=f"Entropies of answers and tokens: this audit, then {PLAIN} in [B] Table 4",
            columns=(*_head_columns(), *(Column(name=name) for name in names)),
            rows=(*own, *theirs),
            note="Base → trained. Answer entropies: plug-in estimates as in [B] C.5, which grow with the number of "
            f"samples ({counts} per problem here, 256 in [B]); in nats, converted from the bits that [B] prints. Token "
            "entropies: nats per token here; the values of [B] are as printed, because [B] states no unit.",
            folded=True,
        ),
    )


def _own_levels(context: Context, series: SeriesSource, measure: str, *, scope: str) -> tuple[float, float] | None:
    """Return the values at base and last checkpoint; None if one is unknown or the base is the last checkpoint."""
    base = context.source.value_at(measure, series.name, series.base_step, scope=scope)
    last = context.source.value_at(measure, series.name, series.last_step, scope=scope)
    if base is None or last is None or series.base_step == series.last_step:
        return None
    return float(base["value"]), float(last["value"])


def _entropy_cells(answer: tuple[float, float] | None, token: tuple[float, float] | None) -> tuple[Cell, Cell, Cell]:
    change = DASH
    if answer is not None:
        delta = round(answer[1] - answer[0], _DECIMALS)
        change = Cell(text=numbers.decimal(delta, 3, signed=True), sort=delta)
    return (DASH if answer is None else _path(*answer), change, DASH if token is None else _path(*token))
