"""Hand-computed values and properties of shapings, estimators and calibrations."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.objectives.calibrations.easy_filter import easiest_prompts
from oversharp.trainers.objectives.calibrations.iac import calibrate_advantages
from oversharp.trainers.objectives.calibrations.reference_weighting import rarity
from oversharp.trainers.objectives.contract import Credit, GroupedRewards, is_constant
from oversharp.trainers.objectives.estimators.dr_grpo import centre_rewards
from oversharp.trainers.objectives.estimators.grpo import CONVENTIONS, standardise_rewards
from oversharp.trainers.objectives.estimators.reinforce_pp import (
    ReinforcePp,
    whiten_by_token,
    whiten_over_samples,
    whiten_over_tokens,
)
from oversharp.trainers.objectives.estimators.rloo import leave_one_out
from tests.trainers.batches import rewards_of

binary_groups = st.integers(2, 16).flatmap(
    lambda size: st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size), min_size=1, max_size=6)
)


def credit_of(expression: str, rewards: GroupedRewards) -> Credit:
    return objectives.parse(expression).credit(rewards)


def population(reward_PG: Tensor) -> Tensor:
    return standardise_rewards(reward_PG, ddof=0, eps=0.0)


# --- estimators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("convention", "std"), [("verl", 0.5), ("open-instruct", math.sqrt(3) / 4)])
def test_grpo_by_hand(convention: str, std: float) -> None:
    # one of four correct: mean 1/4, sample std 1/2, population std sqrt(3)/4
    _, eps = CONVENTIONS[convention]
    advantage_PG = credit_of(f"grpo:convention={convention}", rewards_of([[1.0, 0.0, 0.0, 0.0]])).advantage_PG
    expected = [0.75 / (std + eps)] + [-0.25 / (std + eps)] * 3
    assert advantage_PG[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_nearly_equal_rewards_have_an_advantage() -> None:
    assert not is_constant(torch.tensor([[0.1] * 7 + [0.1000001]])).item()


HALF, THREE_HALVES, SEVEN = math.sqrt(0.5), math.sqrt(1.5), math.sqrt(7)
MIXED = rewards_of([[2.0, 1.0, 0.0, 1.0]])
#: The last group is all wrong, with long answers.
UNEQUAL = rewards_of([[1.0, 0.0], [0.0, 0.0]], n_tokens=[[1, 3], [2, 2]])


@pytest.mark.parametrize(
    ("name", "rewards", "expected"),
    [
        ("grpo:convention=trl,ddof=0,eps=0.25", rewards_of([[1.0, 0.0]]), [[0.5 / 0.75, -0.5 / 0.75]]),
        ("raw_reward", MIXED, [[2.0, 1.0, 0.0, 1.0]]),
        ("dr_grpo", MIXED, [[1.0, 0.0, -1.0, 0.0]]),
        ("dr_grpo", UNEQUAL, [[0.5, -0.5], [0.0, 0.0]]),
        ("rloo", MIXED, [[4 / 3, 0.0, -4 / 3, 0.0]]),
        # 4 tokens of rewards 2, 1, 0, 1: mean 1, unbiased variance 2/3
        ("reinforce_pp", MIXED, [[THREE_HALVES, 0.0, -THREE_HALVES, 0.0]]),
        ("reinforce_pp", rewards_of([[1.0, 0.0]]), [[HALF, -HALF]]),
        ("reinforce_pp_baseline", MIXED, [[THREE_HALVES, 0.0, -THREE_HALVES, 0.0]]),
        ("reinforce_pp_baseline", rewards_of([[1.0, 0.0]]), [[HALF, -HALF]]),
        # centred 1/2, -1/2 | 0, 0; mean over tokens -1/8, unbiased variance 1/8: all-wrong groups move up
        ("reinforce_pp_baseline", UNEQUAL, [[5 * HALF / 2, -3 * HALF / 2], [HALF / 2, HALF / 2]]),
        # 4 samples: mean and variance do not depend on lengths; centred all-wrong groups have advantage 0
        ("reinforce_pp:over=samples", MIXED, [[THREE_HALVES, 0.0, -THREE_HALVES, 0.0]]),
        # rewards 1, 0, 0, 0: mean 1/4, unbiased variance 1/4
        ("reinforce_pp:over=samples", UNEQUAL, [[1.5, -0.5], [-0.5, -0.5]]),
        # centred 1/2, -1/2, 0, 0: unbiased variance 1/6
        ("reinforce_pp_baseline:over=samples", UNEQUAL, [[THREE_HALVES, -THREE_HALVES], [0.0, 0.0]]),
        ("w_reinforce", MIXED, [[0.1, 0.1, -1.0, 0.1]]),
        # it uses the verifier's decision, not the reward
        ("w_reinforce:weight=0.5", rewards_of([[-0.5, 1.0]], correct=[[True, False]]), [[0.5, -1.0]]),
    ],
)
def test_estimators_by_hand(name: str, rewards: GroupedRewards, expected: list[list[float]]) -> None:
    expected_PG = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(credit_of(name, rewards).advantage_PG, expected_PG, atol=2e-7, rtol=0)


@pytest.mark.slow
@given(binary_groups, st.floats(-5, 5), st.floats(0.1, 10))
def test_grpo_ignores_shift_and_scale_of_rewards(rewards: list[list[float]], shift: float, scale: float) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.allclose(population(reward_PG), population(reward_PG * scale + shift), atol=1e-6)


@pytest.mark.slow
@given(binary_groups, st.floats(-5, 5))
def test_centring_ignores_a_shift_and_sums_to_zero(rewards: list[list[float]], shift: float) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.allclose(centre_rewards(reward_PG), centre_rewards(reward_PG + shift), atol=1e-12)
    assert torch.allclose(
        centre_rewards(reward_PG).sum(dim=1), torch.zeros(len(rewards), dtype=torch.float64), atol=1e-12
    )


@given(binary_groups)
def test_the_rloo_baseline_excludes_the_sample(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / (reward_PG.shape[1] - 1)
    torch.testing.assert_close(leave_one_out(reward_PG), reward_PG - others_PG, atol=1e-12, rtol=0)


@pytest.mark.slow
@given(binary_groups, st.data())
def test_whitening_weights_each_value_by_its_tokens(values: list[list[float]], data: st.DataObject) -> None:
    value_PG = torch.tensor(values, dtype=torch.float64)
    n_tokens_PG = torch.tensor([[data.draw(st.integers(1, 5)) for _ in row] for row in values])
    white_PG = whiten_over_tokens(value_PG, n_tokens_PG)
    token_N = value_PG.flatten().repeat_interleave(n_tokens_PG.flatten())
    if token_N.min() == token_N.max():
        assert (white_PG == 0).all()
        return
    expected_PG = (value_PG - token_N.mean()) / (token_N.var(correction=1) + 1e-8).sqrt()
    torch.testing.assert_close(white_PG, expected_PG, atol=1e-10, rtol=1e-10)


# --- shaping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_text", "n_tokens", "expected"),
    [
        ("length=10,buffer=4,factor=2", [2, 8, 9, 10], [1.0, 0.0, -0.5, -1.0]),
        ("length=20", [16, 17, 18, 20], [1.0, 0.75, 0.5, 0.0]),  # the default buffer is a fifth of the length
    ],
)
def test_overlong_punishes_linearly_from_the_buffer_to_the_factor(
    settings_text: str, n_tokens: list[int], expected: list[float]
) -> None:
    rewards = rewards_of([[1.0] * 4], n_tokens=[n_tokens])
    assert objectives.parse(f"overlong:{settings_text}").shapings[0].shape(rewards).tolist() == [expected]


# --- calibrations -----------------------------------------------------------------------------------------------


@given(binary_groups)
def test_with_binary_rewards_positive_advantages_are_the_negative_ones_times_the_failures(
    rewards: list[list[float]],
) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    correct_PG = reward_PG > 0
    advantage_PG = calibrate_advantages(population(reward_PG), correct_PG)
    for advantage_G, correct_G in zip(advantage_PG, correct_PG, strict=True):
        n_correct, size = int(correct_G.sum()), len(correct_G)
        if 0 < n_correct < size:
            ratio = advantage_G[correct_G].sum() / advantage_G[~correct_G].sum().abs()
            assert ratio.item() == pytest.approx(size - n_correct, rel=1e-9)
        else:
            assert advantage_G.abs().max().item() == 0


@pytest.mark.slow
@given(binary_groups)
def test_iac_with_alpha_zero_changes_nothing(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.equal(calibrate_advantages(population(reward_PG), reward_PG > 0, alpha=0.0), population(reward_PG))


#: Probabilities under the reference: one half and one quarter.
RARE = rewards_of([[1.0, 0.0]], reference_logp=torch.tensor([[0.5, 0.25]], dtype=torch.float64).log())


@pytest.mark.parametrize(
    ("expression", "rewards", "expected"),
    [
        # two of four correct: advantages are +1 and -1, the factor is (4 - 2)^2
        ("grpo:ddof=0,eps=0+iac:alpha=2", rewards_of([[1.0, 0.0, 1.0, 0.0]]), [[4.0, -1.0, 4.0, -1.0]]),
        # with S+ = {A > 0}, the least bad wrong answer would be multiplied by 7
        ("grpo:ddof=0,eps=0+iac", rewards_of([[-0.5] + [-1.0] * 7]), [[SEVEN] + [-1 / SEVEN] * 7]),
        # all correct but one overlong: 0^alpha removes positive advantages, the penalised one is unchanged
        # the literal formula: the factor is 8 - |{A > 0}| = 7
        ("grpo:ddof=0,eps=0+iac:s_plus=positive", rewards_of([[-0.5] + [-1.0] * 7]), [[7 * SEVEN] + [-1 / SEVEN] * 7]),
        ("grpo:ddof=0,eps=0+iac", rewards_of([[1.0, 1.0, 0.5]]), [[0.0, 0.0, -math.sqrt(2)]]),
        ("grpo_n:ddof=0,eps=0", rewards_of([[1.0, 0.0, 1.0, 0.0]]), [[0.0, -1.0, 0.0, -1.0]]),  # the divisor stays
        # only incorrect samples count, also in all-wrong groups
        ("nsr", rewards_of([[1.0, 0.0, 0.0], [0.0] * 3, [1.0] * 3]), [[None, -1.0, -1.0], [-1.0] * 3, [None] * 3]),
        (
            "grpo:ddof=0,eps=0+nsr",
            rewards_of([[1.0, 0.0], [0.0, 0.0]]),
            [[None, -1.0], [0.0, 0.0]],
        ),  # no gradient in all-wrong groups
        # Eq 9: the indicator is inside the mean over prompts
        (
            "self+grpo:ddof=0,eps=0",
            rewards_of([[1.0, 0.0]] * 2, greedy_correct=[True, False]),
            [[0.0, 0.0], [1.0, -1.0]],
        ),
        (
            "grpo:ddof=0,eps=0+greedy_filter:counted=false",
            rewards_of([[1.0, 0.0]] * 2, greedy_correct=[True, False]),
            [[None, None], [1.0, -1.0]],
        ),
        # the easiest quarter is removed, ties by order
        (
            "raw_reward+easy_filter",
            rewards_of([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]),
            [[None, None], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]],
        ),
        # truncated samples are removed after the comparison
        ("grpo:ddof=0,eps=0+overlong_filter", rewards_of([[1.0, 0.0]], truncated=[[False, True]]), [[1.0, None]]),
        ("grpo:ddof=0,eps=0+reference_weighting:samples=correct", RARE, [[2.0, -1.0]]),
        ("grpo:ddof=0,eps=0+reference_weighting:samples=all", RARE, [[2.0, -4.0]]),
        ("grpo:ddof=0,eps=0+reference_weighting:samples=all,cap=3", RARE, [[2.0, -3.0]]),
        # the mean |A| of 3 is rescaled to 1
        ("grpo:ddof=0,eps=0+reference_weighting:samples=all,scale_matched=true", RARE, [[2 / 3, -4 / 3]]),
    ],
)
def test_calibrations_by_hand(expression: str, rewards: GroupedRewards, expected: list[list[float | None]]) -> None:
    """None: the sample does not count."""
    credit = credit_of(expression, rewards)
    assert credit.counted_PG.tolist() == [[value is not None for value in row] for row in expected]
    expected_PG = torch.tensor([[value or 0.0 for value in row] for row in expected], dtype=torch.float64)
    torch.testing.assert_close(credit.advantage_PG, expected_PG, atol=1e-12, rtol=0)


@pytest.mark.slow
@given(binary_groups)
def test_scale_matching_keeps_the_mean_absolute_advantage_of_the_batch(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    plain_PG = population(reward_PG)
    matched_PG = credit_of("grpo:ddof=0,eps=0+iac:scale_matched=true", rewards_of(rewards)).advantage_PG
    assert matched_PG.abs().mean().item() == pytest.approx(plain_PG.abs().mean().item(), rel=1e-9, abs=1e-12)
    assert torch.equal(matched_PG.sign(), calibrate_advantages(plain_PG, reward_PG > 0).sign())


@pytest.mark.parametrize(
    ("share", "n_prompts", "n_dropped"), [(0.25, 3, 0), (0.25, 8, 2), (0.29, 100, 29), (0.1, 30, 3), (0.0, 5, 0)]
)
def test_the_easy_share_is_rounded_down_and_not_by_float_error(share: float, n_prompts: int, n_dropped: int) -> None:
    assert int(easiest_prompts(torch.ones(n_prompts, 2, dtype=torch.bool), share=share).sum()) == n_dropped


def test_the_rarity_of_a_response_by_hand_up_to_its_cap() -> None:
    logp_PG = torch.tensor([[0.5, 1e-3, 0.25, 0.1]], dtype=torch.float64).log()
    expected_PG = torch.tensor([[2.0, 100.0, 4.0, 10.0]], dtype=torch.float64)
    torch.testing.assert_close(rarity(logp_PG, cap=100.0), expected_PG)
    # a long response: 1 / pi_ref overflows, its cap does not
    torch.testing.assert_close(rarity(torch.full((1, 2), -5000.0), cap=100.0), torch.full((1, 2), 100.0))


# --- the KL in the reward ---------------------------------------------------------------------------------------

#: Two responses, of two tokens and of one; the value after the second one must have no effect.
GAP_BT = torch.tensor([[1.0, 2.0], [4.0, 99.0]], dtype=torch.float64)
GAP_MASK_BT = torch.tensor([[True, True], [True, False]])
ONE_RIGHT = rewards_of([[3.0, 0.0]], n_tokens=[[2, 1]])


@pytest.mark.parametrize(
    ("over", "mean", "deviation"),
    [
        # values 3 - 3 and 3 - 2, then 0 - 4: mean -1, squares 1 + 4 + 9, over n - 1 = 2
        ("tokens", -1.0, math.sqrt(7)),
        # each response has weight 1: mean (1/2 - 4) / 2, squares (1.75^2 + 2.75^2) / 2 + 2.25^2, over n - 1 = 1
        ("samples", -1.75, math.sqrt((1.75**2 + 2.75**2) / 2 + 2.25**2)),
    ],
)
def test_a_kl_in_the_reward_is_charged_to_the_token_and_its_predecessors(
    over: str, mean: float, deviation: float
) -> None:
    rewards = replace(ONE_RIGHT, reference_gap_BT=GAP_BT, mask_BT=GAP_MASK_BT)
    credit = credit_of(f"reinforce_pp:kl=1,over={over}", rewards)
    expected = [[(0.0 - mean) / deviation, (1.0 - mean) / deviation], [(-4.0 - mean) / deviation, 0.0]]
    torch.testing.assert_close(credit.advantage_BT, torch.tensor(expected, dtype=torch.float64), rtol=1e-7, atol=1e-12)
    assert credit.advantage_PG[0].tolist() == pytest.approx([sum(expected[0]) / 2, expected[1][0]])


def test_a_policy_equal_to_its_reference_has_no_kl() -> None:
    n_tokens_PG = torch.tensor([[2, 1]])
    for over, whitened in (
        ("tokens", whiten_over_tokens(ONE_RIGHT.reward_PG, n_tokens_PG)),
        ("samples", whiten_over_samples(ONE_RIGHT.reward_PG)),
    ):
        value_BT = ONE_RIGHT.reward_PG.reshape(-1, 1).expand(2, 2)
        found_BT = whiten_by_token(value_BT, GAP_MASK_BT, over)  # type: ignore[arg-type]
        torch.testing.assert_close(found_BT[:, 0], whitened.flatten())


def test_an_estimator_without_token_advantages_raises() -> None:
    rewards = replace(ONE_RIGHT, reference_gap_BT=GAP_BT, mask_BT=GAP_MASK_BT)
    with pytest.raises(ValueError, match="grpo has no advantages per token"):
        credit_of("grpo", rewards)


def test_a_calibration_of_responses_is_rejected_with_token_advantages() -> None:
    with pytest.raises(ConfigError, match=r"reinforce_pp:kl computes an advantage per token, but iac changes"):
        objectives.parse("reinforce_pp:kl=0.1+iac")
    assert objectives.parse("reinforce_pp+iac").calibrations
    assert not ReinforcePp().needs
    assert objectives.parse("reinforce_pp:kl=0.1").asks_for("reference_logp")
