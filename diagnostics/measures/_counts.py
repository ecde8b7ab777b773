"""Counts of samples, with the one rule that makes checkpoints comparable: all samples that were planned, or nothing.

A checkpoint where some problem has fewer samples than planned (an audit that was cut short) would be a mean over other
problems, or an entropy at another sample size. It gets a reason instead of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from oversharp.diagnostics.measures._findings import checkpoint_ids, without_interval
from oversharp.diagnostics.measures.contract import Evidence, View
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import Interval


@dataclass(frozen=True, kw_only=True)
class CorrectCounts:
    """Samples and correct samples of every problem, in one fixed order of problems, at each complete checkpoint.

    ``task_P`` names each problem's task, ``cluster_P`` its cluster where any are named. ``why`` has the reason for
    every checkpoint that is not in ``correct_P``.
    """

    problem_ids: tuple[str, ...]
    task_P: np.ndarray
    n_P: Mapping[str, Int[np.ndarray, " problem"]]
    correct_P: Mapping[str, Int[np.ndarray, " problem"]]
    why: Mapping[str, str]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    def least(self, checkpoint_id: str) -> int:
        """The smallest number of samples that a problem has at this checkpoint: no pass@k beyond it."""
        return int(self.n_P[checkpoint_id].min())

    def pass_at_k(self, checkpoint_id: str, k: int) -> Float[np.ndarray, " problem"]:
        """Unbiased pass@k of each problem. Raises ``ValueError`` if some problem has fewer than k samples."""
        return pass_at_k_of(self.n_P[checkpoint_id], self.correct_P[checkpoint_id], k)


def pass_at_k_of(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k: int
) -> Float[np.ndarray, " problem"]:
    """Unbiased pass@k of each problem. Raises ``ValueError`` if some problem has fewer than k samples.

    >>> pass_at_k_of(np.array([4, 2]), np.array([1, 1]), 2).tolist()
    [0.5, 1.0]
    """
    return by_counts(n_P, correct_P, lambda n: pass_at_k_table(n, [k])[:, 0])


def by_counts(
    n_P: Int[np.ndarray, " problem"],
    correct_P: Int[np.ndarray, " problem"],
    table: Callable[[int], Float[np.ndarray, " correct"]],
) -> Float[np.ndarray, " problem"]:
    """What ``table`` of n samples, a value for every number of correct ones, holds for each problem."""
    value_P = np.empty(len(n_P), dtype=np.float64)
    for n in np.unique(n_P):
        value_P[n_P == n] = table(int(n))[correct_P[n_P == n]]
    return value_P


@dataclass(frozen=True, kw_only=True)
class GroupedCounts:
    """Counts of distinct answers, each with the number of its problem (0 … n_problems − 1).

    ``cluster_P`` numbers the cluster of each of these problems, where any are named.
    """

    counts_A: Int[np.ndarray, " answer"]
    group_A: Int[np.ndarray, " answer"]
    n_problems: int
    cluster_P: Int[np.ndarray, " problem"] | None = None


def common_counts(evidence: Evidence) -> CorrectCounts:
    """From the view ``problem_counts``: as many samples of a problem at every checkpoint."""
    return evidence.once(_common_counts)


def sampled_counts(evidence: Evidence) -> CorrectCounts:
    """From the view ``sampled_counts``: all samples, of which the base has more than the others."""
    return evidence.once(_sampled_counts)


def _common_counts(evidence: Evidence) -> CorrectCounts:
    return _correct_counts(evidence, "problem_counts")


def _sampled_counts(evidence: Evidence) -> CorrectCounts:
    return _correct_counts(evidence, "sampled_counts")


def _correct_counts(evidence: Evidence, view: View) -> CorrectCounts:
    frame = evidence.frames[view]
    if frame.empty:
        return CorrectCounts(
            problem_ids=(), task_P=np.array([], dtype=str), n_P={}, correct_P={}, why=_nothing(evidence)
        )
    why = reasons(evidence, frame, frame["n"])
    table = frame.pivot(index="checkpoint_id", columns="problem_id", values=["n", "n_correct"])
    task_of_problem = frame.drop_duplicates("problem_id").set_index("problem_id")["task"]
    problem_ids = table["n"].columns
    complete = [checkpoint_id for checkpoint_id in checkpoint_ids(evidence) if checkpoint_id not in why]
    return CorrectCounts(
        problem_ids=tuple(map(str, problem_ids)),
        task_P=task_of_problem.reindex(problem_ids).to_numpy(dtype=str),
        n_P={i: table["n"].loc[i].to_numpy(dtype=np.int64) for i in complete},
        correct_P={i: table["n_correct"].loc[i].to_numpy(dtype=np.int64) for i in complete},
        why=why,
        cluster_P=evidence.clusters(map(str, problem_ids)),
    )


def too_few_samples(k: int, n: int) -> str | None:
    """Why pass@k is unknown with n samples, or None."""
    return f"pass@{k} needs at least {k} samples per problem; there are {n}" if k > n else None


def within_reach(interval: Interval, k: int, n: int) -> Interval:
    """Up to k = n/2, where the sampling variance can be estimated, and at k = 1, as it is; beyond, its mean alone."""
    return interval if k <= max(1, n // 2) else without_interval(interval)


def scopes(task_P: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The whole problem set, and each task where there is more than one: scope name and which problems it holds."""
    tasks = np.unique(task_P)
    whole = [("all", np.ones(len(task_P), dtype=bool))]
    return whole if len(tasks) < 2 else whole + [(f"task:{task}", task_P == task) for task in tasks]


