"""Sections on lost and gained problems, and on success per problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from oversharp.diagnostics.records.amounts import about_count
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.problem_changes import STATES, SURE, lost_by_chance
from oversharp.diagnostics.statistics.units import Interval
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import problem_changes, problem_counts
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import describe_panel, series_colour
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.problems.cases import problem_cases
from oversharp.reports.problems.table import SHOWN_ROWS, confirm_hint, lost_and_gained_tables, problem_table, test_name
from oversharp.reports.records import Block, Cell, Figure, Folded, Line, Missing, Panel, Section, Table, columns

#: Minimum number of samples in each half of the base's samples. With fewer, the base is not split for the figure of
#: gains, which uses one half for the groups and the other half for the gains.
LEAST_HALF = 4
_GROUPS, _LEAST_GROUP = 10, 10


def problems(context: Context) -> Section:
    """Build the section on lost and gained problems, with single problems and a searchable table."""
    trained, changes, compared = _changes(context)
    moved = {
        series.name: changes[series.name]
        for series in compared
        if changes[series.name]["state"].isin(["lost", "gained"]).any()
    }
    blocks: list[Block] = [lost_and_gained_tables(context, moved)] if moved else []
    blocks += problem_cases(context, compared, changes)
    if compared:
        cap = SHOWN_ROWS // len(compared)
        tables = tuple(
            problem_table(context, series, changes[series.name], context.details, cap=cap) for series in compared
        )
        shown = numbers.plural(max(len(table.rows) for table in tables), "problem")
        blocks.append(Folded(title="All problems", summary=f"{shown}, searchable", blocks=tables))
    else:
        blocks.append(Missing(title="Single problems", why=("no checkpoint after the base has samples",)))
    return Section(
        section_id="problems",
        title="Problems lost and gained",
        short="Problems",
        lead=_leads(context, trained, changes),
        blocks=tuple(blocks),
    )


def success(context: Context) -> Section:
    """Build the section on success per problem, on the gain by success of the base, and on measures of problems."""
    _, changes, compared = _changes(context)
    blocks: list[Block] = []
    if compared:
        blocks += [_scatter(context, compared, changes), _gains(context, compared, changes)]
    else:
        blocks.append(Missing(title="Success per problem", why=("no checkpoint after the base has samples",)))
    blocks += context.blocks(context.in_section("problems"))
    return Section(section_id="success", title="Success per problem", lead=(), blocks=tuple(blocks))


def _changes(
    context: Context,
) -> tuple[tuple[SeriesSource, ...], dict[str, pd.DataFrame], tuple[SeriesSource, ...]]:
    """Return the trained series, the changes of their problems, and the series whose changes are not empty.

    A trained series has a checkpoint after the base.
    """
    trained = tuple(series for series in context.series if series.base_step != series.last_step)
    changes = {series.name: problem_changes(context.source, series) for series in trained}
    return trained, changes, tuple(series for series in trained if len(changes[series.name]))


def _leads(context: Context, trained: Sequence[SeriesSource], changes: Mapping[str, pd.DataFrame]) -> tuple[str, ...]:
    """Return a sentence per series. With several series, the test and the confirmation are explained at the end."""
    if len(context.series) < 2:
        return tuple(_lead(series, changes[series.name], _confirmation_text(context, series)) for series in trained)
    confirmed = {
        series.name: _confirmation_text(context, series) for series in trained if _any_moved(changes[series.name])
    }
    is_resampled = not context.details.fresh.empty
    alike = set(confirmed.values()) if len(set(confirmed.values())) == 1 and not is_resampled else set()
    leads = [
        context.with_series_name(
            series, _lead(series, changes[series.name], "" if alike else confirmed.get(series.name, ""), how="")
        )
        for series in trained
    ]
    tests = dict.fromkeys(test_name(series) for series in trained)
    tested = [_HOW_TESTED.format(" or ".join(tests))] if any("significantly" in lead for lead in leads) else []
    last = " ".join((*tested, *alike))
    return (*leads, last) if last else tuple(leads)


#: Explanation of "significantly" for several series.
_HOW_TESTED = "Significantly: by {} with Holm's correction."


def _any_moved(changes: pd.DataFrame) -> bool:
    return bool(changes["state"].isin(["lost", "gained"]).any())


def _lead(series: SeriesSource, changes: pd.DataFrame, confirmed: str, how: str | None = None) -> str:
    how = f", by {test_name(series)} with Holm's correction" if how is None else how
    lost, gained = (int((changes["state"] == state).sum()) for state in ("lost", "gained"))
    significant = f" ({_n_significant(changes)} significantly{how})" if lost and not series.why_untested else ""
    counted = (
        f"of {numbers.plural(len(changes), 'problem')}, {lost} lost every correct sample{significant} and "
        f"{gained} gained a first one{_by_chance(series, changes)}."
    )
    return f"{counted} {confirmed}".strip() if lost or gained else counted


def _by_chance(series: SeriesSource, changes: pd.DataFrame) -> str:
    if series.why_untested:
        return f"; not tested: {series.why_untested}"
    expected = lost_by_chance(problem_counts(changes, series))
    return "" if expected is None else f"; expected by chance alone: {about_count(expected)} of each"


def _n_significant(changes: pd.DataFrame) -> int:
    """Return the number of problems that are lost significantly, without fresh samples."""
    return int((changes.loc[changes["state"] == "lost", "p_adjusted"] <= SURE).sum())


def _confirmation_text(context: Context, series: SeriesSource) -> str:
    fresh = context.details.fresh[context.details.fresh["series"] == series.name]
    if fresh.empty:
        return f"None is confirmed: {confirm_hint(series)}."
    sure = fresh[fresh["confirmed"].astype(bool)]
    lost, gained = (int((sure["change"] == change).sum()) for change in ("lost", "gained"))
    return f"Fresh samples of {numbers.plural(len(fresh), 'problem')} confirm {lost} as lost and {gained} as gained."


def _scatter(context: Context, compared: tuple[SeriesSource, ...], changes: dict[str, pd.DataFrame]) -> Figure:
    panels, body = [], []
    is_stopped = any(series.is_stopped for series in compared)
    shares = " A rate is the share of the samples up to where the problem stopped." if is_stopped else ""
    for i, series in enumerate(context.series):
        if series not in compared:
            continue
        frame = changes[series.name]
        bins = frame.assign(x=(frame["base"] * 40).round() / 40, y=(frame["late"] * 40).round() / 40)
        sizes = bins.groupby(["x", "y"], sort=True).size().reset_index(name="problems")
        line = Line(
            label=series.name,
            x=tuple(float(v) for v in sizes["x"]),
            y=tuple(float(v) for v in sizes["y"]),
            sizes=tuple(float(min(v, 16)) for v in sizes["problems"]),
            colour=series_colour(i),
            style=0,
        )
        above, below = int((frame["change"] > 0).sum()), int((frame["change"] < 0).sum())
        title = series.name if len(compared) > 1 else ""
        text = (
            f"Success per problem, {series.name}: {numbers.plural(above, 'problem')} above the diagonal, {below} below."
        )
        panels.append(Panel(title=title, lines=(line,), description=text))
        states = frame["state"].value_counts()
        body.append(
            (
                Cell(text=series.name),
                *(Cell.count(states.get(state, 0)) for state in STATES),
            )
        )
    return Figure(
        figure_id="problem-success",
        kind="scatter",
        title="Success per problem, base against last checkpoint",
        caption="One bubble per pair of success rates, rounded to 1/40. Its area is proportional to the number of "
        "problems, up to 16. The last checkpoint solves problems below the dashed line less often than the base."
        f"{shares}",
        x_label="success rate of the base (probability)",
        y_label="success rate, last (probability)",
        panels=tuple(panels),
        y_range=(0.0, 1.0),
        diagonal=True,
        x_ticks=(0.0, 0.25, 0.5, 0.75, 1.0),
        table=Table(
            title="Problems by kind of change: data",
            columns=columns("series", numbers=STATES),
            rows=tuple(body),
            note="Lost: no correct sample is left. Gained: first correct samples. Tables of single problems follow.",
            folded=True,
        ),
    )


def _gains(context: Context, compared: tuple[SeriesSource, ...], changes: dict[str, pd.DataFrame]) -> Figure:
    """Return the figure of the mean change of success by success of the base.

    Groups use one half of the base's samples, changes the other half, because otherwise both have the same noise.
    """
    lines, body, is_split = [], [], True
    for i, series in enumerate(context.series):
        if series not in compared:
            continue
        rows, split = _split_base(context, series, changes[series.name])
        is_split = is_split and split
        points: list[tuple[float, Interval]] = []
        n_groups = min(_GROUPS, max(1, len(rows) // _LEAST_GROUP))
        groups = pd.qcut(rows["sorted_by"], n_groups, labels=False, duplicates="drop").fillna(0)
        for _, group in rows.groupby(groups, sort=True):
            gain_P = group["gain"].to_numpy(dtype=np.float64)
            interval = share_interval(gain_P, bounds=(-1.0, 1.0))
            low, high = float(group["sorted_by"].min()), float(group["sorted_by"].max())
            points.append((float(group["sorted_by"].mean()), interval))
            body.append(
                (
                    Cell(text=series.name),
                    Cell(text=f"{low:.2f} to {high:.2f}", sort=low),
                    Cell.count(len(group)),
                    POINTS.cell(interval.mean, interval.low, interval.high),
                )
            )
        lines.append(
            Line(
                label=series.name,
                x=tuple(x for x, _ in points),
                y=tuple(100.0 * gain.mean for _, gain in points),
                low=tuple(None if gain.low is None else 100.0 * gain.low for _, gain in points),
                high=tuple(None if gain.high is None else 100.0 * gain.high for _, gain in points),
                colour=series_colour(i),
                style=i,
            )
        )
    title = "Gain by success of the base"
    panel = Panel(title="", lines=tuple(lines))
    return Figure(
        figure_id="problem-gain",
        title=title,
        caption=f"At most ten groups with the same number of problems. {_SPLIT if is_split else _NOT_SPLIT} "
        f"Band: {numbers.NINETY_FIVE} CI over problems.",
        x_label="success rate of the base (probability)",
        y_label="change of success (percentage points)",
        panels=(describe_panel(panel, title, POINTS, "base success"),),
        x_ticks=(0.0, 0.25, 0.5, 0.75, 1.0),
        zero_line=True,
        table=Table(
            title=f"{title}: data",
            columns=columns("series", numbers=("success of the base", "problems", "mean change (points)")),
            rows=tuple(body),
            note=f"Brackets: {numbers.NINETY_FIVE} CI over problems. {_SPLIT if is_split else _NOT_SPLIT}",
            folded=True,
        ),
    )


_SPLIT = "Groups use one half of the base's samples, gains use the other half: this avoids regression to the mean."
_NOT_SPLIT = (
    "The base has too few samples to split. Because of regression to the mean, the lowest group rises a little and the "
    "highest group falls a little even if nothing changed."
)


def _split_base(context: Context, series: SeriesSource, changes: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Return ``sorted_by`` (success of the base) and ``gain`` of every problem, and whether the base was split.

    If it was split, they use different halves of its samples.
    """
    halves = context.details.halves
    rows = changes.merge(halves[halves["series"] == series.name], on="problem_id", how="inner")
    if len(rows) < len(changes) or rows.empty or min(rows["n_first"].min(), rows["n_second"].min()) < LEAST_HALF:
        return changes.assign(sorted_by=changes["base"], gain=changes["mean_late"] - changes["mean_base"]), False
    gain = rows["mean_late"] - rows["c_second"] / rows["n_second"]
    return rows.assign(sorted_by=rows["c_first"] / rows["n_first"], gain=gain), True
