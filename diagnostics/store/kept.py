"""Joins the samples of a series with their grades once, for many queries: narrow tables that one connection has.

Every view of graded samples makes that join anew, which is most of what measures, verdict and report ask of a store.
While a series is kept, these views read its samples from here, and those of other series as ever. Of ``graded_samples``
only ``KEPT_COLUMNS`` are there then. The join is made in parts of so many samples, so that its memory stays the same;
what is kept lies in a database in memory that is compressed after each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from secrets import token_hex

from diagnostics.store.database import Database

#: Samples that are joined at once.
SAMPLES_PER_PART = 3_000_000

#: What the kept ``graded_samples`` has: nothing that is as long as a response.
KEPT_COLUMNS = (
    "series", "checkpoint", "step", "is_base", "checkpoint_id", "task", "problem_id", "greedy", "sample_index",
    "n_tokens", "finish_reason", "mode", "correct", "state", "n_boxed", "strategy", "looped", "reconsiders", "common",
    "n_planned", "n_common", "reward",
)  # fmt: skip
#: What it has not.
NOT_KEPT = ("response_id", "text", "logp_sum_raw", "answer", "reason")
#: Views that stand on the kept ones as they do on the others.
_ON_TOP = ("problem_counts", "sampled_counts", "read_counts")

_CELLS = """
CREATE TABLE {cells} AS
SELECT
    row_number() OVER (ORDER BY w.step, w.problem_id)::INTEGER AS cell,
    w.*,
    p.task,
    coalesce(a.verifier, p.verifier) AS verifier,
    t.temperature = 1 AND t.top_p = 1 AND t.top_k = 0 AS own_law
FROM planned_samples AS w
JOIN current_audits AS a USING (audit_id)
JOIN settings AS t ON t.settings_id = w.settings_id
JOIN problems AS p USING (problem_id)
WHERE w.series = $series
"""
_TABLES = """
CREATE TABLE {samples} (
    cell INTEGER, greedy BOOLEAN, sample_index INTEGER, n_tokens INTEGER, finish_reason ENUM ('stop', 'length'),
    mode VARCHAR, correct BOOLEAN, state ENUM ('ok', 'parse_fail', 'ambiguous', 'timeout', 'error'), n_boxed INTEGER,
    is_code BOOLEAN, looped BOOLEAN, reconsiders BOOLEAN, reward DOUBLE
);
CREATE TABLE {answers} (cell INTEGER, answer VARCHAR, mode VARCHAR, correct BOOLEAN, n BIGINT);
CREATE TABLE {greedy} (cell INTEGER, response_id VARCHAR, answer VARCHAR, correct BOOLEAN);
CREATE TABLE {base} (cell INTEGER, response_id VARCHAR, correct BOOLEAN, logp_sum_raw DOUBLE, n BIGINT);
"""
# The text is left behind before the join with the grades: what a join holds in memory is a few words a sample.
_PART = """
CREATE OR REPLACE TEMP TABLE kept_part AS
WITH said AS (
    SELECT
        c.cell, c.is_base, c.n_common, c.verifier, s.problem_id, s.response_id, s.greedy, s.sample_index, s.n_tokens,
        s.finish_reason, s.logp_sum_raw, regexp_matches(s.text, {pattern}) AS is_code,
        CASE WHEN s.finish_reason = 'length' THEN ends_in_a_loop(s.text) ELSE s.finish_reason <> 'stop' END AS looped,
        CASE WHEN s.sample_index < 32 THEN takes_something_back(s.text) END AS reconsiders
    FROM samples AS s
    JOIN {cells} AS c
        ON c.checkpoint_id = s.checkpoint_id
        AND c.problem_id = s.problem_id
        AND c.settings_id = s.settings_id
        AND c.n_planned > s.sample_index
    WHERE s.problem_id BETWEEN $first AND $last
)
SELECT
    s.* EXCLUDE (problem_id, verifier), g.answer, g.mode, g.correct, g.n_boxed, g.reward,
    CASE WHEN s.verifier NOT LIKE 'recorded:%' THEN g.state END AS state
