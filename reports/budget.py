"""Decomposition of a change of pass@k into causes: figure and sentence from the measure ``change_budget``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from oversharp.diagnostics.measures.coverage.budget.change_budget import PARTS
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.diagnostics.verdict.words.made_of import is_fall_shown, made_of_text
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import first_round_text
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.pictures.waterfall import Waterfall, WaterfallPart
from oversharp.reports.records import Cell, Figure, Table, columns
from oversharp.reports.wording import float_or_none

MEASURE = "change_budget"
TITLE = "Decomposition of the change"
#: Part of the change (a scope of the measure) → label of its bar.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "cut_off": "truncated",
        "unread": "unparsed",
        "grader": "second grader",
        "sharpening": "a sharper base",
        "guesses": "rarely solved",
        "lost": "problems lost",
        "gained": "problems gained",
        "ways": "ways gone",
        "unexplained": "unexplained",
    }
)
#: Size of the smallest bar in the figure, in percentage points. The table lists smaller parts too.
_LEAST = 0.05
_MOST_PANELS = 4


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Decomposition of the change of pass@``k`` at the last checkpoint.

    ``unknown`` is part → reason why its value is missing.
    """

    series: SeriesSource
    k: int
    whole: WaterfallPart
    parts: Mapping[str, WaterfallPart]
    unknown: Mapping[str, str]


def budget_of(context: Context, series: SeriesSource, k: int | None = None) -> Budget | None:
    """Return the decomposition at the last checkpoint that the verdict compares; None if the store has none.

    ``k`` defaults to the largest k.
    """
    findings = context.source.findings_of(MEASURE)
    at = findings["series"] == series.name
    step = _last_compared_step(series)
    rows = findings[at & (findings["step"] == step) & findings["k"].notna()]
    if rows.empty or step == series.base_step:
        return None
    k = int(rows["k"].max()) if k is None else k
    by_scope = {str(row["scope"]): row for row in rows[rows["k"] == k].to_dict("records")}
    known = {
        scope: _part(scope, float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"]))
        for scope, row in by_scope.items()
        if float_or_none(row["value"]) is not None
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


def _last_compared_step(series: SeriesSource) -> int:
    """Return the last step of the verdict's window, or the last step if there is no verdict."""
    verdict = series.verdict
    return verdict.window[-1] if verdict is not None and verdict.window else series.last_step


def _part(scope: str, value: float, low: float | None, high: float | None) -> WaterfallPart:
    return WaterfallPart(
        name=NAMES.get(scope, "whole change"),
        value=100.0 * value,
        low=None if low is None else 100.0 * low,
        high=None if high is None else 100.0 * high,
        sure=low is not None and high is not None and (low > 0 or high < 0),
    )


def budget_sentence(context: Context, series: SeriesSource) -> str:
    """Return one sentence on the significant parts of the change at the largest k, or "" if none is significant."""
    budget = budget_of(context, series)
    if budget is None:
        return ""
    parts = {name: _estimate(part) for name, part in budget.parts.items()}
    place, shown = series.step_text(_last_compared_step(series)), is_fall_shown(series.verdict)
    if series.is_stopped:
        place = f"{place} (first {plural(series.first_round or 0, 'sample')} of each problem)"
    return made_of_text(_estimate(budget.whole), parts, k=budget.k, place=place, fall_is_shown=shown)


def _estimate(part: WaterfallPart) -> Estimate:
    return Estimate(value=part.value / 100.0, low=_share(part.low), high=_share(part.high))


def _points(value: float) -> str:
    return numbers.decimal(value, 1, signed=True)


def budget_figure(context: Context) -> Figure | None:
    """Return the figure of the decomposition; None without one.

    A single series has two panels, pass@1 and pass@k at its largest k. Several series have one panel each.
    """
    if len(context.series) == 1:
        budgets = [budget_of(context, context.series[0], k) for k in (1, None)]
    else:
        budgets = [budget_of(context, series) for series in context.series]
    made = [budget for budget in budgets if budget is not None][:_MOST_PANELS]
    shown = [budget for place, budget in enumerate(made) if budget not in made[:place]]
    if not shown:
        return None
    return Figure(
        figure_id="budget",
        title=TITLE,
        caption=(
            "Decomposition of the change of pass@k from the base to the last checkpoint. Each bar starts where the bar "
            "above it ends. The parts add up to the whole change. Thin lines: simultaneous "
            f"{numbers.NINETY_FIVE} CIs of all parts of one panel. Their coverage is lower if two causes affect the "
            "same problems. Pale: the CI contains 0. A part is a counterfactual difference, not a cause in training "
            f"(see oversharp explain change_budget).{first_round_text(context.source)}"
        ),
        notes=_notes(shown),
        x_label="percentage points",
        y_label="",
        panels=tuple(_panel(budget, is_alone=len(context.series) == 1) for budget in shown),
        table=_table(shown),
        finding=budget_sentence(context, context.series[0]) if len(context.series) == 1 else "",
    )


def _panel(budget: Budget, *, is_alone: bool) -> Waterfall:
    shown = tuple(part for part in budget.parts.values() if part.sure or abs(part.value) >= _LEAST)
    title = f"pass@{budget.k}" if is_alone else f"{budget.series.name}: pass@{budget.k}"
    values = ", ".join(f"{part.name} {_points(part.value)}" for part in shown)
    return Waterfall(
        title=title,
        lines=(),
        description=f"{title}, {_points(budget.whole.value)} points in total: {values or 'no parts'}.",
        parts=shown,
        whole=budget.whole,
    )


def _notes(shown: Sequence[Budget]) -> tuple[str, ...]:
    """Return one note for each part without a value and each reason."""
    reasons = {(part, why): None for budget in shown for part, why in budget.unknown.items()}
    return tuple(f"Unknown: {NAMES[part]} ({why})." for part, why in reasons)


def _table(shown: Sequence[Budget]) -> Table:
    rows = [
        (
            Cell(text=budget.series.name),
            Cell(text=part.name),
            Cell.count(budget.k),
            POINTS.cell(part.value / 100.0, _share(part.low), _share(part.high)),
        )
        for budget in shown
        for part in (*budget.parts.values(), budget.whole)
    ]
    return Table(
        title=f"{TITLE}: data",
        columns=columns("series", "part", numbers=("k", "points")),
        rows=tuple(rows),
        folded=True,
    )


def _share(points: float | None) -> float | None:
    return None if points is None else points / 100.0
