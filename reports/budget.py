"""What a change of pass@k is made of, in a figure and a sentence: the measure ``change_budget`` at the last step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from oversharp.diagnostics.measures.change_budget import PARTS
from oversharp.diagnostics.verdict.made_of import is_fall_shown, made_of_text
from oversharp.diagnostics.verdict.record import Estimate
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.pictures.waterfall import Waterfall, WaterfallPart
from oversharp.reports.records import Cell, Figure, Table, columns
from oversharp.reports.wording import bound

MEASURE = "change_budget"
TITLE = "What the change is made of"
#: Part → its name beside a bar.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "cut_off": "cut off",
        "unread": "no answer read",
        "grader": "second grader",
        "sharpening": "a sharper base",
        "guesses": "rarely solved",
        "lost": "problems lost",
        "gained": "problems gained",
        "ways": "ways gone",
        "unexplained": "unexplained",
    }
)
#: Bars that would show as nothing are left to the table, in points.
_LEAST = 0.05
_MOST_PANELS = 4


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The parts of the change of pass@``k`` of the last checkpoint, those that are known, and the whole of it."""

    series: SeriesSource
    k: int
    whole: WaterfallPart
    parts: Mapping[str, WaterfallPart]
    unknown: Mapping[str, str]


def budget_of(context: Context, series: SeriesSource, k: int | None = None) -> Budget | None:
    """Of the last checkpoint at the largest k, or at ``k``; None where the store has none."""
    findings = context.source.findings
    at = (findings["measure"] == MEASURE) & (findings["series"] == series.name)
    rows = findings[at & (findings["step"] == series.last_step) & findings["k"].notna()]
    if rows.empty or series.last_step == series.base_step:
        return None
    k = int(rows["k"].max()) if k is None else k
    by_scope = {str(row["scope"]): row for row in rows[rows["k"] == k].to_dict("records")}
    known = {
        scope: _part(scope, float(row["value"]), bound(row["low"]), bound(row["high"]))
        for scope, row in by_scope.items()
        if bound(row["value"]) is not None
    }
    if "all" not in known:
        return None
    return Budget(
        series=series,
        k=k,
        whole=known["all"],
        parts={part: known[part] for part in PARTS if part in known},
        unknown={part: str(by_scope[part]["why"]) for part in PARTS if part in by_scope and part not in known},
    )


def _part(scope: str, value: float, low: float | None, high: float | None) -> WaterfallPart:
    return WaterfallPart(
        name=NAMES.get(scope, "whole change"),
        value=100.0 * value,
        low=None if low is None else 100.0 * low,
        high=None if high is None else 100.0 * high,
        sure=low is not None and high is not None and (low > 0 or high < 0),
    )


def budget_sentence(context: Context, series: SeriesSource) -> str:
    """What is surely a part of the change at the largest k, and the rest; empty where nothing is sure."""
    budget = budget_of(context, series)
    if budget is None:
        return ""
    parts = {name: _estimate(part) for name, part in budget.parts.items()}
    place, shown = series.step_text(series.last_step), is_fall_shown(series.verdict)
    return made_of_text(_estimate(budget.whole), parts, k=budget.k, place=place, fall_is_shown=shown)


def _estimate(part: WaterfallPart) -> Estimate:
    return Estimate(value=part.value / 100.0, low=_share(part.low), high=_share(part.high))


def _points(value: float) -> str:
    return numbers.fixed(value, 1, signed=True)


def budget_figure(context: Context) -> Figure | None:
    """Of a single series pass@1 and the largest k, of several the largest k each; None without a budget."""
    if len(context.series) == 1:
        found = [budget_of(context, context.series[0], k) for k in (1, None)]
    else:
        found = [budget_of(context, series) for series in context.series]
    made = [one for one in found if one is not None][:_MOST_PANELS]
    shown = [one for place, one in enumerate(made) if one not in made[:place]]
    if not shown:
        return None
    return Figure(
        figure_id="budget",
        title=TITLE,
        caption=(
            "Parts of the change of pass@k from the base to the last checkpoint, from top to bottom, each beginning "
            f"where the one above ends; they add up to the whole. Thin lines: {numbers.NINETY_FIVE} intervals of all "
            "parts of one picture at once, which hold less often where two causes act on the same problems; pale: the "
            "interval holds 0. A part says what would be otherwise, not what was done to the model (oversharp explain "
            "change_budget)."
        ),
        notes=_notes(shown),
        x_label="points",
        y_label="",
        panels=tuple(_panel(one, is_alone=len(context.series) == 1) for one in shown),
        table=_table(shown),
        finding=budget_sentence(context, context.series[0]) if len(context.series) == 1 else "",
    )


def _panel(budget: Budget, *, is_alone: bool) -> Waterfall:
    shown = tuple(one for one in budget.parts.values() if one.sure or abs(one.value) >= _LEAST)
    title = f"pass@{budget.k}" if is_alone else f"{budget.series.name}: pass@{budget.k}"
    told = ", ".join(f"{one.name} {_points(one.value)}" for one in shown)
    return Waterfall(
        title=title,
        lines=(),
        description=f"{title}, {_points(budget.whole.value)} points in all: {told or 'no part'}.",
        parts=shown,
        whole=budget.whole,
    )


def _notes(shown: Sequence[Budget]) -> tuple[str, ...]:
    """What no picture could show, once for each part and reason."""
    told = {(part, why): None for one in shown for part, why in one.unknown.items()}
    return tuple(f"Not known: {NAMES[part]} ({why})." for part, why in told)


def _table(shown: Sequence[Budget]) -> Table:
    rows = [
        (
            Cell(text=one.series.name),
            Cell(text=part.name),
            Cell.count(one.k),
            POINTS.cell(part.value / 100.0, _share(part.low), _share(part.high)),
        )
        for one in shown
        for part in (*one.parts.values(), one.whole)
    ]
    return Table(
        title="What the change is made of: data",
        columns=columns("series", "part", numbers=("k", "points")),
        rows=tuple(rows),
        folded=True,
    )


def _share(points: float | None) -> float | None:
    return None if points is None else points / 100.0