FROM said AS s
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = s.verifier
WHERE g.problem_id BETWEEN $first AND $last
"""
_FROM_PART = (
    """
    INSERT INTO {samples}
    SELECT
        cell, greedy, sample_index, n_tokens, finish_reason, mode, correct, state, n_boxed, is_code, looped,
        reconsiders, reward
    FROM kept_part
    """,
    """
    INSERT INTO {answers}
    SELECT cell, answer, mode, correct, count(*)
    FROM kept_part
    WHERE NOT greedy AND sample_index < n_common
    GROUP BY ALL
    """,
    "INSERT INTO {greedy} SELECT cell, response_id, answer, correct FROM kept_part WHERE greedy",
    """
    INSERT INTO {base}
    SELECT cell, response_id, any_value(correct), any_value(logp_sum_raw), count(*)
    FROM kept_part
    WHERE is_base AND NOT greedy
    GROUP BY cell, response_id
    """,
)
#: View → what it reads of one kept series, with the columns in the view's order.
_KEPT = {
    "graded_samples": f"""
        SELECT {", ".join(KEPT_COLUMNS)}
        FROM (
            SELECT
                c.*, s.* EXCLUDE (cell, finish_reason, state), s.finish_reason::VARCHAR AS finish_reason,
                s.state::VARCHAR AS state, CASE WHEN s.is_code THEN 'code' ELSE 'prose' END AS strategy,
                s.sample_index < c.n_common AS common
            FROM {{samples}} AS s
            JOIN {{cells}} AS c USING (cell)
        )""",
    "answer_counts": """
        SELECT c.series, c.checkpoint, c.step, c.checkpoint_id, c.problem_id, s.answer, s.mode, s.correct, s.n,
            c.n_common AS n_planned
        FROM {answers} AS s
        JOIN {cells} AS c USING (cell)""",
    "greedy_grades": """
        SELECT c.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, c.task, c.problem_id, s.response_id,
            s.answer, s.correct
        FROM {greedy} AS s
        JOIN {cells} AS c USING (cell)""",
    "base_responses": """
        SELECT c.series, c.checkpoint, c.step, c.checkpoint_id, c.task, c.problem_id, s.response_id, s.correct,
            s.logp_sum_raw, c.own_law, s.n
        FROM {base} AS s
        JOIN {cells} AS c USING (cell)""",
}
_NAMES = ("cells", "samples", "answers", "greedy", "base")

#: View of counts → what it reads of the counted samples, in the view's order.
_OF_COUNTED = {
    "sampled_counts": """
        SELECT series, checkpoint, step, is_base, checkpoint_id, task, problem_id, n, n_correct, n_planned
        FROM counted_samples""",
    "problem_counts": """
        SELECT
            series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
            n_of_common AS n, correct_of_common AS n_correct, n_common AS n_planned
        FROM counted_samples
        WHERE n_of_common > 0""",
}
_COUNTED = """
CREATE OR REPLACE TEMP TABLE counted_samples (
    series VARCHAR, checkpoint VARCHAR, step INTEGER, is_base BOOLEAN, checkpoint_id VARCHAR, task VARCHAR,
    problem_id VARCHAR, n_planned INTEGER, n_common INTEGER, n BIGINT, n_correct BIGINT, n_of_common BIGINT,
    correct_of_common BIGINT,
    n_cut BIGINT,                       -- ended by the token limit; NULL where nobody tells
    n_lenient BIGINT                    -- accepted with several boxes, or refused by the problem's own verifier
)
"""
# Of graded samples alone, as the view has them.
_COUNT_PART = """
INSERT INTO counted_samples
SELECT
    w.series, w.checkpoint, w.step, w.is_base, w.checkpoint_id, p.task, w.problem_id, w.n_planned, w.n_common,
    count(*) AS n,
    count(*) FILTER (g.correct) AS n_correct,
    count(*) FILTER (s.sample_index < w.n_common) AS n_of_common,
    count(*) FILTER (g.correct AND s.sample_index < w.n_common) AS correct_of_common,
    CASE WHEN count(s.finish_reason) > 0 THEN count(*) FILTER (s.finish_reason = 'length') END AS n_cut,
    CASE WHEN count(g.n_boxed) > 0 OR bool_or({refused} IS NOT NULL) THEN
        count(*) FILTER (g.correct AND (g.n_boxed > 1 OR {refused})) END AS n_lenient
FROM planned_samples AS w
JOIN audits AS a USING (audit_id)
JOIN problems AS p USING (problem_id)
JOIN samples AS s
    ON s.checkpoint_id = w.checkpoint_id
    AND s.problem_id = w.problem_id
    AND s.settings_id = w.settings_id
    AND s.sample_index < w.n_planned
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = coalesce(a.verifier, p.verifier)
{own}
WHERE NOT s.greedy
  AND s.problem_id BETWEEN $first AND $last
  AND g.problem_id BETWEEN $first AND $last
GROUP BY ALL
"""
#: Only of audits that graded again: it is a second pass over all grades.
_OWN_GRADES = """
LEFT JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = p.verifier
    AND a.verifier <> p.verifier
