"""Reads and writes the ways of correct responses: first what each is, then which of a problem are one way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.ways.contract import Signature

#: Texts that are read at a time, fewer where they are long, and responses whose ways are joined at a time.
TEXTS_AT_ONCE, JOINED_AT_ONCE = 1 << 14, 50_000
#: Texts that are read at first, before their lengths are known, and characters that are read at a time.
FIRST_TEXTS, CHARACTERS_AT_ONCE = 512, 1 << 25

#: Of the grades that count, which have each response once: there are many more samples.
_UNREAD = """
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
-- the bounds let DuckDB pass over the parts of the table that hold none of them
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
#: How often each was drawn, at any checkpoint of any series: equal for all of them.
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
    """The table ``response_ways`` of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_any(self) -> bool:
        """Whether any way was read."""
        return bool(self._database.rows("SELECT 1 FROM response_ways LIMIT 1"))

    def unread(self, series: str, reader: str) -> list[int]:
        """Where correct responses to the problems of a series lie that ``reader`` has not read; each text once.

        Those of other series that share the problems are among them. Raises ``StoreError``.
        """
        return [int(row[0]) for row in self._database.rows(_UNREAD, {"series": series, "reader": reader})]

    def texts(self, places: Sequence[int]) -> Iterator[pd.DataFrame]:
        """Frames ``problem_id, response_id, text`` of the responses that lie there, in order, some at a time."""
        start, size = 0, FIRST_TEXTS
        while start < len(places):
            block = list(places[start : start + size])
            rows = self._database.frame(_TEXTS, {"first": block[0], "last": block[-1], "places": block})
            yield rows
            start += size
            characters = max(1.0, float(rows["text"].str.len().mean()))
            size = max(1, min(TEXTS_AT_ONCE, int(CHARACTERS_AT_ONCE / characters)))

    def keep_only(self, reader: str) -> None:
        """Forget what others read: classes of two readers, or of two versions of one, are not to be compared."""
        if self._database.rows("SELECT 1 FROM response_ways WHERE reader <> ? LIMIT 1", [reader]):
            with self._database.transaction():
                self._database.rows("DELETE FROM response_ways WHERE reader <> ?", [reader])

    def add(self, reader: str, rows: pd.DataFrame, signatures: Sequence[Signature]) -> None:
        """Commit what was read; the names of the ways follow with ``join``."""
        frame = rows[["problem_id", "response_id"]].assign(
            strategy=[one.strategy for one in signatures],
            operations=[one.operations or None for one in signatures],
            final_step=[one.final or None for one in signatures],
            written=[one.written or None for one in signatures],
            steps=[None if one.why else list(one.steps) for one in signatures],
            parts=[None if one.why else list(one.parts) for one in signatures],
            why=[one.why for one in signatures],
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

    def unjoined(self, reader: str) -> list[list[str]]:
        """Problems with a response whose way has no name yet, as many at a time as may be joined at once."""
        groups: list[list[str]] = []
        held = JOINED_AT_ONCE
        for problem_id, n in self._database.rows(_UNJOINED, {"reader": reader}):
            if held + n > JOINED_AT_ONCE:
                groups.append([])
                held = 0
            groups[-1].append(str(problem_id))
            held += int(n)
        return groups

    def signed(self, reader: str, problem_ids: Sequence[str]) -> pd.DataFrame:
        """``problem_id, response_id, signature, n`` of every known response of some problems; n: times drawn."""
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
