"""Measure of maj@k, the accuracy of a majority vote among k responses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    explain_too_few,
    find_incomplete,
    keep_reliable_interval,
)
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.intervals import share_interval

#: Number of random orders of a problem's samples.
DRAWS = 100
SEED = 20_260_229
#: Up to this k, the probability is computed exactly.
MOST_EXACT = 4
#: Largest number of votes in memory.
_VOTES_AT_ONCE = 1 << 19


@dataclass(frozen=True, kw_only=True)
class Votes:
    """Answers of the samples of many cells. A cell is a problem at a checkpoint.

    Attributes:
        count_A: Number of samples with each answer, at least 1.
        correct_A: Whether the answer is correct.
        cell_A: Index of each answer's cell; ascending.
        n_C: Number of samples of every cell. Samples without an answer do not vote.
        place_C: Start of the cell in the random orders, from 0 to 1. Cells with equal places and counts have equal
            estimates.
    """

    count_A: Int[np.ndarray, " answer"]
    correct_A: Bool[np.ndarray, " answer"]
    cell_A: Int[np.ndarray, " answer"]
    n_C: Int[np.ndarray, " cell"]
    place_C: Float[np.ndarray, " cell"]

    def sum_by_cell(self, value_A: np.ndarray) -> Float[np.ndarray, " cell"]:
        """Return the sums of ``value_A`` over the answers of every cell."""
        return np.bincount(self.cell_A, weights=value_A, minlength=len(self.n_C))

    @property
    def first_answers(self) -> Int[np.ndarray, " cell"]:
        """Index of every cell's first answer. Every cell must have an answer."""
        return np.searchsorted(self.cell_A, np.arange(len(self.n_C)))

    def select(self, cells: Int[np.ndarray, " cell"]) -> Votes:
        """Return the votes of these cells, which ascend."""
        place_C = np.searchsorted(cells, np.arange(len(self.n_C)))
        is_chosen_A = np.isin(self.cell_A, cells)
        return Votes(
            count_A=self.count_A[is_chosen_A],
            correct_A=self.correct_A[is_chosen_A],
            cell_A=place_C[self.cell_A[is_chosen_A]],
            n_C=self.n_C[cells],
            place_C=self.place_C[cells],
        )


def majority_shares(votes: Votes, ks: Sequence[int], *, draws: int = DRAWS) -> Float[np.ndarray, "cell k"]:
    """Return the probability that a majority vote among k samples of a cell is correct.

    Ties are broken at random. If no sample votes, the vote is not correct. Exact for k up to 4, for k = n, and where no
    answer is correct. Other probabilities are means over the first k samples in ``draws`` random orders. 0 for k above
    n. Unit: probability.

    >>> votes = Votes(count_A=np.array([3, 1]), correct_A=np.array([True, False]), cell_A=np.array([0, 0]),
    ...     n_C=np.array([4]), place_C=np.array([0.5]))
    >>> majority_shares(votes, [1, 2, 3, 4]).tolist()
    [[0.75, 0.75, 1.0, 1.0]]
    """
    share_CK = np.zeros((len(votes.n_C), len(ks)))
    is_solved_C = votes.sum_by_cell(votes.correct_A) > 0
    for n in np.unique(votes.n_C[is_solved_C]).tolist():
        (cells,) = (is_solved_C & (votes.n_C == n)).nonzero()
        of_n = votes.select(cells)
        drawn = [column for column, k in enumerate(ks) if MOST_EXACT < k < n]
        for column, k in enumerate(ks):
            if k <= min(n, MOST_EXACT):
                share_CK[cells, column] = _exact_shares(of_n, k)
            elif k == n:
                share_CK[cells, column] = _won(of_n, of_n.count_A[:, None], np.zeros((len(cells), 1), np.int64))[:, 0]
        if drawn:
            share_CK[np.ix_(cells, drawn)] = _drawn_shares(of_n, n, [ks[column] for column in drawn], draws)
    return share_CK


