"""Counts of one checkpoint from the store: of all samples, and after each round of a stopping rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.counts import CheckpointCounts, RoundCounts
from oversharp.diagnostics.verdict.results import Rates

#: Checkpoints of a series, with their planned numbers of samples per problem.
PLANNED = """
SELECT
    checkpoint_id, checkpoint, step, is_base,
    min(n_planned) AS n, max(n_planned) AS n_most, any_value(n_cap) AS n_cap
FROM planned_samples
WHERE series = $series
GROUP BY ALL
ORDER BY step
"""
# One row per problem and round of the stopping rule; without a rule, all samples are one round. An import may have
# unequal numbers of samples. Then only the first n_used samples of each problem count: all problems have as many.
COUNTS = """
WITH planned AS (
    SELECT
        w.step, w.problem_id, w.n_planned, w.n_cap, a.first_round,
        min(w.n_planned) OVER (PARTITION BY w.step) AS n_least
    FROM planned_samples AS w
    JOIN current_audits AS a USING (audit_id)
    WHERE w.series = $series
),
used AS (
    SELECT
        step, problem_id, n_cap, first_round,
        CASE WHEN first_round IS NULL THEN n_least ELSE n_planned END AS n_used,
        CASE WHEN first_round IS NULL THEN n_least ELSE least(first_round, n_cap) END AS n_first
    FROM planned
),
base_modes AS (
    SELECT problem_id, mode, count(*) AS n
    FROM graded_samples
    JOIN used USING (step, problem_id)
    WHERE series = $series AND is_base AND greedy = $greedy AND correct AND mode IS NOT NULL
      AND sample_index < used.n_first // 2
    GROUP BY problem_id, mode
),
dominant_modes AS (
    SELECT problem_id, mode AS dominant
    FROM base_modes
    QUALIFY row_number() OVER (PARTITION BY problem_id ORDER BY n DESC, mode) = 1
)
SELECT
    step,
    problem_id,
    -- number of samples after the round in which the sample was drawn
    CASE WHEN first_round IS NULL OR sample_index < used.n_first THEN used.n_first
        ELSE least(used.n_cap, first_round::BIGINT << length(bin(sample_index // first_round))) END::INTEGER
        AS n_round,
    any_value(n_used) AS n_used,
    bool_or(dominant IS NOT NULL) AS shows_modes,
    count(*) AS n,
    count(*) FILTER (correct) AS n_correct,
    -- the first half of the base's samples determined the dominant mode and does not count here
    count(*) FILTER (
        correct AND mode <> dominant AND sample_index < used.n_first
            AND (NOT is_base OR sample_index >= used.n_first // 2)
    ) AS n_minority,
    min(sample_index) FILTER (correct) AS first_correct,
    min(sample_index) FILTER (NOT correct) AS first_wrong,
    count(finish_reason) AS n_ended,  -- NULL: another tool sampled and did not record it
    count(*) FILTER (why_unread(correct, finish_reason, state, n_boxed) = 'cut') AS n_truncated,
    -- neither finish reason nor grading state: unknown whether it was parsed
    count(*) FILTER (NOT correct AND finish_reason IS NULL AND state IS NULL) AS n_untold,
    count(why_unread(correct, finish_reason, state, n_boxed)) AS n_unread,
    -- truncated and timed-out samples are unparsed, whatever number their text ends with
    count(*) FILTER (
        correct OR (lenient AND finish_reason IS DISTINCT FROM 'length' AND state IS DISTINCT FROM 'timeout')
    ) AS n_lenient,
    count(*) FILTER (lenient IS NULL) AS n_read_once,  -- without a second reader
    count(*) FILTER (state = 'parse_fail') AS n_not_parsed,
    count(*) FILTER (state = 'ambiguous') AS n_ambiguous,
    count(*) FILTER (state = 'timeout') AS n_timed_out,
    count(*) FILTER (state = 'error') AS n_failed,
    count(n_tokens) AS n_measured,
    coalesce(sum(n_tokens), 0)::BIGINT AS n_tokens
FROM graded_samples
JOIN used USING (step, problem_id)
LEFT JOIN dominant_modes USING (problem_id)
WHERE series = $series AND greedy = $greedy AND sample_index < n_used
GROUP BY step, problem_id, n_round
ORDER BY step, problem_id, n_round
"""
#: Columns of ``COUNTS`` that are summed over rounds.
_SUMMED = ["n", "n_correct", "n_minority", "n_unread", "n_lenient"]


def rule_of(key: AuditKey, planned: Any) -> StoppingRule | None:
    """Return the stopping rule of a checkpoint's samples; None if every problem has as many."""
    if key.first_round is None or key.enough is None:
        return None
    return StoppingRule.doubling(first=key.first_round, cap=int(planned.n_cap), enough=key.enough)


def checkpoint_counts(
    planned: Any, rows: pd.DataFrame, problem_ids: pd.Index, why: str | None, rule: StoppingRule | None
) -> CheckpointCounts:
    """Return the counts of one checkpoint from its rows of ``COUNTS``."""
    firsts = rows.drop_duplicates("problem_id")  # of the first round
    sums = rows.groupby("problem_id")[_SUMMED].sum()
    by_problem = sums.reindex(problem_ids)
    n = int(planned.n) if rule is None else rule.cap
    # a problem without samples is NaN, which is unequal to any number
    wanted_P = n if rule is None else firsts.set_index("problem_id")["n_used"].reindex(problem_ids)
    n_incomplete = int((by_problem["n"] != wanted_P).sum())
    if why is None and n_incomplete:
        why = f"{n_incomplete} of {len(problem_ids)} problems lack samples"
    rates = None
    n_counted = int(firsts["n"].sum())
    if n_counted:
        share = firsts[["n_not_parsed", "n_ambiguous", "n_timed_out"]].sum() / n_counted
        n_ended = int(firsts["n_ended"].sum())
        rates = Rates(
            step=int(planned.step),
            checkpoint=str(planned.checkpoint),
            truncated=int(firsts["n_truncated"].sum()) / n_ended if n_ended else None,
            not_parsed=float(share["n_not_parsed"]),
            ambiguous=float(share["n_ambiguous"]),
            timed_out=float(share["n_timed_out"]),
        )

    def column(name: str) -> Int[np.ndarray, " problem"]:
        return by_problem[name].fillna(0).to_numpy(dtype=np.int64)

    knows_unread = bool(n_counted) and not rows["n_untold"].any()
    knows_lenient = bool(n_counted) and not rows["n_read_once"].any()
    correct_P, lenient_P, rounds = column("n_correct"), column("n_lenient") if knows_lenient else None, None
    if rule is not None and why is None:
        rounds = RoundCounts(
            rule=rule,
            correct_RP=_by_round(rows, rule, "n_correct", problem_ids),
            unread_RP=_by_round(rows, rule, "n_unread", problem_ids) if knows_unread else None,
            lenient_RP=_by_round(rows, rule, "n_lenient", problem_ids) if knows_lenient else None,
        )
        correct_P, lenient_P = rounds.codes, rounds.lenient_codes
        n_unfit = int((rule.hits(correct_P)[0] != column("n")).sum())
        if n_unfit:
            why = (
                f"the samples of {n_unfit} of {len(problem_ids)} problems do not fit the stopping rule; run the audit "
                "again, or oversharp regrade if grades were changed"
            )
    first = rows.groupby("problem_id")[["first_correct", "first_wrong"]].min().reindex(problem_ids)
    return CheckpointCounts(
        step=int(planned.step),
        checkpoint=str(planned.checkpoint),
        n=n,
        n_most=int(planned.n_most) if rule is None else None,
        correct_P=correct_P,
        minority_P=column("n_minority"),
        rates=rates,
        unread_P=column("n_unread") if knows_unread else None,
        lenient_P=lenient_P,
        why=why,
        weights=str(planned.checkpoint_id),
        first_correct_P=first["first_correct"].fillna(n).to_numpy(dtype=np.int64),
        first_wrong_P=first["first_wrong"].fillna(n).to_numpy(dtype=np.int64),
        rounds=rounds,
    )


def _by_round(
    rows: pd.DataFrame, rule: StoppingRule, column: str, problem_ids: pd.Index
) -> Int[np.ndarray, "round problem"]:
    """Return the sums of a column over all rounds up to each one."""
    table = rows.pivot(index="n_round", columns="problem_id", values=column)
    table = table.reindex(index=list(rule.rounds), columns=problem_ids).fillna(0)
    return table.to_numpy(dtype=np.int64).cumsum(axis=0)
