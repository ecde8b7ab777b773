"""Load details of single problems: counts in both halves of the base's samples, confirmations, modes, responses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.cells import HEAD_CHARACTERS, TAIL_CHARACTERS
from oversharp.diagnostics.store.load import Frames
from oversharp.reports.evidence.problem_changes import pick_problems, problem_changes
from oversharp.reports.evidence.source import Source

#: Maximum number of characters to show of a prompt, and of an answer.
TEXT_CAP, MODE_CAP = 1200, 120
#: Maximum number of correct modes, and of wrong ones, to read per problem and series. It exceeds the number of shown
#: modes, because the most frequent modes differ between series.
READ_MODES = 24

_HALVES = """
SELECT
    series,
    problem_id,
    count(*) FILTER (sample_index < n_first_round // 2) AS n_first,
    count(*) FILTER (correct AND sample_index < n_first_round // 2) AS c_first,
    count(*) FILTER (sample_index >= n_first_round // 2) AS n_second,
    count(*) FILTER (correct AND sample_index >= n_first_round // 2) AS c_second
FROM graded_samples
WHERE is_base AND NOT greedy AND in_first_round
GROUP BY series, problem_id
ORDER BY series, problem_id
"""
_FRESH = """
SELECT series, problem_id, step, change, n_base, correct_base, n_late, correct_late, p, p_adjusted, confirmed
FROM confirmed_problems
QUALIFY row_number() OVER (PARTITION BY series, problem_id ORDER BY step DESC) = 1
ORDER BY series, p_adjusted, problem_id
"""
# The problem ids are a list parameter, because DuckDB pushes it into both sides of the join inside the view. If they
# were a table, DuckDB would first join all samples with all grades.
_MODES = """
WITH counted AS (
    SELECT
        series,
        problem_id,
        coalesce(mode, answer, 'answer not recorded') AS mode,
        correct,
        coalesce(bool_or(mode != answer), false) AS is_mode,
        coalesce(sum(n) FILTER (step = $base_step), 0) AS n_base,
        coalesce(sum(n) FILTER (step = $last_step), 0) AS n_late
    FROM answer_counts
    WHERE list_contains($problem_ids, problem_id) AND series = $series AND step IN ($base_step, $last_step)
    GROUP BY ALL
)
SELECT
    series,
    problem_id,
    left(mode, $cap) AS mode,
    correct,
    bool_or(is_mode) OVER (PARTITION BY problem_id) AS is_mode,
    CAST(n_base AS BIGINT) AS n_base,
    CAST(n_late AS BIGINT) AS n_late,
    count(*) OVER (PARTITION BY problem_id) AS n_modes
FROM counted
QUALIFY row_number() OVER (
    PARTITION BY problem_id, correct ORDER BY greatest(n_base, n_late) DESC, n_base + n_late DESC, counted.mode
) <= $shown
ORDER BY problem_id, greatest(n_base, n_late) DESC, n_base + n_late DESC, correct DESC, mode
"""
# Order: correct responses first at the base, and at the last checkpoint for gained problems; then the most frequent.
# Only as many samples of the base are used as every checkpoint has (n_common); all of them with a stopping rule.
_RESPONSES = """
WITH texts AS (
    SELECT
        series, problem_id, is_base, response_id,
        first(
            CASE WHEN length(text) > $head + $tail THEN left(text, $head) ELSE text END ORDER BY sample_index
        ) AS text,
        first(CASE WHEN length(text) > $head + $tail THEN right(text, $tail) ELSE '' END ORDER BY sample_index) AS tail,
        first(length(text) ORDER BY sample_index) AS n_characters,
        first(left(answer, $cap) ORDER BY sample_index) AS answer,
        bool_or(correct) AS correct,
        -- imported grades have no state
        first(CASE WHEN verifier NOT LIKE 'recorded:%' THEN state END ORDER BY sample_index) AS state,
        first(reason ORDER BY sample_index) AS reason,
        min(sample_index) AS first_index,
        count(*) AS n
    FROM audit_samples
    WHERE list_contains($problem_ids, problem_id) AND role = 'own' AND correct IS NOT NULL
      AND NOT greedy AND (sample_index < n_common OR $stopped) AND series = $series
      AND (is_base OR step = $last_step)
    GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY problem_id, is_base
            ORDER BY correct AND (is_base OR list_contains($gained, problem_id)) DESC, n DESC, first_index, response_id
        ) AS place
    FROM texts
)
SELECT * FROM ranked WHERE place <= 2 ORDER BY problem_id, is_base DESC, place
"""


_HALF_COLUMNS = ["series", "problem_id", "n_first", "c_first", "n_second", "c_second"]
_FRESH_COLUMNS = [
    "series", "problem_id", "step", "change", "n_base", "correct_base", "n_late", "correct_late", "p", "p_adjusted",
    "confirmed",
]  # fmt: skip
_MODE_COLUMNS = ["series", "problem_id", "mode", "correct", "is_mode", "n_base", "n_late", "n_modes"]
_RESPONSE_COLUMNS = [
    "series", "problem_id", "is_base", "text", "tail", "n_characters", "answer", "correct", "state", "reason", "n",
    "place",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ProblemDetails:
    """Details of single problems, in frames with a ``series`` column.

    Attributes:
        picked: Ids of the problems that are shown individually.
        halves: Counts of correct samples of the base in the first and the second half of the sample indices. With a
            stopping rule, in both halves of the first round.
        fresh: Counts of the problems that were sampled again to confirm their loss or gain.
        modes: Counts of each mode at base and last checkpoint, among the same number of samples: with a stopping rule,
            those of the first round. ``n_modes`` is the number of distinct modes of the problem. ``is_mode`` is whether
            the grader distinguishes modes, not only answers.
        responses: Two responses per problem at the base, and two at the last checkpoint, from the samples that
            ``problem_counts`` counts. ``text`` is the whole text. For a long response it is the first
            ``HEAD_CHARACTERS``, and ``tail`` has the last ``TAIL_CHARACTERS``.
    """

    picked: tuple[str, ...] = ()
    halves: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_HALF_COLUMNS))
    fresh: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_FRESH_COLUMNS))
    modes: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_MODE_COLUMNS))
    responses: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_RESPONSE_COLUMNS))


def read_problem_details(store: Frames, source: Source) -> ProblemDetails:
    """Read the details of single problems that the report shows. The database truncates long texts."""
    trained = [series for series in source.series if series.base_step != series.last_step]
    if not trained:
        return ProblemDetails()
    changes = {series.name: problem_changes(source, series) for series in trained}
    fresh = store.frame(_FRESH)
    confirmed = fresh[fresh["confirmed"].astype(bool)]
    picked = pick_problems(
        list(changes.values()),
        [[str(v) for v in confirmed.loc[confirmed["series"] == series.name, "problem_id"]] for series in trained],
    )
    modes, responses = [], []
    for series in trained:
        ids = [problem_id for problem_id in picked if problem_id in series.problem_ids]
        own = changes[series.name]
        gained = [str(v) for v in own.loc[own["state"].isin(["gained", "rose"]), "problem_id"] if v in ids]
        parameters: dict[str, Any] = {"series": series.name, "problem_ids": ids, "last_step": series.last_step}
        modes.append(store.frame(_MODES, base_step=series.base_step, cap=MODE_CAP, shown=READ_MODES, **parameters))
        ends = {"head": HEAD_CHARACTERS, "tail": TAIL_CHARACTERS}
        chosen = {"gained": gained, "stopped": series.is_stopped}
        responses.append(store.frame(_RESPONSES, cap=MODE_CAP, **chosen, **ends, **parameters))
    return ProblemDetails(
        picked=picked,
        halves=store.frame(_HALVES),
        fresh=fresh,
        modes=pd.concat(modes, ignore_index=True),
        responses=pd.concat(responses, ignore_index=True),
    )