def _exact_shares(votes: Votes, k: int) -> Float[np.ndarray, " cell"]:
    """Return the shares for k up to 4, by counting the subsets in which each correct answer leads."""
    count_A = votes.count_A.astype(np.float64)
    pairs_A, voters_C = _choose(count_A, 2), votes.sum_by_cell(count_A)
    # sums over the other answers of the cell
    other_A, other_squares_A, other_cubes_A, other_pairs_A = (
        votes.sum_by_cell(value_A)[votes.cell_A] - value_A for value_A in (count_A, count_A**2, count_A**3, pairs_A)
    )
    # numbers of subsets of two and of three samples with different other answers
    two_A = (other_A**2 - other_squares_A) / 2.0
    three_A = (other_A**3 - 3.0 * other_A * other_squares_A + 2.0 * other_cubes_A) / 6.0
    leads_of = (
        count_A,
        pairs_A + count_A * other_A / 2.0,
        _choose(count_A, 3) + pairs_A * other_A + count_A * two_A / 3.0,
        _choose(count_A, 4)
        + _choose(count_A, 3) * other_A
        + pairs_A * (two_A + other_pairs_A / 2.0)
        + count_A * three_A / 4.0,
    )
    n_C = votes.n_C.astype(np.float64)
    subsets_C = np.zeros(len(n_C))
    for n_voters, leads_A in enumerate(leads_of[:k], start=1):
        subsets_C += _choose(n_C - voters_C, k - n_voters) * votes.sum_by_cell(leads_A * votes.correct_A)
    return subsets_C / _choose(n_C, k)


def _choose(n_X: Float[np.ndarray, " x"], k: int) -> Float[np.ndarray, " x"]:
    """Return C(n, k) for small k."""
    chosen_X = np.ones(len(n_X))
    for i in range(k):
        chosen_X *= (n_X - i) / (i + 1)
    return chosen_X


