from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.toy.estimators import ESTIMATORS, calibrated, mean_shifted, normalised, reinforce_pp, rloo
from oversharp.trainers.objectives import contract
from oversharp.trainers.objectives.calibrations import iac

binary_groups = st.integers(2, 12).flatmap(
    lambda size: st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size), min_size=1, max_size=5)
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raw", [2.0, 1.0, 0.0, 1.0]),
        ("mean_shifted", [1.0, 0.0, -1.0, 0.0]),
        ("normalised", [2**0.5, 0.0, -(2**0.5), 0.0]),
        ("rloo", [4 / 3, 0.0, -4 / 3, 0.0]),
        ("reinforce_pp", [2**0.5, 0.0, -(2**0.5), 0.0]),
        ("grpo_n", [0.0, 0.0, -(2**0.5), 0.0]),
        ("grpo_n_shifted", [0.0, 0.0, -1.0, 0.0]),
    ],
)
def test_estimators_by_hand(name: str, expected: list[float]) -> None:
    reward_SG = torch.tensor([[2.0, 1.0, 0.0, 1.0]], dtype=torch.float64)
    assert ESTIMATORS[name](reward_SG)[0].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@given(binary_groups)
def test_rloo_leaves_each_sample_out_of_its_own_baseline(rewards: list[list[float]]) -> None:
    reward_SG = torch.tensor(rewards, dtype=torch.float64)
    others_SG = (reward_SG.sum(dim=1, keepdim=True) - reward_SG) / (reward_SG.shape[1] - 1)
    torch.testing.assert_close(rloo(reward_SG), reward_SG - others_SG, atol=1e-12, rtol=0)


@pytest.mark.slow
@given(binary_groups)
def test_reinforce_pp_is_normalised_where_a_batch_is_one_group(rewards: list[list[float]]) -> None:
    reward_SG = torch.tensor(rewards, dtype=torch.float64)
    torch.testing.assert_close(reinforce_pp(reward_SG), normalised(reward_SG), atol=1e-12, rtol=0)


@pytest.mark.slow
@given(binary_groups, st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans())
def test_calibration_is_the_trainers_iac_with_batches_of_one_group(
    rewards: list[list[float]], alpha: float, scale_matched: bool
) -> None:
    reward_SG = torch.tensor(rewards, dtype=torch.float64)
    correct_SG, plain_SG = reward_SG > 0, normalised(reward_SG)
    trainers_SG = torch.cat(
        [
            contract.scale_matched(raised_1G, plain_1G) if scale_matched else raised_1G
            for plain_1G, correct_1G in zip(plain_SG.split(1), correct_SG.split(1), strict=True)
            for raised_1G in (iac.calibrate_advantages(plain_1G, correct_1G, alpha=alpha),)
        ]
    )
    ours_SG = calibrated(plain_SG, correct_SG, alpha=alpha, scale_matched=scale_matched)
    torch.testing.assert_close(ours_SG, trainers_SG, atol=1e-12, rtol=1e-12)


def test_calibration_silences_a_raw_group_that_is_all_correct() -> None:
    reward_SG = torch.ones(1, 4, dtype=torch.float64)
    for scale_matched in (False, True):
        assert calibrated(reward_SG, reward_SG > 0, alpha=1.0, scale_matched=scale_matched).tolist() == [[0.0] * 4]


def test_scale_matched_calibration_keeps_the_mean_size_of_each_group() -> None:
    reward_SG = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    plain_SG = mean_shifted(reward_SG)
    matched_SG = calibrated(plain_SG, reward_SG > 0, alpha=1.0, scale_matched=True)
    torch.testing.assert_close(matched_SG.abs().mean(dim=1), plain_SG.abs().mean(dim=1))
    assert matched_SG[0, 0] > plain_SG[0, 0]


def test_calibration_leaves_a_correct_sample_with_a_negative_advantage_alone() -> None:
    reward_SG = torch.tensor([[2.0, 2.0, 2.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    calibrated_SG = calibrated(mean_shifted(reward_SG), reward_SG > 0, alpha=1.0, scale_matched=False)
    assert calibrated_SG[0].tolist() == pytest.approx([10 / 6] * 3 + [-1 / 6] + [-7 / 6] * 2)
