"""Maj@k: the chance that the most frequent answer of k responses is correct (self-consistency), averaged over problems.

Meaning: what a vote makes of the samples. At k = 1 it is the accuracy; where the correct answer is each problem's most
frequent one it tends to 1. Sharpening over answers moves pass@1 towards the base's own maj@k: what a run gains there, a
vote of the base's samples gives without training.
Unit: probability. Estimator: mean over the first k of a problem's samples in 50 orders by a fixed seed, so unbiased;
answers with equally many votes share; 95 % t interval over problems with a variance floor. As many samples of a problem
at every checkpoint.
Limits: wrong answers are one vote only if the grader reads them as the same text (0.5 and 1/2 are two), correct ones if
they are of one mode; where many modes are correct, they split the vote. Responses without a readable answer do not
vote. Unknown for k > n; no interval for n/2 < k.
Source: Wang et al. 2022 (arXiv 2203.11171), self-consistency by majority vote.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n n_planned", [
...     ("base", "q1", "7", "7", True, 3, 4), ("base", "q1", "8", None, False, 1, 4),
...     ("base", "q2", "1", None, False, 3, 4), ("base", "q2", "2", "2", True, 1, 4)], n=4, ks=(1, 4))
>>> [(f.k, f.value) for f in compute(evidence)]
[(1, 0.5), (4, 0.5)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures._counts import OF_ANSWERS, reasons, too_few_samples, within_reach
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, places, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval

#: Orders in which a problem's samples are drawn; the spread between problems is so much larger than that between so
#: many orders that more would hardly narrow an interval.
DRAWS = 50
SEED = 20_260_229


def majority_shares(
    count_A: Int[np.ndarray, " answer"],
    correct_A: Bool[np.ndarray, " answer"],
    silent: int,
    ks: Sequence[int],
    *,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> Float[np.ndarray, " k"]:
    """Chance that a vote among k of one problem's samples, drawn without replacement, ends in a correct answer.

    ``count_A`` says how often each answer was given, ``silent`` samples gave none and do not vote. Of answers with as
    many votes one is taken at random; without a vote nothing is correct. ``ks`` ascend, up to the number of samples.
    Unit: probability.

    >>> rng = np.random.default_rng(0)
    >>> majority_shares(np.array([3, 1]), np.array([True, False]), 0, [1, 4], rng=rng).tolist()
    [0.75, 1.0]
    """
    once_A = (count_A == 1) & ~correct_A  # wrong answers that lead with one vote or never: they are counted together
    count_C, correct_C, n_once = count_A[~once_A], correct_A[~once_A], int(once_A.sum())
    n = int(count_A.sum()) + silent
    label_N = rng.permutation(np.repeat(np.arange(len(count_C) + 2), np.concatenate([count_C, [n_once, silent]])))
    drawn = [k for k in ks if k not in (1, n)]  # the others are known without drawing
    shares: dict[int, float] = {1: float(count_A[correct_A].sum() / n)}
    if n in ks and n > 1:
        shares[n] = _won(count_C[:, None], np.array([n_once]), correct_C).item()
    if drawn:
        # one count over all k and orders: a call per k took three times as long
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
    """The number of the first k that a sample is among, by its place in an order; up to the largest k."""
    return np.tile(np.searchsorted(ks, np.arange(ks[-1]), side="right"), (draws, 1))


@lru_cache(maxsize=4)
def _orders(n: int, draws: int) -> Int[np.ndarray, "draw n"]:
    """Orders of n places. Samples are put into these places in an order of each problem's own."""
    return np.random.default_rng((SEED, n)).permuted(np.tile(np.arange(n), (draws, 1)), axis=1)


def _won(
    votes_CD: Int[np.ndarray, "*k answer draw"],
    once_D: Int[np.ndarray, "*k draw"],
    correct_C: Bool[np.ndarray, " answer"],
) -> Float[np.ndarray, "*k draw"]:
    """The share of the correct among the leading answers; ``once`` wrong ones beside them have one vote each."""
    most_D = votes_CD.max(axis=-2, initial=1)
    # bytes are added up ten times as fast as truth values
    leads_CD = (votes_CD == most_D[..., None, :]).view(np.uint8)
    n_leading_D = leads_CD.sum(axis=-2, dtype=np.int32) + np.where(most_D == 1, once_D, 0)
    return np.asarray(leads_CD[..., correct_C, :].sum(axis=-2, dtype=np.int32) / np.maximum(1, n_leading_D))


def compute(evidence: Evidence) -> list[Finding]:
    """A finding per checkpoint and k; unknown where a problem lacks samples, or k > n."""
    frame = evidence.frames["answer_counts"]
    why = reasons(evidence, frame, frame["n"]) if len(frame) else dict.fromkeys(checkpoint_ids(evidence), NOTHING)
    votes = {} if frame.empty else _votes(frame)
    findings = []
    for checkpoint_id, incomplete in places(evidence, why):
        of = {} if incomplete else votes[checkpoint_id]
        least = min((int(count_A.sum()) + silent for count_A, _, silent in of.values()), default=0)
        shares = dict(zip(ks := sorted({k for k in evidence.ks if k <= least}), _shares(of, ks).T, strict=True))
        for k in evidence.ks:
            if k not in shares:
                findings.append(unknown(MEASURE, checkpoint_id, str(incomplete or too_few_samples(k, least)), k=k))
                continue
            interval = share_interval(shares[k], cluster_P=evidence.clusters(of))
            findings.append(known(MEASURE, checkpoint_id, within_reach(interval, k, least), k=k))
    return findings


def _shares(of: Mapping[str, tuple[np.ndarray, np.ndarray, int]], ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    # one start for all checkpoints: equal counts of a problem give equal shares
    rows = [
        majority_shares(count_A, correct_A, silent, ks, rng=np.random.default_rng((SEED, place)))
        for place, (count_A, correct_A, silent) in enumerate(of.values())
    ]
    return np.array(rows).reshape(len(rows), len(ks))


def _votes(frame: pd.DataFrame) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray, int]]]:
    """By checkpoint and problem: how often each answer was given, whether it is correct, and how many gave none.

    A grader may take an answer for right in one response and for wrong in another (units, format): these are two.
    """
    keys = ["checkpoint_id", "problem_id"]
    vote = frame["mode"].where(frame["correct"].astype(bool) & frame["mode"].notna(), frame["answer"])
    silent = frame[vote.isna()].groupby(keys)["n"].sum().to_dict()
    counted = frame.assign(vote=vote).groupby([*keys, "vote", "correct"], sort=True)["n"].sum().reset_index()
    places_of = counted.groupby(keys).indices
    n_A, correct_A = counted["n"].to_numpy(dtype=np.int64), counted["correct"].to_numpy(dtype=bool)
    found: dict[str, dict[str, tuple[np.ndarray, np.ndarray, int]]] = {}
    for checkpoint_id, problem_id in sorted(set(places_of) | set(silent)):
        at = places_of.get((checkpoint_id, problem_id), np.zeros(0, dtype=np.int64))
        of = (n_A[at], correct_A[at], int(silent.get((checkpoint_id, problem_id), 0)))
        found.setdefault(str(checkpoint_id), {})[str(problem_id)] = of
    return found


NOTHING = "no graded samples"
MEASURE = Measure(
    name="majority_at_k",
    title="Maj@k",
    unit="probability",
    section="coverage",
    needs=("answer_counts",),
    missing=NOTHING,
    plot=Plot(x="k", group="checkpoint", y_label="maj@k", log_x=True, y_range=(0.0, 1.0)),
    compute=compute,
    columns=OF_ANSWERS,
)
