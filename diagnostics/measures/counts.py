"""Counts of samples by problem, for the checkpoints that have all planned samples.

A checkpoint may have fewer samples than planned, for example after an interrupted audit. Then it has a reason instead
of a number, because its mean would cover other problems, or its entropy another number of samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.declare import Input, Loaded
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.statistics.units import Interval

NO_SAMPLES = "no graded samples"
#: Reason for measures of modes if every problem has at most one correct mode.
ONE_MODE = (
    "no problem has samples of two correct modes at any checkpoint; the grader may treat all correct answers as one "
    "mode, as choice, exact and math do"
)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Number of samples and of correct samples of each problem at one checkpoint.

    The order of problems is the same at all checkpoints.

    Attributes:
        task_P: task of each problem.
        cluster_P: cluster of each problem if the audit has clusters.
        rule: the stopping rule that determined ``n_P``, None without one. Then c / n is biased: use ``pass_at_k``.
        of_first_round: whether these are only the samples of the rule's first round.
        solved_P: whether each problem is solved in ``reach_P`` samples, if that is known for more than ``n_P``.
        reach_P: number of samples that ``is_solved`` is about, if it is not ``n_P``.
    """

    problem_ids: tuple[str, ...]
    task_P: np.ndarray
    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    cluster_P: Int[np.ndarray, " problem"] | None = None
    rule: StoppingRule | None = None
    of_first_round: bool = False
    solved_P: Bool[np.ndarray, " problem"] | None = None
    reach_P: Int[np.ndarray, " problem"] | None = None

    @property
    def fewest(self) -> int:
        """The largest k of pass@k: the smallest number of samples of any problem, or the cap of the rule."""
        return int(self.n_P.min()) if self.rule is None else self.rule.cap

    @property
    def is_solved(self) -> Bool[np.ndarray, " problem"]:
        """Whether each problem has a correct sample."""
        return self.correct_P > 0 if self.solved_P is None else self.solved_P

    def pass_at_k(self, k: int) -> Float[np.ndarray, " problem"]:
        """Return the unbiased pass@k of each problem. Raises ``ValueError`` for k > n."""
        return compute_pass_at_k(self.n_P, self.correct_P, k, self.rule)

    def explain_too_few(self, k: int) -> str | None:
        """Return the reason why pass@k is unknown, None if it is known."""
        return explain_too_few(k, self.fewest, of_first_round=self.of_first_round)


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """Counts of distinct labels (answers, modes or ways) by problem at one checkpoint.

    ``group_A`` is the index of each label's problem (0 … n_problems − 1). ``cluster_P`` is the cluster of each problem
    if the audit has clusters.
    """

    counts_A: Int[np.ndarray, " label"]
    group_A: Int[np.ndarray, " label"]
    n_problems: int
    cluster_P: Int[np.ndarray, " problem"] | None = None


def compute_pass_at_k(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k: int, rule: StoppingRule | None = None
) -> Float[np.ndarray, " problem"]:
    """Return the unbiased pass@k of each problem, of samples that ``rule`` stopped if given.

    Raises ``ValueError`` for k > n.

    >>> compute_pass_at_k(np.array([4, 2]), np.array([1, 1]), 2).tolist()
    [0.5, 1.0]
    """
    if rule is not None:
        return rule.pass_at_k_table([k])[rule.codes(n_P, correct_P), 0]
    return look_up_by_counts(n_P, correct_P, lambda n: pass_at_k_table(n, [k])[:, 0])


@dataclass(frozen=True, kw_only=True)
class ControlSamples:
    """Numbers of samples and of correct samples of each problem at another temperature."""

    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    rule: StoppingRule | None = None

    @classmethod
    def from_rows(cls, evidence: Evidence, rows: pd.DataFrame) -> ControlSamples:
        """Return the counts of these rows of ``control_counts``, which are complete, one per problem."""
        n_P, correct_P = rows["n"].to_numpy(np.int64), rows["n_correct"].to_numpy(np.int64)
        rule = evidence.stopping_rule(int(rows["n_cap"].iloc[0])) if evidence.is_stopped else None
        return cls(n_P=n_P, correct_P=correct_P, rule=rule)

    @property
    def n_most(self) -> int:
        """Largest k with an estimate of pass@k."""
        return int(self.n_P.min()) if self.rule is None else self.rule.cap

    def pass_at_k(self, k: int) -> Float[np.ndarray, " problem"]:
        """Return the unbiased pass@k of each problem. Raises ``ValueError`` for k above ``n_most``."""
        return compute_pass_at_k(self.n_P, self.correct_P, k, self.rule)


