"""List the series of a store, and the problems of two checkpoints with their changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd

from oversharp.diagnostics.changes.difference import changes_of
from oversharp.diagnostics.changes.lost import lost_problems
from oversharp.diagnostics.changes.read import ComparedCheckpoint, checkpoints_of, open_for_reading, read_pair
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series
from oversharp.diagnostics.viewer.records import (
    BASE,
    ListedProblem,
    ProblemList,
    ViewedCheckpoint,
    ViewedSeries,
    ViewSelection,
    point_name,
)

#: Memory limit of queries, in GiB. Larger queries, such as counting all samples, spill to files next to the store.
MEMORY_GIB = 0.5
#: Largest title length in characters, because the list shows two lines.
_TITLE_CAP = 200
_EXTRAS = """
SELECT is_base, step, problem_id, n_cut, n_lenient
FROM counted_samples
WHERE series = $series AND (is_base OR step IN ($first, $second))
"""


def open_viewed(
    path: Path,
    stage: Callable[[int], AbstractContextManager[Callable[[int], None]]],
    memory_gib: float = MEMORY_GIB,
    *,
    series: str | None = None,
) -> Store:
    """Open the store at ``path`` read-only and count its samples, which takes seconds per million samples.

    Raises ``StoreError`` if there is no store, another process is writing it, or it has no audit with samples. If
    ``series`` is missing, the error is raised before samples are counted.
    """
    store = open_for_reading(path)
    try:
        store.bound_memory(memory_gib)
        if series is not None:
            choose_series(store, series)
        store.kept.count(stage)
        list_series(store)
    except BaseException:
        store.close()
        raise
    return store


def list_series(store: Store) -> tuple[ViewedSeries, ...]:
    """Return the series that have graded samples of at least two checkpoints.

    Raises ``StoreError`` if there are none.
    """
    audited = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    if not audited:
        choose_series(store, None)  # raises an error with a hint on how to run an audit
    shown = tuple(series for name in audited if len((series := _viewed_series(store, name)).checkpoints) > 1)
    if not shown:
        raise StoreError(
            f"{store.path}: no series has graded samples of two checkpoints to compare; "
            "finish the audit or import first"
        )
    return shown


def _viewed_series(store: Store, name: str) -> ViewedSeries:
    verdict = store.verdict(name)
    return ViewedSeries(
        name=name,
        checkpoints=tuple(
            ViewedCheckpoint(
                key=checkpoint_key(checkpoint),
                name=point_name(checkpoint_key(checkpoint)),
                checkpoint=checkpoint.checkpoint,
            )
            for checkpoint in checkpoints_of(store, name)
        ),
        verdict=None if verdict is None else verdict.sentence,
    )


def checkpoint_key(point: ComparedCheckpoint) -> str:
    """Return the key of a checkpoint in links: "base" or its step."""
    return BASE if point.is_base else str(point.step)


def require_pair(series: Sequence[ViewedSeries], selection: ViewSelection) -> None:
    """Raise ``ConfigError`` unless the selection is two different checkpoints of one series in ``series``."""
    chosen = next((viewed for viewed in series if viewed.name == selection.series), None)
    if chosen is None:
        names = ", ".join(viewed.name for viewed in series)
        raise ConfigError(f"--series {selection.series}: no such series with graded samples; available: {names}")
    keys = [checkpoint.key for checkpoint in chosen.checkpoints]
    for key in (selection.before, selection.after):
        if key not in keys:
            raise ConfigError(f"{chosen.name}: no samples of step {key!r}; available: {', '.join(keys)}")
    if selection.before == selection.after:
        raise ConfigError(f"{chosen.name}: {selection.before} cannot be compared with itself; choose another step")


def list_problems(store: Store, selection: ViewSelection) -> ProblemList:
    """Return all problems that both checkpoints have samples of, ignoring ``only`` and ``search``.

    Raises ``StoreError`` if there is no such problem.
    """
    points = {checkpoint_key(checkpoint): checkpoint for checkpoint in checkpoints_of(store, selection.series)}
    before, after = points[selection.before], points[selection.after]
    pair = read_pair(store, selection.series, before, after)
    extras = _doubtful_counts(store, selection.series, before, after)
    listed = [
        ListedProblem(
            problem_id=change.problem_id,
            problem=change.problem,
            title=change.title[:_TITLE_CAP],
            state=change.state,
            sure=change.sure,
            correct=(change.correct_before, change.correct_after),
            n=(change.n_before, change.n_after),
            cut=extras[change.problem_id][0],
            lenient=extras[change.problem_id][1],
        )
        for change in sorted(changes_of(pair), key=_significance_order)
    ]
    return ProblemList(
        selection=selection,
        names=(point_name(selection.before), point_name(selection.after)),
        problems=tuple(listed),
        sentence=_sentence(store, selection.series, before, after),
        notes=pair.notes,
    )


def _significance_order(change: Any) -> tuple[float, float, str]:
    p = 1.0 if change.p_adjusted is None else change.p_adjusted
    return p, -abs(change.correct_after / change.n_after - change.correct_before / change.n_before), change.problem_id


def _doubtful_counts(
    store: Store, series: str, before: ComparedCheckpoint, after: ComparedCheckpoint
) -> Mapping[str, tuple[tuple[int | None, int | None], tuple[int | None, int | None]]]:
    """Return problem → (truncated samples, leniently graded samples), each as a pair (before, after)."""
    counts: dict[str, dict[str, tuple[int | None, int | None]]] = {
        checkpoint_key(before): {},
        checkpoint_key(after): {},
    }
    for row in store.frame(_EXTRAS, series=series, first=before.step, second=after.step).to_dict("records"):
        key = BASE if row["is_base"] else str(row["step"])
        if key in counts:
            counts[key][str(row["problem_id"])] = (_count_or_none(row["n_cut"]), _count_or_none(row["n_lenient"]))
    first, second = counts.values()
    return {
        problem: ((first[problem][0], second[problem][0]), (first[problem][1], second[problem][1]))
        for problem in first.keys() & second.keys()
    }


def _count_or_none(count: Any) -> int | None:
    return None if pd.isna(count) else int(count)


def _sentence(store: Store, series: str, before: ComparedCheckpoint, after: ComparedCheckpoint) -> str:
    """Return the summary sentence of ``oversharp lost``; empty if the later checkpoint is the base."""
    if after.is_base:
        return ""
    since = None if before.is_base else before.step
    return lost_problems(store, series, step=after.step, since=since, answers=False, most=1).sentence


def filter_problems(listed: ProblemList, only: str) -> tuple[ListedProblem, ...]:
    """Return the problems that pass the filter ``only``.

    The filters are also implemented in ``view.js``. "fell" includes the lost problems, and "rose" includes the gained
    ones.
    """
    rules: Mapping[str, Callable[[ListedProblem], bool]] = {
        "all": lambda problem: True,
        "lost": lambda problem: problem.state == "lost",
        "gained": lambda problem: problem.state == "gained",
        "fell": lambda problem: problem.state in ("lost", "fell"),
        "rose": lambda problem: problem.state in ("gained", "rose"),
        "sure": lambda problem: problem.sure,
        "lenient": lambda problem: any(problem.lenient),
        "cut": lambda problem: any(problem.cut),
    }
    return tuple(problem for problem in listed.problems if rules[only](problem))
