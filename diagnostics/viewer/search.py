"""Search for a text in ids, prompts, gold answers, responses and observations, in parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer.records import SearchPart, ViewSelection

#: Time limit of one part, in seconds. The page shows the matches after each part.
PART_S = 0.15
#: Number of samples that one query searches. DuckDB stores rows in groups of 122,880.
_ROWS = 40_960
#: Number of trajectories that the first query of a part searches. Their size varies, so later queries adapt to it.
_TRAJECTORIES = 256
_IN_PROBLEMS = """
SELECT p.problem_id
FROM audit_problems AS ap
JOIN current_audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
WHERE a.series = $series
  AND (contains(lower(p.prompt), lower($search)) OR contains(lower(p.gold), lower($search))
    OR contains(lower(coalesce(p.source_id, '')), lower($search)) OR starts_with(p.problem_id, lower($search)))
ORDER BY p.problem_id
"""
_SAMPLE_ROWS = """
WITH points AS (
    SELECT DISTINCT c.checkpoint_id, a.settings_id
    FROM counted_samples AS c
    JOIN current_audits AS a USING (series)
    WHERE c.series = $series AND CASE WHEN c.is_base THEN 'base' ELSE c.step::VARCHAR END IN ($before, $after)
)
SELECT p.checkpoint_id, p.settings_id, min(s.rowid) AS first, max(s.rowid) AS last
FROM samples AS s
JOIN points AS p USING (checkpoint_id, settings_id)
GROUP BY ALL
ORDER BY first
"""
_TRAJECTORY_ROWS = """
SELECT min(t.rowid) AS first, max(t.rowid) AS last
FROM trajectories AS t
JOIN samples AS s USING (response_id)
WHERE list_contains($checkpoints, s.checkpoint_id) AND s.settings_id = $settings
GROUP BY s.checkpoint_id
ORDER BY first
"""
_IN_RESPONSES = """
SELECT DISTINCT problem_id
FROM samples
WHERE rowid BETWEEN $first AND $last AND list_contains($checkpoints, checkpoint_id) AND settings_id = $settings
  AND (contains(lower(text), lower($search)) OR starts_with(response_id, lower($search)))
ORDER BY problem_id
"""
# Texts and calls of the model are in the text of the sample.
_IN_OBSERVATIONS = """
SELECT response_id
FROM trajectories
WHERE rowid BETWEEN $first AND $last
  AND len([t.role FOR t IN turns IF t.role <> 'assistant' AND contains(lower(t.text), lower($search))]) > 0
"""
_OF_RESPONSES = """
SELECT DISTINCT problem_id
FROM samples
WHERE response_id IN (SELECT unnest($responses)) AND list_contains($checkpoints, checkpoint_id)
  AND settings_id = $settings
"""


@dataclass(frozen=True, kw_only=True)
class SearchedRows:
    """Row ranges of two checkpoints: pairs (first, last), inclusive, without overlap.

    ``ranges`` are of the table ``samples``, ``trajectory_ranges`` of the table ``trajectories``.
    """

    checkpoint_ids: tuple[str, ...]
    settings_id: str
    ranges: tuple[tuple[int, int], ...]
    trajectory_ranges: tuple[tuple[int, int], ...]

    @property
    def n_samples(self) -> int:
        """Number of rows of ``samples`` to search."""
        return _count_rows(self.ranges)

    @property
    def total(self) -> int:
        """Number of rows to search."""
        return self.n_samples + _count_rows(self.trajectory_ranges)


def _count_rows(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def find_rows(store: Store, selection: ViewSelection) -> SearchedRows:
    """Return the rows of both checkpoints of a selection."""
    keys = {"series": selection.series, "before": selection.before, "after": selection.after}
    rows = store.frame(_SAMPLE_ROWS, **keys).to_dict("records")
    checkpoint_ids, settings_id = tuple(str(row["checkpoint_id"]) for row in rows), str(rows[0]["settings_id"])
    found = store.frame(_TRAJECTORY_ROWS, checkpoints=list(checkpoint_ids), settings=settings_id)
    return SearchedRows(
        checkpoint_ids=checkpoint_ids,
        settings_id=settings_id,
        ranges=_merged_ranges(rows),
        trajectory_ranges=_merged_ranges(found.to_dict("records")),
    )


def _merged_ranges(rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for row in rows:
        first, last = int(row["first"]), int(row["last"])
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def search_rows(
    store: Store,
    selection: ViewSelection,
    rows: SearchedRows,
    start: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> SearchPart:
    """Search from row ``start`` of ``rows`` for about ``PART_S`` seconds, ignoring case.

    The first part also searches the problems: prompt, gold answer, and the beginning of the id. Observations are
    searched after all samples.
    """
    began, text = now(), selection.search
    problem_ids: set[str] = set()
    if start == 0:
        problem_ids |= set(store.frame(_IN_PROBLEMS, series=selection.series, search=text)["problem_id"].astype(str))
    keys = {"checkpoints": list(rows.checkpoint_ids), "settings": rows.settings_id}
    observed: list[str] = []
    n_trajectories = _TRAJECTORIES
    while start < rows.total:
        if start < rows.n_samples:
            first, last = _rows_at(rows.ranges, start, _ROWS)
            matches = store.frame(_IN_RESPONSES, first=first, last=last, search=text, **keys)
            problem_ids |= set(matches["problem_id"].astype(str))
        else:
            first, last = _rows_at(rows.trajectory_ranges, start - rows.n_samples, n_trajectories)
            matches = store.frame(_IN_OBSERVATIONS, first=first, last=last, search=text)
            observed.extend(matches["response_id"].astype(str))
            n_trajectories *= 2 if now() - began < PART_S / 4 else 1
        start += last - first + 1
        if now() - began >= PART_S:
            break
    if observed:
        problem_ids |= set(store.frame(_OF_RESPONSES, responses=observed, **keys)["problem_id"].astype(str))
    return SearchPart(
        problem_ids=tuple(sorted(problem_ids)),
        next=start if start < rows.total else None,
        done=min(start, rows.total),
        total=rows.total,
    )


def _rows_at(ranges: Sequence[tuple[int, int]], start: int, most: int) -> tuple[int, int]:
    """Return the first and last row of the next query, at most ``most`` rows. Both are in the same range.

    >>> _rows_at(((10, 12), (100, 900)), 1, 50), _rows_at(((10, 12), (100, 900)), 3, 50)
    ((11, 12), (100, 149))
    """
    for first, last in ranges:
        if start <= last - first:
            return first + start, min(last, first + start + most - 1)
        start -= last - first + 1
    raise ValueError(f"start {start} is after the last row")
