"""Errors and intervals of the change of pass@k, for designs that draw different numbers of samples.

Every design gets the same sets of problems. Its errors are those of one audit of a base and a late checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from benchmarks.calibration.series import reach_here
from benchmarks.sampling.rates import Pair
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import StoppingRule

N_PROBLEMS = 100
#: Problems from which expected numbers of samples and the change in the population are computed.
N_COSTED, N_POPULATION = 4_000, 200_000
#: First round and number of correct samples of the stopping rules.
STOPPED = ((8, 2), (16, 4), (32, 4))
#: The rule whose mean number of samples the uniform design of equal cost has.
COSTED = (16, 4)
#: Names of the uniform designs.
FULL, EQUAL = "cap of each", "equal cost, uniform"


@dataclass(frozen=True, kw_only=True)
class ChangeAtK:
    """Errors of the change of pass@k at one k, in points.

    Attributes:
        change: In the population.
        bias: Mean error, with its standard error ``bias_error``. Errors are those of the problems of each audit.
        here: Audits whose 95 % interval for these problems contains their change. None for k above cap / 2, where no
            unbiased variance exists.
        population: Audits whose 95 % interval over problems contains the change in the population.
        width_here: Mean width of these intervals.
        width: Mean width of those over problems.
    """

    k: int
    change: float
    rms: float
    bias: float
    bias_error: float
    here: int | None
    population: int
    width_here: float | None
    width: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One design at one pair of rates. ``samples`` is the expected number per problem of base and checkpoint."""

    pair: str
    cap: int
    design: str
    samples: float
    audits: int
    by_k: tuple[ChangeAtK, ...]

    def at(self, k: int) -> ChangeAtK | None:
        """Return the errors at ``k``; None where the design has fewer samples."""
        return next((found for found in self.by_k if found.k == k), None)


def expected_samples(pair: Pair, rule: StoppingRule, *, seed: Sequence[int]) -> float:
    """Return the expected number of samples per problem, of base and late checkpoint on average."""
    rates = blocks(pair, np.random.default_rng(seed), N_COSTED)
    return float(rule.expected_samples(np.concatenate([rate_P for both in rates for rate_P in both])).mean())


def blocks(pair: Pair, rng: np.random.Generator, n_problems: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return rates of this number of problems, in blocks of the size of an audit: those of a block may share topics."""
    return [pair(rng, N_PROBLEMS) for _ in range(n_problems // N_PROBLEMS)]


def designs(pair: Pair, cap: int, *, seed: Sequence[int]) -> Iterator[tuple[str, StoppingRule, float]]:
    """Yield name, rule and expected samples of every design."""
    yield FULL, StoppingRule(rounds=(cap,), enough=1), float(cap)
    rules = {stop: StoppingRule.doubling(first=stop[0], cap=cap, enough=stop[1]) for stop in STOPPED}
    samples = {stop: expected_samples(pair, rule, seed=seed) for stop, rule in rules.items()}
    n_equal = max(2, round(samples[COSTED]))
    yield EQUAL, StoppingRule(rounds=(n_equal,), enough=1), float(n_equal)
    for stop, rule in rules.items():
        yield design_title(*stop), rule, samples[stop]


def design_title(first: int, enough: int) -> str:
    """Return the name of a stopping rule whose rounds double.

    >>> design_title(16, 4)
    'from 16, until 4'
    """
    return f"from {first}, until {enough}"


def measure(name: str, pair: Pair, *, cap: int, ks: Sequence[int], audits: int, seed: Sequence[int]) -> list[Row]:
    """Simulate ``audits`` audits of every design."""
    problems, population, drawing = np.random.default_rng([*seed, cap]).spawn(3)
    base_AP, late_AP = np.stack([np.stack(pair(problems, N_PROBLEMS)) for _ in range(audits)], axis=1)
    many = blocks(pair, population, N_POPULATION)
    change_K = np.mean([change_here(base_P, late_P, ks) for base_P, late_P in many], axis=0)
    rows = []
    for design, rule, samples in designs(pair, cap, seed=seed):
        own_ks = [k for k in ks if k <= rule.cap]
        by_k = errors(rule, own_ks, base_AP, late_AP, change_K, drawing.spawn(1)[0])
        rows.append(Row(pair=name, cap=cap, design=design, samples=samples, audits=audits, by_k=tuple(by_k)))
    return rows


def change_here(base_P: np.ndarray, late_P: np.ndarray, ks: Sequence[int]) -> Float[np.ndarray, "... k"]:
    """Return the change of mean pass@k of these problems. The last axis of the rates is that of problems."""
    return np.stack([((1 - base_P) ** k - (1 - late_P) ** k).mean(axis=-1) for k in ks], axis=-1)


def errors(
    rule: StoppingRule,
    ks: Sequence[int],
    base_AP: Float[np.ndarray, "audit problem"],
    late_AP: Float[np.ndarray, "audit problem"],
    population_K: Float[np.ndarray, " k"],
    rng: np.random.Generator,
) -> Iterator[ChangeAtK]:
    """Draw both sides of every audit by the rule, and yield the errors of the change at each k."""
    base_codes_AP, late_codes_AP = (
        rule.draw(rate_AP.ravel(), rng=rng, draws=1).reshape(rate_AP.shape) for rate_AP in (base_AP, late_AP)
    )
    truth_AK = change_here(base_AP, late_AP, ks)
    small_ks = [k for k in ks if 2 * k <= rule.cap]
    table_EK = rule.pass_at_k_table(ks)
    variance_EK = np.diagonal(rule.covariance_table(small_ks), axis1=1, axis2=2)
    for at, k in enumerate(ks):
        change_AP = table_EK[late_codes_AP, at] - table_EK[base_codes_AP, at]
        error_A = change_AP.mean(axis=1) - truth_AK[:, at]
        over_problems = [share_interval(change_P, bounds=(-1.0, 1.0)) for change_P in change_AP]
        low_A, high_A = np.array([(found.low, found.high) for found in over_problems]).T
        reach_A = None
        if k in small_ks:
            variance_A = (variance_EK[base_codes_AP, at] + variance_EK[late_codes_AP, at]).sum(axis=1)
            reach_A = reach_here(variance_A, base_AP.shape[1])
        yield ChangeAtK(
            k=k,
            change=100 * float(population_K[at]),
            rms=100 * float(np.sqrt(np.mean(error_A**2))),
            bias=100 * float(error_A.mean()),
            bias_error=100 * float(error_A.std(ddof=1) / np.sqrt(len(error_A))),
            here=None if reach_A is None else int((np.abs(error_A) <= reach_A).sum()),
            population=int(((low_A <= population_K[at]) & (population_K[at] <= high_A)).sum()),
            width_here=None if reach_A is None else 200 * float(reach_A.mean()),
            width=100 * float((high_A - low_A).mean()),
        )
