"""Dynamics: who gained while the model learned, and who paid."""

from __future__ import annotations

from reports import numbers
from reports.context import Context
from reports.evidence.source import SeriesSource
from reports.records import Section
from reports.wording import FEW_PROBLEMS, known

MEASURES = ("winner_take_all", "squeeze", "relative_negative", "greedy_failure_f1")


def dynamics(context: Context) -> Section:
    """Gains by what the base could do already, and the mass they came from."""
    return Section(
        section_id="dynamics",
        title="Learning dynamics",
        lead=tuple(context.named(series, _lead(context, series)) for series in context.series),
        blocks=context.blocks((*MEASURES, *context.others("dynamics", MEASURES))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    parts = [
        f"{noun} gained most where {where}, {numbers.points(most)} points, and least where {and_least}, "
        f"{numbers.points(least)} points (groups of fewer than {FEW_PROBLEMS} left aside)"
        for measure, noun in (("winner_take_all", "success rates"), ("squeeze", "correct modes"))
        if (extremes := _extremes(context, series, measure)) is not None
        for where, most, and_least, least in (extremes,)
    ]
    if not parts:
        return f"no two groups by base success hold {FEW_PROBLEMS} or more; what there is stands below."
    return f"by the last checkpoint {'; '.join(parts)}."


def _extremes(context: Context, series: SeriesSource, measure: str) -> tuple[str, float, str, float] | None:
    """The bins with the largest and the smallest mean gain at the last checkpoint, among those that hold enough."""
    rows = known(context.source.findings, measure, scope=None, series=series.name)
    told = (rows["step"] == series.last_step) & rows["scope"].str.startswith("base") & (rows["n"] >= FEW_PROBLEMS)
    rows = rows[told].sort_values("value")
    if len(rows) < 2:
        return None
    least, most = rows.iloc[0], rows.iloc[-1]
    return _bin(str(most["scope"])), float(most["value"]), _bin(str(least["scope"])), float(least["value"])


def _bin(scope: str) -> str:
    """A bin in words.

    >>> _bin("base 90-100%"), _bin("base 0"), _bin("base p 0.1-1")
    ('the base solved 90-100%', 'the base solved 0', 'the base gave them 0.1-1')
    """
    name = scope.removeprefix("base ")
    return f"the base gave them {name.removeprefix('p ')}" if name.startswith("p ") else f"the base solved {name}"
