"""Count all samples of a store once, in bounded parts, for the count views of one connection.

A view joins all samples with all grades at once, so its memory grows with them. Counting in parts takes the memory of
one part, and answers every later query at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

from oversharp.diagnostics.store.database import Database

#: Takes the number of samples, and returns a function that advances the progress.
Stage: TypeAlias = Callable[[int], AbstractContextManager[Callable[[int], None]]]
#: Number of samples from which a user's query on counts first counts all samples.
COUNTED_FROM = 1_000_000

#: View of counts → its query on the counted samples, with columns in the view's order.
OF_COUNTED = {
    "sampled_counts": """
        SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, n, n_correct, n_planned
        FROM counted_samples""",
    "problem_counts": """
        SELECT
            series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
            n_of_common AS n, correct_of_common AS n_correct, n_common AS n_planned
        FROM counted_samples
        WHERE n_of_common > 0""",
    "read_counts": """
        SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, n, n_correct, wrong_cut AS n_cut,
            wrong_unread AS n_unread, n_planned
        FROM counted_samples""",
}
#: Whether a query names one of them.
NAMES_COUNTS = re.compile(rf"\b(?:{'|'.join(OF_COUNTED)})\b", re.IGNORECASE)
_COUNTED = """
CREATE OR REPLACE TEMP TABLE counted_samples (
    series VARCHAR, checkpoint VARCHAR, step INTEGER, is_base BOOLEAN, checkpoint_id VARCHAR, task VARCHAR,
    problem_id VARCHAR, n_planned INTEGER, n_common INTEGER, n BIGINT, n_correct BIGINT, n_of_common BIGINT,
    correct_of_common BIGINT,
    n_cut BIGINT,                       -- truncated at the token limit; NULL where unknown
    n_lenient BIGINT,                   -- accepted with several boxes, or rejected by the problem's own verifier
    wrong_cut BIGINT,                   -- like n_cut and n_unread of read_counts
    wrong_unread BIGINT
)
"""
_COUNTED_CELLS = """
CREATE OR REPLACE TEMP TABLE counted_cells AS
SELECT
    row_number() OVER (ORDER BY w.series, w.step, w.problem_id)::INTEGER AS cell,
    w.*,
    p.task,
    p.verifier AS own_verifier,
    coalesce(a.verifier, p.verifier) AS verifier
FROM planned_samples AS w
JOIN current_audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
"""
# Graded samples only, as in the view; by number, because names and ids of 16 letters take three times as long.
_COUNT_PART = """
INSERT INTO counted_samples
WITH counts AS (
    SELECT
        c.cell,
        count(*) AS n,
        count(*) FILTER (g.correct) AS n_correct,
        count(*) FILTER (s.sample_index < c.n_common) AS n_of_common,
        count(*) FILTER (g.correct AND s.sample_index < c.n_common) AS correct_of_common,
        CASE WHEN count(s.finish_reason) > 0 THEN count(*) FILTER (s.finish_reason = 'length') END AS n_cut,
        CASE WHEN count(g.n_boxed) > 0 OR bool_or({refused} IS NOT NULL) THEN
            count(*) FILTER (g.correct AND (g.n_boxed > 1 OR {refused})) END AS n_lenient,
        CASE WHEN count(s.finish_reason) = count(*)
            THEN count(*) FILTER (why_unread(g.correct, s.finish_reason, g.state, g.n_boxed) = 'cut') END AS wrong_cut,
        count(*) FILTER (why_unread(g.correct, s.finish_reason, g.state, g.n_boxed) = 'unread') AS wrong_unread
    FROM samples AS s
    JOIN counted_cells AS c
        ON c.checkpoint_id = s.checkpoint_id
        AND c.problem_id = s.problem_id
        AND c.settings_id = s.settings_id
        AND c.n_planned > s.sample_index
    JOIN grades AS g
        ON g.problem_id = s.problem_id
        AND g.response_id = s.response_id
        AND g.verifier = c.verifier
    {own}
    WHERE NOT s.greedy
      AND s.problem_id BETWEEN $first AND $last
      AND g.problem_id BETWEEN $first AND $last
    GROUP BY c.cell
)
SELECT
    c.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, c.task, c.problem_id, c.n_planned, c.n_common,
    n.n, n.n_correct, n.n_of_common, n.correct_of_common, n.n_cut, n.n_lenient, n.wrong_cut,
    CASE WHEN c.verifier NOT LIKE 'recorded:%' THEN n.wrong_unread END AS wrong_unread  -- another tool does not tell
FROM counts AS n
JOIN counted_cells AS c USING (cell)
"""
#: Only for audits that were graded again: it is a second pass over all grades.
_OWN_GRADES = """
LEFT JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = c.own_verifier
    AND c.verifier <> c.own_verifier
"""


def count_samples(database: Database, stage: Stage, most: int) -> None:
    """Create ``counted_samples``, reading at most ``most`` samples at a time, or those of one problem."""
    run = database.rows
    run(_COUNTED)
    run(_COUNTED_CELLS)
    regraded = run("SELECT 1 FROM current_audits WHERE verifier IS NOT NULL LIMIT 1")
    chosen = {"own": _OWN_GRADES, "refused": "(NOT own.correct)"} if regraded else {"own": "", "refused": "NULL"}
    planned = run("SELECT coalesce(sum(n_planned), 0)::BIGINT FROM counted_cells")[0][0]
    with stage(planned) as advance:
        for first, last, n in problem_ranges(database, "counted_cells", most):
            run(_COUNT_PART.format(**chosen), {"first": first, "last": last})
            advance(n)
    run("DROP TABLE temp.counted_cells")


def problem_ranges(database: Database, cells: str, most: int) -> Iterator[tuple[str, str, int]]:
    """Yield the first and last problem of every part of at most ``most`` samples, and the number of samples.

    ``cells`` is a relation with ``problem_id`` and ``n_planned``. A problem with more samples is a separate part.
    """
    part: list[str] = []
    n = 0
    for problem_id, n_planned in database.rows(
        f"SELECT problem_id, sum(n_planned)::BIGINT FROM {cells} GROUP BY problem_id ORDER BY problem_id"
    ):
        if part and n + n_planned > most:
            yield part[0], part[-1], n
            part, n = [], 0
        part.append(problem_id)
        n += n_planned
    if part:
        yield part[0], part[-1], n
