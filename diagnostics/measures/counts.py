"""Counts of samples by problem, with the rule that makes checkpoints comparable: all planned samples, or none.

A checkpoint where some problem has fewer samples than planned (an interrupted audit) would be a mean over other
problems, or an entropy at another sample size. It gets a reason instead of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import Interval

NO_SAMPLES = "no graded samples"
#: The reason where modes are named and yet nothing can be counted.
ONE_MODE = (
    "no problem shows a second correct mode at any checkpoint: the grader may take all correct answers for one, "
    "as choice, exact and math do"
)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Samples and correct samples of every problem at one checkpoint, in an order shared by all checkpoints.

    ``task_P`` names each problem's task, ``cluster_P`` its cluster if the audit has clusters.
    """

    problem_ids: tuple[str, ...]
    task_P: np.ndarray
    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def fewest(self) -> int:
        """The smallest number of samples of a problem; pass@k exists up to it."""
        return int(self.n_P.min())

    @property
    def is_solved(self) -> Bool[np.ndarray, " problem"]:
        """Whether a problem has a correct sample."""
        return self.correct_P > 0

    def pass_at_k(self, k: int) -> Float[np.ndarray, " problem"]:
        """Return the unbiased pass@k of each problem. Raises ``ValueError`` if a problem has fewer than k samples."""
        return pass_at_k_of(self.n_P, self.correct_P, k)


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """Counts of distinct labels (answers, modes, ways) at one checkpoint, sorted by problem and label.

    ``group_A`` numbers the problem of each label (0 … n_problems − 1); ``cluster_P`` has the clusters of these
    problems if the audit has clusters.
    """

    counts_A: Int[np.ndarray, " label"]
    group_A: Int[np.ndarray, " label"]
    n_problems: int
    cluster_P: Int[np.ndarray, " problem"] | None = None


def pass_at_k_of(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k: int
) -> Float[np.ndarray, " problem"]:
    """Return the unbiased pass@k of each problem. Raises ``ValueError`` if a problem has fewer than k samples.

    >>> pass_at_k_of(np.array([4, 2]), np.array([1, 1]), 2).tolist()
    [0.5, 1.0]
    """
    return by_counts(n_P, correct_P, lambda n: pass_at_k_table(n, [k])[:, 0])


def by_counts(
    n_P: Int[np.ndarray, " problem"],
    correct_P: Int[np.ndarray, " problem"],
    table: Callable[[int], Float[np.ndarray, " correct"]],
) -> Float[np.ndarray, " problem"]:
    """Look up each problem in ``table(n)``, which has a value for every number of correct samples among n."""
    value_P = np.empty(len(n_P), dtype=np.float64)
    for n in np.unique(n_P):
        value_P[n_P == n] = table(int(n))[correct_P[n_P == n]]
    return value_P


def rarefaction(
    n_P: Int[np.ndarray, " problem"],
    place_A: Int[np.ndarray, " label"],
    count_A: Int[np.ndarray, " label"],
    k: int,
) -> Float[np.ndarray, " problem"]:
    """Return the expected number of distinct labels among k samples of each problem.

    ``place_A`` is the problem of each label, ``count_A`` how often it occurs among the problem's ``n_P`` samples.
    Source: Hurlbert 1971, Ecology 52:577, Eq 14.

    >>> rarefaction(np.array([4]), np.array([0, 0]), np.array([2, 1]), 2).round(4).tolist()  # 1 − 1/6 + 1 − 3/6
    [1.3333]
    """
    n_A = n_P[place_A]
    seen_A = np.zeros(len(place_A))
    for n in np.unique(n_A):
        seen_A[n_A == n] = pass_at_k_table(int(n), [k])[count_A[n_A == n], 0]
    return np.bincount(place_A, weights=seen_A, minlength=len(n_P))


def too_few_samples(k: int, n: int) -> str | None:
    """Return the reason why pass@k is unknown with n samples, or None."""
    return f"pass@{k} needs at least {k} samples per problem; there are {n}" if k > n else None


def without_interval(interval: Interval) -> Interval:
    """Return the mean alone, for a value whose interval would promise too much."""
    return replace(interval, low=None, high=None, why=None)


