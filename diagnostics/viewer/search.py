"""Search for a text in ids, prompts, gold answers and responses, in parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer.records import SearchPart, ViewSelection

#: Time limit of one part, in seconds. The page shows the matches after each part.
PART_S = 0.15
#: Number of samples that one query searches. DuckDB stores rows in groups of 122,880.
_ROWS = 40_960
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
_PLACES = """
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
_IN_RESPONSES = """
SELECT DISTINCT problem_id
FROM samples
WHERE rowid BETWEEN $first AND $last AND list_contains($checkpoints, checkpoint_id) AND settings_id = $settings
  AND (contains(lower(text), lower($search)) OR starts_with(response_id, lower($search)))
ORDER BY problem_id
"""


@dataclass(frozen=True, kw_only=True)
class SearchedRows:
    """Row ranges of the samples of two checkpoints: pairs (first, last), inclusive, without overlap."""

    checkpoint_ids: tuple[str, ...]
    settings_id: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """Number of rows to search."""
        return sum(last - first + 1 for first, last in self.ranges)


def find_rows(store: Store, selection: ViewSelection) -> SearchedRows:
    """Return the rows of both checkpoints of a selection."""
    keys = {"series": selection.series, "before": selection.before, "after": selection.after}
    rows = store.frame(_PLACES, **keys).to_dict("records")
    merged: list[tuple[int, int]] = []
    for row in rows:
        first, last = int(row["first"]), int(row["last"])
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return SearchedRows(
        checkpoint_ids=tuple(str(row["checkpoint_id"]) for row in rows),
        settings_id=str(rows[0]["settings_id"]),
        ranges=tuple(merged),
    )


def search_rows(
    store: Store,
    selection: ViewSelection,
    rows: SearchedRows,
    start: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> SearchPart:
    """Search from row ``start`` of ``rows`` for about ``PART_S`` seconds, ignoring case.

    The first part also searches the problems: prompt, gold answer, and the beginning of the id.
    """
    began, text = now(), selection.search
    problem_ids: set[str] = set()
    if start == 0:
        problem_ids |= set(store.frame(_IN_PROBLEMS, series=selection.series, search=text)["problem_id"].astype(str))
    keys = {"checkpoints": list(rows.checkpoint_ids), "settings": rows.settings_id}
    while start < rows.total:
        first, last = _rows_at(rows.ranges, start)
        matches = store.frame(_IN_RESPONSES, first=first, last=last, search=text, **keys)
        problem_ids |= set(matches["problem_id"].astype(str))
        start += last - first + 1
        if now() - began >= PART_S:
            break
    return SearchPart(
        problem_ids=tuple(sorted(problem_ids)),
        next=start if start < rows.total else None,
        done=min(start, rows.total),
        total=rows.total,
    )


def _rows_at(ranges: Sequence[tuple[int, int]], start: int) -> tuple[int, int]:
    """Return the first and last row of the next query. Both are in the same range.

    >>> _rows_at(((10, 12), (100, 100_000)), 1), _rows_at(((10, 12), (100, 100_000)), 3)
    ((11, 12), (100, 41059))
    """
    for first, last in ranges:
        if start <= last - first:
            return first + start, min(last, first + start + _ROWS - 1)
        start -= last - first + 1
    raise ValueError(f"start {start} is after the last row")
