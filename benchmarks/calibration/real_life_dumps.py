"""Samples of dumps that are all wrong, copied, or drawn in correlated batches.

The shipped queries search for copies and batches, on in-memory tables with the necessary columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from benchmarks.calibration.real_life_series import Outcome, Rates, logit_normal, of_counts
from benchmarks.calibration.series import rule
from oversharp.diagnostics.audit.independence import SampledCheckpoint, dependence_in_order, find_repeats
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of

#: Frequencies of the wrong answers among wrong responses.
_WRONG = np.arange(1, 21.0) ** -1.5 / (np.arange(1, 21.0) ** -1.5).sum()
#: Log-probability of a long response, in nats: mean and standard deviation.
_LOGP, _LOGP_SCATTER = -200.0, 40.0


@dataclass(frozen=True, kw_only=True)
class DetectionOutcome(Outcome):
    """``detected``: whether the audit found that samples are not independent."""

    detected: bool


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Samples of one checkpoint: response ids, correctness, and log-probabilities if known."""

    response_PN: Int[np.ndarray, "problem sample"]
    right_PN: Bool[np.ndarray, "problem sample"]
    logp_PN: Float[np.ndarray, "problem sample"] | None = None

    def taken(self, place_PN: Int[np.ndarray, "problem sample"]) -> Samples:
        """Return the samples at these indices of each problem."""
        columns = (self.response_PN, self.right_PN, self.logp_PN)
        response, right, logp = (None if one is None else np.take_along_axis(one, place_PN, axis=1) for one in columns)
        return Samples(response_PN=response, right_PN=right, logp_PN=logp)


#: (samples per problem, success rates, generator) → samples
Drawing = Callable[[Rates, int, np.random.Generator], Samples]


def solved_by_none(n_problems: int, n: int, within_reach: Rates) -> Callable[[np.random.Generator], Outcome]:
    """Base and one checkpoint with the same rates: ``within_reach``, and 0 for all other problems."""
    rate_P = np.zeros(n_problems)
    rate_P[: len(within_reach)] = within_reach

    def draw(rng: np.random.Generator) -> Outcome:
        base, late = (_checkpoint(step, n, rng.binomial(n, rate_P)) for step in (0, 1))
        none_P = np.zeros(n_problems, dtype=bool)
        counts = SeriesCounts(
            series="a", base=base, trained=(late,), shows_modes_P=none_P, tasks=("a",), graders=("a",),
            tokens_per_sample=None,
        )  # fmt: skip
        return Outcome(label=verdict_of(counts).label)

    return draw


def _checkpoint(step: int, n: int, correct_P: Int[np.ndarray, " problem"]) -> CheckpointCounts:
    none_P = np.zeros_like(correct_P)
    name = f"step {step}"
    return CheckpointCounts(step=step, checkpoint=name, n=n, correct_P=correct_P, minority_P=none_P, rates=None)


