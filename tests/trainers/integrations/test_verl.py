"""The estimators for verl, as far as they need no verl."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.records.errors import ConfigError
from trainers import objectives
from trainers.integrations import verl as integration
from trainers.objectives.contract import GroupedRewards

HALF_ROOT = 0.5**0.5


def estimate(kind: str, rewards: list[float], uids: str, **more: Any) -> list[float]:
    """Advantages of responses of two tokens; the first token holds the reward."""
    reward_BT = torch.tensor([[reward, 0.0] for reward in rewards], dtype=torch.float64)
    mask_BT = torch.ones(len(rewards), 2, dtype=torch.long)
    advantage_BT, return_BT = integration.ESTIMATORS[kind](
        token_level_rewards=reward_BT, response_mask=mask_BT, index=list(uids), **more
    )
    assert torch.equal(advantage_BT, return_BT)
    assert torch.equal(advantage_BT[:, 0], advantage_BT[:, 1])
    return advantage_BT[:, 0].tolist()


def test_groups_of_unequal_size_stand_for_themselves() -> None:
    found = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb")
    # one of four: 0.75 / 0.5 = 1.5, times three; one of two: 0.5 / sqrt(1/2), times one
    assert found == pytest.approx([4.5, -0.5, -0.5, -0.5, HALF_ROOT, -HALF_ROOT], rel=1e-5)


def test_the_rows_of_a_group_need_not_stand_together() -> None:
    assert estimate("iac", [1, 0, 0, 1, 0, 0], "ababaa") == pytest.approx(
        [4.5, -HALF_ROOT, -0.5, HALF_ROOT, -0.5, -0.5], rel=1e-5
    )


def test_a_response_without_another_one_to_its_prompt_teaches_nothing() -> None:
    assert estimate("iac", [1, 1, 0], "abb") == pytest.approx([0, HALF_ROOT, -HALF_ROOT], rel=1e-5)
    assert estimate("iac_scale_matched", [1], "a") == [0]


def test_negatives_alone_are_kept() -> None:
    assert estimate("grpo_n", [1, 0, 0, 0, 1, 0], "aaaabb") == pytest.approx(
        [0, -0.5, -0.5, -0.5, 0, -HALF_ROOT], rel=1e-5
    )


def test_the_scale_is_matched_over_the_batch_and_not_within_each_group() -> None:
    plain = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb", config={"iac": {"alpha": 0.0}})
    raised = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb")
    matched = estimate("iac_scale_matched", [1, 0, 0, 0, 1, 0], "aaaabb")
    factor = sum(map(abs, plain)) / sum(map(abs, raised))
    assert matched == pytest.approx([factor * advantage for advantage in raised])


def test_the_least_bad_of_all_wrong_answers_is_not_raised() -> None:
    rewards = [-0.5, -1, -1, -1]
    assert estimate("iac", rewards, "aaaa") == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)
    with_low_bar = estimate("iac", rewards, "aaaa", config={"iac": {"correct_above": -0.7}})
    assert with_low_bar == pytest.approx([4.5, -0.5, -0.5, -0.5], rel=1e-5)


def test_a_verdict_that_is_passed_on_is_believed_before_the_reward() -> None:
    verdict = {"acc": [False, False, False, True]}
    plain = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", config={"iac": {"alpha": 0}})
    found = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", non_tensor_batch=verdict)
    assert found == pytest.approx([*plain[:3], 3 * plain[3]])


def test_the_mask_covers_what_is_no_response() -> None:
    reward_BT, mask_BT = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[1, 1], [1, 0]])
    assert integration.estimate("iac", reward_BT, mask_BT, ["a", "a"])[0][1, 1] == 0


def test_a_reward_on_a_token_that_the_mask_leaves_out_counts() -> None:
    reward_BT, mask_BT = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 0], [1, 0]])
    assert integration.estimate("iac", reward_BT, mask_BT, ["a", "a"])[0][0, 0] > 0


def test_without_the_standard_deviation_rewards_are_only_centred() -> None:
    config = {"norm_adv_by_std_in_grpo": False}
    assert estimate("grpo_n", [1, 0, 0, 0], "aaaa", config=config) == pytest.approx([0, -0.25, -0.25, -0.25])


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_groups_of_one_size_are_our_objective(groups: list[list[float]]) -> None:
    reward_PG = torch.tensor(groups, dtype=torch.float64)
    rewards = GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0.5,
        n_tokens_PG=torch.full(reward_PG.shape, 2),
        truncated_PG=torch.zeros(reward_PG.shape, dtype=torch.bool),
    )
    uids = "".join(chr(ord("a") + prompt) * 4 for prompt in range(len(groups)))
    for kind, expression in (
        ("iac", "iac"),
        ("iac_scale_matched", "iac:scale_matched=true"),
        ("grpo_n", "grpo_n"),
    ):
        expected_B = objectives.parse(expression).credit(rewards).advantage_PG.flatten()
        assert estimate(kind, reward_PG.flatten().tolist(), uids) == pytest.approx(expected_B.tolist())


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.iac\.alhpa: no such setting; it has alpha and correct_above"):
        estimate("iac", [1, 0], "aa", config={"iac": {"alhpa": 0.5}})
    with pytest.raises(ConfigError, match="must be 0 or more"):
        estimate("iac", [1, 0], "aa", config={"iac": {"alpha": -1}})


def test_a_setting_of_iac_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.iac\.alpha: grpo_n has no settings"):
        estimate("grpo_n", [1, 0], "aa", config={"iac": {"alpha": 0.5}})


@pytest.mark.skipif(find_spec("verl") is not None, reason="verl is installed")
def test_registering_without_verl_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="verl is not installed"):
        integration.register()
