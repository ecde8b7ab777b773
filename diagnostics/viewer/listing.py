"""The series of a store, and the problems of two checkpoints with what became of them."""

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
from oversharp.diagnostics.store.load import chosen_series
from oversharp.diagnostics.viewer.records import (
    BASE,
    ListedProblem,
    ProblemList,
    ViewedCheckpoint,
    ViewedSeries,
    ViewSelection,
    point_name,
)

#: Most memory for queries, in GiB: what needs more, as counting all samples does, goes to files beside the store.
MEMORY_GIB = 0.5
#: Characters of a title: the list shows two lines of it.
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
    """The store at ``path``, for reading, with its samples counted: that takes seconds per million samples.

    Raises ``StoreError`` where there is none, it is being written, or it holds no audit of any samples; of ``series``,
    where that is named, before anything is counted.
    """
    store = open_for_reading(path)
    try:
        store.bound_memory(memory_gib)
        if series is not None:
            chosen_series(store, series)
        store.kept.count(stage)
        series_of(store)
    except BaseException:
        store.close()
        raise
    return store


def series_of(store: Store) -> tuple[ViewedSeries, ...]:
    """The series that have two checkpoints with graded samples, which an open store does not change.

    Raises ``StoreError`` if none has.
    """
    audited = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    if not audited:
        chosen_series(store, None)  # which says what would make an audit
    found = tuple(_series(store, name) for name in audited)
    shown = tuple(one for one in found if len(one.checkpoints) > 1)
    if not shown:
        raise StoreError(
            f"{store.path}: no series has graded samples of two checkpoints, so there is nothing to compare; "
            "let the audit or import come to its end first"
        )
    return shown


def _series(store: Store, name: str) -> ViewedSeries:
    verdict = store.verdict(name)
    return ViewedSeries(
        name=name,
        checkpoints=tuple(
            ViewedCheckpoint(key=key_of(one), name=point_name(key_of(one)), checkpoint=one.checkpoint)
            for one in checkpoints_of(store, name)
        ),
        verdict=None if verdict is None else verdict.sentence,
    )


def key_of(point: ComparedCheckpoint) -> str:
    """How links name a checkpoint."""
    return BASE if point.is_base else str(point.step)


def require_pair(series: Sequence[ViewedSeries], selection: ViewSelection) -> None:
    """Raise ``ConfigError`` where the selection is no two different checkpoints of one of ``series``."""
    found = next((one for one in series if one.name == selection.series), None)
    if found is None:
        held = ", ".join(one.name for one in series)
        raise ConfigError(f"--series {selection.series}: there is none to look at; there is: {held}")
    keys = [one.key for one in found.checkpoints]
    for key in (selection.before, selection.after):
        if key not in keys:
            raise ConfigError(f"{found.name}: there are no samples of step {key!r}; there are of {', '.join(keys)}")
    if selection.before == selection.after:
        raise ConfigError(f"{found.name}: {selection.before} cannot be compared with itself; choose another step")


def problem_list(store: Store, selection: ViewSelection) -> ProblemList:
    """All problems of both checkpoints, whatever ``only`` and ``search`` say.

    Raises ``StoreError`` where no problem has samples at both.
    """
    points = {key_of(one): one for one in checkpoints_of(store, selection.series)}
    before, after = points[selection.before], points[selection.after]
    pair = read_pair(store, selection.series, before, after)
    extras = _extras(store, selection.series, before, after)
    listed = [
        ListedProblem(
            problem_id=one.problem_id,
            problem=one.problem,
            title=one.title[:_TITLE_CAP],
            state=one.state,
            sure=one.sure,
            correct=(one.correct_before, one.correct_after),
            n=(one.n_before, one.n_after),
            cut=extras[one.problem_id][0],
            lenient=extras[one.problem_id][1],
        )
        for one in sorted(changes_of(pair), key=_surest)
    ]
    return ProblemList(
        selection=selection,
        names=(point_name(selection.before), point_name(selection.after)),
        problems=tuple(listed),
        sentence=_sentence(store, selection.series, before, after),
        notes=pair.notes,
    )


def _surest(one: Any) -> tuple[float, float, str]:
    p = 1.0 if one.p_adjusted is None else one.p_adjusted
    return p, -abs(one.correct_after / one.n_after - one.correct_before / one.n_before), one.problem_id


def _extras(
    store: Store, series: str, before: ComparedCheckpoint, after: ComparedCheckpoint
) -> Mapping[str, tuple[tuple[int | None, int | None], tuple[int | None, int | None]]]:
    """Problem → samples cut off and leniently graded ones, each at both checkpoints."""
    rows = store.frame(_EXTRAS, series=series, first=before.step, second=after.step)
    keys = [BASE if base else str(step) for base, step in zip(rows["is_base"], rows["step"], strict=True)]
    counted = {
        (key, str(problem)): (_known(cut), _known(lenient))
        for key, problem, cut, lenient in zip(keys, rows["problem_id"], rows["n_cut"], rows["n_lenient"], strict=True)
    }
    return {
        problem: (
            (counted[key_of(before), problem][0], counted[key_of(after), problem][0]),
            (counted[key_of(before), problem][1], counted[key_of(after), problem][1]),
        )
        for problem in set(rows["problem_id"].astype(str))
        if (key_of(before), problem) in counted and (key_of(after), problem) in counted
    }


def _known(count: Any) -> int | None:
    return None if pd.isna(count) else int(count)


def _sentence(store: Store, series: str, before: ComparedCheckpoint, after: ComparedCheckpoint) -> str:
    """What ``oversharp lost`` says of both; of the base as the later one it says nothing."""
    if after.is_base:
        return ""
    since = None if before.is_base else before.step
    return lost_problems(store, series, step=after.step, since=since, answers=False, most=1).sentence


def selected(listed: ProblemList, only: str) -> tuple[ListedProblem, ...]:
    """The problems that one of the filters lets through; the page's script knows the same rules.

    "fell" are the lost ones too, and "rose" those that won a first correct sample.
    """
    rules: Mapping[str, Callable[[ListedProblem], bool]] = {
        "all": lambda one: True,
        "lost": lambda one: one.state == "lost",
        "gained": lambda one: one.state == "gained",
        "fell": lambda one: one.state in ("lost", "fell"),
        "rose": lambda one: one.state in ("gained", "rose"),
        "sure": lambda one: one.sure,
        "lenient": lambda one: any(one.lenient),
        "cut": lambda one: any(one.cut),
    }
    return tuple(one for one in listed.problems if rules[only](one))
