"""Coverage section: pass@k as a function of k and of the training step, and by task."""

from __future__ import annotations

from dataclasses import replace

from oversharp.reports.budget import MEASURE as BUDGET
from oversharp.reports.context import Context, group_missing
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.numbers import NINETY_FIVE, k_range, listing, plural
from oversharp.reports.records import DASH, Cell, Section, Table, columns
from oversharp.reports.sections.coverage_figures import (
    BAND,
    POINTWISE,
    SIMULTANEOUS,
    changes_over_steps,
    curves,
    ends_table,
)
from oversharp.reports.wording import Change, float_or_none

TASK = "task:"
#: Measures that other figures of this section, or figures of the first screen, show already.
PLACED = ("pass_at_k", POINTWISE, SIMULTANEOUS, BUDGET)


def coverage(context: Context) -> Section:
    """Build the section: pass@k over k, changes over steps, tables of base and last checkpoint and of tasks."""
    return Section(
        section_id="coverage",
        title="Coverage",
        lead=tuple(_lead(context, series) for series in context.series),
        blocks=group_missing(
            (
                curves(context),
                *changes_over_steps(context),
                *ends_table(context),
                *(context.block(name) for name in context.in_section("coverage", without=PLACED)),
                *_by_task(context),
            )
        ),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    """Return a sentence on where pass@k of the last checkpoint is above or below the base, by k.

    It uses the simultaneous band, or the pointwise CIs if there is no band.
    """
    groups: dict[str, list[int]] = {"rose": [], "fell": [], "unchanged": [], "unclear": []}
    banded = {k: change for k in context.known_ks(series) if (change := _change_in_band(context, series, k))}
    pointwise = {k: context.pass_change(series, k) for k in context.inference_ks(series)}
    for k, change in (banded or pointwise).items():
        if change is not None and change.direction in groups:
            groups[change.direction].append(k)
    words = {
        "rose": "pass@k is above the base for",
        "fell": "below it for" if groups["rose"] else "pass@k is below the base for",
        "unchanged": "not significantly different from the base for",
        "unclear": f"undecided with {plural(len(series.problem_ids), 'problem')} for",
    }
    parts = tuple(f"{words[name]} {k_range(ks, series.ks)}" for name, ks in groups.items() if ks)
    if not parts:
        return context.with_series_name(series, "no paired CI of pass@k against the base is available.")
    by = f", according to the {BAND}" if banded else ""
    is_averaged = series.verdict is not None and len(series.verdict.window) > 1
    alone, verdict = (" alone", "; the verdict averages the last third") if is_averaged else ("", "")
    start = f"at the last checkpoint{alone} {'' if groups['rose'] or groups['fell'] else 'pass@k is '}"
    return context.with_series_name(series, f"{start}{listing(parts)}{by}{verdict}.")


def _change_in_band(context: Context, series: SeriesSource, k: int) -> Change | None:
    """Return the change at the last checkpoint, with the bounds of the simultaneous band as its CI."""
    change = context.pass_change(series, k)
    row = context.source.value_at(SIMULTANEOUS, series.name, series.last_step, k=k)
    if change is None or row is None or float_or_none(row["low"]) is None:
        return None
    return replace(change, low=float_or_none(row["low"]), high=float_or_none(row["high"]))


def _by_task(context: Context) -> tuple[Table, ...]:
    """Return a table of the change of pass@k of each task at the last checkpoint, if there are several tasks."""
    rows = context.source.known_findings("pass_at_k_delta", scope=None)
    rows = rows[rows["scope"].str.startswith(TASK)]
    last = {series.name: series.last_step for series in context.series}
    rows = rows[rows["step"] == rows["series"].map(last)]
    if rows.empty:
        return ()
    ks = [int(k) for k in sorted(rows["k"].dropna().unique())]
    body = []
    for (series, scope), own in rows.groupby(["series", "scope"], sort=True):
        by_k = {int(row["k"]): row for row in own.to_dict("records")}
        cells = [POINTS.cell(by_k[k]["value"], by_k[k]["low"], by_k[k]["high"]) if k in by_k else DASH for k in ks]
        body.append((Cell(text=str(series)), Cell(text=str(scope).removeprefix(TASK)), *cells))
    return (
        Table(
            title="Change of pass@k by task, base to last checkpoint",
            columns=columns("series", "task", numbers=(f"k = {k}" for k in ks)),
            rows=tuple(body),
            note=f"Unit: percentage points. Brackets: {NINETY_FIVE} CI, not adjusted for the number of tasks.",
        ),
    )