def look_up_by_counts(
    n_P: Int[np.ndarray, " problem"],
    correct_P: Int[np.ndarray, " problem"],
    table: Callable[[int], Float[np.ndarray, " correct"]],
) -> Float[np.ndarray, " problem"]:
    """Return ``table(n)[c]`` for each problem with n samples, of which c are correct."""
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

    ``place_A`` is the index of each label's problem, ``count_A`` the number of that problem's samples with the label.
    Source: Hurlbert 1971, Ecology 52:577, Eq 14.

    >>> rarefaction(np.array([4]), np.array([0, 0]), np.array([2, 1]), 2).round(4).tolist()  # 1 − 1/6 + 1 − 3/6
    [1.3333]
    """
    n_A = n_P[place_A]
    seen_A = np.zeros(len(place_A))
    for n in np.unique(n_A):
        seen_A[n_A == n] = pass_at_k_table(int(n), [k])[count_A[n_A == n], 0]
    return np.bincount(place_A, weights=seen_A, minlength=len(n_P))


def explain_too_few(k: int, n: int, *, of_first_round: bool = False) -> str | None:
    """Return the reason why pass@k is unknown with n samples, None if it is known."""
    if k <= n:
        return None
    if of_first_round:  # one text for all k, which the report prints once
        return f"k is larger than the first round of {n} samples per problem"
    return f"pass@{k} needs at least {k} samples per problem; there are {n}"


def drop_interval(interval: Interval) -> Interval:
    """Return the value without its interval."""
    return replace(interval, low=None, high=None, why=None)


def keep_reliable_interval(interval: Interval, k: int, n: int) -> Interval:
    """Drop the interval's bounds for k > max(1, n/2).

    For these k the variance cannot be estimated.
    """
    return interval if k <= max(1, n // 2) else drop_interval(interval)


def simpson_interval(counts: LabelCounts) -> Interval:
    """Return the probability that two samples of a problem have the same label.

    The probability is averaged over problems.
    """
    return share_interval(simpson_index(counts.counts_A, counts.group_A, counts.n_problems), cluster_P=counts.cluster_P)


def effective_number(counts: LabelCounts) -> Interval | None:
    """Return 1 / ``simpson_interval``, None if no two samples have the same label.

    A bound of 0 becomes None.
    """
    index = simpson_interval(counts)
    if index.mean == 0.0:
        return None
    return replace(
        index,
        mean=1.0 / index.mean,
        low=1.0 / index.high if index.high else None,
        high=1.0 / index.low if index.low else None,
    )


def select_clusters(
    cluster_P: Int[np.ndarray, " problem"] | None, is_chosen_P: Bool[np.ndarray, " problem"]
) -> Int[np.ndarray, " problem"] | None:
    """Return the clusters of the chosen problems, None if the audit has no clusters."""
    return None if cluster_P is None else cluster_P[is_chosen_P]


def list_task_scopes(task_P: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Return scope names and masks: ``all``, and ``task:NAME`` if there are several tasks."""
    tasks = np.unique(task_P)
    whole = [("all", np.ones(len(task_P), dtype=bool))]
    return whole if len(tasks) < 2 else whole + [(f"task:{task}", task_P == task) for task in tasks]


@cached_per_evidence
def load_common_counts(evidence: Evidence) -> Loaded[Counts]:
    """Load the view ``problem_counts``.

    In it, a problem has the same number of samples at every checkpoint: with a stopping rule, those of the first round.
    """
    return _counts(evidence, "problem_counts")


@cached_per_evidence
def load_sampled_counts(evidence: Evidence) -> Loaded[Counts]:
    """Load the view ``sampled_counts``: all samples.

    The base may have more samples than other checkpoints. With a stopping rule, easy problems have fewer.
    """
    return _counts(evidence, "sampled_counts")


@cached_per_evidence
def load_equal_counts(evidence: Evidence) -> Loaded[Counts]:
    """Load all samples, or with a stopping rule those of the first round.

    For estimates that exist only if the number of samples does not depend on the grades.
    """
    return (load_common_counts if evidence.is_stopped else load_sampled_counts)(evidence)


def _counts(evidence: Evidence, view: str) -> Loaded[Counts]:
    frame = evidence.frames[view]
    if frame.empty:
        return {}, dict.fromkeys(evidence.checkpoint_ids, NO_SAMPLES)
    why = find_incomplete(evidence, frame, frame["n"])
    is_stopped, is_first = evidence.is_stopped, view == "problem_counts"
    if is_stopped:
        why = (_find_unknown(frame) if is_first else _find_unfit(evidence, frame)) | why
    columns = ["n", "n_correct"] + (["solved", "n_reach"] if is_stopped and is_first else [])
    table = frame.pivot(index="checkpoint_id", columns="problem_id", values=columns)
    cap_of = frame.groupby("checkpoint_id")["n_cap"].first() if is_stopped and not is_first else {}
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
            rule=evidence.stopping_rule(int(cap_of[i])) if i in cap_of else None,
            of_first_round=is_stopped and is_first,
            solved_P=table["solved"].loc[i].to_numpy(dtype=bool) if "solved" in columns else None,
            reach_P=table["n_reach"].loc[i].to_numpy(dtype=np.int64) if "n_reach" in columns else None,
        )
        for i in evidence.checkpoint_ids
        if i not in why
    }
    return counts, why


