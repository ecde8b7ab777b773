"""The parts of the verl integration that do not need verl."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.integrations import verl as integration
from tests.trainers.batches import rewards_of

HALF_ROOT = 0.5**0.5


def estimate(kind: str, rewards: list[float], uids: str, **more: Any) -> list[float]:
    """Return the advantages of responses of two tokens, with the reward at the first token."""
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
        # groups of unequal size: one of four: 0.75 / 0.5 = 1.5, times three; one of two:
        # 0.5 / sqrt(1/2), times one
        ("iac", [*ONE_OF_FOUR, 1, 0], "aaaabb", {}, [4.5, -0.5, -0.5, -0.5, HALF_ROOT, -HALF_ROOT]),
        # rows of a group need not be adjacent
        ("iac", [1, 0, 0, 1, 0, 0], "ababaa", {}, [4.5, -HALF_ROOT, -0.5, HALF_ROOT, -0.5, -0.5]),
        # a single response to a prompt has advantage 0
        ("iac", [1, 1, 0], "abb", {}, [0, HALF_ROOT, -HALF_ROOT]),
        ("iac_scale_matched", [1], "a", {}, [0]),
        ("grpo_n", [*ONE_OF_FOUR, 1, 0], "aaaabb", {}, [0, -0.5, -0.5, -0.5, 0, -HALF_ROOT]),
        # without the standard deviation, rewards are only centred
        ("grpo_n", ONE_OF_FOUR, "aaaa", {"norm_adv_by_std_in_grpo": False}, [0, -0.25, -0.25, -0.25]),
        # the best of only wrong answers is raised only if it counts as correct
        ("iac", [-0.5, -1, -1, -1], "aaaa", {}, [1.5, -0.5, -0.5, -0.5]),
        ("iac", [-0.5, -1, -1, -1], "aaaa", {"iac": {"correct_above": -0.7}}, [4.5, -0.5, -0.5, -0.5]),
    ],
)
def test_advantages_by_hand(
    kind: str, rewards: list[float], uids: str, settings: dict[str, Any], expected: list[float]
) -> None:
    assert estimate(kind, rewards, uids, config=settings) == pytest.approx(expected, rel=1e-5)


def test_the_scale_is_matched_over_the_whole_batch() -> None:
    plain = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb", config={"iac": {"alpha": 0.0}})
    raised = estimate("iac", [1, 0, 0, 0, 1, 0], "aaaabb")
    matched = estimate("iac_scale_matched", [1, 0, 0, 0, 1, 0], "aaaabb")
    factor = sum(map(abs, plain)) / sum(map(abs, raised))
    assert matched == pytest.approx([factor * advantage for advantage in raised])


def test_a_passed_verdict_overrides_the_reward() -> None:
    verdict = {"acc": [False, False, False, True]}
    plain = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", config={"iac": {"alpha": 0}})
    actual = estimate("iac", [1.0, 0.0, 0.0, 0.8], "aaaa", non_tensor_batch=verdict)
    assert actual == pytest.approx([*plain[:3], 3 * plain[3]])


def test_masked_tokens_have_no_advantage_but_their_reward_counts() -> None:
    reward_BT, mask_BT = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[1, 0], [1, 1]])
    advantage_BT, _ = integration.estimate("iac", reward_BT, mask_BT, ["a", "a"])
    assert advantage_BT[0, 0] > 0
    assert advantage_BT[0, 1] == 0


@pytest.mark.slow
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_groups_of_equal_size_match_our_objective(groups: list[list[float]]) -> None:
    reward_PG = torch.tensor(groups, dtype=torch.float64)
    rewards = rewards_of(reward_PG, n_tokens=[[2] * 4] * len(groups))
    uids = "".join(chr(ord("a") + prompt) * 4 for prompt in range(len(groups)))
    for kind, expression in {"iac": "iac", "iac_scale_matched": "iac:scale_matched=true", "grpo_n": "grpo_n"}.items():
        expected_B = objectives.parse(expression).credit(rewards).advantage_PG.flatten()
        assert estimate(kind, reward_PG.flatten().tolist(), uids) == pytest.approx(expected_B.tolist())


class Rows:
    """Replacement of verl's ``DataProto`` with the methods that advantages need."""

    def __init__(self, uids: list[str], **batch: torch.Tensor) -> None:
        self.uids, self.batch = uids, batch

    def select_idxs(self, rows: list[int]) -> Rows:
        return Rows([self.uids[row] for row in rows], **{name: tensor[rows] for name, tensor in self.batch.items()})


def plain(data: Rows, batch_keys: list[str], adv_estimator: str, **settings: Any) -> Rows:
    """Compute as verl does for other estimators: every row is a response."""
    estimator = integration.ESTIMATORS[adv_estimator]
    data.batch["advantages"], data.batch["returns"] = estimator(
        data.batch["token_level_rewards"], data.batch["response_mask"], data.uids, **settings
    )
    return data


def test_all_outputs_of_a_session_get_the_advantage_of_its_last() -> None:
    """One of four sessions is correct, with three outputs in any order: |S+| = 1 and G = 4, not 3 and 6."""
    keys = ["a_0_1", "a_1_0", "a_0_0", "a_2_0", "a_0_2", "a_3_0"]
    right_B = torch.tensor([1.0, 0, 1, 0, 1, 0])
    mask_BT = torch.ones(6, 2)
    mask_BT[0, 0] = mask_BT[4, 0] = 0  # a tool's output before the model's response
    rewards = {"token_level_rewards": torch.stack([0 * right_B, right_B], dim=1), "response_mask": mask_BT}
    actual = integration.group_by_session(plain)(Rows(["a"] * 6, **rewards), batch_keys=keys, adv_estimator="iac").batch
    expected_B = torch.tensor([4.5, -0.5, 4.5, -0.5, 4.5, -0.5])
    assert torch.allclose(actual["advantages"], expected_B[:, None] * mask_BT, atol=1e-5)
    assert torch.equal(actual["returns"], actual["advantages"])
    wrong = plain(Rows(["a"] * 6, **rewards), keys, "iac").batch["advantages"]
    assert not torch.allclose(wrong, actual["advantages"]), "else this could not fail"


def test_other_estimators_and_single_output_sessions_are_unchanged() -> None:
    calls = []
    grouped = integration.group_by_session(lambda *given, **settings: calls.append((given, settings)))
    grouped("data", batch_keys=["a_0_0", "a_0_1"], adv_estimator="gae", lam=0.5)
    grouped("data", batch_keys=["a_0_0", "a_1_0"], adv_estimator="iac")
    assert calls == [
        (("data", ["a_0_0", "a_0_1"], "gae"), {"lam": 0.5}),
        (("data", ["a_0_0", "a_1_0"], "iac"), {}),
    ]


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("iac", {"alhpa": 0.5}, r"algorithm\.iac\.alhpa: unknown setting; choose from alpha, correct_above"),
        ("iac", {"alpha": -1}, "must be 0 or more"),
        ("grpo_n", {"alpha": 0.5}, r"algorithm\.iac\.alpha: grpo_n has no settings"),
    ],
)
def test_an_invalid_setting_is_rejected(kind: str, settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        estimate(kind, [1, 0], "aa", config={"iac": settings})


@pytest.mark.skipif(find_spec("verl") is not None, reason="verl is installed")
def test_registering_without_verl_raises() -> None:
    with pytest.raises(ConfigError, match="verl is not installed"):
        integration.register()