#: What measures read of ``answer_counts``, which may have a row for every sample.
OF_ANSWERS: Mapping[View, tuple[str, ...]] = MappingProxyType(
    {"answer_counts": ("checkpoint_id", "problem_id", "answer", "mode", "correct", "n", "n_planned")}
)
#: Said where modes are named and yet nothing can be counted.
ONE_MODE = (
    "no problem shows a second correct mode at any checkpoint: the grader may take all correct answers for one, "
    "as choice, exact and math do"
)


def shows_a_second_mode(evidence: Evidence) -> bool:
    """Whether the correct samples of some problem have two different modes, at any checkpoint.

    Where they have not, every number of modes would be 1 and every share of the leading one too, whatever training did.
    Asked of the samples and not of the verifiers, because those of other packages need not tell.
    """
    return evidence.once(_shows_a_second_mode)


def _shows_a_second_mode(evidence: Evidence) -> bool:
    frame = evidence.frames["answer_counts"]
    correct = frame[frame["correct"].astype(bool)]
    return bool((correct.groupby("problem_id")["mode"].nunique() > 1).any())


def answers_by_checkpoint(evidence: Evidence) -> tuple[dict[str, GroupedCounts], dict[str, str]]:
    """Counts of the distinct final answers per complete checkpoint, and the reasons for the others."""
    frame = evidence.frames["answer_counts"]
    if frame.empty:
        return {}, _nothing(evidence)
    why = reasons(evidence, frame, frame["n"])
    return _grouped(evidence, frame, "answer", why), why


def correct_modes_by_checkpoint(evidence: Evidence) -> tuple[dict[str, GroupedCounts], dict[str, str]]:
    """Counts of the distinct modes among correct samples, over problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    if frame.empty:
        return {}, _nothing(evidence)
    why = reasons(evidence, frame, frame["n"])
    correct = frame[frame["correct"].astype(bool) & frame["mode"].notna()]
    per_problem = correct.groupby(["checkpoint_id", "problem_id"])["n"].transform("sum")
    return _grouped(evidence, correct[per_problem >= 2], "mode", why), why


def reasons(
    evidence: Evidence, frame: pd.DataFrame, n_of_row: pd.Series, *, expected: int | None = None
) -> dict[str, str]:
    """Why a checkpoint cannot be used: some problem of the frame has other than the samples that were planned there.

    ``expected`` takes the place of the frame's column ``n_planned`` where every problem needs the same number.
    """
    keys = [frame["checkpoint_id"], frame["problem_id"]]
    n_of_problem = n_of_row.groupby(keys).sum()
    planned = frame["n_planned"].groupby(keys).first() if expected is None else expected
    complete = (n_of_problem == planned).groupby(level="checkpoint_id").sum()
    n_problems = frame["problem_id"].nunique()
    each = f"exactly {expected}" if expected is not None else _each(frame["n_planned"])
    why = {}
    for checkpoint_id in checkpoint_ids(evidence):
        n_complete = int(complete.get(checkpoint_id, 0))
        if n_complete < n_problems:
            why[checkpoint_id] = (
                f"{n_complete} of {n_problems} problems have {each} graded samples here; "
                "run the audit again to complete them"
            )
    return why


def _each(n_planned: pd.Series) -> str:
    return f"exactly {n_planned.iloc[0]}" if n_planned.nunique() == 1 else "the planned number of"


def _grouped(evidence: Evidence, frame: pd.DataFrame, label: str, why: Mapping[str, str]) -> dict[str, GroupedCounts]:
    # The view splits an answer by mode and correctness; here one label is one count.
    counts = frame.groupby(["checkpoint_id", "problem_id", label])["n"].sum().reset_index()
    rows_of = counts.groupby("checkpoint_id").indices
    grouped = {}
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            continue
        rows = counts.iloc[rows_of.get(checkpoint_id, [])]
        group_A, problems = pd.factorize(rows["problem_id"])
        grouped[checkpoint_id] = GroupedCounts(
            counts_A=rows["n"].to_numpy(dtype=np.int64),
            group_A=group_A,
            n_problems=len(problems),
            cluster_P=evidence.clusters(map(str, problems)),
        )
    return grouped


def _nothing(evidence: Evidence) -> dict[str, str]:
    return dict.fromkeys(checkpoint_ids(evidence), "no graded samples")
