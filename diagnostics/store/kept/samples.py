"""Join the samples of a series with their grades once, for many queries, as narrow tables of one connection.

Every view of graded samples repeats that join, which is most of the cost of measures, verdict and report. While a
series is kept, these views read its samples from here, and those of other series as usual; ``graded_samples`` then has
only ``KEPT_COLUMNS``. The join is done in parts of bounded size, to bound its memory; the result is in an in-memory
database, which is compressed after each part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from secrets import token_hex

from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.kept.counts import (
    COUNTED_FROM,
    NAMES_COUNTS,
    OF_COUNTED,
    Stage,
    count_samples,
    problem_ranges,
)

#: Samples joined at once.
SAMPLES_PER_PART = 3_000_000

#: Columns of the kept ``graded_samples``: none as long as a response.
KEPT_COLUMNS = (
    "series", "checkpoint", "step", "is_base", "checkpoint_id", "task", "problem_id", "greedy", "sample_index",
    "n_tokens", "finish_reason", "mode", "correct", "state", "n_boxed", "answer_style", "lenient", "strategy", "looped",
    "reconsiders", "common", "n_planned", "n_common", "reward",
)  # fmt: skip
#: Columns derived from texts, which take two thirds of a join: only on request.
OF_TEXTS = ("strategy", "looped", "reconsiders")
#: Columns it lacks.
NOT_KEPT = ("response_id", "text", "logp_sum_raw", "answer", "reason")
#: Views on top of the kept views.
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
    answer_style VARCHAR, lenient BOOLEAN, is_code BOOLEAN, looped BOOLEAN, reconsiders BOOLEAN, reward DOUBLE
);
CREATE TABLE {answers} (cell INTEGER, answer VARCHAR, mode VARCHAR, correct BOOLEAN, n BIGINT);
CREATE TABLE {greedy} (cell INTEGER, response_id VARCHAR, answer VARCHAR, correct BOOLEAN);
CREATE TABLE {base} (cell INTEGER, response_id VARCHAR, correct BOOLEAN, logp_sum_raw DOUBLE, n BIGINT);
"""
# Texts are dropped before the join with the grades, to keep the join's memory to a few words per sample.
_PART = """
CREATE OR REPLACE TEMP TABLE kept_part AS
WITH said AS (
    SELECT
        c.cell, c.is_base, c.n_common, c.verifier, s.problem_id, s.response_id, s.greedy, s.sample_index, s.n_tokens,
        s.finish_reason, s.logp_sum_raw, {of_texts}
    FROM samples AS s
    JOIN {cells} AS c
        ON c.checkpoint_id = s.checkpoint_id
        AND c.problem_id = s.problem_id
        AND c.settings_id = s.settings_id
        AND c.n_planned > s.sample_index
    WHERE s.problem_id BETWEEN $first AND $last
)
SELECT
    s.* EXCLUDE (problem_id, verifier), g.answer, g.mode, g.correct, g.n_boxed, g.answer_style, g.lenient,
    g.reward,
    CASE WHEN s.verifier NOT LIKE 'recorded:%' THEN g.state END AS state
FROM said AS s
JOIN grades AS g
    ON g.problem_id = s.problem_id
    AND g.response_id = s.response_id
    AND g.verifier = s.verifier
WHERE g.problem_id BETWEEN $first AND $last
"""
_OF_TEXTS = """
        regexp_matches(s.text, {pattern}) AS is_code,
        CASE WHEN s.finish_reason = 'length' THEN ends_in_a_loop(s.text) ELSE s.finish_reason <> 'stop' END AS looped,
        CASE WHEN s.sample_index < 32 THEN takes_something_back(s.text) END AS reconsiders
"""
_NO_TEXTS = "NULL::BOOLEAN AS is_code, NULL::BOOLEAN AS looped, NULL::BOOLEAN AS reconsiders"
_FROM_PART = (
    """
    INSERT INTO {samples}
    SELECT
        cell, greedy, sample_index, n_tokens, finish_reason, mode, correct, state, n_boxed, answer_style,
        lenient, is_code, looped, reconsiders, reward
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
#: View → its query on one kept series, with columns in the view's order.
_KEPT = {
    "graded_samples": """
        SELECT {columns}
        FROM (
            SELECT
                c.*, s.* EXCLUDE (cell, finish_reason, state), s.finish_reason::VARCHAR AS finish_reason,
                s.state::VARCHAR AS state, CASE WHEN s.is_code THEN 'code' ELSE 'prose' END AS strategy,
                s.sample_index < c.n_common AS common
            FROM {samples} AS s
            JOIN {cells} AS c USING (cell)
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


class KeptSamples:
    """Kept series of one connection.

    The views do not show samples or grades written in the meantime.
    """

    def __init__(self, database: Database, *, for_user: bool) -> None:
        self._database = database
        self._for_user = for_user
        self._kept: dict[str, dict[str, str]] = {}
        self._homes: dict[str, str] = {}
        self._without_texts: set[str] = set()
        self._counted = False

    @contextmanager
    def keep(self, series: str, *, texts: bool = True) -> Iterator[None]:
        """Keep ``series`` inside the block; no effect if an outer block keeps it.

        Without ``texts`` no text is read, and ``graded_samples`` lacks ``OF_TEXTS``. Raises ``StoreError`` where the
        store cannot be read.
        """
        if series in self._kept:
            if texts and series in self._without_texts:
                raise ValueError(f"an outer block keeps {series} without the columns derived from texts")
            yield
            return
        try:
            with self._database.explain_errors():
                self._keep(series, texts=texts)
            yield
        finally:
            self._drop(series)

    @contextmanager
    def bypass(self) -> Iterator[None]:
        """Make the views read everything inside the block, with all columns."""
        kept, self._kept = self._kept, {}
        try:
            if kept:
                self._see()
            yield
        finally:
            self._kept = kept
            if kept:
                self._see()

    def count(self, stage: Stage) -> None:
        """Count all samples once, for the count views until the store is closed.

        ``counted_samples`` has the counts with ``n_cut`` and ``n_lenient``. Must not be called while a series is kept.
        ``stage`` gets the number of samples and returns the progress function. Raises ``StoreError``.
        """
        with self._database.explain_errors():
            count_samples(self._database, stage, SAMPLES_PER_PART)
            for view, query in OF_COUNTED.items():
                self._make(view, query)
            self._counted = True

    def count_for(self, sql: str) -> None:
        """Count all samples first if a user's query names counts of more than ``COUNTED_FROM`` of them.

        The views would join all at once: with ten million samples that took eleven times the memory.
        """
        if not self._for_user or self._counted or self._kept or not NAMES_COUNTS.search(sql):
            return
        ((planned,),) = self._database.rows("SELECT coalesce(sum(n_planned), 0)::BIGINT FROM planned_samples")
        if planned > COUNTED_FROM:
            self.count(lambda n: nullcontext(lambda counted: None))

    def _keep(self, series: str, *, texts: bool) -> None:
        # connections of one process to one file share attached databases
        home = f"kept_{token_hex(8)}"
        tables = {name: f"{home}.{name}" for name in _NAMES}
        run = self._database.rows
        run(f"ATTACH ':memory:' AS {home} (COMPRESS, READ_WRITE)")
        self._kept[series], self._homes[series] = tables, home
        if not texts:
            self._without_texts.add(series)
        run(_CELLS.format(**tables), {"series": series})
        run(_TABLES.format(**tables))
        patterns = run("SELECT strategy_regex FROM current_audits WHERE series = ?", [series])
        pattern = "'" + str(patterns[0][0]).replace("'", "''") + "'" if patterns else "''"
        # a pattern passed as parameter would be compiled for every sample
        part = _PART.format(**tables, of_texts=_OF_TEXTS.format(pattern=pattern) if texts else _NO_TEXTS)
        for first, last, _ in problem_ranges(self._database, tables["cells"], SAMPLES_PER_PART):
            run(part, {"first": first, "last": last})
            for statement in _FROM_PART:
                run(statement.format(**tables))
            run(f"CHECKPOINT {home}")
        run("DROP TABLE IF EXISTS temp.kept_part")
        self._see()

    def _drop(self, series: str) -> None:
        if self._kept.pop(series, None) is None:  # keeping failed before
            return
        self._without_texts.discard(series)
        self._see()
        self._database.rows("DROP TABLE IF EXISTS temp.kept_part")
        self._database.rows(f"DETACH {self._homes.pop(series)}")

    def _see(self) -> None:
        """Make the views read the kept tables."""
        if not self._kept:
            for view in (*_ON_TOP, *_KEPT):
                self._database.rows(f"DROP VIEW IF EXISTS temp.{view}")
            self._database.refresh_views()
            return
        for view, kept in _KEPT.items():
            columns = self._columns()
            parts = [kept.format(**tables, columns=columns) for tables in self._kept.values()]
            self._make(view, " UNION ALL BY NAME ".join([*parts, self._others(view)]))
        for view in _ON_TOP:
            self._make(view, _view_queries()[view])

    def _make(self, view: str, query: str) -> None:
        self._database.rows(f"CREATE OR REPLACE TEMP VIEW {view} AS {query}")

    def _columns(self) -> str:
        """Return the columns of ``graded_samples``, without those that one kept series lacks."""
        return ", ".join(name for name in KEPT_COLUMNS if not (self._without_texts and name in OF_TEXTS))

    def _others(self, view: str) -> str:
        """Return the query of the rows of all series that are not kept."""
        columns = self._columns() if view == "graded_samples" else "*"
        # the name refers to the kept view: here it must be all series, with all columns
        whole = _view_queries()["graded_samples"]
        query = _view_queries()[view].replace("FROM graded_samples", f"FROM ({whole})")
        return f"SELECT {columns} FROM ({query}) WHERE series NOT IN ({_texts(list(self._kept))})"


@cache
def _view_queries() -> dict[str, str]:
    """Return the query of every view in ``views.sql``, by name."""
    script = (Path(__file__).parents[1] / "views.sql").read_text(encoding="utf-8")
    return dict(re.findall(r"^CREATE OR REPLACE (?:TEMP )?VIEW (\w+) AS\n(.*?);$", script, re.MULTILINE | re.DOTALL))


def _texts(values: Sequence[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
