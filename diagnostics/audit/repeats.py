"""Finds samples that are no draws of their own: the same ones several times over, or those of another checkpoint.

A fixed seed for every batch, a dump that was imported twice, a server that never loaded the new weights: each makes the
same evidence count again. Models repeat themselves too, when answers are short or probable, and that is left alone:

- *Blocks.* Of independent draws, any is as likely in one block as in another. That a problem's n samples are m blocks
  of b, each with the same responses, has, given how often each response occurs, the chance
  (prod_v (m c_v)! / (c_v!)^m) / (n! / (b!)^m), with c_v of response v in a block. It is 1 where all are alike, so that
  such problems say nothing. Only blocks in the same order are looked at; the order adds nothing to the evidence, as
  tools may sort what they write. The samples of two checkpoints are two such blocks.
- *Log-probabilities.* Of all pairs of samples, at most (pairs) exp(−L) are expected to be equal with a log-probability
  below −L, whatever the model. Where that is next to nothing, each such pair is a copy. Sampling at temperature 1
  without truncation alone has the law that these log-probabilities are of.

Nothing is said of a checkpoint unless chance would do it less than once in 1 / ``CHANCE`` audits, and at several
problems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from jaxtyping import Bool, UInt64
from scipy.special import gammaln

from diagnostics.store import Store

#: What is less likely than this is not taken for chance.
CHANCE = 1e-9
#: Copies at fewer problems, or at a smaller share of those that can tell, change no verdict.
FEWEST_PROBLEMS = 3
LEAST_SHARE = 0.1
#: So few blocks are looked for even where they leave a rest: of 33 samples, 16 and the same 16 again.
_MOST_BLOCKS_WITH_REST = 4

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


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A checkpoint with ``n`` samples of each problem."""

    step: int
    checkpoint: str
    n: int


def repeats(store: Store, series: str, drawn: Sequence[Drawn]) -> dict[int, str]:
    """Step → why its samples are no evidence of their own.

    ``drawn`` begins with the base: of two checkpoints with the same samples the later one in it is named.
    """
    unlikely = _copies_of_unlikely(store, series)
    reasons: dict[int, str] = {}
    seen: list[tuple[str, Responses]] = []
    for one in drawn:
        rows = store.frame(_IDS, series=series, step=one.step, n=one.n)
        responses = np.stack(rows["ids"].to_list()).astype(np.uint64)
        why = repeated_in_blocks(responses) or unlikely.get(one.step)
        for label, theirs in seen:
            why = why or _of_another(responses, label, theirs)
        if why is not None:
            reasons[one.step] = why
        seen.append((one.checkpoint, responses))
    return reasons


def repeated_in_blocks(responses: Responses) -> str | None:
    """How the samples of problems repeat, in words; None where they do not.

    >>> rng = np.random.default_rng(0)
    >>> once_PN = rng.integers(0, 50, size=(20, 16), dtype=np.uint64)
    >>> print(repeated_in_blocks(np.hstack([once_PN, once_PN])))
    2 times the same 16 samples at 20 of 20 problems: identical seeds, or a file read twice; leave the copies out, or
    draw again with seeds that differ
    >>> print(repeated_in_blocks(rng.integers(0, 50, size=(20, 32), dtype=np.uint64)))
    None
    """
    n_problems, n = responses.shape
    for n_blocks in range(2, n + 1):
        size = n // n_blocks
        if n % n_blocks and n_blocks > _MOST_BLOCKS_WITH_REST:
            continue
        whole = responses[:, : n_blocks * size]
        one_after_other = whole.reshape(n_problems, n_blocks, size)
        each_in_a_row = whole.reshape(n_problems, size, n_blocks)
        found = _problems_beyond_chance(
            (one_after_other == one_after_other[:, :1]).all(axis=(1, 2)), whole, _log_chance_of_blocks, n_blocks
        )
        what = f"{n_blocks} times the same {size} samples"
        if found is None:
            found = _problems_beyond_chance(
                (each_in_a_row == each_in_a_row[:, :, :1]).all(axis=(1, 2)), whole, _log_chance_in_a_row, n_blocks
            )
            what = f"every sample {n_blocks} times in a row"
        if found is not None:
            return f"{what} at {found} of {n_problems} problems: identical seeds, or a file read twice; {_MEND}"
    return None


def _of_another(responses: Responses, label: str, theirs: Responses) -> str | None:
    """Whether a checkpoint has the very samples of another one, in words."""
    n = min(responses.shape[1], theirs.shape[1])
    both = np.hstack([responses[:, :n], theirs[:, :n]])
    found = _problems_beyond_chance((both[:, :n] == both[:, n:]).all(axis=1), both, _log_chance_of_blocks, 2)
    if found is None:
        return None
    return (
        f"the very same samples as {label} at {found} of {len(both)} problems: its weights were not loaded, or hardly "
        "differ and share a seed; draw it again, with a seed of its own"
    )


def _problems_beyond_chance(
    copied_P: Bool[np.ndarray, " problem"],
    responses: Responses,
    log_chance: Callable[[Sequence[int], int], float],
    n_blocks: int,
) -> int | None:
    """How many problems are copied that can tell; None where these are few, or where chance may have done it.

    With p_i the chance of problem i, s = −sum log p_i over the copied ones is beyond s by chance at most with
    probability exp(−s / 2) prod_i (1 − p_i + sqrt(p_i)): Markov's inequality for exp(s / 2).
    """
    telling_P = (responses != responses[:, :1]).any(axis=1)
    n_copied = int((copied_P & telling_P).sum())
    if n_copied < max(FEWEST_PROBLEMS, LEAST_SHARE * int(telling_P.sum())):
        return None
    counts = (np.unique(ids, return_counts=True)[1] for ids in responses[telling_P])
    log_p = np.array([-np.inf if (c_V % n_blocks).any() else log_chance(c_V // n_blocks, n_blocks) for c_V in counts])
    p = np.exp(log_p)
    bound = np.log1p(np.sqrt(p) - p).sum() + log_p[copied_P[telling_P]].sum() / 2
    # no more ways to repeat are looked for than there are samples
    return n_copied if bound < log(CHANCE) - log(responses.size) else None


def _log_chance_of_blocks(c_V: np.ndarray, n_blocks: int) -> float:
    """That all blocks hold response v ``c_V`` times, given how often all of them together do."""
    size = c_V.sum()
    ways = gammaln(n_blocks * c_V + 1) - n_blocks * gammaln(c_V + 1)
    return float(ways.sum() - gammaln(n_blocks * size + 1) + n_blocks * gammaln(size + 1))


def _log_chance_in_a_row(c_V: np.ndarray, n_blocks: int) -> float:
    """About that of every response occurring a multiple of ``n_blocks`` times: sorted samples are in a row anyway."""
    return -(len(c_V) - 1) * log(n_blocks)


def _copies_of_unlikely(store: Store, series: str) -> Mapping[int, str]:
    """Steps at which many responses come again that no model would give twice."""
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
