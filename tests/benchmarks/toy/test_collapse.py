from __future__ import annotations

import numpy as np
import pytest

from benchmarks.toy import ToyConfig, ToyRun, collapsed_share, first_collapsed_step, tabular_world, wilson
from oversharp.diagnostics.records.errors import ConfigError


@pytest.fixture
def hand_made() -> ToyRun:
    """Four seeds, three records: one collapses at once, one at the end, one comes back, one never."""
    top_ST = np.array([[0.96, 0.99, 0.99], [0.5, 0.6, 0.95], [0.5, 0.97, 0.6], [0.5, 0.5, 0.949]])
    prob_STK = np.stack([top_ST, 1 - top_ST, np.zeros_like(top_ST)], axis=2)
    return ToyRun(
        world=tabular_world(),
        config=ToyConfig(steps=20, seeds=4, record_every=10),
        step_T=np.array([0, 10, 20]),
        prob_STK=prob_STK,
        held_out_prob_ST=None,
        logit_STK=None,
    )


def test_the_share_of_collapsed_seeds_by_hand(hand_made: ToyRun) -> None:
    by_step = collapsed_share(hand_made)
    assert by_step.step_T.tolist() == [0, 10, 20]
    assert by_step.share_T.tolist() == [0.25, 0.5, 0.5]
    assert by_step.last == wilson(2, 4)
    assert by_step.low_T[1] == wilson(2, 4).low
    assert by_step.high_T[0] == wilson(1, 4).high
    assert collapsed_share(hand_made, threshold=0.94).last.count == 3


def test_the_first_collapsed_step_is_none_for_a_seed_that_never_collapses(hand_made: ToyRun) -> None:
    assert first_collapsed_step(hand_made) == (0, 20, 10, None)


def test_wilsons_interval_by_hand() -> None:
    # 0 of 10: upper bound z²/(n + z²) = 3.8415 / 13.8415
    none = wilson(0, 10)
    assert (none.share, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(3.841459 / 13.841459, abs=1e-6)
    assert wilson(10, 10).low == pytest.approx(1 - none.high, abs=1e-12)
    assert wilson(5, 10, confidence=0.5).low > wilson(5, 10).low


@pytest.mark.parametrize(("count", "n"), [(3, 2), (-1, 2), (0, 0)])
def test_a_share_of_nothing_is_refused(count: int, n: int) -> None:
    with pytest.raises(ConfigError, match=f"{count} of {n}"):
        wilson(count, n)
