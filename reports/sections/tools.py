"""Section on turns and tool calls, for series that have them."""

from __future__ import annotations

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import DASH, Cell, Column, Section, Table
from oversharp.reports.wording import float_or_none


def tools(context: Context) -> Section | None:
    """Build the section on turns and tool calls; None if no series has any."""
    with_calls = [
        series
        for series in context.series
        if len(context.source.known_findings("calls_per_sample", series=series.name))
    ]
    if not with_calls:
        return None
    leads = (context.with_series_name(series, _lead(context, series)) for series in with_calls)
    tables = (table for series in with_calls if (table := _limits(context, series)) is not None)
    return Section(
        section_id="tools",
        title="Turns and tool calls",
        lead=tuple(leads),
        blocks=(*tables, *context.blocks(context.in_section("tools"))),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    """Return a sentence on calls per sample, and on the tool whose use changed most."""
    ends = context.ends(series, "calls_per_sample")
    if ends is None or series.base_step == series.last_step:
        return "the number of calls is not known at both base and last checkpoint; see the reasons below."
    text = f"calls per sample went from {numbers.decimal(ends[0], 2)} to {numbers.decimal(ends[1], 2)}"
    changes = {}
    for tool in sorted(set(context.source.known_findings("tool_use", scope=None, series=series.name)["scope"])):
        rows = [
            context.source.value_at("tool_use", series.name, step, scope=tool)
            for step in (series.base_step, series.last_step)
        ]
        if rows[0] is not None and rows[1] is not None:
            changes[tool] = (float(rows[0]["value"]), float(rows[1]["value"]))
    if not changes:
        return f"{text}."
    tool, (before, after) = max(changes.items(), key=lambda item: abs(item[1][1] - item[1][0]))
    if before == after:
        return f"{text}. The share of samples that use each tool is unchanged."
    return (
        f"{text}. The tool whose use changed most is {tool}: {numbers.percent(before)} of the samples called it at the "
        f"base, {numbers.percent(after)} at the last checkpoint."
    )


def _limits(context: Context, series: SeriesSource) -> Table | None:
    """Return a table of pass@(k, T) at the smallest and largest k with a CI; None if there is none."""
    known = context.source.known_findings("pass_at_k_turns", scope=None, series=series.name)
    known = known[known["step"].isin([series.base_step, series.last_step])]
    with_interval = known[known["low"].notna()]
    if with_interval.empty:
        return None
    ks = sorted({int(with_interval["k"].min()), int(with_interval["k"].max())})
    scopes = sorted(set(known["scope"]), key=lambda scope: int(scope.removeprefix("T=")))
    rows = []
    for scope in scopes:
        cells = [Cell.count(int(scope.removeprefix("T=")))]
        for k in ks:
            for step in (series.base_step, series.last_step):
                row = context.source.value_at("pass_at_k_turns", series.name, step, k=k, scope=scope)
                if row is None:
                    cells.append(DASH)
                    continue
                low, high = float_or_none(row["low"]), float_or_none(row["high"])
                bounds = (
                    "" if low is None or high is None else f" [{numbers.decimal(low, 3)}, {numbers.decimal(high, 3)}]"
                )
                cells.append(Cell(text=f"{numbers.decimal(float(row['value']), 3)}{bounds}", sort=float(row["value"])))
        rows.append(tuple(cells))
    named = f"{series.name}: " if len(context.series) > 1 else ""
    return Table(
        title=f"{named}Pass@k within T turns of the model",
        columns=(
            Column(name="T"),
            *(Column(name=f"pass@{k}, {end}") for k in ks for end in ("base", "last")),
        ),
        rows=tuple(rows),
        note="A sample with more than T turns counts as wrong. This is the result of a limit that the model does not "
        f"know. A model that is asked for an answer at the limit may solve more. Brackets: {numbers.NINETY_FIVE} CI "
        "over problems.",
    )
