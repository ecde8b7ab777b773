from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.errors import ConfigError
from trainers import objectives
from trainers.objectives import grpo, iac
from trainers.objectives.contract import NORMALISATION_PRESETS, AdvantageSettings, is_constant

POPULATION = AdvantageSettings(ddof=0, eps=0.0)
binary_groups = st.integers(2, 16).flatmap(
    lambda size: st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size), min_size=1, max_size=6)
)


@pytest.mark.parametrize("name", objectives.names())
def test_every_objective_declares_itself_and_gives_one_advantage_per_sample(name: str) -> None:
    objective = objectives.get(name)
    assert objective.title
    assert objective.source.startswith("arXiv")
    reward_PG = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    advantage_PG = objective.advantages(reward_PG, reward_PG > 0, AdvantageSettings(ddof=1, eps=1e-6))
    assert advantage_PG.shape == reward_PG.shape
    assert advantage_PG.dtype == reward_PG.dtype


@pytest.mark.parametrize("name", objectives.names())
def test_a_single_rollout_is_not_a_group(name: str) -> None:
    with pytest.raises(ValueError, match="a single rollout is not a group"):
        objectives.get(name).advantages(torch.ones(3, 1), torch.ones(3, 1, dtype=torch.bool), POPULATION)


def test_an_unknown_objective_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="no objective is called 'grop'; did you mean grpo"):
        objectives.get("grop")


@pytest.mark.parametrize(("preset", "std"), [("verl", 0.5), ("open-instruct", math.sqrt(3) / 4)])
def test_grpo_by_hand(preset: str, std: float) -> None:
    # one of four correct: mean 1/4, sample std 1/2, population std sqrt(3)/4
    ddof, eps = NORMALISATION_PRESETS[preset]
    reward_PG = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    advantage_PG = grpo.advantages(reward_PG, reward_PG > 0, AdvantageSettings(ddof=ddof, eps=eps))
    expected = [0.75 / (std + eps)] + [-0.25 / (std + eps)] * 3
    assert advantage_PG[0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("preset", sorted(NORMALISATION_PRESETS))
@pytest.mark.parametrize("algorithm", ["grpo", "iac"])
def test_equal_rewards_teach_nothing_although_their_float32_std_is_not_zero(preset: str, algorithm: str) -> None:
    reward_PG = torch.full((1, 8), 0.1)
    assert reward_PG.std(dim=1).item() != 0  # the trap is real
    ddof, eps = NORMALISATION_PRESETS[preset]
    correct_PG = torch.zeros(1, 8, dtype=torch.bool)
    advantage_PG = objectives.get(algorithm).advantages(reward_PG, correct_PG, AdvantageSettings(ddof=ddof, eps=eps))
    assert advantage_PG.tolist() == [[0.0] * 8]


def test_nearly_equal_rewards_still_count() -> None:
    reward_PG = torch.tensor([[0.1] * 7 + [0.1000001]])
    assert not is_constant(reward_PG).item()


@given(binary_groups, st.floats(-5, 5), st.floats(0.1, 10))
def test_grpo_ignores_shift_and_scale_of_rewards(rewards: list[list[float]], shift: float, scale: float) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    plain = grpo.advantages(reward_PG, reward_PG > 0, POPULATION)
    moved = grpo.advantages(reward_PG * scale + shift, reward_PG > 0, POPULATION)
    assert torch.allclose(plain, moved, atol=1e-6)


@given(binary_groups)
def test_with_binary_rewards_positives_outweigh_negatives_by_the_number_of_failures(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    correct_PG = reward_PG > 0
    advantage_PG = iac.advantages(reward_PG, correct_PG, POPULATION)
    for advantage_G, correct_G in zip(advantage_PG, correct_PG, strict=True):
        n_correct, size = int(correct_G.sum()), len(correct_G)
        if 0 < n_correct < size:
            ratio = advantage_G[correct_G].sum() / advantage_G[~correct_G].sum().abs()
            assert ratio.item() == pytest.approx(size - n_correct, rel=1e-9)
        else:
            assert advantage_G.abs().max().item() == 0


@given(binary_groups)
def test_alpha_zero_is_grpo(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    settings = AdvantageSettings(ddof=0, eps=0.0, iac_alpha=0.0)
    assert torch.equal(
        iac.advantages(reward_PG, reward_PG > 0, settings), grpo.advantages(reward_PG, reward_PG > 0, settings)
    )


def test_iac_by_hand_with_alpha_two() -> None:
    # two of four correct: advantages are +1 and -1, the factor is (4 - 2)^2
    reward_PG = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    settings = AdvantageSettings(ddof=0, eps=0.0, iac_alpha=2.0)
    assert iac.advantages(reward_PG, reward_PG > 0, settings).tolist() == [[4.0, -1.0, 4.0, -1.0]]


def test_an_all_wrong_group_with_shaped_rewards_is_left_alone() -> None:
    # overlong shaping: the least bad wrong answer has A > 0, and A > 0 as definition of success would raise it 7-fold
    reward_PG = torch.tensor([[-0.5] + [-1.0] * 7], dtype=torch.float64)
    correct_PG = torch.zeros(1, 8, dtype=torch.bool)
    plain = grpo.advantages(reward_PG, correct_PG, POPULATION)
    assert plain[0, 0].item() == pytest.approx(math.sqrt(7))
    assert torch.equal(iac.advantages(reward_PG, correct_PG, POPULATION), plain)


def test_a_correct_sample_below_its_group_is_not_punished_harder() -> None:
    # all correct but one too long: 0^alpha silences the positives, the penalised one keeps its own advantage
    reward_PG = torch.tensor([[1.0, 1.0, 0.5]], dtype=torch.float64)
    correct_PG = torch.ones(1, 3, dtype=torch.bool)
    plain = grpo.advantages(reward_PG, correct_PG, POPULATION)
    assert iac.advantages(reward_PG, correct_PG, POPULATION).tolist() == [[0.0, 0.0, plain[0, 2].item()]]


@given(binary_groups)
def test_scale_matching_keeps_the_mean_absolute_advantage_of_the_batch(rewards: list[list[float]]) -> None:
    reward_PG = torch.tensor(rewards, dtype=torch.float64)
    settings = AdvantageSettings(ddof=0, eps=0.0, iac_scale_matched=True)
    plain = grpo.advantages(reward_PG, reward_PG > 0, settings)
    matched = iac.advantages(reward_PG, reward_PG > 0, settings)
    assert matched.abs().mean().item() == pytest.approx(plain.abs().mean().item(), rel=1e-9, abs=1e-12)
    unmatched = iac.advantages(reward_PG, reward_PG > 0, POPULATION)
    assert torch.equal(matched.sign(), unmatched.sign())
