from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.toy import ToyConfig, World, bandit_world, cat_world, run, tabular_world
from oversharp.diagnostics.records.errors import ConfigError


def initial_law(world: World) -> np.ndarray:
    return run(world, ToyConfig(steps=1, seeds=1)).prob_STK[0, 0]


def test_the_cat_world_starts_uniform_and_accepts_cat_and_persian() -> None:
    assert initial_law(cat_world()).tolist() == [0.25] * 4
    assert cat_world().correct_labels == (0, 1)


@pytest.mark.parametrize(("siamese", "ratio"), [("high", 1.394), ("mid", 1.580), ("low", 1.735)])
def test_overlap_lowers_the_ratio_of_self_to_cross_similarity(siamese: str, ratio: float) -> None:
    # [A] App G prints 1.38, 1.57 and 1.72: its squared norm of Persian, 0.8775, should be 0.885
    world = cat_world(siamese)  # type: ignore[arg-type]
    assert world.held_out_feature_D is not None
    cross = np.dot(world.feature_D, world.held_out_feature_D)
    assert np.dot(world.feature_D, world.feature_D) / cross == pytest.approx(ratio, abs=5e-4)


def test_the_held_out_features_can_be_ones_own() -> None:
    assert cat_world((1.0, 0.0, 0.0, 0.0)).held_out_feature_D == (1.0, 0.0, 0.0, 0.0)


def test_a_tabular_world_starts_at_the_given_law() -> None:
    np.testing.assert_allclose(initial_law(tabular_world()), [0.5, 0.05, 0.45], atol=1e-15)
    four = tabular_world((0.4, 0.05, 0.25, 0.3), (1.0, 2.0, 0.5, 0.0))
    np.testing.assert_allclose(initial_law(four), [0.4, 0.05, 0.25, 0.3], atol=1e-15)


def test_the_bandit_starts_with_the_peaks_asked_for() -> None:
    peaky_K, flat_K = initial_law(bandit_world()), initial_law(bandit_world(peaks=()))
    np.testing.assert_allclose(peaky_K[[21, 8, 11]], [0.6, 0.2, 0.1], atol=1e-12)
    assert np.delete(peaky_K, [21, 8, 11]).max() < 0.004
    assert len(flat_K) == 50
    assert flat_K.max() < 0.03
    assert bandit_world(world_seed=1).feature_D != bandit_world().feature_D


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: cat_world("none"), "siamese 'none': choose from high, mid, low"),
        (lambda: cat_world((1.0, 2.0)), "the held-out query needs 4 features"),
        (lambda: tabular_world((0.5, 0.4), (1.0, 0.0)), "must be above 0 and sum to 1"),
        (lambda: tabular_world((0.5, 0.5), (1.0, 0.0, 2.0)), "reward_K has 3 values for 2 labels"),
        (lambda: tabular_world((1.0,), (1.0,)), "1 labels; a policy chooses among at least 2"),
        (lambda: tabular_world((0.5, 0.5), (1.0, math.nan)), "reward_K must be finite"),
        (lambda: bandit_world(rewarded=(50,)), r"labels \[50\]: must lie in \[0, 50\)"),
        (lambda: bandit_world(rewarded=(8,), punished=(8,)), r"labels \[8\]: both rewarded and punished"),
        (lambda: bandit_world(peaks=((1, 0.7), (2, 0.3))), "that leave some mass"),
    ],
)
def test_a_world_that_cannot_be_is_refused(build: Callable[[], World], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        build()