"""


class KeptSamples:
    """The kept series of one connection. Whoever writes samples or grades meanwhile does not see them in the views."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: dict[str, dict[str, str]] = {}
        self._homes: dict[str, str] = {}

    @contextmanager
    def of(self, series: str) -> Iterator[None]:
        """Keep ``series`` inside the block; nothing happens where a block around this one keeps it.

        Raises ``StoreError`` where the store cannot be read.
        """
        if series in self._kept:
            yield
            return
        try:
            with self._database.explained():
                self._keep(series)
            yield
        finally:
            self._drop(series)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Have the views read everything inside the block, with all their columns."""
        kept, self._kept = self._kept, {}
        try:
            if kept:
                self._see()
            yield
        finally:
            self._kept = kept
            if kept:
                self._see()

    def count(self, stage: Callable[[int], AbstractContextManager[Callable[[int], None]]]) -> None:
        """Count all samples once, for ``sampled_counts`` and ``problem_counts`` until the store is closed.

        ``counted_samples`` has the counts with ``n_cut`` and ``n_lenient``. Not while a series is kept. ``stage`` gets
        the number of samples, and what it gives is told how many of them are counted. Raises ``StoreError``.
        """
        with self._database.explained():
            run = self._database.rows
            run(_COUNTED)
            regraded = run("SELECT 1 FROM current_audits WHERE verifier IS NOT NULL LIMIT 1")
            chosen = (
                {"own": _OWN_GRADES, "refused": "(NOT own.correct)"} if regraded else {"own": "", "refused": "NULL"}
            )
            planned = run("SELECT coalesce(sum(n_planned), 0)::BIGINT FROM planned_samples")[0][0]
            with stage(planned) as advance:
                for first, last, n in self._parts("planned_samples"):
                    run(_COUNT_PART.format(**chosen), {"first": first, "last": last})
                    advance(n)
            for view, query in _OF_COUNTED.items():
                self._make(view, query)

    def _keep(self, series: str) -> None:
        # connections of one process to one file share what is attached
        home = f"kept_{token_hex(8)}"
        tables = {name: f"{home}.{name}" for name in _NAMES}
        run = self._database.rows
        run(f"ATTACH ':memory:' AS {home} (COMPRESS, READ_WRITE)")
        self._kept[series], self._homes[series] = tables, home
        run(_CELLS.format(**tables), {"series": series})
        run(_TABLES.format(**tables))
        patterns = run("SELECT strategy_regex FROM current_audits WHERE series = ?", [series])
        pattern = "'" + str(patterns[0][0]).replace("'", "''") + "'" if patterns else "''"
        for first, last, _ in self._parts(tables["cells"]):
            # a pattern that is a parameter would be compiled for every sample
            run(_PART.format(**tables, pattern=pattern), {"first": first, "last": last})
            for statement in _FROM_PART:
                run(statement.format(**tables))
            run(f"CHECKPOINT {home}")
        run("DROP TABLE IF EXISTS temp.kept_part")
        self._see()

    def _parts(self, cells: str) -> Iterator[tuple[str, str, int]]:
        """The first and the last problem of every part, and how many samples it has."""
        part: list[str] = []
        n = 0
        for problem_id, n_planned in self._database.rows(
            f"SELECT problem_id, sum(n_planned)::BIGINT FROM {cells} GROUP BY problem_id ORDER BY problem_id"
        ):
            if part and n + n_planned > SAMPLES_PER_PART:
                yield part[0], part[-1], n
                part, n = [], 0
            part.append(problem_id)
            n += n_planned
        if part:
            yield part[0], part[-1], n

    def _drop(self, series: str) -> None:
        if self._kept.pop(series, None) is None:  # it never came to that
            return
        self._see()
        self._database.rows("DROP TABLE IF EXISTS temp.kept_part")
        self._database.rows(f"DETACH {self._homes.pop(series)}")

    def _see(self) -> None:
        """Have the views read what is kept."""
        if not self._kept:
            for view in (*_ON_TOP, *_KEPT):
                self._database.rows(f"DROP VIEW IF EXISTS temp.{view}")
            self._database.see_views()
            return
        for view, kept in _KEPT.items():
            parts = [kept.format(**tables) for tables in self._kept.values()]
            self._make(view, " UNION ALL BY NAME ".join([*parts, self._others(view)]))
        for view in _ON_TOP:
            self._make(view, _view_queries()[view])

    def _make(self, view: str, query: str) -> None:
        self._database.rows(f"CREATE OR REPLACE TEMP VIEW {view} AS {query}")

    def _others(self, view: str) -> str:
        """The rows of all series that are not kept."""
        columns = ", ".join(KEPT_COLUMNS) if view == "graded_samples" else "*"
        # the name stands for what is kept: here it has to be all of them, with all columns
        whole = _view_queries()["graded_samples"]
        query = _view_queries()[view].replace("FROM graded_samples", f"FROM ({whole})")
        return f"SELECT {columns} FROM ({query}) WHERE series NOT IN ({_texts(list(self._kept))})"


@cache
def _view_queries() -> dict[str, str]:
    """What every view of ``views.sql`` selects, by its name."""
    script = (Path(__file__).parent / "views.sql").read_text(encoding="utf-8")
    return dict(re.findall(r"^CREATE OR REPLACE (?:TEMP )?VIEW (\w+) AS\n(.*?);$", script, re.MULTILINE | re.DOTALL))


def _texts(values: Sequence[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
