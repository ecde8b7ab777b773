"""Cache the graded samples of a series, and the counts of all samples, for many queries.

Every view of graded samples joins samples and grades. This join is most of the cost of measures, verdict and report.
``KeptSamples.keep`` runs it once for a series and keeps the result in narrow tables of an in-memory database. The views
then query these tables for the kept series, and the store for all other series. Meanwhile ``graded_samples`` has only
``KEPT_COLUMNS``. ``KeptSamples.count`` computes the counts of all samples for the count views. Both process the samples
in parts, to limit memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from secrets import token_hex
from typing import TypeAlias

from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.schema import script

#: Start a progress stage of a number of samples. Its context manager returns a function that advances the progress.
Stage: TypeAlias = Callable[[int], AbstractContextManager[Callable[[int], None]]]
#: If a user's query uses a count view and the store plans more samples than this, all samples are counted first.
COUNTED_FROM = 1_000_000
#: Largest number of samples that one query joins or counts.
SAMPLES_PER_PART = 3_000_000

#: Count view → its query on the counted samples, with columns in the view's order.
_COUNT_VIEWS = {
    "sampled_counts": """
        SELECT
            series, checkpoint, step, is_base, checkpoint_id, task, problem_id, n, n_correct, n_planned, n_cap
        FROM counted_samples""",
    "problem_counts": """
        SELECT
            series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
            n_of_common AS n, correct_of_common AS n_correct, n_common AS n_planned,
            CASE WHEN correct_of_reach > 0 THEN true WHEN n_of_reach >= n_reach THEN false END AS solved, n_reach
        FROM counted_samples
        WHERE n_of_common > 0""",
    "read_counts": """
        SELECT
            series, checkpoint, step, is_base, checkpoint_id, task, problem_id,
            n_of_first AS n, correct_of_first AS n_correct, wrong_cut AS n_cut, wrong_unread AS n_unread,
            n_first_round AS n_planned, n_cap
        FROM counted_samples
        WHERE n_of_first > 0""",
}
_NAMES_COUNTS = re.compile(rf"\b(?:{'|'.join(_COUNT_VIEWS)})\b", re.IGNORECASE)
_COUNTED = """
CREATE OR REPLACE TEMP TABLE counted_samples (
    series VARCHAR, checkpoint VARCHAR, step INTEGER, is_base BOOLEAN, checkpoint_id VARCHAR, task VARCHAR,
    problem_id VARCHAR, n_planned INTEGER, n_first_round INTEGER, n_common INTEGER, n_reach INTEGER, n_cap INTEGER,
    n BIGINT, n_correct BIGINT, n_of_first BIGINT, correct_of_first BIGINT, n_of_common BIGINT,
    correct_of_common BIGINT, n_of_reach BIGINT, correct_of_reach BIGINT,
    n_cut BIGINT,                       -- truncated at the token limit; NULL if unknown
    n_lenient BIGINT,                   -- correct with several boxes, or rejected by the problem's own verifier
    wrong_cut BIGINT,                   -- as n_cut and n_unread of read_counts: of the first round
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
# As in the view, only graded samples count. Grouping by names and ids instead of the cell number takes three times as
# long.
_COUNT_PART = """
INSERT INTO counted_samples
WITH counts AS (
    SELECT
        c.cell,
        count(*) AS n,
        count(*) FILTER (g.correct) AS n_correct,
        {up_to}
        CASE WHEN count(s.finish_reason) > 0 THEN count(*) FILTER (s.finish_reason = 'length') END AS n_cut,
        CASE WHEN count(g.n_boxed) > 0 OR bool_or({refused} IS NOT NULL) THEN
            count(*) FILTER (g.correct AND (g.n_boxed > 1 OR {refused})) END AS n_lenient,
        CASE WHEN count(s.finish_reason) FILTER (s.sample_index < c.n_first_round) = n_of_first THEN
            count(*) FILTER ({unread} = 'cut') END AS wrong_cut,
        count(*) FILTER ({unread} = 'unread') AS wrong_unread
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
    c.series, c.checkpoint, c.step, c.is_base, c.checkpoint_id, c.task, c.problem_id, c.n_planned, c.n_first_round,
    c.n_common, c.n_reach, c.n_cap, n.* EXCLUDE (cell, wrong_unread),
    CASE WHEN c.verifier NOT LIKE 'recorded:%' THEN n.wrong_unread END AS wrong_unread  -- unknown for imported rewards
FROM counts AS n
JOIN counted_cells AS c USING (cell)
"""
#: Counts of the first n_first_round, n_common and n_reach samples.
_UP_TO = "\n        ".join(
    f"count(*) FILTER ({correct}s.sample_index < c.{most}) AS {name}_of_{part},"
    for part, most in (("first", "n_first_round"), ("common", "n_common"), ("reach", "n_reach"))
    for correct, name in (("", "n"), ("g.correct AND ", "correct"))
)
_UNREAD = """
    CASE WHEN s.sample_index < c.n_first_round
        THEN why_unread(g.correct, s.finish_reason, g.state, g.n_boxed) END"""
#: Used only if an audit was regraded, because it scans all grades a second time.
_OWN_GRADES = """
LEFT JOIN grades AS own
    ON own.problem_id = s.problem_id
    AND own.response_id = s.response_id
    AND own.verifier = c.own_verifier
    AND c.verifier <> c.own_verifier
"""


def count_samples(database: Database, stage: Stage, most: int) -> None:
    """Create ``counted_samples`` in parts of at most ``most`` samples.

    A larger problem is one part.
    """
    run = database.rows
    run(_COUNTED)
    run(_COUNTED_CELLS)
    regraded = run("SELECT 1 FROM current_audits WHERE verifier IS NOT NULL LIMIT 1")
    chosen = {"own": _OWN_GRADES, "refused": "(NOT own.correct)"} if regraded else {"own": "", "refused": "NULL"}
    planned = run("SELECT coalesce(sum(n_planned), 0)::BIGINT FROM counted_cells")[0][0]
    with stage(planned) as advance:
        for first, last, n in _problem_ranges(database, "counted_cells", most):
            run(_COUNT_PART.format(**chosen, up_to=_UP_TO, unread=_UNREAD), {"first": first, "last": last})
            advance(n)
    run("DROP TABLE temp.counted_cells")


def _problem_ranges(database: Database, cells: str, most: int) -> Iterator[tuple[str, str, int]]:
    """Split the problems into parts of at most ``most`` samples.

    Yields first problem, last problem and number of samples. ``cells`` is a relation with ``problem_id`` and
    ``n_planned``. A problem with more than ``most`` samples is a part alone.
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


# ---------------------------------------------------------------- joined samples

#: Columns of ``graded_samples`` for a kept series. All have short values.
KEPT_COLUMNS = (
    "series", "checkpoint", "step", "is_base", "checkpoint_id", "task", "problem_id", "greedy", "sample_index",
    "n_tokens", "finish_reason", "mode", "correct", "state", "n_boxed", "answer_style", "lenient", "strategy", "looped",
    "reconsiders", "common", "in_first_round", "n_planned", "n_first_round", "n_common", "n_reach", "n_cap", "reward",
)  # fmt: skip
#: Columns computed from response texts. They take two thirds of the join's time, so they are optional.
OF_TEXTS = ("strategy", "looped", "reconsiders")
#: Columns that ``graded_samples`` lacks for a kept series.
NOT_KEPT = ("response_id", "text", "logp_sum_raw", "answer", "reason")
#: Views that query another kept view.
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
# Texts are dropped before the join with the grades, so that it needs only a few machine words per sample.
_PART = """
CREATE OR REPLACE TEMP TABLE kept_part AS
WITH drawn AS (
    SELECT
        c.cell, c.is_base, c.n_first_round, c.n_common, c.verifier, s.problem_id, s.response_id, s.greedy,
        s.sample_index, s.n_tokens, s.finish_reason, s.logp_sum_raw, {of_texts}
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
FROM drawn AS s
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
    WHERE is_base AND NOT greedy AND sample_index < n_first_round
    GROUP BY cell, response_id
    """,
)
#: View → its query on the tables of a kept series, with columns in the view's order.
_KEPT = {
    "graded_samples": """
        SELECT {columns}
        FROM (
            SELECT
                c.*, s.* EXCLUDE (cell, finish_reason, state), s.finish_reason::VARCHAR AS finish_reason,
                s.state::VARCHAR AS state, CASE WHEN s.is_code THEN 'code' ELSE 'prose' END AS strategy,
                s.sample_index < c.n_common AS common, s.sample_index < c.n_first_round AS in_first_round
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
    """Series of one connection whose graded samples are cached.

    Rows written after ``keep`` are not visible in its views.
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
        """Cache ``series`` inside the block; no effect if an outer block already does.

        With ``texts=False``, response texts are not read and ``graded_samples`` lacks the columns ``OF_TEXTS``. Raises
        ``StoreError`` if the store cannot be read.
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
        """Make the views query the store inside the block, with all columns."""
        kept, self._kept = self._kept, {}
        try:
            if kept:
                self._refresh_views()
            yield
        finally:
            self._kept = kept
            if kept:
                self._refresh_views()

    def count(self, stage: Stage) -> None:
        """Count all samples. The count views use the result until the store is closed.

        Creates the table ``counted_samples``, which also has the columns ``n_cut`` and ``n_lenient``. Must not be
        called while a series is kept. Raises ``StoreError``.
        """
        with self._database.explain_errors():
            count_samples(self._database, stage, SAMPLES_PER_PART)
            for view, query in _COUNT_VIEWS.items():
                self._create_view(view, query)
            self._counted = True

    def count_for(self, sql: str) -> None:
        """Call ``count`` if ``sql`` uses a count view of more than ``COUNTED_FROM`` samples.

        Without this, the view joins all samples at once: eleven times the memory with ten million samples.
        """
        if not self._for_user or self._counted or self._kept or not _NAMES_COUNTS.search(sql):
            return
        ((planned,),) = self._database.rows("SELECT coalesce(sum(n_planned), 0)::BIGINT FROM planned_samples")
        if planned > COUNTED_FROM:
            self.count(lambda n: nullcontext(lambda counted: None))

    def _keep(self, series: str, *, texts: bool) -> None:
        # connections of one process to the same file share attached databases, so the name must be unique
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
        # DuckDB would compile a pattern passed as a parameter again for every sample
        part = _PART.format(**tables, of_texts=_OF_TEXTS.format(pattern=pattern) if texts else _NO_TEXTS)
        for first, last, _ in _problem_ranges(self._database, tables["cells"], SAMPLES_PER_PART):
            run(part, {"first": first, "last": last})
            for statement in _FROM_PART:
                run(statement.format(**tables))
            run(f"CHECKPOINT {home}")
        run("DROP TABLE IF EXISTS temp.kept_part")
        self._refresh_views()

    def _drop(self, series: str) -> None:
        if self._kept.pop(series, None) is None:  # _keep failed
            return
        self._without_texts.discard(series)
        self._refresh_views()
        self._database.rows("DROP TABLE IF EXISTS temp.kept_part")
        self._database.rows(f"DETACH {self._homes.pop(series)}")

    def _refresh_views(self) -> None:
        """Make the views query the kept tables."""
        if not self._kept:
            for view in (*_ON_TOP, *_KEPT):
                self._database.rows(f"DROP VIEW IF EXISTS temp.{view}")
            self._database.refresh_views()
            return
        for view, kept in _KEPT.items():
            columns = self._columns()
            parts = [kept.format(**tables, columns=columns) for tables in self._kept.values()]
            self._create_view(view, " UNION ALL BY NAME ".join([*parts, self._query_of_others(view)]))
        for view in _ON_TOP:
            self._create_view(view, _view_queries()[view])

    def _create_view(self, view: str, query: str) -> None:
        self._database.rows(f"CREATE OR REPLACE TEMP VIEW {view} AS {query}")

    def _columns(self) -> str:
        """Return the columns of ``graded_samples`` that are available for all kept series."""
        return ", ".join(name for name in KEPT_COLUMNS if not (self._without_texts and name in OF_TEXTS))

    def _query_of_others(self, view: str) -> str:
        """Return a query for the view's rows of all series that are not kept."""
        columns = self._columns() if view == "graded_samples" else "*"
        # in ``views.sql`` the name would now refer to the kept view; this query needs the stored columns of all series
        whole = _view_queries()["graded_samples"]
        query = _view_queries()[view].replace("FROM graded_samples", f"FROM ({whole})")
        return f"SELECT {columns} FROM ({query}) WHERE series NOT IN ({_texts(list(self._kept))})"


@cache
def _view_queries() -> dict[str, str]:
    """Return the query of every view in ``views.sql``, by name."""
    pattern = r"^CREATE OR REPLACE (?:TEMP )?VIEW (\w+) AS\n(.*?);$"
    return dict(re.findall(pattern, script("views.sql"), re.MULTILINE | re.DOTALL))


def _texts(values: Sequence[str]) -> str:
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)
