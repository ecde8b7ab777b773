"""Read and write the ways of correct responses.

First their signatures, then the way of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.ways.contract import Signature

#: Texts read at a time (fewer if long), and responses whose ways are merged at a time.
TEXTS_AT_ONCE, JOINED_AT_ONCE = 1 << 14, 50_000
#: Texts read first, before their lengths are known, and characters read at a time.
FIRST_TEXTS, CHARACTERS_AT_ONCE = 512, 1 << 25

#: Via the grades that count, which have each response once: there are many more samples.
_PENDING = """
WITH unread AS (
    SELECT g.problem_id, g.response_id
    FROM current_audits AS a
    JOIN audit_problems AS ap USING (audit_id)
    JOIN problems AS p USING (problem_id)
    JOIN grades AS g
        ON g.problem_id = p.problem_id
        AND g.verifier = coalesce(a.verifier, p.verifier)
    LEFT JOIN response_ways AS r
        ON r.problem_id = g.problem_id
        AND r.response_id = g.response_id
        AND r.reader = $reader
    WHERE a.series = $series AND g.correct AND r.reader IS NULL
)
SELECT min(s.rowid) AS place
FROM samples AS s
JOIN unread USING (problem_id, response_id)
GROUP BY problem_id, response_id
ORDER BY place
"""
_TEXTS = """
SELECT problem_id, response_id, text
FROM samples
-- the bounds let DuckDB skip parts of the table without such rows
WHERE rowid BETWEEN $first AND $last AND rowid IN (SELECT unnest($places::BIGINT[]))
ORDER BY rowid
"""
_UNJOINED = """
SELECT problem_id, count(*) AS n
FROM response_ways
WHERE reader = $reader AND problem_id IN (
    SELECT problem_id FROM response_ways WHERE reader = $reader AND way IS NULL AND why IS NULL
)
GROUP BY problem_id
ORDER BY problem_id
"""
#: With the number of draws at any checkpoint of any series, so that ways are the same for all.
_SIGNED = """
WITH drawn AS (
    SELECT problem_id, response_id, count(*) AS n
    FROM samples
    WHERE NOT greedy AND problem_id IN (SELECT unnest($problem_ids::VARCHAR[]))
    GROUP BY problem_id, response_id
)
SELECT problem_id, response_id, strategy, steps, parts, written, coalesce(n, 1) AS n
FROM response_ways
LEFT JOIN drawn USING (problem_id, response_id)
WHERE reader = $reader AND why IS NULL AND problem_id IN (SELECT unnest($problem_ids::VARCHAR[]))
ORDER BY problem_id, response_id
"""


class WaysTable:
    """The table ``response_ways`` of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_any(self) -> bool:
        """Whether any way is stored."""
        return bool(self._database.rows("SELECT 1 FROM response_ways LIMIT 1"))

    def find_unread(self, series: str, reader: str) -> list[int]:
        """Return the row positions of correct responses of a series' problems without a signature.

        Each text once.

        Includes responses of other series to the same problems. Raises ``StoreError``.
        """
        return [int(row[0]) for row in self._database.rows(_PENDING, {"series": series, "reader": reader})]

    def texts(self, places: Sequence[int]) -> Iterator[pd.DataFrame]:
        """Yield frames ``problem_id, response_id, text`` of these row positions, in order, some at a time."""
        start, size = 0, FIRST_TEXTS
        while start < len(places):
            block = list(places[start : start + size])
            rows = self._database.frame(_TEXTS, {"first": block[0], "last": block[-1], "places": block})
            yield rows
            start += size
            characters = max(1.0, float(rows["text"].str.len().mean()))
            size = max(1, min(TEXTS_AT_ONCE, int(CHARACTERS_AT_ONCE / characters)))

    def keep_only(self, reader: str) -> None:
        """Delete the ways of other readers or versions: their classes are not comparable."""
        if self._database.rows("SELECT 1 FROM response_ways WHERE reader <> ? LIMIT 1", [reader]):
            with self._database.transaction():
                self._database.rows("DELETE FROM response_ways WHERE reader <> ?", [reader])

    def add(self, reader: str, rows: pd.DataFrame, signatures: Sequence[Signature]) -> None:
        """Commit signatures; the names of the ways follow with ``join``."""
        frame = rows[["problem_id", "response_id"]].assign(
            strategy=[signature.strategy for signature in signatures],
            operations=[item.operations or None for item in signatures],
            final_step=[entry.final or None for entry in signatures],
            written=[element.written or None for element in signatures],
            steps=[None if member.why else list(member.steps) for member in signatures],
            parts=[None if candidate.why else list(candidate.parts) for candidate in signatures],
            why=[current.why for current in signatures],
        )
        with self._database.transaction():
            self._database.insert(
                """
                INSERT INTO response_ways
                SELECT
                    problem_id, response_id, $reader, strategy::VARCHAR, operations::VARCHAR, final_step::VARCHAR, NULL,
                    written::VARCHAR, steps::VARCHAR[], parts::VARCHAR[], why::VARCHAR
                """,
                frame,
                reader=reader,
            )

    def find_unjoined(self, reader: str) -> list[list[str]]:
        """Return problems with a response whose way has no name yet, in groups that may be merged at once."""
        groups: list[list[str]] = []
        held = JOINED_AT_ONCE
        for problem_id, n in self._database.rows(_UNJOINED, {"reader": reader}):
            if held + n > JOINED_AT_ONCE:
                groups.append([])
                held = 0
            groups[-1].append(str(problem_id))
            held += int(n)
        return groups

    def load_signatures(self, reader: str, problem_ids: Sequence[str]) -> pd.DataFrame:
        """Return ``problem_id, response_id, signature, n`` of every known response of some problems; n: times drawn."""
        frame = self._database.frame(_SIGNED, {"reader": reader, "problem_ids": list(problem_ids)})
        signatures = [
            Signature(strategy=row.strategy, steps=tuple(row.steps), parts=tuple(row.parts), written=row.written or "")
            for row in frame.itertuples()
        ]
        return frame[["problem_id", "response_id", "n"]].assign(signature=signatures)

    def join(self, reader: str, rows: pd.DataFrame, names: Mapping[int, str]) -> None:
        """Commit the name of the way of each row of ``rows``, by the row's label."""
        frame = rows[["problem_id", "response_id"]].assign(way=[names[label] for label in rows.index])
        with self._database.transaction():
            self._database.insert(
                "UPDATE response_ways SET way = incoming.way",
                frame,
                where="""
                response_ways.problem_id = incoming.problem_id
                AND response_ways.response_id = incoming.response_id
                AND response_ways.reader = $reader
                AND response_ways.way IS DISTINCT FROM incoming.way
                """,
                reader=reader,
            )
