"""Values by hand, and properties, of what happens before any gradient: shapings, estimators, calibrations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainers import objectives
from trainers.objectives.calibrations.easy_filter import easiest
from trainers.objectives.calibrations.iac import calibrated
from trainers.objectives.calibrations.reference_weighting import rarity
from trainers.objectives.contract import Credit, GroupedRewards, is_constant
from trainers.objectives.estimators.dr_grpo import centred
from trainers.objectives.estimators.grpo import CONVENTIONS, standardised
from trainers.objectives.estimators.reinforce_pp import whitened_over_tokens
from trainers.objectives.estimators.rloo import leave_one_out

binary_groups = st.integers(2, 16).flatmap(
    lambda size: st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size), min_size=1, max_size=6)
)


def rewards_of(
    reward: list[list[float]],
    *,
    correct: list[list[bool]] | None = None,
    n_tokens: list[list[int]] | None = None,
    truncated: list[list[bool]] | None = None,
    greedy_correct: list[bool] | None = None,
) -> GroupedRewards:
    """Rollouts with these rewards; correct where the reward is above 0, one token each, unless told otherwise."""
    reward_PG = torch.tensor(reward, dtype=torch.float64)
    return GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0 if correct is None else torch.tensor(correct),
        n_tokens_PG=torch.ones_like(reward_PG, dtype=torch.int64) if n_tokens is None else torch.tensor(n_tokens),
        truncated_PG=torch.zeros_like(reward_PG, dtype=torch.bool) if truncated is None else torch.tensor(truncated),
        greedy_correct_P=None if greedy_correct is None else torch.tensor(greedy_correct),
    )


def credit_of(expression: str, rewards: GroupedRewards) -> Credit:
    return objectives.parse(expression).credit(rewards)


def population(reward_PG: Tensor) -> Tensor:
    return standardised(reward_PG, ddof=0, eps=0.0)


# --- estimators -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("convention", "std"), [("verl", 0.5), ("open-instruct", math.sqrt(3) / 4)])
def test_grpo_by_hand(convention: str, std: float) -> None:
    # one of four correct: mean 1/4, sample std 1/2, population std sqrt(3)/4
    _, eps = CONVENTIONS[convention]
    advantage_PG = credit_of(f"grpo:convention={convention}", rewards_of([[1.0, 0.0, 0.0, 0.0]])).advantage_PG
    expected = [0.75 / (std + eps)] + [-0.25 / (std + eps)] * 3
    assert advantage_PG[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_grpo_settings_override_the_convention() -> None:
    advantage_PG = credit_of("grpo:convention=trl,ddof=0,eps=0.25", rewards_of([[1.0, 0.0]])).advantage_PG
    assert advantage_PG.tolist() == [[0.5 / 0.75, -0.5 / 0.75]]


def test_nearly_equal_rewards_still_count() -> None:
    assert not is_constant(torch.tensor([[0.1] * 7 + [0.1000001]])).item()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raw_reward", [[2.0, 1.0, 0.0, 1.0]]),
        ("dr_grpo", [[1.0, 0.0, -1.0, 0.0]]),
        ("rloo", [[4 / 3, 0.0, -4 / 3, 0.0]]),
        # 4 tokens of rewards 2, 1, 0, 1: mean 1, unbiased variance 2/3
        ("reinforce_pp", [[math.sqrt(1.5), 0.0, -math.sqrt(1.5), 0.0]]),
        ("reinforce_pp_baseline", [[math.sqrt(1.5), 0.0, -math.sqrt(1.5), 0.0]]),
        ("w_reinforce", [[0.1, 0.1, -1.0, 0.1]]),
    ],
)
def test_estimators_by_hand(name: str, expected: list[list[float]]) -> None:
    advantage_PG = credit_of(name, rewards_of([[2.0, 1.0, 0.0, 1.0]])).advantage_PG
    assert advantage_PG[0].tolist() == pytest.approx(expected[0], abs=1e-7)


@given(binary_groups, st.floats(-5, 5), st.floats(0.1, 10))
@settings(deadline=None)
def test_grpo_ignores_shift_and_scale_of_rewards(rewards: list[list[float]], shift: float, scale: float) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.allclose(population(reward_PG), population(reward_PG * scale + shift), atol=1e-6)


@given(binary_groups, st.floats(-5, 5))
@settings(deadline=None)
def test_centring_ignores_a_shift_and_sums_to_zero(rewards: list[list[float]], shift: float) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.allclose(centred(reward_PG), centred(reward_PG + shift), atol=1e-12)
    assert torch.allclose(centred(reward_PG).sum(dim=1), torch.zeros(len(rewards), dtype=torch.float64), atol=1e-12)


@given(binary_groups)
@settings(deadline=None)
def test_rloo_leaves_each_sample_out_of_its_own_baseline(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    others_PG = (reward_PG.sum(dim=1, keepdim=True) - reward_PG) / (reward_PG.shape[1] - 1)
    torch.testing.assert_close(leave_one_out(reward_PG), reward_PG - others_PG, atol=1e-12, rtol=0)


@given(binary_groups, st.data())
@settings(deadline=None)
def test_whitening_counts_each_value_once_per_token(values: list[list[float]], data: st.DataObject) -> None:
    value_PG = torch.tensor(values, dtype=torch.float64)
    n_tokens_PG = torch.tensor([[data.draw(st.integers(1, 5)) for _ in row] for row in values])
    white_PG = whitened_over_tokens(value_PG, n_tokens_PG)
    token_N = value_PG.flatten().repeat_interleave(n_tokens_PG.flatten())
    if token_N.min() == token_N.max():
        assert (white_PG == 0).all()
        return
    expected_PG = (value_PG - token_N.mean()) / (token_N.var(correction=1) + 1e-8).sqrt()
    torch.testing.assert_close(white_PG, expected_PG, atol=1e-10, rtol=1e-10)


def test_reinforce_pp_baseline_moves_an_all_wrong_group_up_where_wrong_answers_are_long() -> None:
    # tokens 1, 3 | 2, 2; centred 1/2, -1/2 | 0, 0; mean over tokens -1/8, unbiased variance 1/8
    rewards = rewards_of([[1.0, 0.0], [0.0, 0.0]], n_tokens=[[1, 3], [2, 2]])
    advantage_PG = credit_of("reinforce_pp_baseline", rewards).advantage_PG
    expected = torch.tensor([[5.0, -3.0], [1.0, 1.0]], dtype=torch.float64) / 8 * math.sqrt(8)
    torch.testing.assert_close(advantage_PG, expected, atol=1e-6, rtol=0)
    assert (credit_of("dr_grpo", rewards).advantage_PG[1] == 0).all()


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_a_batch_of_two_tokens_is_whitened_without_dividing_by_zero(name: str) -> None:
    advantage_PG = credit_of(name, rewards_of([[1.0, 0.0]])).advantage_PG
    assert advantage_PG[0].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], rel=1e-6)


def test_w_reinforce_asks_the_verifier_and_not_the_reward() -> None:
    rewards = rewards_of([[-0.5, 1.0]], correct=[[True, False]])
    assert credit_of("w_reinforce:weight=0.5", rewards).advantage_PG.tolist() == [[0.5, -1.0]]


# --- shaping ----------------------------------------------------------------------------------------------------


def test_overlong_punishes_from_the_buffer_on_down_to_the_factor() -> None:
    rewards = rewards_of([[1.0, 1.0, 1.0, 0.0]], n_tokens=[[2, 8, 9, 10]])
    shaped = objectives.parse("overlong:length=10,buffer=4,factor=2").shapings[0].shape(rewards)
    assert shaped.tolist() == [[1.0, 0.0, -0.5, -2.0]]


def test_the_overlong_buffer_is_a_fifth_of_the_length_unless_given() -> None:
    rewards = rewards_of([[1.0, 1.0]], n_tokens=[[8, 9]])
    assert objectives.parse("overlong:length=10").shapings[0].shape(rewards).tolist() == [[1.0, 0.5]]


# --- calibrations -----------------------------------------------------------------------------------------------


@given(binary_groups)
@settings(deadline=None)
def test_with_binary_rewards_positives_outweigh_negatives_by_the_number_of_failures(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    correct_PG = reward_PG > 0
    advantage_PG = calibrated(population(reward_PG), correct_PG)
    for advantage_G, correct_G in zip(advantage_PG, correct_PG, strict=True):
        n_correct, size = int(correct_G.sum()), len(correct_G)
        if 0 < n_correct < size:
            ratio = advantage_G[correct_G].sum() / advantage_G[~correct_G].sum().abs()
            assert ratio.item() == pytest.approx(size - n_correct, rel=1e-9)
        else:
            assert advantage_G.abs().max().item() == 0


@given(binary_groups)
@settings(deadline=None)
def test_iac_with_alpha_zero_changes_nothing(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    assert torch.equal(calibrated(population(reward_PG), reward_PG > 0, alpha=0.0), population(reward_PG))


def test_iac_by_hand_with_alpha_two() -> None:
    # two of four correct: advantages are +1 and -1, the factor is (4 - 2)^2
    rewards = rewards_of([[1.0, 0.0, 1.0, 0.0]])
    assert credit_of("grpo:ddof=0,eps=0+iac:alpha=2", rewards).advantage_PG.tolist() == [[4.0, -1.0, 4.0, -1.0]]


def test_iac_leaves_an_all_wrong_group_with_one_smaller_penalty_alone() -> None:
    # A > 0 as the definition of success would raise the least bad wrong answer sevenfold
    rewards = rewards_of([[-0.5] + [-1.0] * 7])
    plain_PG = credit_of("grpo", rewards).advantage_PG
    assert plain_PG[0, 0].item() == pytest.approx(2.4749, abs=1e-4)
    assert torch.equal(credit_of("grpo+iac", rewards).advantage_PG, plain_PG)


def test_iac_does_not_punish_a_correct_sample_below_its_group_harder() -> None:
    # all correct but one too long: 0^alpha silences the positives, the penalised one keeps its own advantage
    rewards = rewards_of([[1.0, 1.0, 0.5]])
    plain = credit_of("grpo", rewards).advantage_PG[0].tolist()
    assert credit_of("grpo+iac", rewards).advantage_PG.tolist() == [[0.0, 0.0, plain[2]]]


@given(binary_groups)
@settings(deadline=None)
def test_scale_matching_keeps_the_mean_absolute_advantage_of_the_batch(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    plain_PG = population(reward_PG)
    matched_PG = credit_of("grpo:ddof=0,eps=0+iac:scale_matched=true", rewards_of(rewards)).advantage_PG
    assert matched_PG.abs().mean().item() == pytest.approx(plain_PG.abs().mean().item(), rel=1e-9, abs=1e-12)
    assert torch.equal(matched_PG.sign(), calibrated(plain_PG, reward_PG > 0).sign())


def test_grpo_n_by_hand_keeps_the_negatives_and_the_divisor() -> None:
    # two of four correct, population std 1/2
    credit = credit_of("grpo_n:ddof=0,eps=0", rewards_of([[1.0, 0.0, 1.0, 0.0]]))
    assert credit.advantage_PG.tolist() == [[0.0, -1.0, 0.0, -1.0]]
    assert credit.counted_PG.all()


def test_gspo_n_has_the_same_credit_as_grpo_n() -> None:
    rewards = rewards_of([[1.0, 0.0, 0.0]])
    assert torch.equal(credit_of("gspo_n", rewards).advantage_PG, credit_of("grpo_n", rewards).advantage_PG)


def test_nsr_by_hand_counts_incorrect_samples_alone_also_where_all_are_wrong() -> None:
    credit = credit_of("nsr", rewards_of([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    assert credit.advantage_PG.tolist() == [[0.0, -1.0, -1.0], [-1.0, -1.0, -1.0], [0.0, 0.0, 0.0]]
    assert credit.counted_PG.tolist() == [[False, True, True], [True, True, True], [False, False, False]]


def test_nsr_on_grpo_is_silent_where_all_are_wrong() -> None:
    credit = credit_of("grpo:ddof=0,eps=0+nsr", rewards_of([[1.0, 0.0], [0.0, 0.0]]))
    assert credit.advantage_PG.tolist() == [[0.0, -1.0], [0.0, 0.0]]
    assert credit.counted_PG.tolist() == [[False, True], [True, True]]


def test_self_by_hand_teaches_only_prompts_whose_greedy_response_fails() -> None:
    rewards = rewards_of([[1.0, 0.0], [1.0, 0.0]], greedy_correct=[True, False])
    credit = credit_of("self+grpo:ddof=0,eps=0", rewards)
    assert credit.advantage_PG.tolist() == [[0.0, 0.0], [1.0, -1.0]]
    assert credit.counted_PG.all()  # Eq 9: the indicator stands inside the mean over prompts
    out = credit_of("grpo:ddof=0,eps=0+greedy_filter:counted=false", rewards)
    assert out.counted_PG.tolist() == [[False, False], [True, True]]


def test_the_easiest_quarter_leaves_the_batch_and_ties_go_by_order() -> None:
    rewards = rewards_of([[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    credit = credit_of("raw_reward+easy_filter", rewards)
    assert credit.counted_PG[:, 0].tolist() == [False, True, True, True]
    assert credit.advantage_PG.tolist() == [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("share", "n_prompts", "n_dropped"), [(0.25, 3, 0), (0.25, 8, 2), (0.29, 100, 29), (0.1, 30, 3), (0.0, 5, 0)]
)
def test_the_easy_share_is_rounded_down_and_not_by_float_error(share: float, n_prompts: int, n_dropped: int) -> None:
    assert int(easiest(torch.ones(n_prompts, 2, dtype=torch.bool), share=share).sum()) == n_dropped


def test_overlong_filter_takes_truncated_samples_out_after_they_were_compared() -> None:
    rewards = rewards_of([[1.0, 0.0]], truncated=[[False, True]])
    credit = credit_of("grpo:ddof=0,eps=0+overlong_filter", rewards)
    assert credit.advantage_PG.tolist() == [[1.0, 0.0]]
    assert credit.counted_PG.tolist() == [[True, False]]


def test_the_rarity_of_a_response_by_hand_up_to_its_cap() -> None:
    logp_PG = torch.tensor([[0.5, 1e-3, 0.25, 0.1]], dtype=torch.float64).log()
    expected_PG = torch.tensor([[2.0, 100.0, 4.0, 10.0]], dtype=torch.float64)
    torch.testing.assert_close(rarity(logp_PG, cap=100.0), expected_PG)
    # a long response: 1 / pi_ref overflows, its cap does not
    torch.testing.assert_close(rarity(torch.full((1, 2), -5000.0), cap=100.0), torch.full((1, 2), 100.0))


@pytest.mark.parametrize(
    ("settings_text", "expected"),
    [
        ("samples=correct", [2.0, -1.0]),
        ("samples=all", [2.0, -4.0]),
        ("samples=all,cap=3", [2.0, -3.0]),
        ("samples=all,scale_matched=true", [2 / 3, -4 / 3]),  # mean |A| of 3 is set back to 1
    ],
)
def test_reference_weighting_by_hand(settings_text: str, expected: list[float]) -> None:
    rewards = GroupedRewards(
        reward_PG=torch.tensor([[1.0, 0.0]]),
        correct_PG=torch.tensor([[True, False]]),
        n_tokens_PG=torch.ones(1, 2, dtype=torch.int64),
        truncated_PG=torch.zeros(1, 2, dtype=torch.bool),
        reference_logp_PG=torch.tensor([[0.5, 0.25]]).log(),
    )
    found_PG = credit_of(f"grpo:ddof=0,eps=0+reference_weighting:{settings_text}", rewards).advantage_PG
    torch.testing.assert_close(found_PG, torch.tensor([expected]))