def _find_unknown(frame: pd.DataFrame) -> dict[str, str]:
    """Return a reason for each checkpoint with problems that lack samples of later rounds."""
    unknown = frame["solved"].isna().groupby(frame["checkpoint_id"]).sum()
    n_problems = frame["problem_id"].nunique()
    return {
        str(i): f"{n} of {n_problems} problems lack samples of later rounds; run the audit again to complete them"
        for i, n in unknown.items()
        if n
    }


def _find_unfit(evidence: Evidence, frame: pd.DataFrame) -> dict[str, str]:
    """Return a reason for each checkpoint with samples that its stopping rule cannot leave."""
    why = {}
    for checkpoint_id, rows in frame.groupby("checkpoint_id"):
        rule = evidence.stopping_rule(int(rows["n_cap"].iloc[0]))
        ends = set() if rule is None else set(rule.ends)
        n_unfit = sum(end not in ends for end in zip(rows["n"].tolist(), rows["n_correct"].tolist(), strict=True))
        if n_unfit:
            why[str(checkpoint_id)] = (
                f"the samples of {n_unfit} of {len(rows)} problems do not fit the stopping rule; run the audit again"
            )
    return why


def find_incomplete(
    evidence: Evidence, frame: pd.DataFrame, n_of_row: pd.Series, *, expected: int | None = None
) -> dict[str, str]:
    """Return a reason for each checkpoint that lacks planned samples of any problem.

    The planned number is the column ``n_planned``, or ``expected`` if given.
    """
    keys = [frame["checkpoint_id"], frame["problem_id"]]
    n_of_problem = n_of_row.groupby(keys).sum()
    planned = frame["n_planned"].groupby(keys).first() if expected is None else expected
    complete = (n_of_problem == planned).groupby(level="checkpoint_id").sum()
    n_problems = frame["problem_id"].nunique()
    n_expected = frame["n_planned"].iloc[0] if expected is None else expected
    is_one_number = expected is not None or frame["n_planned"].nunique() == 1
    each = f"exactly {n_expected}" if is_one_number else "the planned number of"
    why = {}
    for checkpoint_id in evidence.checkpoint_ids:
        n_complete = int(complete.get(checkpoint_id, 0))
        if n_complete < n_problems:
            why[checkpoint_id] = (
                f"{n_complete} of {n_problems} problems have {each} graded samples here; "
                "run the audit again to complete them"
            )
    return why


COMMON_COUNTS = Input(load=load_common_counts, needs=("problem_counts",), missing=NO_SAMPLES, first_round=True)
#: For measures that use only ``is_solved``, which is known up to the cap of a stopping rule.
SOLVED = replace(COMMON_COUNTS, first_round=False)
EQUAL_COUNTS = Input(
    load=load_equal_counts, needs=("sampled_counts",), also=("problem_counts",), missing=NO_SAMPLES, first_round=True
)
SAMPLED_COUNTS = Input(load=load_sampled_counts, needs=("sampled_counts",), missing=NO_SAMPLES)
#: Columns of ``answer_counts`` that measures use. The view may have one row per sample.
ANSWER_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "answer_counts": ("checkpoint_id", "problem_id", "answer", "mode", "correct", "n", "n_planned")
}


def count_labels(evidence: Evidence, rows: pd.DataFrame, label: str, *, least: int = 1) -> LabelCounts:
    """Count the values of column ``label`` by problem.

    Only problems with at least ``least`` labelled samples count. ``rows`` has the columns problem_id, n and ``label``.
    A label may have several rows. Rows without a label are ignored.
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


def count_labels_by_checkpoint(
    evidence: Evidence, rows: pd.DataFrame, label: str, *, least: int = 1
) -> dict[str, LabelCounts]:
    """Return ``count_labels`` for every checkpoint. ``rows`` also has the column checkpoint_id."""
    rows_of = dict(iter(rows.groupby("checkpoint_id", observed=True)))
    return {i: count_labels(evidence, rows_of.get(i, rows[:0]), label, least=least) for i in evidence.checkpoint_ids}


@cached_per_evidence
def has_second_mode(evidence: Evidence) -> bool:
    """Return whether any problem has correct samples of two modes at any checkpoint.

    If not, the number of modes and the share of the leading mode are always 1. The samples are checked, because
    verifiers of other packages need not declare whether they distinguish modes.
    """
    frame = evidence.frames["answer_counts"]
    correct = frame[frame["correct"].astype(bool)]
    return bool((correct.groupby("problem_id")["mode"].nunique() > 1).any())
