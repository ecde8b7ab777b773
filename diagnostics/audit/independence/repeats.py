"""Detects duplicated samples: the same ones several times, or those of another checkpoint.

A fixed seed for every batch, a dump that was imported twice, or a server that never loaded the new weights makes the
same evidence count again. Models also repeat short or probable answers, which is no fault. Three tests tell them apart:

- *Blocks.* An independent draw is equally likely in every block. Given how often each response occurs, a problem's n
  samples are m blocks of b with the same responses with probability
  (prod_v (m c_v)! / (c_v!)^m) / (n! / (b!)^m), with c_v of response v in a block. It is 1 where all are
  equal, so that such problems carry no evidence. Only blocks in the same order are compared; the order itself is no
  evidence, since tools may sort what they write. The samples of two checkpoints are two such blocks.
- *Multiples.* Copies that were shuffled or sorted leave every response of a problem m, 2 m, 3 m … times. Independent
  draws do that at one problem that is nearly always solved the same way, not at many problems.
- *Log-probabilities.* Of all pairs of samples, at most (pairs) exp(−L) are expected to be equal with a log-probability
  below −L, whatever the model. Where that number is tiny, each such pair is a copy. The log-probabilities are those
  of the sampled distribution only at temperature 1 without truncation.

A checkpoint is reported only if chance would do the same less than once in 1 / ``CHANCE`` audits, at several problems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt64
from scipy.special import gammaln

from oversharp.diagnostics.store import Store

#: Significance level of a repeat.
CHANCE = 1e-9
#: Copies at fewer problems, or at a smaller share of the informative ones, change no verdict.
FEWEST_PROBLEMS = 3
LEAST_SHARE = 0.1
#: Most adjacent copies that are looked for; more are multiples of fewer.
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
_MEND = "leave the copies out, or draw again with seeds that differ"

#: Of every problem of a checkpoint: hashes of its responses, in the order of their index.
Responses = UInt64[np.ndarray, "problem sample"]


class _Copies(NamedTuple):
    """Problems whose samples may be ``n_blocks`` times the same, and the logarithm of the chance of it.

    ``log_chance`` is asked with how often a problem's samples hold each response, and ``n_blocks``.
    """

    responses: Responses
    copied_P: Bool[np.ndarray, " problem"]
    n_blocks: int
    log_chance: Callable[[np.ndarray, int], float]


@dataclass(frozen=True, kw_only=True)
class SampledCheckpoint:
    """A checkpoint with ``n`` samples of each problem."""

    step: int
    checkpoint: str
    n: int


def repeats(store: Store, series: str, drawn: Sequence[SampledCheckpoint]) -> dict[int, str]:
    """Return step → why its samples are no separate evidence.

    ``drawn`` begins with the base. Of two checkpoints with the same samples the later one is reported.
    """
    unlikely = _copies_of_unlikely(store, series)
    reasons: dict[int, str] = {}
    seen: list[tuple[str, Responses]] = []
    for one in drawn:
        rows = store.frame(_IDS, series=series, step=one.step, n=one.n)
        responses = np.stack(rows["ids"].to_list()).astype(np.uint64)
        why = describe_repeats(responses) or unlikely.get(one.step)
        for label, theirs in seen:
            why = why or _describe_copy(responses, label, theirs)
        if why is not None:
            reasons[one.step] = why
        seen.append((one.checkpoint, responses))
    return reasons


def describe_repeats(responses: Responses) -> str | None:
    """Describe how the samples of problems repeat; None where they do not.

    >>> rng = np.random.default_rng(0)
    >>> once_PN = rng.integers(0, 50, size=(20, 16), dtype=np.uint64)
    >>> print(describe_repeats(np.hstack([once_PN, once_PN])))
    2 times the same 16 samples at 20 of 20 problems: identical seeds, or a file read twice; leave the copies out, or
    draw again with seeds that differ
    >>> print(describe_repeats(rng.integers(0, 50, size=(20, 32), dtype=np.uint64)))
    None
    """
    for what, copies in (*_consecutive_blocks(responses), *_adjacent_copies(responses), *_multiple_counts(responses)):
        n_copied = _count_copied(copies)
        if n_copied is not None:
            where = f"{n_copied} of {len(responses)} problems"
            return f"{what} at {where}: identical seeds, or a file read twice; {_MEND}"
    return None


def _consecutive_blocks(responses: Responses) -> Iterator[tuple[str, _Copies]]:
    """Yield candidates for whole blocks of every size, one after the other."""
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
    """Yield candidates for copies in any order, the largest multiple first."""
    often_P = np.array([np.gcd.reduce(np.unique(ids, return_counts=True)[1]) for ids in responses])
    for times in range(min(_MOST_IN_A_ROW, responses.shape[1]), 1, -1):
        copied_P = often_P % times == 0
        if copied_P.sum() >= FEWEST_PROBLEMS:
            yield f"every sample {times} times, shuffled", _Copies(responses, copied_P, times, _log_chance_in_a_row)


def _describe_copy(responses: Responses, label: str, theirs: Responses) -> str | None:
    """Describe a checkpoint whose samples are those of another one; None where they differ."""
    n = min(responses.shape[1], theirs.shape[1])
    both = np.hstack([responses[:, :n], theirs[:, :n]])
    copied_P = (both[:, :n] == both[:, n:]).all(axis=1)
    n_copied = _count_copied(_Copies(both, copied_P, 2, _log_chance_of_blocks))
    if n_copied is None:
        return None
    return (
        f"the very same samples as {label} at {n_copied} of {len(both)} problems: its weights were not loaded, or "
        "hardly differ and share a seed; draw it again, with a seed of its own"
    )


def _count_copied(copies: _Copies) -> int | None:
    """Return how many informative problems are copied; None where these are few, or chance explains them.

    With p_i the probability of a copy at problem i, −sum log p_i over the copied ones exceeds s by chance with
    probability at most exp(−s / 2) prod_i (1 − p_i + sqrt(p_i)), by Markov's inequality for exp(s / 2). All of them are
    copied with probability prod_i p_i.
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
    # there are at most as many ways to repeat as samples
    return int(copied_T.sum()) if bound < log(CHANCE) - log(responses.size) else None


