"""Intervals for the change of pass@k beyond the cap: closed cases, refusals, and faults that they must notice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import binom

from oversharp.diagnostics.statistics.forecast import beyond
from oversharp.diagnostics.statistics.forecast.beyond import Mixture, change_beyond, interval_beyond, likelihoods
from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule, draw_codes

CAP, P = 64, 100
RULE = StoppingRule.doubling(first=16, cap=CAP, enough=4)
NEVER_P, ALWAYS_P = np.zeros(P, dtype=np.int64), np.full(P, CAP)


def pair(base_P: np.ndarray, late_P: np.ndarray, samples: Samples = CAP) -> PairedCounts:
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=samples, n_late=samples)


def draw(rate_P: np.ndarray, samples: Samples, seed: int) -> np.ndarray:
    return draw_codes(samples, rate_P, rng=np.random.default_rng(seed), draws=1)[0]


@pytest.fixture(name="rate_P")
def _rates() -> np.ndarray:
    return np.random.default_rng(1).beta(0.6, 1.2, P)


@pytest.mark.parametrize("samples", [CAP, RULE])
def test_problems_that_both_sides_always_solved_do_not_change(samples: Samples) -> None:
    found = change_beyond([pair(ALWAYS_P, ALWAYS_P, samples)], 2 * CAP)
    assert (found.bracket_low, found.bracket_high) == (0.0, 0.0)
    assert found.low is not None
    assert found.high is not None
    # a share s of problems that the late side never solves has a log-likelihood of P log(1 − s) ≥ −1.92
    assert -0.021 < found.low <= 0 <= found.high < 0.021


def test_problems_that_were_never_solved_may_be_solved_by_more_samples() -> None:
    found = change_beyond([pair(NEVER_P, NEVER_P)], 2 * CAP)
    assert (found.bracket_low, found.bracket_high) == (-1.0, 1.0)
    assert found.low == pytest.approx(-found.high, abs=1e-3)
    assert found.high > 0.03


def test_a_fall_of_all_problems_to_zero_is_close_to_one() -> None:
    low, high = interval_beyond([pair(ALWAYS_P, NEVER_P)], 2 * CAP)
    assert low == pytest.approx(-1, abs=1e-3)
    assert high < -0.95


@pytest.mark.parametrize("samples", [CAP, RULE])
def test_equal_sides_contain_no_change_and_swapping_them_changes_the_sign(rate_P: np.ndarray, samples: Samples) -> None:
    base_P, late_P = draw(rate_P, samples, 2), draw(rate_P**1.2, samples, 3)
    low, high = interval_beyond([pair(base_P, base_P, samples)], 2 * CAP)
    assert low < 0 < high
    assert low == pytest.approx(-high, abs=1e-3)
    low, high = interval_beyond([pair(base_P, late_P, samples)], 2 * CAP)
    swapped = interval_beyond([pair(late_P, base_P, samples)], 2 * CAP)
    assert swapped == pytest.approx((-high, -low), abs=1e-3)


def test_a_loss_of_a_fifth_of_the_problems_is_found(rate_P: np.ndarray) -> None:
    late_P = np.where(np.arange(P) < 20, 0, draw(rate_P, RULE, 3))
    low, high = interval_beyond([pair(draw(rate_P, RULE, 2), late_P, RULE)], 2 * CAP)
    truth = -(1 - (1 - rate_P[:20]) ** (2 * CAP)).sum() / P
    assert low < truth < high < 0


@pytest.mark.parametrize("samples", [CAP, RULE])
def test_a_likelihood_that_ignores_the_number_of_samples_is_noticed(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault takes all numbers of samples for 16, the first round."""
    # none solved: one late rate p with a log-likelihood of 100 · 64 log(1 − p) ≥ −1.92 gives pass@128 = 3.8 %
    high = 1 - np.exp(-1.92 / P) ** (2 * CAP / CAP)
    never = pair(NEVER_P, NEVER_P, samples)
    assert interval_beyond([never], 2 * CAP)[1] == pytest.approx(high, abs=0.005)

    def as_if_first_round(n_U: np.ndarray, correct_U: np.ndarray, rate_R: np.ndarray) -> np.ndarray:
        return likelihoods(np.full_like(n_U, 16), correct_U, rate_R)

    monkeypatch.setattr(beyond, "likelihoods", as_if_first_round)
    assert interval_beyond([never], 2 * CAP)[1] > 2 * high


def test_a_likelihood_is_proportional_to_the_probability_of_the_counts() -> None:
    rate_R = np.array([0.1, 0.2, 0.5])
    expected_R = binom.pmf(3, 16, rate_R)
    assert likelihoods(np.array([16]), np.array([3]), rate_R)[0] == pytest.approx(expected_R / expected_R.max())


def test_late_checkpoints_are_taken_for_one_with_their_samples_together(rate_P: np.ndarray) -> None:
    base_P, first_P, second_P = (draw(rate_P, CAP, seed) for seed in (2, 3, 4))
    apart = interval_beyond([pair(base_P, first_P), pair(base_P, second_P)], 2 * CAP)
    together = PairedCounts(base_P=base_P, late_P=first_P + second_P, n_base=CAP, n_late=2 * CAP)
    assert apart == interval_beyond([together], 2 * CAP)


