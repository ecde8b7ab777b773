from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import warm_up_memory
from oversharp.trainers.model.forward import ForwardSettings, split_passes
from oversharp.trainers.objectives.sampling.dlc import Dlc
from oversharp.trainers.rollouts.engine import OwnEngine
from oversharp.trainers.rollouts.memory_network import MemoryNetwork
from oversharp.trainers.worlds.base import build_tokenizer
from tests.trainers.batches import text_of
from tests.trainers.runs import gpt2, loaded_from

pytestmark = pytest.mark.slow

#: The temperature must have no effect.
PLAIN = ForwardSettings(temperature=0.7)
PROMPTS = [[9, 10, 11], [20, 30, 40, 41]]


@pytest.fixture(scope="module")
def policy(model_path: Path) -> LoadedModel:
    return loaded_from(model_path)


@pytest.fixture(scope="module")
def rollouts(policy: LoadedModel) -> RolloutBatch:
    return OwnEngine(policy).sample(PROMPTS, group_size=16, max_tokens=5, temperature=1.0, seed=0)


def gpt2_at(path: Path, vocabulary_size: int) -> Path:
    gpt2(vocabulary_size, layers=1).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


def test_a_copy_starts_as_the_policy_with_the_loss_of_its_samples(
    policy: LoadedModel, rollouts: RolloutBatch, model_path: Path
) -> None:
    memory_network = MemoryNetwork(Dlc(), policy, start=model_path, learning_rate=1e-3)
    n_tokens = rollouts.n_tokens_B.sum()
    assert memory_network.learn(rollouts, PLAIN) == pytest.approx(
        -rollouts.logp_sum_B.sum().item() / n_tokens.item(), abs=1e-5
    )


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_it_learns_the_samples(policy: LoadedModel, rollouts: RolloutBatch, model_path: Path, optimizer: str) -> None:
    decoding = Dlc(optimizer=optimizer, learning_rate={"adamw": 3e-3, "sgd": 0.2}[optimizer])  # type: ignore[arg-type]
    memory_network = MemoryNetwork(decoding, policy, start=model_path, learning_rate=1e9)
    losses = [memory_network.learn(rollouts, PLAIN) for _ in range(8)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.2


def test_a_step_of_sgd_is_the_gradient_of_the_mean_over_tokens(
    policy: LoadedModel, rollouts: RolloutBatch, model_path: Path
) -> None:
    memory_network = MemoryNetwork(Dlc(optimizer="sgd", learning_rate=0.5), policy, start=model_path, learning_rate=1.0)
    memory_network.learn(rollouts, PLAIN)
    twin = loaded_from(model_path).model
    logp_sum = torch.zeros(())
    for row in range(32):  # every row alone, including copies
        prompt, response = text_of(rollouts, row)
        logits = twin(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        logp_sum = logp_sum + logits.log_softmax(-1).gather(1, response[:, None]).sum()
    (-logp_sum / rollouts.n_tokens_B.sum()).backward()
    for moved, start in zip(memory_network.model.parameters(), twin.parameters(), strict=True):
        assert start.grad is not None
        assert torch.allclose(moved, start - 0.5 * start.grad, atol=1e-6)


@pytest.mark.parametrize("micro_batch", [1, 3, None])
def test_its_passes_are_limited_like_the_policys_and_change_the_step_only_by_rounding(
    policy: LoadedModel,
    rollouts: RolloutBatch,
    model_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    micro_batch: int | None,
) -> None:
    sizes: list[int] = []

    def counted(*given: Any) -> Iterator[Any]:
        for position_N, layout in split_passes(*given):
            sizes.append(len(position_N))
            yield position_N, layout

    monkeypatch.setattr("oversharp.trainers.rollouts.memory_network.split_passes", counted)
    memory_network = MemoryNetwork(Dlc(optimizer="sgd", learning_rate=0.5), policy, start=model_path, learning_rate=1.0)
    memory_network.learn(rollouts, replace(PLAIN, micro_batch=micro_batch))
    assert max(sizes) <= (micro_batch or 32)
    assert sum(sizes) == len({tuple(map(tuple, map(Tensor.tolist, text_of(rollouts, row)))) for row in range(32)})
    whole = MemoryNetwork(Dlc(optimizer="sgd", learning_rate=0.5), policy, start=model_path, learning_rate=1.0)
    whole.learn(rollouts, PLAIN)
    for parameter, other in zip(memory_network.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.allclose(parameter, other, atol=1e-6)


def test_the_learning_rate_is_the_policys_unless_dlc_has_one(
    policy: LoadedModel, rollouts: RolloutBatch, model_path: Path
) -> None:
    after = []
    for own, of_policy in ((None, 1e-3), (1e-3, 5.0), (2e-3, 5.0)):
        memory_network = MemoryNetwork(Dlc(learning_rate=own), policy, start=model_path, learning_rate=of_policy)
        memory_network.learn(rollouts, PLAIN)
        after.append(memory_network.learn(rollouts, PLAIN))
    assert after[0] == after[1] != after[2]


def test_another_architecture_with_the_same_tokens_is_accepted(
    policy: LoadedModel, rollouts: RolloutBatch, tmp_path: Path
) -> None:
    path = gpt2_at(tmp_path / "small", 107)
    memory_network = MemoryNetwork(Dlc(memory=str(path)), policy, start=tmp_path, learning_rate=1e-3)
    assert memory_network.learn(rollouts, PLAIN) > memory_network.learn(rollouts, PLAIN)


def test_a_restored_memory_continues_bit_for_bit(policy: LoadedModel, rollouts: RolloutBatch, model_path: Path) -> None:
    whole = MemoryNetwork(Dlc(), policy, start=model_path, learning_rate=1e-3)
    whole.learn(rollouts, PLAIN)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    file.seek(0)
    later = MemoryNetwork(Dlc(), policy, start=model_path, learning_rate=1e-3)
    later.load_state_dict(torch.load(file, weights_only=True))
    assert [whole.learn(rollouts, PLAIN) for _ in range(2)] == [later.learn(rollouts, PLAIN) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), later.model.parameters(), strict=True))


def test_another_number_of_logits_is_rejected_in_one_line(policy: LoadedModel, tmp_path: Path) -> None:
    path = gpt2_at(tmp_path / "wide", 128)
    with pytest.raises(TrainingError, match=r"wide: the memory network has logits for 128 tokens, the policy for 107"):
        MemoryNetwork(Dlc(memory=str(path)), policy, start=tmp_path, learning_rate=1e-3)


def test_a_loss_that_is_not_finite_raises(policy: LoadedModel, rollouts: RolloutBatch, model_path: Path) -> None:
    memory_network = MemoryNetwork(Dlc(), policy, start=model_path, learning_rate=1.0)
    with torch.no_grad():
        memory_network.model.get_input_embeddings().weight[11] = float("nan")
    with pytest.raises(TrainingError, match="lower learning_rate"):
        memory_network.learn(rollouts, PLAIN)


def test_a_warm_start_reduces_the_distance_of_memory_network_and_policy(
    config: TrainConfig, model_path: Path, tmp_path: Path
) -> None:
    policy = loaded_from(model_path)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(2)  # a policy with preferences to learn
    later = OwnEngine(policy).sample(PROMPTS, group_size=64, max_tokens=5, temperature=1.0, seed=7)
    path = str(gpt2_at(tmp_path / "small", 107))
    losses = []
    for steps in (0, 5, 40):
        memory_network = MemoryNetwork(
            Dlc(memory=path, warm_start_steps=steps), policy, start=tmp_path, learning_rate=3e-3
        )
        warm_up_memory(
            memory_network,
            policy,
            PROMPTS,
            replace(config, batch_prompts=1, group_size=32, max_tokens=5),
            rows_per_pass=None,
        )
        losses.append(memory_network.learn(later, PLAIN))
    assert losses[0] > losses[1] + 0.005
    assert losses[1] > losses[2] + 0.005