def _drawn_shares(votes: Votes, n: int, ks: Sequence[int], draws: int) -> Float[np.ndarray, "cell k"]:
    """Return the shares of k of n samples by random orders. Every cell has a correct answer.

    The n samples of a cell are places on a circle, with equal answers next to each other. A random order ranks the
    places, and the k lowest ranks are drawn. The votes for an answer are then a difference of two entries of a table:
    the cumulative numbers of drawn places, which all cells share. Each cell starts at another place of the circle.
    """
    rank_DN = np.random.default_rng((SEED, n)).permuted(np.tile(np.arange(n), (draws, 1)), axis=1)
    is_drawn_NX = (rank_DN.T[:, None] < np.asarray(ks)[:, None]).reshape(n, -1)  # X: k and draw
    before_NX = np.zeros((2 * n + 1, is_drawn_NX.shape[1]), dtype=np.int16 if 2 * n < 1 << 15 else np.int32)
    np.cumsum(np.tile(is_drawn_NX, (2, 1)), axis=0, out=before_NX[1:], dtype=before_NX.dtype)
    n_parts = min(len(votes.n_C), 1 + len(votes.count_A) * before_NX.shape[1] // _VOTES_AT_ONCE)
    won_PX = []
    for cells in np.array_split(np.arange(len(votes.n_C)), n_parts):
        part = votes.select(cells)
        # wrong answers that occur once are interchangeable, so they share an arc at the end
        is_once_A = (part.count_A == 1) & ~part.correct_A
        named = replace(part, **{name: getattr(part, name)[~is_once_A] for name in ("count_A", "correct_A", "cell_A")})
        start_C = np.floor(part.place_C * n).astype(np.int64)
        end_A = np.cumsum(named.count_A)
        end_A += (start_C - (end_A - named.count_A)[named.first_answers])[named.cell_A]
        once_C = start_C + named.sum_by_cell(named.count_A).astype(np.int64)
        votes_AX = before_NX[end_A] - before_NX[end_A - named.count_A]
        once_CX = before_NX[once_C + part.sum_by_cell(is_once_A).astype(np.int64)] - before_NX[once_C]
        won_PX.append(_won(named, votes_AX, once_CX))
    return np.concatenate(won_PX).reshape(-1, len(ks), draws).mean(axis=2)


def _won(
    votes: Votes, votes_AX: Int[np.ndarray, "answer x"], once_CX: Int[np.ndarray, "cell x"]
) -> Float[np.ndarray, "cell x"]:
    """Return the share of correct answers among the answers with the most votes.

    ``once_CX`` has the votes for wrong answers that occur once and are not in ``votes``.
    """
    most_CX = np.maximum(_reduce(np.maximum, votes_AX, votes), 1)
    leads_AX = (votes_AX == most_CX[votes.cell_A]).astype(votes_AX.dtype)
    n_leading_CX = _reduce(np.add, leads_AX, votes) + np.where(most_CX == 1, once_CX, 0)
    leads_AX[~votes.correct_A] = 0
    return _reduce(np.add, leads_AX, votes) / np.maximum(1, n_leading_CX)


def _reduce(operation: np.ufunc, value_AX: Int[np.ndarray, "answer x"], votes: Votes) -> Int[np.ndarray, "cell x"]:
    """Reduce the rows of every cell; several times as fast as ``reduceat``."""
    reduced_CX = np.empty((len(votes.n_C), value_AX.shape[1]), dtype=value_AX.dtype)
    starts = [*votes.first_answers.tolist(), len(value_AX)]
    for cell, (start, stop) in enumerate(pairwise(starts)):
        operation.reduce(value_AX[start:stop], axis=0, out=reduced_CX[cell])
    return reduced_CX


@per_series(
    needs=("answer_counts",),
    missing=NO_SAMPLES,
    columns=ANSWER_COLUMNS,
    first_round=True,
    title="Maj@k",
    unit="probability",
    section="coverage",
    plot=Plot(x="k", group="checkpoint", y_label="maj@k", log_x=True, y_range=(0.0, 1.0)),
)
def majority_at_k(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Maj@k: the accuracy of the most frequent answer of k responses, mean over problems.

    Meaning: the accuracy of self-consistency (majority voting). At k = 1 it is the accuracy of single samples. As k
    grows, it tends to the share of problems whose most frequent answer is correct. Sharpening over answers moves pass@1
    towards maj@k of the base. A majority vote over the base's samples gives the same gain without training.
    Unit: probability. Estimator: the mean over all sets of k samples, exact for k up to 4 and for k = n. For other k it
    is the mean over the first k samples in 100 random orders with a fixed seed, which is unbiased. Tied answers share
    the vote. 95 % t interval over problems with a variance floor. Each problem has the same number of samples at every
    checkpoint.
    Limits: wrong answers count as the same vote only if the grader parses them as the same text: 0.5 and 1/2 are two
    answers. Correct answers count as the same vote if they have the same mode, so several correct modes split the vote.
    Responses without a parsed answer do not vote. Maj@k is unknown for k > n, and has no interval for k > n/2.
    Source: Wang et al. 2022 (arXiv 2203.11171), self-consistency by majority vote.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n n_planned", [
    ...     ("base", "q1", "7", "7", True, 3, 4), ("base", "q1", "8", None, False, 1, 4),
    ...     ("base", "q2", "1", None, False, 3, 4), ("base", "q2", "2", "2", True, 1, 4)], n=4, ks=(1, 4))
    >>> [(f.k, f.value) for f in majority_at_k(evidence)]
    [(1, 0.5), (4, 0.5)]
    """
    frame = evidence.frames["answer_counts"]
    why = find_incomplete(evidence, frame, frame["n"])
    votes, checkpoint_C, problem_C = _load_votes(frame[~frame["checkpoint_id"].isin(why)])
    share_CK = majority_shares(votes, evidence.ks)
    for checkpoint_id in evidence.checkpoint_ids:
        is_own_C = checkpoint_C == checkpoint_id
        fewest = int(votes.n_C[is_own_C].min()) if is_own_C.any() else 0
        cluster_P = evidence.clusters(problem_C[is_own_C].tolist())
        results: dict[int, Result] = {}
        for k, share_C in zip(evidence.ks, share_CK.T, strict=True):
            if k > fewest:
                too_few = explain_too_few(k, fewest, of_first_round=evidence.is_stopped)
                results[k] = str(why.get(checkpoint_id) or too_few)
            else:
                results[k] = keep_reliable_interval(share_interval(share_C[is_own_C], cluster_P=cluster_P), k, fewest)
        yield checkpoint_id, results


def _load_votes(frame: pd.DataFrame) -> tuple[Votes, np.ndarray, np.ndarray]:
    """Return the votes, and the checkpoint and the problem of every cell.

    A grader may accept an answer in one response and reject the same text in another, because of units or format. These
    are counted as two answers.
    """
    cells = frame.groupby(["checkpoint_id", "problem_id"], sort=True, observed=True)
    vote = frame["mode"].where(frame["correct"].astype(bool) & frame["mode"].notna(), frame["answer"])
    by_answer = frame.assign(cell=cells.ngroup(), vote=vote).groupby(["cell", "vote", "correct"], sort=True)
    counted = by_answer["n"].sum().reset_index()
    n_samples = cells["n"].sum()
    checkpoint_C, problem_C = (n_samples.index.get_level_values(level).to_numpy(dtype=str) for level in (0, 1))
    # a problem has the same place at all checkpoints, so that equal counts give equal shares
    problems, index_C = np.unique(problem_C, return_inverse=True)
    votes = Votes(
        count_A=counted["n"].to_numpy(dtype=np.int64),
        correct_A=counted["correct"].to_numpy(dtype=bool),
        cell_A=counted["cell"].to_numpy(dtype=np.int64),
        n_C=n_samples.to_numpy(dtype=np.int64),
        place_C=np.random.default_rng(SEED).random(len(problems))[index_C],
    )
    return votes, checkpoint_C, problem_C
