"""Finds a text in ids, prompts, golds and responses, a part of the responses at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer.records import SearchPart, ViewSelection

#: A part ends after so much time: what was found by then is shown.
PART_S = 0.15
#: Samples that are looked through at once. DuckDB stores rows in groups of 122,880.
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
    """Where the samples of two checkpoints lie: first and last row, inclusive, of ranges that do not overlap."""

    checkpoint_ids: tuple[str, ...]
    settings_id: str
    ranges: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        """Rows to look through."""
        return sum(last - first + 1 for first, last in self.ranges)


def searched_rows(store: Store, selection: ViewSelection) -> SearchedRows:
    """The rows of both checkpoints of a selection."""
    who = {"series": selection.series, "before": selection.before, "after": selection.after}
    rows = store.frame(_PLACES, **who).to_dict("records")
    merged: list[tuple[int, int]] = []
    for one in rows:
        first, last = int(one["first"]), int(one["last"])
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return SearchedRows(
        checkpoint_ids=tuple(str(one["checkpoint_id"]) for one in rows),
        settings_id=str(rows[0]["settings_id"]),
        ranges=tuple(merged),
    )


def search_part(
    store: Store,
    selection: ViewSelection,
    rows: SearchedRows,
    start: int = 0,
    now: Callable[[], float] = time.monotonic,
) -> SearchPart:
    """What the search finds from row ``start`` of ``rows`` on, in ``PART_S`` seconds or a little more.

    Letter case does not count. The first part has what problems say: prompt, gold, and the beginning of the id.
    """
    began, asked = now(), selection.search
    found: set[str] = set()
    if start == 0:
        found |= set(store.frame(_IN_PROBLEMS, series=selection.series, search=asked)["problem_id"].astype(str))
    who = {"checkpoints": list(rows.checkpoint_ids), "settings": rows.settings_id}
    while start < rows.total:
        first, last = _rows_at(rows.ranges, start)
        said = store.frame(_IN_RESPONSES, first=first, last=last, search=asked, **who)
        found |= set(said["problem_id"].astype(str))
        start += last - first + 1
        if now() - began >= PART_S:
            break
    return SearchPart(
        problem_ids=tuple(sorted(found)),
        next=start if start < rows.total else None,
        done=min(start, rows.total),
        total=rows.total,
    )


def _rows_at(ranges: Sequence[tuple[int, int]], start: int) -> tuple[int, int]:
    """The next rows to look through: within one range.

    >>> _rows_at(((10, 12), (100, 100_000)), 1), _rows_at(((10, 12), (100, 100_000)), 3)
    ((11, 12), (100, 41059))
    """
    for first, last in ranges:
        if start <= last - first:
            return first + start, min(last, first + start + _ROWS - 1)
        start -= last - first + 1
    raise ValueError("behind the last row")
