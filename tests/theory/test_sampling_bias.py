import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.papers.theory.calibration import inverse_probability_advantages
from benchmarks.papers.theory.sampling_bias import batch_objective, binary_advantages, geometric_step, optimal_policy
from oversharp.diagnostics.theory.sampling_bias import Tilted, batch_optimal_policy, partition_bounds


class Batch:
    """A random query and batch with binary advantages."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n_modes, group_size = int(rng.integers(3, 13)), int(rng.choice([4, 8, 16, 32]))
        self.reference_M = rng.dirichlet(np.ones(n_modes)) * 0.999 + 0.001 / n_modes
        self.correct_M = rng.random(n_modes) < 0.5
        self.count_M = rng.multinomial(group_size, self.reference_M)
        self.mixed = 0 < self.count_M[self.correct_M].sum() < group_size
        self.advantage_M = np.where(
            self.correct_M, *binary_advantages(int(self.count_M[self.correct_M].sum()), group_size)
        )
        self.beta = float(10 ** rng.uniform(-2.5, 0.5))

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.reference_M, self.count_M, self.advantage_M

    def pulled(self) -> Tilted:
        return batch_optimal_policy(*self.arguments(), beta=self.beta)


batches = st.integers(0, 10**6).map(Batch)


def test_infinite_samples_never_suppress_a_correct_mode():
    best = optimal_policy([0.2, 0.3, 0.5], [1.0, 1.0, -1.0], beta=0.5)
    weight_M = np.array([0.2, 0.3, 0.5]) * np.exp([2.0, 2.0, -2.0])
    assert best.partition == pytest.approx(weight_M.sum())
    assert best.policy_M == pytest.approx(weight_M / weight_M.sum())
    assert (best.policy_M[:2] >= [0.2, 0.3]).all()


def test_a_batch_divides_what_it_did_not_draw_by_its_partition_function():
    pulled = batch_optimal_policy([0.4, 0.2, 0.4], [3, 0, 1], [0.5, 0.5, -1.5], beta=0.25)
    partition = 0.4 * math.exp(1.5) + 0.2 + 0.4 * math.exp(-1.5)  # N·A/(βG) with βG = 1
    assert pulled.partition == pytest.approx(partition)
    assert pulled.policy_M[1] == pytest.approx(0.2 / partition)
    assert pulled.policy_M[1] < 0.2


def test_a_partition_function_beyond_float_range_keeps_its_logarithm():
    pulled = batch_optimal_policy([0.5, 0.5], [1, 1], [1.0, -1.0], beta=1e-4)
    assert pulled.log_partition == pytest.approx(5000 + math.log(0.5))
    assert pulled.partition == math.inf


@settings(max_examples=60)
@given(batches, st.integers(0, 10**6))
def test_the_batch_optimal_policy_maximises_the_corrected_objective(batch, seed):
    best_M = batch.pulled().policy_M
    value = batch_objective(best_M, *batch.arguments(), beta=batch.beta)
    assert value == pytest.approx(batch.beta * batch.pulled().log_partition, abs=1e-9)
    rng = np.random.default_rng(seed)
    for scale in (1e-3, 0.1, 1.0):
        other_M = best_M * np.exp(scale * rng.normal(size=len(best_M))) + 1e-300
        other_M /= other_M.sum()
        assert batch_objective(other_M, *batch.arguments(), beta=batch.beta) <= value + 1e-12


def test_the_printed_objective_has_no_maximum_once_a_sampled_advantage_is_negative():
    def printed(probability: float) -> float:
        return batch_objective(
            [1 - probability, probability], [0.5, 0.5], [1, 1], [1.0, -1.0], beta=0.1, as_printed=True
        )

    assert printed(1e-300) > printed(1e-100) > printed(1e-10) > printed(0.1)
    best_M = batch_optimal_policy([0.5, 0.5], [1, 1], [1.0, -1.0], beta=0.1).policy_M
    assert printed(1e-10) > printed(float(best_M[1]))


@settings(max_examples=40)
@given(batches, st.floats(0.01, 1.0))
def test_a_geometric_step_is_an_exponentiated_gradient_step(batch, share):
    rng = np.random.default_rng(0)
    policy_M = rng.dirichlet(np.ones(len(batch.reference_M))) * 0.99 + 0.01 / len(batch.reference_M)
    learning_rate = share / batch.beta
    target_M = batch.pulled().policy_M
    assume(target_M.min() > 1e-250)
    gradient_M = batch.count_M * batch.advantage_M / batch.count_M.sum()
    gradient_M = gradient_M - batch.beta * (np.log(policy_M / batch.reference_M) + 1)
    log_weight_M = np.log(policy_M) + learning_rate * gradient_M
    expected_M = np.exp(log_weight_M - log_weight_M.max())
    step_M = geometric_step(policy_M, target_M, learning_rate=learning_rate, beta=batch.beta)
    assert step_M == pytest.approx(expected_M / expected_M.sum(), abs=1e-10)


@pytest.mark.slow
@settings(max_examples=200)
@given(batches)
def test_both_lower_bounds_of_the_partition_function_hold(batch):
    assume(batch.mixed)
    bounds = partition_bounds(*batch.arguments(), batch.correct_M, beta=batch.beta)
    log_partition = batch.pulled().log_partition
    slack = 1e-9 * max(1.0, abs(bounds.from_counts))
    assert math.exp(min(log_partition, 700.0)) >= bounds.from_counts - slack
    assert bounds.from_counts >= bounds.from_gap.value - slack
    if bounds.gap.value > 0:
        assert log_partition > 0


def test_the_bounds_by_hand():
    # p = 3/4, σ = √3/4, A₊ = 1/√3, A₋ = −√3; βG = 2
    a_plus, a_minus = binary_advantages(3, 4)
    assert (a_plus, a_minus) == pytest.approx((1 / math.sqrt(3), -math.sqrt(3)))
    correct_M = np.array([True, True, False, False])
    bounds = partition_bounds(
        [0.4, 0.1, 0.2, 0.3], [2, 1, 1, 0], np.where(correct_M, a_plus, a_minus), correct_M, beta=0.5
    )
    assert bounds.from_counts == pytest.approx(1 + (a_plus * (0.8 + 0.1) + a_minus * 0.2) / 2)
    assert bounds.gap.value == pytest.approx(0.1 - 0.2)
    assert bounds.from_gap.value == pytest.approx(1 + 0.75 * 0.25 / (0.5 * math.sqrt(3) / 4) * -0.1)


def test_another_standard_deviation_only_rescales_the_second_bound():
    advantages = binary_advantages(2, 4, std=0.8)
    correct_M = np.array([True, False])
    bounds = partition_bounds([0.7, 0.3], [2, 2], np.where(correct_M, *advantages), correct_M, beta=1.0)
    assert bounds.from_gap.value == pytest.approx(1 + 0.25 / 0.8 * 0.4)


@pytest.mark.parametrize(
    ("count_M", "advantage_M", "why"),
    [
        ([2, 2, 0], [0.0, 0.0, 0.0], "the batch has no incorrect sample"),
        ([0, 0, 4], [0.0, 0.0, 0.0], "the batch has no correct sample"),
        ([1, 1, 2], [2.0, 0.0, -1.0], "the correct samples, or the incorrect samples, have unequal advantages"),
        ([1, 1, 2], [1.0, 1.0, 0.0], "the advantages of the batch do not average to zero"),
        ([1, 1, 2], [-1.0, -1.0, 1.0], "correct samples have a negative advantage"),
    ],
)
def test_the_second_bound_is_unknown_with_its_reason(count_M, advantage_M, why):
    bounds = partition_bounds([0.5, 0.2, 0.3], count_M, advantage_M, np.array([True, True, False]), beta=1.0)
    assert (bounds.from_gap.value, bounds.from_gap.why) == (None, why)
    assert math.isfinite(bounds.from_counts)


@pytest.mark.slow
def test_a_negative_gap_does_not_save_the_unsampled():
    mixed = [batch for batch in map(Batch, range(2000)) if batch.mixed]
    gaps = [partition_bounds(*batch.arguments(), batch.correct_M, beta=batch.beta).gap.value for batch in mixed]
    suppressed = [batch.pulled().log_partition > 0 for batch, gap in zip(mixed, gaps, strict=True) if gap <= 0]
    assert len(suppressed) > 500
    assert 0.65 < np.mean(suppressed) < 0.9  # 73 % in another draw of such worlds: it depends on β and K


@settings(max_examples=150)
@given(batches)
def test_inverse_probability_takes_the_bound_to_one_but_not_the_partition_function(batch):
    assume(batch.mixed)
    advantage_M = inverse_probability_advantages(batch.advantage_M, batch.reference_M)
    mass_M = batch.count_M * advantage_M * batch.reference_M
    assert 1 + mass_M.sum() / (batch.beta * batch.count_M.sum()) == pytest.approx(1, abs=1e-9 / batch.beta)
    assert batch_optimal_policy(batch.reference_M, batch.count_M, advantage_M, beta=batch.beta).log_partition > 0


@pytest.mark.parametrize(
    ("reference_M", "count_M", "advantage_M", "beta", "what"),
    [
        ([0.5, 0.4], [1, 1], [1.0, -1.0], 1.0, "sum to 1"),
        ([1.0, 0.0], [1, 1], [1.0, -1.0], 1.0, "above 0"),
        ([0.5, 0.5], [1, 1, 1], [1.0, -1.0], 1.0, "count_M: needs 2"),
        ([0.5, 0.5], [0, 0], [1.0, -1.0], 1.0, "integers ≥ 0"),
        ([0.5, 0.5], [0.5, 1], [1.0, -1.0], 1.0, "integers ≥ 0"),
        ([0.5, 0.5], [1, 1], [math.nan, -1.0], 1.0, "finite"),
        ([0.5, 0.5], [1, 1], [1.0, -1.0], 0.0, "beta"),
    ],
)
def test_what_is_no_batch_is_refused(reference_M, count_M, advantage_M, beta, what):
    with pytest.raises(ValueError, match=what):
        batch_optimal_policy(reference_M, count_M, advantage_M, beta=beta)


def test_correctness_must_be_booleans():
    with pytest.raises(ValueError, match="correct_M: needs 2 booleans"):
        partition_bounds([0.5, 0.5], [1, 1], [1.0, -1.0], np.array([1, 0]), beta=1.0)
    with pytest.raises(ValueError, match="n_correct"):
        binary_advantages(5, 4)