def within_reach(interval: Interval, k: int, n: int) -> Interval:
    """Drop the interval beyond k = n/2, where the sampling variance cannot be estimated; k = 1 always keeps it."""
    return interval if k <= max(1, n // 2) else without_interval(interval)


def reciprocal(interval: Interval) -> Interval:
    """Return 1 over a positive mean, with its interval; the upper end is open (None) if the index could be 0."""
    return replace(
        interval,
        mean=1.0 / interval.mean,
        low=1.0 / interval.high if interval.high else None,
        high=1.0 / interval.low if interval.low else None,
    )


def clusters_among(
    cluster_P: Int[np.ndarray, " problem"] | None, is_chosen_P: Bool[np.ndarray, " problem"]
) -> Int[np.ndarray, " problem"] | None:
    """Return the clusters of the chosen problems, None if the audit has no clusters."""
    return None if cluster_P is None else cluster_P[is_chosen_P]


def scopes_by_task(task_P: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return scope names and masks: ``all``, and ``task:NAME`` for each task if there are several."""
    tasks = np.unique(task_P)
    whole = [("all", np.ones(len(task_P), dtype=bool))]
    return whole if len(tasks) < 2 else whole + [(f"task:{task}", task_P == task) for task in tasks]


def common_counts(evidence: Evidence) -> Loaded[Counts]:
    """Load the view ``problem_counts``: equally many samples of a problem at every checkpoint."""
    return evidence.once(_common_counts)


def sampled_counts(evidence: Evidence) -> Loaded[Counts]:
    """Load the view ``sampled_counts``: all samples; the base may have more than the others."""
    return evidence.once(_sampled_counts)


def _common_counts(evidence: Evidence) -> Loaded[Counts]:
    return _counts(evidence, "problem_counts")


def _sampled_counts(evidence: Evidence) -> Loaded[Counts]:
    return _counts(evidence, "sampled_counts")


def _counts(evidence: Evidence, view: str) -> Loaded[Counts]:
    frame = evidence.frames[view]
    if frame.empty:
        return {}, dict.fromkeys(evidence.checkpoint_ids, NO_SAMPLES)
    why = reasons(evidence, frame, frame["n"])
    table = frame.pivot(index="checkpoint_id", columns="problem_id", values=["n", "n_correct"])
    task_of_problem = frame.drop_duplicates("problem_id").set_index("problem_id")["task"]
    problem_ids = tuple(map(str, table["n"].columns))
    task_P = task_of_problem.reindex(table["n"].columns).to_numpy(dtype=str)
    cluster_P = evidence.clusters(problem_ids)
    counts = {
        i: Counts(
            problem_ids=problem_ids,
            task_P=task_P,
            n_P=table["n"].loc[i].to_numpy(dtype=np.int64),
            correct_P=table["n_correct"].loc[i].to_numpy(dtype=np.int64),
            cluster_P=cluster_P,
        )
        for i in evidence.checkpoint_ids
        if i not in why
    }
    return counts, why


def reasons(
    evidence: Evidence, frame: pd.DataFrame, n_of_row: pd.Series, *, expected: int | None = None
) -> dict[str, str]:
    """Return why a checkpoint cannot be used: some problem has another number of samples than planned.

    ``expected`` replaces the frame's column ``n_planned`` if every problem needs the same number.
    """
    keys = [frame["checkpoint_id"], frame["problem_id"]]
    n_of_problem = n_of_row.groupby(keys).sum()
    planned = frame["n_planned"].groupby(keys).first() if expected is None else expected
    complete = (n_of_problem == planned).groupby(level="checkpoint_id").sum()
    n_problems = frame["problem_id"].nunique()
    each = f"exactly {expected}" if expected is not None else _each(frame["n_planned"])
    why = {}
    for checkpoint_id in evidence.checkpoint_ids:
        n_complete = int(complete.get(checkpoint_id, 0))
        if n_complete < n_problems:
            why[checkpoint_id] = (
                f"{n_complete} of {n_problems} problems have {each} graded samples here; "
                "run the audit again to complete them"
            )
    return why


def _each(n_planned: pd.Series) -> str:
    return f"exactly {n_planned.iloc[0]}" if n_planned.nunique() == 1 else "the planned number of"


COMMON_COUNTS = Input(load=common_counts, needs=("problem_counts",), missing=NO_SAMPLES)
SAMPLED_COUNTS = Input(load=sampled_counts, needs=("sampled_counts",), missing=NO_SAMPLES)
#: Columns that measures read of ``answer_counts``, which may have a row for every sample.
ANSWER_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "answer_counts": ("checkpoint_id", "problem_id", "answer", "mode", "correct", "n", "n_planned")
}


def label_counts(evidence: Evidence, rows: pd.DataFrame, label: str, *, least: int = 1) -> LabelCounts:
    """Count the distinct values of column ``label`` at one checkpoint, over problems with ``least`` samples or more.

    ``rows`` has the columns problem_id, n and ``label``, and may split a label into several rows. Rows without a label
    do not count.
    """
    counts = rows.groupby(["problem_id", label], observed=True)["n"].sum().reset_index()
    counts = counts[counts.groupby("problem_id", observed=True)["n"].transform("sum") >= least]
    group_A, problems = pd.factorize(counts["problem_id"])
    return LabelCounts(
        counts_A=counts["n"].to_numpy(dtype=np.int64),
        group_A=group_A,
        n_problems=len(problems),
        cluster_P=evidence.clusters(map(str, problems)),
    )


def label_counts_by_checkpoint(
    evidence: Evidence, rows: pd.DataFrame, label: str, *, least: int = 1
) -> dict[str, LabelCounts]:
    """Return ``label_counts`` at every checkpoint; ``rows`` has the column checkpoint_id too."""
    rows_of = dict(iter(rows.groupby("checkpoint_id", observed=True)))
    return {i: label_counts(evidence, rows_of.get(i, rows[:0]), label, least=least) for i in evidence.checkpoint_ids}


def shows_a_second_mode(evidence: Evidence) -> bool:
    """Return whether the correct samples of some problem have two different modes, at any checkpoint.

    Otherwise every number of modes would be 1 and the leading share 1, whatever training did. The samples decide and
    not the verifier's declaration, because verifiers of other packages need not make one.
    """
    return evidence.once(_shows_a_second_mode)


def _shows_a_second_mode(evidence: Evidence) -> bool:
    frame = evidence.frames["answer_counts"]
    correct = frame[frame["correct"].astype(bool)]
    return bool((correct.groupby("problem_id")["mode"].nunique() > 1).any())
