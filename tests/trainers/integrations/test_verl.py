"""The estimators for verl, as far as they need no verl."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.records.errors import ConfigError
from tests.trainers.batches import rewards_of
from trainers import objectives
from trainers.integrations import verl as integration

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


ONE_OF_FOUR = [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("kind", "rewards", "uids", "settings", "expected"),
    [
        # groups of unequal size stand for themselves: one of four: 0.75 / 0.5 = 1.5, times three; one of two:
        # 0.5 / sqrt(1/2), times one
        ("iac", [*ONE_OF_FOUR, 1, 0], "aaaabb", {}, [4.5, -0.5, -0.5, -0.5, HALF_ROOT, -HALF_ROOT]),
        # the rows of a group need not stand together
        ("iac", [1, 0, 0, 1, 0, 0], "ababaa", {}, [4.5, -HALF_ROOT, -0.5, HALF_ROOT, -0.5, -0.5]),
        # a response without another one to its prompt teaches nothing
        ("iac", [1, 1, 0], "abb", {}, [0, HALF_ROOT, -HALF_ROOT]),
        ("iac_scale_matched", [1], "a", {}, [0]),
        ("grpo_n", [*ONE_OF_FOUR, 1, 0], "aaaabb", {}, [0, -0.5, -0.5, -0.5, 0, -HALF_ROOT]),
        # without the standard deviation rewards are only centred
        ("grpo_n", ONE_OF_FOUR, "aaaa", {"norm_adv_by_std_in_grpo": False}, [0, -0.25, -0.25, -0.25]),
        # the least bad of all wrong answers is raised only where it is called right
        ("iac", [-0.5, -1, -1, -1], "aaaa", {}, [1.5, -0.5, -0.5, -0.5]),
        ("iac", [-0.5, -1, -1, -1], "aaaa", {"iac": {"correct_above": -0.7}}, [4.5, -0.5, -0.5, -0.5]),
    ],
)
def test_advantages_by_hand(
    kind: str, rewards: list[float], uids: str, settings: dict[str, Any], expected: list[float]
) -> None:
    assert estimate(kind, rewards, uids, config=settings) == pytest.approx(expected, rel=1e-5)


def test_the_scale_is_matched_over_the_batch_and_not_within_each_group() -> None:
    plain = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb", config={"iac": {"alpha": 0.0}})
    raised = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb")
    matched = estimate("iac_scale_matched", [1, 0, 0, 0, 1, 0], "aaaabb")
    factor = sum(map(abs, plain)) / sum(map(abs, raised))
    assert matched == pytest.approx([factor * advantage for advantage in raised])


def test_a_verdict_that_is_passed_on_is_believed_before_the_reward() -> None:
    verdict = {"acc": [False, False, False, True]}
    plain = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", config={"iac": {"alpha": 0}})
    found = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", non_tensor_batch=verdict)
    assert found == pytest.approx([*plain[:3], 3 * plain[3]])


def test_the_mask_covers_what_is_no_response_and_a_reward_on_a_token_that_it_leaves_out_counts() -> None:
    reward_BT, mask_BT = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 0], [1, 1]])
    advantage_BT, _ = integration.estimate("iac", reward_BT, mask_BT, ["a", "a"])
    assert advantage_BT[0, 0] > 0
    assert advantage_BT[0, 1] == 0


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_groups_of_one_size_are_our_objective(groups: list[list[float]]) -> None:
    reward_PG = torch.tensor(groups, dtype=torch.float64)
    rewards = rewards_of(reward_PG, n_tokens=[[2] * 4] * len(groups))
    uids = "".join(chr(ord("a") + prompt) * 4 for prompt in range(len(groups)))
    for kind, expression in {"iac": "iac", "iac_scale_matched": "iac:scale_matched=true", "grpo_n": "grpo_n"}.items():
        expected_B = objectives.parse(expression).credit(rewards).advantage_PG.flatten()
        assert estimate(kind, reward_PG.flatten().tolist(), uids) == pytest.approx(expected_B.tolist())


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("iac", {"alhpa": 0.5}, r"algorithm\.iac\.alhpa: no such setting; it has alpha and correct_above"),
        ("iac", {"alpha": -1}, "must be 0 or more"),
        ("grpo_n", {"alpha": 0.5}, r"algorithm\.iac\.alpha: grpo_n has no settings"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(kind: str, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        estimate(kind, [1, 0], "aa", config={"iac": settings})


@pytest.mark.skipif(find_spec("verl") is not None, reason="verl is installed")
def test_registering_without_verl_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="verl is not installed"):
        integration.register()
