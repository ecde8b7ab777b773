"""Check whether the samples of a checkpoint are independent: order and duplicates.

*Dependence in order.* All orders of independent draws are equally likely. Split a problem's n samples, c of them
correct, into m blocks of b samples, and let x be the number of correct samples in a block. The mean of the sum over
blocks is

    sum (x - c / m)^2 = c (n - c) (m - 1) / (m (n - 1))

The test statistic is the sum divided by this mean, times m - 1, summed over problems and checkpoints. It is
approximately chi-squared. Block sizes are a half, a quarter, … of the samples, and 2. Correlation within a batch is
visible in blocks of the batch size or more, unless the samples were shuffled afterwards. pass@k is unbiased only for
independent draws. The bias is larger with fewer batches, and differs between the base and a later checkpoint.

*Duplicates.* The same evidence counts twice if every batch has the same seed, if a dump was imported twice, or if a
server never loaded the new weights. Models also repeat short or probable answers, which is no fault. Three tests
distinguish these cases. A checkpoint is reported only if duplicates occur at several problems, and chance would give
them less than once in 1 / ``CHANCE`` audits.

- *Blocks.* An independent draw is equally likely in every block. Consider a problem whose n samples are m blocks of b
  with the same responses, c_v of response v in each block. Given the total counts, this has the probability (prod_v (m
  c_v)! / (c_v!)^m) / (n! / (b!)^m). It is 1 if all responses are equal, so such problems are no evidence. Only blocks
  in the same order are compared. The order itself is no evidence, because tools may sort their output. The samples of
  two checkpoints are two such blocks.
- *Multiples.* After shuffling or sorting, m copies still have every response of a problem m, 2 m, 3 m … times.
  Independent draws have this property only at a few problems, which are nearly always solved the same way.
- *Log-probabilities.* Under any model, at most (pairs) exp(−L) pairs of samples are expected to be equal with a
  log-probability below −L. If that number is tiny, each such pair is a copy. This test needs temperature 1 without
  top-p and top-k, because only then are the log-probabilities those of the sampled distribution.

With a stopping rule, a problem gets more samples if few of its first ones are correct. So its samples are not
exchangeable over rounds, but those of one round are. The order is tested within each round. Duplicates are searched in
the first round, except by log-probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt64
from scipy.special import chdtrc, gammaln

from oversharp.diagnostics.store import Store

#: Significance level per audit of the test for dependence in order, over all block sizes.
_DEPENDENCE_LEVEL = 1e-6
#: If all correct samples are adjacent at more than this share of the problems, the tool is assumed to have sorted them.
_SORTED = 0.5

_CORRECT = """
SELECT s.step, list(s.correct ORDER BY s.sample_index) AS correct
FROM graded_samples AS s
WHERE s.series = $series AND s.step IN $steps AND NOT s.greedy AND s.correct IS NOT NULL
GROUP BY
    s.step, s.checkpoint_id, s.problem_id,
    -- round of the sample; NULL without rounds
    CASE WHEN s.sample_index < $first_round THEN 0 ELSE length(bin(s.sample_index // $first_round)) END
HAVING bool_or(s.correct) AND NOT bool_and(s.correct)
ORDER BY s.step, s.problem_id, min(s.sample_index)
"""
#: Checkpoints per query. A query reads all samples of the store, and more checkpoints take more memory.
_STEPS_PER_QUERY = 8

#: For problems with correct and wrong samples: whether each sample is correct, ordered by sample index.
Correct = Bool[np.ndarray, "problem sample"]


def dependence_in_order(store: Store, series: str, steps: Sequence[int], first_round: int | None = None) -> str | None:
    """Describe the dependence of adjacent samples at the checkpoints of ``steps``.

    With ``first_round``, samples were drawn in rounds, as in ``AuditKey``. Raises ``StoreError``.
    """
    parts: list[Correct] = []
    for first in range(0, len(steps), _STEPS_PER_QUERY):
        some = list(steps[first : first + _STEPS_PER_QUERY])
        rows = store.frame(_CORRECT, series=series, steps=some, first_round=first_round)
        by_length: dict[tuple[int, int], list[np.ndarray]] = {}
        for step, correct in zip(rows["step"], rows["correct"], strict=True):
            by_length.setdefault((step, len(correct)), []).append(np.asarray(correct, dtype=bool))
        parts += [np.stack(samples) for samples in by_length.values()]
    return describe_dependence(parts)


def describe_dependence(parts: Sequence[Correct]) -> str | None:
    """Describe how strongly the correctness of adjacent samples is correlated.

    Returns None if chance explains it, and if the samples were sorted by correctness: their order then has no
    information.

    >>> rng = np.random.default_rng(0)
    >>> luck = rng.random((50, 8)) < 0.5
    >>> alone = rng.random((50, 64)) < 0.5
    >>> print(describe_dependence([alone]))
    None
    >>> describe_dependence([np.where(rng.random((50, 64)) < 0.5, np.repeat(luck, 8, axis=1), alone)])
    'the number of correct ones among 16 in a row varies 2.7 times as much as in independent draws'
    """
    parts = [correct_PN for correct_PN in parts if correct_PN.shape[1] > 1]
    are_adjacent = np.concatenate([_is_sorted(correct_PN) for correct_PN in parts]) if parts else np.zeros(0, bool)
    if are_adjacent.any() and are_adjacent.mean() > _SORTED:
        return None
    scatter: dict[int, list[tuple[float, int]]] = {}
    for correct_PN in parts:
        for size, total_and_freedom in _block_scatter(correct_PN):
            scatter.setdefault(size, []).append(total_and_freedom)
    significant = []
    for size, terms in scatter.items():
        total, freedom = sum(term[0] for term in terms), sum(term[1] for term in terms)
        if chdtrc(freedom, total) < _DEPENDENCE_LEVEL / len(scatter):
            significant.append((total / freedom, size))
    if not significant:
        return None
    times, size = max(significant)
    return f"the number of correct ones among {size} in a row varies {times:.1f} times as much as in independent draws"


def _is_sorted(correct_PN: Correct) -> Bool[np.ndarray, " problem"]:
    """Return for each problem whether all its correct samples come first, or all come last.

    Only problems with several correct and several wrong samples are included.
    """
    n_correct = correct_PN.sum(axis=1)
    several = np.minimum(n_correct, correct_PN.shape[1] - n_correct) > 1
    return np.asarray((correct_PN[:, 1:] != correct_PN[:, :-1]).sum(axis=1)[several] == 1)


def _block_scatter(correct_PN: Correct) -> Iterator[tuple[int, tuple[float, int]]]:
    """Yield block size, chi-squared statistic of the counts in blocks, degrees of freedom."""
    n = correct_PN.shape[1]
    sizes = {n // parts for parts in (2**power for power in range(1, n.bit_length())) if n // parts >= 2}
    for size in sorted({2, *sizes} if n >= 4 else set()):
        blocks = n // size
        counts = correct_PN[:, : blocks * size].reshape(len(correct_PN), blocks, size).sum(axis=2)
        n_correct = counts.sum(axis=1)
        mean, n_used = n_correct / blocks, blocks * size
        expected = n_correct * (n_used - n_correct) / (blocks * (n_used - 1))  # expected sum per degree of freedom
        informative = expected > 0
        total = (((counts - mean[:, None]) ** 2).sum(axis=1)[informative] / expected[informative]).sum()
        yield size, (float(total), int(informative.sum()) * (blocks - 1))


#: Significance level of the tests for duplicates.
CHANCE = 1e-9
#: Copies are ignored at fewer problems, or at a smaller share of the informative problems: they would change no
#: verdict.
FEWEST_PROBLEMS = 3
LEAST_SHARE = 0.1
#: Largest number of copies that is tested. A larger number is found by its divisors, except for primes.
_MOST_IN_A_ROW = 16

_IDS = """
SELECT problem_id, list(hash(response_id) ORDER BY sample_index) AS ids
FROM planned_samples AS w
JOIN samples AS s USING (checkpoint_id, problem_id, settings_id)
WHERE w.series = $series AND w.step = $step AND NOT s.greedy AND s.sample_index < $n
GROUP BY problem_id
ORDER BY problem_id
"""
_PAIRS = "SELECT sum(n_planned::DOUBLE * n_planned) / 2 AS n FROM planned_samples WHERE series = $series"
_UNLIKELY = """
WITH unlikely AS (
    SELECT w.step, w.problem_id, s.response_id, count(*) AS n
    FROM planned_samples AS w
    JOIN settings AS t USING (settings_id)
    JOIN samples AS s USING (checkpoint_id, problem_id, settings_id)
    WHERE w.series = $series AND NOT s.greedy AND s.sample_index < w.n_planned AND s.logp_sum_raw < $most
      AND t.temperature = 1 AND t.top_p = 1 AND t.top_k = 0
    GROUP BY ALL
)
SELECT
    step,
    sum(n)::BIGINT AS n,
    sum(n - 1)::BIGINT AS n_copies,
    count(DISTINCT problem_id) AS n_problems,
    count(DISTINCT problem_id) FILTER (n > 1) AS n_repeating
FROM unlikely
GROUP BY step
ORDER BY step
"""
_HINT = "remove the copies, or sample again with different seeds"

#: Hashes of the responses to each problem at one checkpoint, ordered by sample index.
Responses = UInt64[np.ndarray, "problem sample"]


class _Copies(NamedTuple):
    """Candidate for duplicates: problems whose samples may be ``n_blocks`` copies.

    ``log_chance`` returns the log-probability of this by chance. Its arguments are the count of each response among a
    problem's samples, and ``n_blocks``.
    """

    responses: Responses
    copied_P: Bool[np.ndarray, " problem"]
    n_blocks: int
    log_chance: Callable[[np.ndarray, int], float]


@dataclass(frozen=True, kw_only=True)
class SampledCheckpoint:
    """A checkpoint with ``n`` samples of each problem; in rounds, those of the first one."""

    step: int
    label: str
    n: int


def find_repeats(store: Store, series: str, sampled: Sequence[SampledCheckpoint]) -> dict[int, str]:
    """Return step → why its samples are no separate evidence.

    ``sampled`` starts with the base. If two checkpoints have the same samples, the later one is reported.
    """
    unlikely = _copies_of_unlikely(store, series)
    reasons: dict[int, str] = {}
    seen: list[tuple[str, Responses]] = []
    for checkpoint in sampled:
        rows = store.frame(_IDS, series=series, step=checkpoint.step, n=checkpoint.n)
        responses = np.stack(rows["ids"].to_list()).astype(np.uint64)
        why = describe_repeats(responses) or unlikely.get(checkpoint.step)
        for label, theirs in seen:
            why = why or _describe_copy(responses, label, theirs)
        if why is not None:
            reasons[checkpoint.step] = why
        seen.append((checkpoint.label, responses))
    return reasons


def describe_repeats(responses: Responses) -> str | None:
    """Describe how the samples of problems are repeated, or return None.

    >>> rng = np.random.default_rng(0)
    >>> once_PN = rng.integers(0, 50, size=(20, 16), dtype=np.uint64)
    >>> print(describe_repeats(np.hstack([once_PN, once_PN])))
    2 times the same 16 samples at 20 of 20 problems: identical seeds, or a file read twice; remove the copies, or
    sample again with different seeds
    >>> print(describe_repeats(rng.integers(0, 50, size=(20, 32), dtype=np.uint64)))
    None
    """
    candidates = chain(_consecutive_blocks(responses), _adjacent_copies(responses), _multiple_counts(responses))
    for pattern, copies in candidates:
        n_copied = _count_copied(copies)
        if n_copied is not None:
            places = f"{n_copied} of {len(responses)} problems"
            return f"{pattern} at {places}: identical seeds, or a file read twice; {_HINT}"
    return None


def _consecutive_blocks(responses: Responses) -> Iterator[tuple[str, _Copies]]:
    """Yield candidates in which consecutive blocks are copies, for all block sizes."""
    for size in range(1, responses.shape[1] // 2 + 1):
        ends_equal_P = (responses[:, [0, size - 1]] == responses[:, [size, 2 * size - 1]]).all(axis=1)
        if ends_equal_P.sum() < FEWEST_PROBLEMS:
            continue
        n_blocks = responses.shape[1] // size
        whole = responses[:, : n_blocks * size]
        blocks = whole.reshape(len(whole), n_blocks, size)
        copied_P = (blocks == blocks[:, :1]).all(axis=(1, 2))
        yield f"{n_blocks} times the same {size} samples", _Copies(whole, copied_P, n_blocks, _log_chance_of_blocks)


def _adjacent_copies(responses: Responses) -> Iterator[tuple[str, _Copies]]:
    for times in range(2, min(_MOST_IN_A_ROW, responses.shape[1]) + 1):
        size = responses.shape[1] // times
        whole = responses[:, : times * size]
        rows = whole.reshape(len(whole), size, times)
        copied_P = (rows == rows[:, :, :1]).all(axis=(1, 2))
        yield f"every sample {times} times in a row", _Copies(whole, copied_P, times, _log_chance_in_a_row)


def _multiple_counts(responses: Responses) -> Iterator[tuple[str, _Copies]]:
    """Yield candidates for copies in any order, the largest number of copies first."""
    often_P = np.array([np.gcd.reduce(np.unique(ids, return_counts=True)[1]) for ids in responses])
    for times in range(min(_MOST_IN_A_ROW, responses.shape[1]), 1, -1):
        copied_P = often_P % times == 0
        if copied_P.sum() >= FEWEST_PROBLEMS:
            yield f"every sample {times} times, shuffled", _Copies(responses, copied_P, times, _log_chance_in_a_row)


def _describe_copy(responses: Responses, label: str, theirs: Responses) -> str | None:
    """Describe a checkpoint whose samples equal those of another one; None if they differ."""
    n = min(responses.shape[1], theirs.shape[1])
    both = np.hstack([responses[:, :n], theirs[:, :n]])
    copied_P = (both[:, :n] == both[:, n:]).all(axis=1)
    n_copied = _count_copied(_Copies(both, copied_P, 2, _log_chance_of_blocks))
    if n_copied is None:
        return None
    return (
        f"the same samples as {label} at {n_copied} of {len(both)} problems: either its weights were not loaded, "
        "or they hardly differ and the seed was the same; sample it again with a different seed"
    )


def _count_copied(copies: _Copies) -> int | None:
    """Return the number of informative problems with copied samples.

    Returns None if they are few, or chance explains them. Let p_i be the probability of a copy at problem i by chance,
    and s the sum of −log p_i over the copied problems. By Markov's inequality for exp(s / 2), a sum of s or more has at
    most the probability exp(−s / 2) prod_i (1 − p_i + sqrt(p_i)). If all problems are copied, the probability is prod_i
    p_i.
    """
    responses, n_blocks = copies.responses, copies.n_blocks
    informative_P = (responses != responses[:, :1]).any(axis=1)
    copied_T = copies.copied_P[informative_P]
    if copied_T.sum() < max(FEWEST_PROBLEMS, LEAST_SHARE * len(copied_T)):
        return None
    counts = (np.unique(ids, return_counts=True)[1] for ids in responses[informative_P])
    log_p_T = np.array([copies.log_chance(n_V, n_blocks) for n_V in counts])
    p_T = np.exp(log_p_T)
    bound = np.log1p(np.sqrt(p_T) - p_T).sum() + log_p_T[copied_T].sum() / 2
    if copied_T.all():
        bound = min(bound, log_p_T.sum())
    # Bonferroni correction: a problem's samples can be copies in at most this many ways
    return int(copied_T.sum()) if bound < log(CHANCE) - log(responses.size) else None


def _log_chance_of_blocks(n_V: np.ndarray, n_blocks: int) -> float:
    """Return the log-probability that each response occurs equally often in all blocks.

    ``n_V`` is the total count of each response.
    """
    if (n_V % n_blocks).any():
        return -np.inf
    c_V, size = n_V // n_blocks, n_V.sum() // n_blocks
    ways = gammaln(n_V + 1) - n_blocks * gammaln(c_V + 1)
    return float(ways.sum() - gammaln(n_blocks * size + 1) + n_blocks * gammaln(size + 1))


def _log_chance_in_a_row(n_V: np.ndarray, n_blocks: int) -> float:
    """Return approximately the log-probability that all counts are multiples of ``n_blocks``.

    A count is such a multiple with probability 1 / ``n_blocks``. If a count varies by less than ``n_blocks``, the
    probability is that of its most likely value, under a normal distribution with the binomial variance. The last count
    is determined by the others.
    """
    variance_V = n_V * (1 - n_V / n_V.sum())
    chance_V = np.clip(1 / np.sqrt(2 * np.pi * variance_V), 1 / n_blocks, 1.0)
    return float(np.sort(np.log(chance_V))[1:].sum())


def _copies_of_unlikely(store: Store, series: str) -> Mapping[int, str]:
    """Return step → reason, for steps that repeat many responses with a low log-probability."""
    n_pairs = float(store.frame(_PAIRS, series=series)["n"].iloc[0])
    most = log(CHANCE) - log(n_pairs)
    return {
        int(row.step): (
            f"{row.n_copies} of its {row.n} responses with a log-probability below {most:.0f} repeat another, which "
            f"does not happen with independent draws: the seeds are identical; {_HINT}"
        )
        for row in store.frame(_UNLIKELY, series=series, most=most).itertuples()
        if row.n_repeating >= max(FEWEST_PROBLEMS, LEAST_SHARE * row.n_problems) and row.n_copies >= LEAST_SHARE * row.n
    }