def short_answers(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
    """One right answer and twenty wrong ones."""
    right_PN = rng.random((len(rate_P), n)) < rate_P[:, None]
    wrong_PN = 1 + rng.choice(len(_WRONG), p=_WRONG, size=right_PN.shape)
    return Samples(response_PN=np.where(right_PN, 0, wrong_PN), right_PN=right_PN)


def right_or_wrong(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
    """Two responses: right and wrong."""
    right_PN = rng.random((len(rate_P), n)) < rate_P[:, None]
    return Samples(response_PN=right_PN.astype(np.int64), right_PN=right_PN)


def long_responses(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
    """Distinct responses with their log-probabilities."""
    right_PN = rng.random((len(rate_P), n)) < rate_P[:, None]
    response_PN = np.arange(right_PN.size).reshape(right_PN.shape)
    return Samples(response_PN=response_PN, right_PN=right_PN, logp_PN=rng.normal(_LOGP, _LOGP_SCATTER, right_PN.shape))


def without_logp(drawing: Drawing) -> Drawing:
    def drawn(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
        samples = drawing(rate_P, n, rng)
        return Samples(response_PN=samples.response_PN, right_PN=samples.right_PN)

    return drawn


def copied(times: int, drawing: Drawing, *, part: float = 1.0) -> Drawing:
    """Repeat a ``part`` of the samples several times, block after block. The others occur once."""

    def drawn(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
        n_copied = int(part * n) // times
        own = drawing(rate_P, n - (times - 1) * n_copied, rng)
        place_N = np.concatenate([*[np.arange(n_copied)] * (times - 1), np.arange(n - (times - 1) * n_copied)])
        return own.taken(np.broadcast_to(place_N, (len(rate_P), n)))

    return drawn


def in_luck(size: int, correlation: float) -> Drawing:
    """Batches of ``size`` samples within which correctness is correlated."""

    def drawn(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
        spread, rate_P = (1 - correlation) / correlation, np.clip(rate_P, 1e-9, 1 - 1e-9)
        lucky_PB = rng.beta(rate_P[:, None] * spread, (1 - rate_P[:, None]) * spread, size=(len(rate_P), n // size))
        right_PN = rng.random((len(rate_P), n)) < np.repeat(lucky_PB, size, axis=1)
        wrong_PN = 1 + rng.choice(len(_WRONG), p=_WRONG, size=right_PN.shape)
        return Samples(response_PN=np.where(right_PN, 0, wrong_PN), right_PN=right_PN)

    return drawn


def in_order(drawing: Drawing) -> Drawing:
    return drawing


def shuffled(drawing: Drawing) -> Drawing:
    """The samples of each problem in a random order."""

    def drawn(rate_P: Rates, n: int, rng: np.random.Generator) -> Samples:
        return drawing(rate_P, n, rng).taken(rng.permuted(np.tile(np.arange(n), (len(rate_P), 1)), axis=1))

    return drawn


def no_draws_of_their_own(
    drawing: Drawing, *, n_problems: int = 100, n: int = 64, n_checkpoints: int = 1
) -> Callable[[np.random.Generator], Outcome]:
    """No change, but dependent samples at every checkpoint, and twice as many at the base."""

    def draw(rng: np.random.Generator) -> Outcome:
        rate_P = logit_normal(n_problems, rng)
        checkpoints = [drawing(rate_P, 2 * n if step == 0 else n, rng) for step in range(n_checkpoints + 1)]
        store: Any = SampledSeries(checkpoints)
        named = [
            SampledCheckpoint(step=step, label=f"step {step}", n=one.right_PN.shape[1])
            for step, one in enumerate(checkpoints)
        ]
        left_out = find_repeats(store, "a", named)
        kept = [step for step in range(n_checkpoints + 1) if step not in left_out]
        dependent = dependence_in_order(store, "a", kept) is not None
        if 0 in left_out or len(kept) < 2:
            return DetectionOutcome(label="no_verdict", detected=True)
        if dependent:
            return DetectionOutcome(label="inconclusive", detected=True)
        base_P, *late = (checkpoints[step].right_PN.sum(axis=1) for step in kept)
        seen = of_counts(base_P, late, n_base=2 * n, n=n)
        return DetectionOutcome(label=rule(seen, rng=rng)[0], detected=bool(left_out))

    return draw


class SampledSeries:
    """In-memory tables for the queries of ``repeats`` and ``dependence``, with one series named a."""

    def __init__(self, checkpoints: Sequence[Samples]) -> None:
        rows = pd.concat([_rows(step, one) for step, one in enumerate(checkpoints)])
        self._tables = duckdb.connect(config={"threads": 1})
        self._tables.register("graded_samples", rows)
        self._tables.register("samples", rows)
        self._tables.execute(
            """
            CREATE VIEW planned_samples AS
            SELECT series, step, checkpoint_id, problem_id, settings_id, count(*) AS n_planned
            FROM graded_samples
            GROUP BY ALL
            """
        )
        self._tables.execute(
            "CREATE VIEW settings AS SELECT 0 AS settings_id, 1.0 AS temperature, 1.0 AS top_p, 0 AS top_k"
        )

    def frame(self, sql: str, **values: Any) -> pd.DataFrame:
        """Return the result of a query."""
        return self._tables.execute(sql, values).df()


def _rows(step: int, samples: Samples) -> pd.DataFrame:
    n_problems, n = samples.right_PN.shape
    logp = np.full(n_problems * n, np.nan) if samples.logp_PN is None else samples.logp_PN.ravel()
    return pd.DataFrame(
        {
            "series": "a",
            "step": step,
            "checkpoint_id": step,
            "settings_id": 0,
            "problem_id": np.repeat(np.arange(n_problems), n),
            "sample_index": np.tile(np.arange(n), n_problems),
            "response_id": samples.response_PN.ravel(),
            "correct": samples.right_PN.ravel(),
            "logp_sum_raw": logp,
            "greedy": False,
        }
    )
