"""Paired differences between the last checkpoints of every pair of series, for every task and k."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oversharp.diagnostics.statistics.comparison import RunDifference, Samples, compare_runs
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.reports import numbers
from oversharp.reports.comparison.seeds import may_pair
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.tables import POINTS
from oversharp.reports.records import Cell, Column, Missing, Table

#: Resampling unit of the CI → its mention in the note of the table.
_OVER = {"problems": "", "clusters": ", over clusters of related problems"}
#: Significance level of the adjusted p-values.
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class SeriesPair:
    """Differences of pass@k, ``second`` minus ``first``. Without differences, ``why`` is the reason."""

    first: SeriesSource
    second: SeriesSource
    rows: tuple[RunDifference, ...] = ()
    why: str = ""

    @property
    def title(self) -> str:
        """Title of the table, with both series and their steps."""
        return (
            f"{self.second.name} (step {self.second.last_step}) − {self.first.name} (step {self.first.last_step}), "
            "paired by problem"
        )


def compare_pairs(context: Context) -> tuple[SeriesPair, ...]:
    """Compare every pair of series at their last checkpoints, over the problems that both have.

    Series with a seed in their name are compared only at equal seeds. p-values and intervals account for all pairs,
    tasks and k together.
    """
    # the last checkpoint of a repaired series is the trained checkpoint that it was computed from
    trained = [series for series in context.series if not series.is_repaired]
    both = [pair for pair in itertools.combinations(trained, 2) if may_pair(pair[0].name, pair[1].name)]
    return tuple(_pair(context.source.last_counts, *pair, n_pairs=len(both)) for pair in both)


def _pair(counts: pd.DataFrame, first: SeriesSource, second: SeriesSource, *, n_pairs: int) -> SeriesPair:
    of_first, of_second = (counts[counts["series"] == series.name] for series in (first, second))
    both = of_first.merge(of_second, on="problem_id", suffixes=("_1", "_2")).sort_values("problem_id")
    if both.empty:
        return SeriesPair(first=first, second=second, why="no problem has samples at the last checkpoint of both")
    sides = [_samples(both, side, series) for side, series in (("_1", first), ("_2", second))]
    why = next((side for side in sides if isinstance(side, str)), None)
    if why is not None:
        return SeriesPair(first=first, second=second, why=why)
    (first_P, n_first, least_first), (second_P, n_second, least_second) = (
        side for side in sides if not isinstance(side, str)
    )
    least = min(least_first, least_second)
    rows = compare_runs(
        first_P,
        second_P,
        n_first=n_first,
        n_second=n_second,
        task_P=both["task_1"].astype(str).to_numpy(dtype=object),
        ks=inference_ks(least),
        cluster_P=_clusters(both),
        n_comparisons=n_pairs,
    )
    return SeriesPair(first=first, second=second, rows=tuple(rows))


def _samples(both: pd.DataFrame, side: str, series: SeriesSource) -> tuple[np.ndarray, Samples, int] | str:
    """Return correct samples, samples and largest k of pass@k, or why they are unknown.

    With a stopping rule, they are end points, the rule, and its cap.
    """
    n_P, correct_P = (both[f"{name}{side}"].to_numpy(dtype="int64") for name in ("n", "n_correct"))
    rule = series.rule(is_base=series.last_step == series.base_step)
    if rule is None:
        return correct_P, n_P, int(n_P.min())
    try:
        return rule.codes(n_P, correct_P), rule, rule.cap
    except ValueError:
        return f"some problems of {series.name} lack samples of the stopping rule"


def _clusters(both: pd.DataFrame) -> np.ndarray:
    """Return the cluster index of each problem. A problem without a cluster is a cluster of one."""
    return np.asarray(pd.factorize(both["cluster_1"].astype("string").fillna("problem " + both["problem_id"]))[0])


def pair_sentence(pair: SeriesPair) -> str:
    """Return one sentence on the tasks and k with a significant difference between the two series."""
    if not pair.rows:
        return f"{pair.second.name} and {pair.first.name} cannot be compared: {pair.why}."
    several = len({row.task for row in pair.rows}) > 1
    ks = sorted({row.k for row in pair.rows})
    sure = [row for row in pair.rows if row.p_adjusted is not None and row.p_adjusted <= LEVEL]
    start = f"At the last checkpoint of each, {pair.second.name} "
    if not sure:
        tested = [row.p_adjusted for row in pair.rows if row.p_adjusted is not None]
        least = f" (smallest adjusted {numbers.p_text(min(tested))})" if tested else ""
        return f"{start}and {pair.first.name} do not differ significantly for {numbers.k_range(ks, ks)}{least}."
    parts = []
    for word, sign in (("above", 1), ("below", -1)):
        for task in sorted({row.task for row in sure}):
            rows = [row for row in sure if row.task == task and sign * row.difference > 0]
            if rows:
                most = max(rows, key=lambda row: sign * row.difference)
                on = f" on {task}" if several else ""
                parts.append(
                    f"{word} {pair.first.name}{on} for {numbers.k_range([row.k for row in rows], ks)} "
                    f"(most at k = {most.k}: {numbers.points(most.difference)} points)"
                )
    return f"{start}is significantly {numbers.listing(tuple(parts))}."


def pair_table(pair: SeriesPair, *, n_pairs: int) -> Table | Missing:
    """Return a table with one row per task and k, folded if there are several pairs.

    The column of the task is omitted if there is only one.
    """
    if not pair.rows:
        return Missing(title=pair.title, why=(pair.why,))
    names = (pair.first.name, pair.second.name)
    several = len({row.task for row in pair.rows}) > 1
    units = _OVER[pair.rows[0].over]
    over = f"all tasks and k of all {n_pairs} pairs of series" if n_pairs > 1 else "all tasks and k of this table"
    return Table(
        title=pair.title,
        columns=(
            *((Column(name="task", numeric=False),) if several else ()),
            Column(name="k"),
            *(Column(name=f"pass@k, {name}") for name in names),
            Column(name="difference (points)"),
            Column(name="p"),
            Column(name="adjusted p"),
            Column(name="problems"),
        ),
        rows=tuple(_row(row)[0 if several else 1 :] for row in pair.rows),
        note=f"Paired by problem, two-sided{units}. Brackets: simultaneous {numbers.NINETY_FIVE} CI. It and the "
        f"adjusted p-value account for {over}. p: this comparison alone.",
        folded=n_pairs > 1,
    )


def _row(row: RunDifference) -> tuple[Cell, ...]:
    return (
        Cell(text=row.task),
        Cell.count(row.k),
        *(Cell(text=numbers.decimal(value, 3), sort=value) for value in (row.first, row.second)),
        POINTS.cell(row.difference, row.low, row.high),
        *(Cell(text=numbers.number(p, "p-value"), sort=p) for p in (row.p, row.p_adjusted)),
        Cell.count(row.n_problems),
    )


def pair_sentences(made: Sequence[SeriesPair]) -> tuple[str, ...]:
    """Return a sentence for every pair, and a caveat about the last checkpoints."""
    return (
        *map(pair_sentence, made),
        "This compares the last checkpoints, not the best ones: the best of many equally good checkpoints looks better "
        "by chance.",
    )
