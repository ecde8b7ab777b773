"""Measure of maj@k, the accuracy of a majority vote among k responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
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

#: Number of random orders of a problem's samples. More orders would hardly narrow the intervals, because differences
#: between problems are much larger.
DRAWS = 50
SEED = 20_260_229
#: For each problem: the count of each answer, whether it is correct, and the number of samples without an answer.
_Votes = Mapping[str, tuple[np.ndarray, np.ndarray, int]]


def majority_shares(
    count_A: Int[np.ndarray, " answer"],
    correct_A: Bool[np.ndarray, " answer"],
    no_answer: int,
    ks: Sequence[int],
    *,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Float[np.ndarray, " k"]:
    """Return the probability that a majority vote among k samples of one problem is correct.

    ``count_A`` is the number of samples with each answer. ``no_answer`` samples do not vote. Ties are broken at random.
    If no sample votes, the vote is not correct. ``ks`` are ascending, up to the number of samples. Unit: probability.

    >>> rng = np.random.default_rng(0)
    >>> majority_shares(np.array([3, 1]), np.array([True, False]), 0, [1, 4], rng=rng).tolist()
    [0.75, 1.0]
    """
    once_A = (count_A == 1) & ~correct_A  # wrong answers that occur once are interchangeable, so they share a label
    count_C, correct_C, n_once = count_A[~once_A], correct_A[~once_A], int(once_A.sum())
    n = int(count_A.sum()) + no_answer
    label_N = rng.permutation(np.repeat(np.arange(len(count_C) + 2), np.concatenate([count_C, [n_once, no_answer]])))
    drawn = [k for k in ks if k not in (1, n)]  # k = 1 and k = n need no random orders
    shares: dict[int, float] = {1: float(count_A[correct_A].sum() / n)}
    if n in ks and n > 1:
        shares[n] = _won(count_C[:, None], np.array([n_once]), correct_C).item()
    if drawn:
        # one call for all k and orders, because one call per k took three times as long
        n_labels = len(count_C) + 2
        place_DN = _firsts(draws, tuple(drawn)) * n_labels + label_N[_orders(n, draws)[:, : drawn[-1]]]
        size = len(drawn) * n_labels * draws
        places_DN = place_DN * draws + np.arange(draws)[:, None]
        votes_KCD = np.bincount(places_DN.ravel(), minlength=size).reshape(len(drawn), n_labels, draws)
        for before, votes_CD in pairwise(votes_KCD):
            votes_CD += before
        won_KD = _won(votes_KCD[:, :-2], votes_KCD[:, -2], correct_C)
        shares |= dict(zip(drawn, won_KD.mean(axis=1).tolist(), strict=True))
    return np.array([shares[k] for k in ks])


@lru_cache(maxsize=4)
def _firsts(draws: int, ks: tuple[int, ...]) -> Int[np.ndarray, "draw sample"]:
    """Return, for each position in a random order, the index of the first k that includes it."""
    return np.tile(np.searchsorted(ks, np.arange(ks[-1]), side="right"), (draws, 1))


@lru_cache(maxsize=4)
def _orders(n: int, draws: int) -> Int[np.ndarray, "draw n"]:
    """Return random orders of n samples, the same orders for all problems."""
    return np.random.default_rng((SEED, n)).permuted(np.tile(np.arange(n), (draws, 1)), axis=1)


def _won(
    votes_CD: Int[np.ndarray, "*k answer draw"],
    once_D: Int[np.ndarray, "*k draw"],
    correct_C: Bool[np.ndarray, " answer"],
) -> Float[np.ndarray, "*k draw"]:
    """Return the share of correct answers among the answers with the most votes."""
    most_D = votes_CD.max(axis=-2, initial=1)
    # summing bytes is ten times as fast as summing booleans
    leads_CD = (votes_CD == most_D[..., None, :]).view(np.uint8)
    n_leading_D = leads_CD.sum(axis=-2, dtype=np.int32) + np.where(most_D == 1, once_D, 0)
    return np.asarray(leads_CD[..., correct_C, :].sum(axis=-2, dtype=np.int32) / np.maximum(1, n_leading_D))


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
    Unit: probability. Estimator: mean over the first k samples in 50 random orders with a fixed seed, which is
    unbiased. Tied answers share the vote. 95 % t interval over problems with a variance floor. Each problem has the
    same number of samples at every checkpoint.
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
    votes = _votes(frame)
    for checkpoint_id in evidence.checkpoint_ids:
        incomplete = why.get(checkpoint_id)
        own = {} if incomplete else votes[checkpoint_id]
        fewest = min((int(count_A.sum()) + no_answer for count_A, _, no_answer in own.values()), default=0)
        ks = sorted({k for k in evidence.ks if k <= fewest})
        shares = dict(zip(ks, _shares(own, ks).T, strict=True))
        results: dict[int, Result] = {}
        for k in evidence.ks:
            if k not in shares:
                results[k] = str(incomplete or explain_too_few(k, fewest, of_first_round=evidence.is_stopped))
            else:
                results[k] = keep_reliable_interval(
                    share_interval(shares[k], cluster_P=evidence.clusters(own)), k, fewest
                )
        yield checkpoint_id, results


def _shares(own: _Votes, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    # the seed is the same at all checkpoints, so that equal counts of a problem give equal shares
    rows = [
        majority_shares(count_A, correct_A, no_answer, ks, rng=np.random.default_rng((SEED, place)))
        for place, (count_A, correct_A, no_answer) in enumerate(own.values())
    ]
    return np.array(rows).reshape(len(rows), len(ks))


def _votes(frame: pd.DataFrame) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray, int]]]:
    """Return the votes by checkpoint and problem: counts, correctness, samples without answer.

    A grader may accept an answer in one response and reject the same text in another, because of units or format. These
    are counted as two answers.
    """
    keys = ["checkpoint_id", "problem_id"]
    vote = frame["mode"].where(frame["correct"].astype(bool) & frame["mode"].notna(), frame["answer"])
    no_answer = frame[vote.isna()].groupby(keys)["n"].sum().to_dict()
    counted = frame.assign(vote=vote).groupby([*keys, "vote", "correct"], sort=True)["n"].sum().reset_index()
    places_of = counted.groupby(keys).indices
    n_A, correct_A = counted["n"].to_numpy(dtype=np.int64), counted["correct"].to_numpy(dtype=bool)
    votes: dict[str, dict[str, tuple[np.ndarray, np.ndarray, int]]] = {}
    for checkpoint_id, problem_id in sorted(set(places_of) | set(no_answer)):
        place = places_of.get((checkpoint_id, problem_id), np.zeros(0, dtype=np.int64))
        counts = (n_A[place], correct_A[place], int(no_answer.get((checkpoint_id, problem_id), 0)))
        votes.setdefault(str(checkpoint_id), {})[str(problem_id)] = counts
    return votes
