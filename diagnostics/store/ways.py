"""Read and write the ways of correct responses.

A signature contains the parsed steps of a response. Similar signatures are merged into a way, which has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.ways.contract import Signature

#: Maximum number of texts per block. Maximum number of responses whose ways are merged at a time.
TEXTS_AT_ONCE, JOINED_AT_ONCE = 1 << 14, 50_000

#: Number of responses in the first block, before text lengths are known. Number of characters in later blocks.
FIRST_BLOCK, BLOCK_CHARACTERS = 512, 1 << 25
_TEXTS = """
    SELECT rowid AS place, problem_id, response_id, text
    FROM samples
    -- the bounds let DuckDB skip parts of the table without such rows
    WHERE rowid BETWEEN $first AND $last AND rowid IN (SELECT unnest($places::BIGINT[]))
    ORDER BY rowid
"""
#: Starts from grades, which have one row per distinct response; there are many more samples.
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
_UNJOINED = """
SELECT problem_id, count(*) AS n
FROM response_ways
WHERE reader = $reader AND problem_id IN (
    SELECT problem_id FROM response_ways WHERE reader = $reader AND way IS NULL AND why IS NULL
)
GROUP BY problem_id
ORDER BY problem_id
"""
#: Counts the samples of all checkpoints and series, so that the ways are the same for all.
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


def text_blocks(
    frame: Callable[..., pd.DataFrame], places: Sequence[int] | np.ndarray, most: int
) -> Iterator[pd.DataFrame]:
    """Yield ``place, problem_id, response_id, text`` of samples, in blocks of similar size.

    ``frame`` runs a query. ``places`` are row positions in ascending order. A block has at most ``most`` rows, fewer if
    texts are long.
    """
    first, size = 0, min(most, FIRST_BLOCK)
    while first < len(places):
        block = [int(place) for place in places[first : first + size]]
        texts = frame(_TEXTS, first=block[0], last=block[-1], places=block)
        yield texts
        first += size
        characters = max(1.0, float(texts["text"].str.len().mean()))
        size = max(1, min(most, int(BLOCK_CHARACTERS / characters)))


class WaysTable:
    """Queries and writes of the table ``response_ways`` of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_any(self) -> bool:
        """Return whether the table has any row."""
        return bool(self._database.rows("SELECT 1 FROM response_ways LIMIT 1"))

    def find_unread(self, series: str, reader: str) -> list[int]:
        """Return row positions of the correct responses without a signature.

        Each text occurs once. Responses of other series to the problems of ``series`` are included. Raises
        ``StoreError``.
        """
        return [int(row[0]) for row in self._database.rows(_PENDING, {"series": series, "reader": reader})]

    def texts(self, places: Sequence[int]) -> Iterator[pd.DataFrame]:
        """Yield ``problem_id, response_id, text`` of the samples at these row positions, in order."""
        return text_blocks(lambda sql, **values: self._database.frame(sql, values), places, TEXTS_AT_ONCE)

    def keep_only(self, reader: str) -> None:
        """Delete the ways of other readers and reader versions.

        Ways of different readers cannot be compared.
        """
        if self._database.rows("SELECT 1 FROM response_ways WHERE reader <> ? LIMIT 1", [reader]):
            with self._database.transaction():
                self._database.rows("DELETE FROM response_ways WHERE reader <> ?", [reader])

    def add(self, reader: str, rows: pd.DataFrame, signatures: Sequence[Signature]) -> None:
        """Commit the signatures of responses. ``join`` later adds the names of their ways."""
        frame = rows[["problem_id", "response_id"]].assign(
            strategy=[signature.strategy for signature in signatures],
            operations=[signature.operations or None for signature in signatures],
            final_step=[signature.final or None for signature in signatures],
            written=[signature.written or None for signature in signatures],
            steps=[None if signature.why else list(signature.steps) for signature in signatures],
            parts=[None if signature.why else list(signature.parts) for signature in signatures],
            why=[signature.why for signature in signatures],
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
        """Return the problems that have unnamed ways, in groups that are merged at once."""
        groups: list[list[str]] = []
        group_size = JOINED_AT_ONCE
        for problem_id, n in self._database.rows(_UNJOINED, {"reader": reader}):
            if group_size + n > JOINED_AT_ONCE:
                groups.append([])
                group_size = 0
            groups[-1].append(str(problem_id))
            group_size += int(n)
        return groups

    def load_signatures(self, reader: str, problem_ids: Sequence[str]) -> pd.DataFrame:
        """Return ``problem_id, response_id, signature, n`` of the responses with a signature.

        ``n`` is the number of samples.
        """
        frame = self._database.frame(_SIGNED, {"reader": reader, "problem_ids": list(problem_ids)})
        signatures = [
            Signature(strategy=row.strategy, steps=tuple(row.steps), parts=tuple(row.parts), written=row.written or "")
            for row in frame.itertuples()
        ]
        return frame[["problem_id", "response_id", "n"]].assign(signature=signatures)

    def join(self, reader: str, rows: pd.DataFrame, names: Mapping[int, str]) -> None:
        """Commit the name of the way of each row. The keys of ``names`` are row labels."""
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