def test_the_bracket_keeps_a_side_that_has_enough_samples() -> None:
    """The base has 128 samples, so its pass@128 is known; a tenth of the problems is unsolved by 64 late samples."""
    late_P = np.where(np.arange(P) < 10, 0, CAP)
    counts = PairedCounts(base_P=np.full(P, 2 * CAP), late_P=late_P, n_base=2 * CAP, n_late=CAP)
    found = change_beyond([counts], 2 * CAP)
    assert (found.bracket_low, found.bracket_high) == pytest.approx((-0.1, 0.0))


@pytest.mark.parametrize(
    ("n_problems", "samples", "k", "given", "why"),
    [
        (100, 64, 129, None, "k = 129 is above twice the 64 samples of a problem"),
        (29, 64, 128, None, "29 problems, and an interval needs 30"),
        (100, 8, 16, None, "8 samples of a problem, and an interval needs 16"),
        (100, 64, 128, "the samples are greedy", "the samples are greedy"),
        (30, 16, 32, None, "the interval at k = 32 is wider than 15 points"),
    ],
)
def test_an_interval_is_refused_with_its_reason(
    n_problems: int, samples: int, k: int, given: str | None, why: str
) -> None:
    rare_P = np.arange(n_problems) % 2
    found = change_beyond([pair(rare_P, rare_P, samples)], k, why=given)
    assert (found.low, found.high, found.why) == (None, None, why)
    assert found.bracket_low < 0 < found.bracket_high


def test_k_with_an_unbiased_estimate_is_not_forecast() -> None:
    with pytest.raises(ValueError, match="k = 64 has an unbiased estimate from 64 samples"):
        change_beyond([pair(NEVER_P, NEVER_P)], CAP)


def test_ends_are_those_of_a_general_optimiser() -> None:
    """Three rates per side: scipy's SLSQP maximises the same mean over the same distributions."""
    rate_R = np.array([0.0, 0.02, 0.5])
    base_UR = likelihoods(np.array([64, 64, 64]), np.array([0, 1, 30]), rate_R)
    late_UR = likelihoods(np.array([64, 64, 64]), np.array([0, 0, 30]), rate_R)
    fit = Mixture(
        likelihood_UG=(base_UR[:, :, None] * late_UR[:, None, :]).reshape(3, -1), times_U=np.array([20.0, 10.0, 70.0])
    )
    unsolved_R = (1 - rate_R) ** 128
    value_G = (unsolved_R[:, None] - unsolved_R).ravel()

    def log_likelihood_above(weight_G: np.ndarray) -> float:
        likelihood_U = np.maximum(fit.likelihood_UG @ weight_G, 1e-300)
        return float(fit.times_U @ np.log(likelihood_U)) - fit.most_likely + beyond.DROP

    even_G = np.full(9, 1 / 9)
    constraints = [{"type": "eq", "fun": lambda weight_G: weight_G.sum() - 1}]
    best_G = minimize(
        lambda w: -log_likelihood_above(w), even_G, bounds=[(0, 1)] * 9, constraints=constraints, tol=1e-10
    ).x
    constraints.append({"type": "ineq", "fun": log_likelihood_above})
    for sign in (-1, 1):
        found = minimize(
            lambda w, sign=sign: -sign * (value_G @ w), best_G, bounds=[(0, 1)] * 9, constraints=constraints, tol=1e-10
        )
        assert found.success
        assert fit.largest_mean(sign * value_G) == pytest.approx(-found.fun, abs=2e-3)


@pytest.mark.parametrize("n_rows", [3, 7])
def test_both_forms_of_a_system_give_its_solution(n_rows: int) -> None:
    rng = np.random.default_rng(5)
    diagonal_G, rows_XG, curvature_X = rng.uniform(0.1, 1, 5), rng.uniform(size=(n_rows, 5)), rng.uniform(1, 9, n_rows)
    whole_GG = np.diag(diagonal_G) + rows_XG.T @ np.diag(curvature_X) @ rows_XG
    sides_GS = rng.normal(size=(5, 2))
    found_GS = beyond._solve(diagonal_G, rows_XG, curvature_X, sides_GS)
    assert whole_GG @ found_GS == pytest.approx(sides_GS, abs=1e-8)


@pytest.mark.slow
def test_500_problems_with_1024_samples_have_a_narrower_interval_than_100() -> None:
    rule = StoppingRule.doubling(first=16, cap=1024, enough=4)
    rate_P = np.random.default_rng(1).beta(0.3, 1.2, 500)
    base_P, late_P = draw(rate_P, rule, 2), draw(rate_P**1.1, rule, 3)
    (few_low, few_high), (low, high) = (interval_beyond([pair(base_P[:n], late_P[:n], rule)], 2048) for n in (100, 500))
    truth = float(((1 - rate_P) ** 2048 - (1 - rate_P**1.1) ** 2048).mean())
    assert low < truth < high
    assert high - low < 0.7 * (few_high - few_low)
