"""Compare series at their last checkpoints, at the same step, and at matched pass@1.

A comparison at the same step favours series that learn slowly. A comparison at matched pass@1 does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from oversharp.diagnostics.statistics.comparison import MatchedValue, RunPath, value_at
from oversharp.reports import numbers
from oversharp.reports.comparison.pairs import compare_pairs, pair_sentences, pair_table
from oversharp.reports.comparison.seeds import objectives
from oversharp.reports.context import Context
from oversharp.reports.evidence.comparable import Difference, find_differences
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.figures import describe_panel, line_of, series_colour, step_ticks
from oversharp.reports.findings.tables import Display
from oversharp.reports.records import (
    STEP_LABEL,
    Block,
    Cell,
    Column,
    Figure,
    Line,
    Missing,
    Panel,
    Section,
    Table,
    columns,
)
from oversharp.reports.sharpening.figure import separate_figures

LEVELS = 4
TITLE = "Series side by side"
BASES = "The series start from different bases, so differences at the end may have existed at the start."
REPAIRED = "interpolated weights up to a trained checkpoint; not compared with other series at that checkpoint."
SEEDS = "Each series has one training seed, so a difference between series may not be a difference between methods."


@dataclass(frozen=True, kw_only=True)
class MatchedLevel:
    """pass@k of every series where its pass@1 first reaches ``p1``."""

    p1: float
    values: Mapping[str, MatchedValue]


def compare(context: Context) -> Section | None:
    """Return the comparison section; None for a single series.

    If audit settings differ, the section lists the differences instead of comparing.
    """
    if len(context.series) < 2:
        return None
    context = context.comparable_context
    if len(context.series) < 2:
        return None  # several verifiers graded the same samples; verdict cards and Sample health show the differences
    differences = find_differences(context.series)
    if differences and not context.allow:
        return _differences_section(context, differences)
    pairs = compare_pairs(context)
    allowed = (_allowed_note(differences),) if differences else ()
    bases = [] if len({series.base_id for series in context.series}) == 1 else [BASES]
    repaired = [other.name for other in context.series if other.is_repaired]
    bases += [f"{numbers.listing(tuple(repaired))}: {REPAIRED}"] if repaired else []
    seeds = () if any(len(objective.runs) > 1 for objective in objectives(context.series)) else (SEEDS,)
    lead = (*allowed, *pair_sentences(pairs), *bases, *seeds)
    blocks: tuple[Block, ...] = tuple(pair_table(pair, n_pairs=len(pairs)) for pair in pairs)
    exact = all(_trajectory(context, series, 1, exact=True).notna().any() for series in context.series)
    k = _common_k(context, exact=exact)
    if k is None:
        why = "the series share no k above 1"
        blocks = (*blocks, Missing(title="Comparison at the same step and at matched pass@1", why=(why,)))
        return Section(section_id="compare", title=TITLE, lead=lead, blocks=blocks)
    paths = {s.name: _path(context, s, k, exact=exact) for s in context.series}
    matched = matched_levels(paths)
    return Section(
        section_id="compare",
        title=TITLE,
        lead=(*lead, _lead(matched, k, exact=exact)),
        blocks=(*blocks, *separate_figures(context), *_blocks(context, paths, matched, k, exact=exact)),
    )


def _differences_section(context: Context, differences: tuple[Difference, ...]) -> Section:
    """Return a section that lists the differences instead of a comparison."""
    hint = "audit them again with equal settings, or compare them anyway with oversharp report STORE --allow"
    names = numbers.listing(tuple(difference.field for difference in differences))
    verb = "differs" if len(differences) == 1 and differences[0].field != "problems" else "differ"
    return Section(
        section_id="compare",
        title=TITLE,
        lead=(f"The series were audited with different settings and are not compared: {names} {verb}.",),
        blocks=(
            Missing(title="Comparison", why=(*(difference.text for difference in differences), hint)),
            *separate_figures(context),
        ),
    )


def _allowed_note(differences: tuple[Difference, ...]) -> str:
    """Return a warning that --allow compares series with different audit settings."""
    return (
        "Compared because of --allow, although the series were audited with different settings ("
        f"{'; '.join(difference.text for difference in differences)}): these may cause the differences below."
    )


def _trajectory(context: Context, series: SeriesSource, k: int, *, exact: bool) -> pd.Series:
    rows = context.source.known_findings("pass_at_k_exact" if exact else "pass_at_k", series=series.name)
    return rows[rows["k"] == k].set_index("step")["value"].sort_index()


def _common_k(context: Context, *, exact: bool) -> int | None:
    """Return the largest k > 1 that every series has. If some k have CIs, only these are used."""
    name = "pass_at_k_exact" if exact else "pass_at_k"
    shared: set[int] | None = None
    for series in context.series:
        rows = context.source.known_findings(name, series=series.name)
        ks = {int(k) for k in rows["k"].dropna()}
        # exact values use the same k as sampled ones: at very large k, pass@k saturates and does not differ
        inference = set(context.inference_ks(series) or context.inference_ks(series, exact=exact))
        ks = ks & inference if inference else ks
        shared = ks if shared is None else shared & ks
    usable = {k for k in shared or set() if k > 1}
    return max(usable) if usable else None


def _path(context: Context, series: SeriesSource, k: int, *, exact: bool) -> pd.DataFrame:
    """Return a frame indexed by step with columns ``p1`` (pass@1) and ``pk`` (pass@k), for steps that have both."""
    values = {"p1": _trajectory(context, series, 1, exact=exact), "pk": _trajectory(context, series, k, exact=exact)}
    return pd.DataFrame(values).dropna().sort_index()


def matched_levels(paths: Mapping[str, pd.DataFrame]) -> tuple[MatchedLevel, ...]:
    """Return pass@k at evenly spaced levels of pass@1 that every series reaches, the highest last.

    >>> slow = pd.DataFrame({"p1": [0.2, 0.4], "pk": [1.0, 0.9]}, index=[0, 100])
    >>> fast = pd.DataFrame({"p1": [0.2, 0.6], "pk": [1.0, 0.8]}, index=[0, 100])
    >>> last = matched_levels({"slow": slow, "fast": fast})[-1]
    >>> last.p1, round(last.values["fast"].value, 3), round(last.values["fast"].step)
    (0.4, 0.9, 50)
    """
    if not paths or any(path.empty for path in paths.values()):
        return ()
    low = max(float(path["p1"].min()) for path in paths.values())
    high = min(float(path["p1"].max()) for path in paths.values())
    if high <= low:
        return ()
    runs = {
        name: RunPath(steps=[int(s) for s in path.index], x=path["p1"].tolist(), y=path["pk"].tolist())
        for name, path in paths.items()
    }
    levels = [low + (high - low) * i / LEVELS for i in range(1, LEVELS)] + [high]
    return tuple(MatchedLevel(p1=p1, values={name: value_at(run, p1) for name, run in runs.items()}) for p1 in levels)


def _lead(matched: tuple[MatchedLevel, ...], k: int, *, exact: bool) -> str:
    if not matched:
        return "The series share no range of pass@1, so they cannot be compared at matched pass@1."
    top = matched[-1]
    ranked = sorted(
        ((value.value, name) for name, value in top.values.items() if value.value is not None),
        key=lambda pair: (-pair[0], pair[1]),
    )
    parts = tuple(f"{numbers.decimal(value, 3)} for {name}" for value, name in ranked)
    return (
        f"At matched pass@1 = {numbers.decimal(top.p1, 3)} {'exact ' if exact else ''}pass@{k} is "
        f"{numbers.listing(parts)}."
    )


def _blocks(
    context: Context, paths: dict[str, pd.DataFrame], matched: tuple[MatchedLevel, ...], k: int, *, exact: bool
) -> tuple[Block, ...]:
    blocks: list[Block] = []
    lines = [
        (i, series.name, path) for i, series in enumerate(context.series) if not (path := paths[series.name]).empty
    ]
    kind = "exact " if exact else ""
    if lines:
        blocks.append(_same_step(context, k, exact=exact))
        blocks.append(
            Figure(
                figure_id="compare-trade",
                title=f"pass@{k} against pass@1",
                caption=f"One point per checkpoint{', exact values' if exact else ''}, joined in training order. "
                "Higher at the same pass@1 is better.",
                x_label=f"{kind}pass@1 (probability)",
                y_label=f"{kind}pass@{k} (probability)",
                panels=(
                    Panel(
                        title="",
                        lines=tuple(
                            Line(
                                label=name,
                                x=tuple(float(v) for v in path["p1"]),
                                y=tuple(float(v) for v in path["pk"]),
                                colour=series_colour(i),
                                style=i,
                            )
                            for i, name, path in lines
                        ),
                        description=_description(lines, k),
                    ),
                ),
                table=_path_table(lines, k),
            )
        )
    if matched:
        blocks.append(_matched_table(context, matched, k, exact=exact))
    return tuple(blocks)


def _same_step(context: Context, k: int, *, exact: bool) -> Figure:
    """Return the figure of pass@1 and pass@k over steps, one line per series."""
    name, kind = ("pass_at_k_exact", "exact ") if exact else ("pass_at_k", "")
    title = f"{'Exact pass' if exact else 'pass'}@1 and pass@{k} at the same step"
    display = Display(factor=1.0, unit="probability", is_difference=False)
    panels, body = [], []
    for one_k in (1, k):
        lines = []
        for i, series in enumerate(context.series):
            rows = context.source.known_findings(name, series=series.name)
            rows = rows[rows["k"] == one_k]
            if rows.empty:
                continue
            lines.append(line_of(rows, x="step", label=series.name, colour=series_colour(i), style=i))
            body += [
                (
                    Cell(text=series.name),
                    Cell.count(one_k),
                    Cell.count(step),
                    display.cell(value, low, high),
                )
                for step, value, low, high in zip(rows["step"], rows["value"], rows["low"], rows["high"], strict=True)
            ]
        panels.append(describe_panel(Panel(title=f"pass@{one_k}", lines=tuple(lines)), title, display, "step"))
    return Figure(
        figure_id="compare-steps",
        title=title,
        caption="At the same step, a series that learns more slowly has usually lost less. The comparison at matched "
        f"pass@1 below removes that effect. Band: {numbers.NINETY_FIVE} CI over problems.",
        x_label=STEP_LABEL,
        y_label=f"{kind}pass@k (probability)",
        panels=tuple(panels),
        x_ticks=step_ticks(context.source),
        y_range=(0.0, 1.0),
        table=Table(
            title="pass@k by step: data",
            columns=columns("series", numbers=("k", "step", f"{kind}pass@k")),
            rows=tuple(body),
            folded=True,
        ),
    )


def _description(lines: list[tuple[int, str, pd.DataFrame]], k: int) -> str:
    parts = [
        f"{name}: from pass@1 {path['p1'].iloc[0]:.3f}, pass@{k} {path['pk'].iloc[0]:.3f} "
        f"to pass@1 {path['p1'].iloc[-1]:.3f}, pass@{k} {path['pk'].iloc[-1]:.3f}"
        for _, name, path in lines
    ]
    return f"pass@{k} against pass@1 over training. {'; '.join(parts)}."


def _path_table(lines: list[tuple[int, str, pd.DataFrame]], k: int) -> Table:
    return Table(
        title=f"pass@1 and pass@{k}: data",
        columns=columns("series", numbers=("step", "pass@1", f"pass@{k}")),
        rows=tuple(
            (
                Cell(text=name),
                Cell.count(step),
                Cell(text=numbers.decimal(p1, 3), sort=p1),
                Cell(text=numbers.decimal(pk, 3), sort=pk),
            )
            for _, name, path in lines
            for step, p1, pk in zip((int(s) for s in path.index), path["p1"], path["pk"], strict=True)
        ),
        folded=True,
    )


def _matched_table(context: Context, matched: tuple[MatchedLevel, ...], k: int, *, exact: bool) -> Table:
    names = tuple(series.name for series in context.series)
    two = len(names) == 2
    rows = []
    for level in matched:
        values = [level.values[name] for name in names]
        cells = [Cell(text=numbers.decimal(level.p1, 3), sort=level.p1)]
        for value in values:
            if value.value is None or value.step is None:
                cells.append(Cell(text=value.why or "–"))
            else:
                text = f"{numbers.decimal(value.value, 3)} (step {numbers.decimal(value.step, 0)})"
                cells.append(Cell(text=text, sort=value.value))
        if two:
            first, second = (value.value for value in values)
            difference = None if first is None or second is None else second - first
            cells.append(Cell(text="–" if difference is None else numbers.points(difference), sort=difference))
        rows.append(tuple(cells))
    last = (Column(name=f"{names[1]} − {names[0]} (points)"),) if two else ()
    return Table(
        title=f"{'Exact pass' if exact else 'pass'}@{k} at matched pass@1",
        columns=(Column(name="pass@1"), *(Column(name=name) for name in names), *last),
        rows=tuple(rows),
        note="pass@k of each series where it first reaches that pass@1, interpolated between checkpoints. No CIs.",
        narrow=True,
    )