def _log_chance_of_blocks(n_V: np.ndarray, n_blocks: int) -> float:
    """Return the log-probability that all blocks have response v equally often, given ``n_V`` of it in total."""
    if (n_V % n_blocks).any():
        return -np.inf
    c_V, size = n_V // n_blocks, n_V.sum() // n_blocks
    ways = gammaln(n_V + 1) - n_blocks * gammaln(c_V + 1)
    return float(ways.sum() - gammaln(n_blocks * size + 1) + n_blocks * gammaln(size + 1))


def _log_chance_in_a_row(n_V: np.ndarray, n_blocks: int) -> float:
    """Return about the log-probability that every response occurs a multiple of ``n_blocks`` times.

    A count is such a multiple with probability 1 / ``n_blocks``; where it varies by less, with that of its most likely
    value, of a normal distribution with the binomial's variance. The last count follows from the others.
    """
    variance_V = n_V * (1 - n_V / n_V.sum())
    chance_V = np.clip(1 / np.sqrt(2 * np.pi * variance_V), 1 / n_blocks, 1.0)
    return float(np.sort(np.log(chance_V))[1:].sum())


def _copies_of_unlikely(store: Store, series: str) -> Mapping[int, str]:
    """Return step → reason, where many responses repeat that no model would give twice."""
    n_pairs = float(store.frame(_PAIRS, series=series)["n"].iloc[0])
    most = log(CHANCE) - log(n_pairs)
    return {
        int(row.step): (
            f"{row.n_copies} of its {row.n} responses with a log-probability below {most:.0f} repeat another, which no "
            f"independent draws do: identical seeds; {_MEND}"
        )
        for row in store.frame(_UNLIKELY, series=series, most=most).itertuples()
        if row.n_repeating >= max(FEWEST_PROBLEMS, LEAST_SHARE * row.n_problems) and row.n_copies >= LEAST_SHARE * row.n
    }
