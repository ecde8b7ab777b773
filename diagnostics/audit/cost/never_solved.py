"""Cost of the problems that an audit with a stopping rule never solves, and of thinning them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths, samples_per_problem
from oversharp.diagnostics.verdict.power import BaseRates, Design

#: Thinning drops problems that are unsolved after this many samples at every checkpoint, and keeps this share of them.
THINNED_AFTER, KEPT_SHARE = 128, 0.25
#: Smallest number of problems with thinning. With fewer, a few kept problems determine the result.
LEAST_THINNED_PROBLEMS = 300
#: Log-odds of the success rates at which moments are computed. Between them they are interpolated.
_GRID = np.linspace(-18.0, 18.0, 361)


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """Estimated effect of thinning the unsolved problems.

    A problem that no checkpoint solved in its first ``after`` samples is dropped at random. The share ``kept`` of them
    is sampled further, with the weight 1 / ``kept`` (Horvitz and Thompson 1952), so estimates stay unbiased. It saves
    the share ``saved`` of the cost of the audit. It multiplies the standard error of the change of pass@``k`` of these
    problems by ``error_factor``. At the same cost, an audit of fewer problems multiplies it by ``fewer_factor``.
    """

    after: int
    kept: float
    saved: float
    k: int
    error_factor: float

    @property
    def fewer_factor(self) -> float:
        """Factor of the standard error if the cost is saved by fewer problems instead."""
        return float((1.0 - self.saved) ** -0.5)


@dataclass(frozen=True, kw_only=True)
class NeverSolved:
    """Expected cost of the problems that a checkpoint does not solve with the largest number of samples.

    ``problems`` is their share of the problems, averaged over base and checkpoints. ``cost`` is their share of the
    tokens, or of the samples if lengths are unknown. ``thinning`` is None with too few problems or samples.
    """

    problems: float
    cost: float
    thinning: Thinning | None


def never_solved(
    rates: BaseRates,
    design: Design,
    n_checkpoints: int,
    lengths: SampleLengths | None,
    trained: Sequence[BaseRates] = (),
) -> NeverSolved | None:
    """Return the cost of the problems that stay unsolved; None without a stopping rule.

    ``trained`` is as in ``audit_cost``. For thinning, checkpoints are assumed to have the success rates of the base.

    >>> rates = BaseRates.of(np.array([0, 64, 64, 64]), np.full(4, 64))
    >>> design = Design(n_problems=100, n=64, n_base=64, n_late=64, first=16, enough=4)
    >>> unsolved = never_solved(rates, design, 1, None)  # 2 · 64 samples of one problem, 2 · 16 of each of the others
    >>> round(unsolved.problems, 2), round(unsolved.cost, 2), unsolved.thinning
    (0.25, 0.57, None)
    """
    base, late = design.of_base, design.of_checkpoint
    all_P = samples_per_problem(rates, design, n_checkpoints, trained)
    if all_P is None or not isinstance(base, StoppingRule) or not isinstance(late, StoppingRule):
        return None
    length_P = np.ones(len(all_P)) if lengths is None or lengths.mean_P is None else lengths.mean_P
    total = float((all_P * length_P).mean())
    base_P = rates.posterior_mean(lambda rate_R: (1.0 - rate_R) ** base.cap)
    late_P = np.mean(
        [each.posterior_mean(lambda rate_R: (1.0 - rate_R) ** late.cap) for each in trained or (rates,)], axis=0
    )
    unsolved_P = base_P * base.cap + n_checkpoints * late_P * late.cap
    thinning = None
    if design.n_problems >= LEAST_THINNED_PROBLEMS:
        thinning = _thinning(rates, base, late, design, n_checkpoints, length_P / total)
    return NeverSolved(
        problems=float((base_P + n_checkpoints * late_P).mean()) / (1 + n_checkpoints),
        cost=float((unsolved_P * length_P).mean()) / total,
        thinning=thinning,
    )


def _thinning(
    rates: BaseRates,
    base: StoppingRule,
    late: StoppingRule,
    design: Design,
    n_checkpoints: int,
    cost_P: Float[np.ndarray, " problem"],
) -> Thinning | None:
    """Return the effect of thinning; None if no checkpoint is sampled further than ``THINNED_AFTER``.

    ``cost_P`` is the cost of one sample of each problem, in costs of the audit per problem.
    """
    after = next((n for n in late.rounds if n >= THINNED_AFTER), late.cap)
    if after == late.cap:
        return None
    k, window, n_all = inference_ks(late.cap)[-1], design.window, n_checkpoints + 1
    rest_base, rest_late = (_rest(rule, after) for rule in (base, late))

    def saved_samples(rate_R: np.ndarray) -> np.ndarray:
        more_R = rest_base.expected_samples(rate_R) + n_checkpoints * rest_late.expected_samples(rate_R)
        return (1.0 - KEPT_SHARE) * (1.0 - rate_R) ** (after * n_all) * more_R

    def variance(rate_R: np.ndarray) -> np.ndarray:
        (base_R, base_square_R), (late_R, late_square_R) = (_moments(rule, k, rate_R) for rule in (base, late))
        return base_square_R - base_R**2 + (late_square_R - late_R**2) / window

    def added_variance(rate_R: np.ndarray) -> np.ndarray:
        """Variance that the random weights 0 and 1 / ``KEPT_SHARE`` add: theirs, times the squared change."""
        (base_R, base_square_R), (late_R, late_square_R) = (
            _moments(rule, k, rate_R, after=after) for rule in (base, late)
        )
        mean_square_R = (late_square_R + (window - 1) * late_R**2) / window
        square_R = mean_square_R - 2.0 * late_R * base_R + base_square_R
        return (1.0 / KEPT_SHARE - 1.0) * (1.0 - rate_R) ** (after * n_all) * square_R

    own, more = (float(_interpolated_mean(rates, each).mean()) for each in (variance, added_variance))
    return Thinning(
        after=after,
        kept=KEPT_SHARE,
        saved=float((_interpolated_mean(rates, saved_samples) * cost_P).mean()),
        k=k,
        error_factor=float(np.sqrt(1.0 + more / own)) if own else 1.0,
    )


def _rest(rule: StoppingRule, after: int) -> StoppingRule:
    """Return the rule of the samples that follow ``after`` wrong ones."""
    rounds = tuple(n - after for n in rule.rounds if n > after)
    return StoppingRule(rounds=rounds, enough=min(rule.enough, rounds[-1]))


def _moments(
    rule: StoppingRule, k: int, rate_R: Float[np.ndarray, " rate"], *, after: int = 0
) -> tuple[Float[np.ndarray, " rate"], Float[np.ndarray, " rate"]]:
    """Return the means of the estimate of pass@``k`` and of its square, given that the first ``after`` are wrong."""
    rest = _rest(rule, after) if after else rule
    n_E, correct_E = np.array(rest.ends).T
    estimate_E = rule.pass_at_k_table([k])[rule.codes(n_E + after, correct_E), 0]
    chance_RE = rest.chances(rate_R)
    return chance_RE @ estimate_E, chance_RE @ estimate_E**2


def _interpolated_mean(
    rates: BaseRates, value_of: Callable[[Float[np.ndarray, " rate"]], Float[np.ndarray, " rate"]]
) -> Float[np.ndarray, " problem"]:
    """Return the posterior mean of a smooth function of the rate, which is computed on a grid."""
    value_G = value_of(expit(_GRID))
    return rates.posterior_mean(lambda rate_R: np.interp(logit(np.clip(rate_R, 1e-9, 1 - 1e-9)), _GRID, value_G))
