from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.trainers.model.kv_cache import supports_fixed_cache
from oversharp.trainers.objectives.sampling.dlc import Dlc
from oversharp.trainers.rollouts.engine import OwnEngine
from oversharp.trainers.rollouts.memory_network import MemoryNetwork
from tests.trainers.runs import loaded_from

PROMPTS = [[9, 10, 11], [20, 30, 40, 41], [9, 50, 60]]


@pytest.fixture(scope="module")
def policy(model_path: Path) -> LoadedModel:
    """A model with large random weights and many end tokens."""
    loaded = loaded_from(model_path, end_ids=tuple(range(1, 20)))
    with torch.no_grad():
        loaded.model.get_input_embeddings().weight.mul_(2)
    return loaded


@pytest.fixture(scope="module")
def memory_network(policy: LoadedModel, model_path: Path) -> MemoryNetwork:
    return MemoryNetwork(Dlc(mu=0.5), policy, start=model_path, learning_rate=1e-3)


def test_a_row_does_not_depend_on_the_other_rows(policy: LoadedModel, memory_network: MemoryNetwork) -> None:
    settings = {"group_size": 8, "max_tokens": 8, "temperature": 1.0, "seed": 0}
    whole = OwnEngine(policy, memory_network=memory_network).sample(PROMPTS, **settings)
    parts = OwnEngine(policy, memory_network=memory_network, rows_per_part=8).sample(PROMPTS, **settings)
    fixed = OwnEngine(policy, memory_network=memory_network, static=True).sample(PROMPTS, **settings)
    for other in (parts, fixed):
        assert torch.equal(whole.response_ids_BT, other.response_ids_BT)
        assert torch.equal(whole.response_mask_BT, other.response_mask_BT)
        assert torch.allclose(whole.behaviour_logp_BT, other.behaviour_logp_BT, atol=1e-5)


def test_fixed_buffers_are_reused_for_the_next_batch(policy: LoadedModel) -> None:
    assert supports_fixed_cache(policy.model)
    endless = replace(policy, end_ids=(1,))  # rarely sampled, so that some responses are long
    fixed, plain = OwnEngine(endless, static=True), OwnEngine(endless)
    for prompts, group_size, max_tokens in (
        (PROMPTS, 8, 8),
        (PROMPTS[:1], 3, 4),
        (PROMPTS[1:], 16, 12),
        (PROMPTS, 4, 80),
    ):
        first, second = (
            engine.sample(prompts, group_size=group_size, max_tokens=max_tokens, temperature=0.9, seed=1)
            for engine in (fixed, plain)
        )
        assert torch.equal(first.response_ids_BT, second.response_ids_BT)
        assert torch.allclose(first.logp_sum_B, second.logp_sum_B, atol=1e-5)


def test_the_memory_changes_samples_but_not_greedy_responses(
    policy: LoadedModel, memory_network: MemoryNetwork
) -> None:
    plain, against = OwnEngine(policy), OwnEngine(policy, memory_network=memory_network)
    draws = [
        engine.sample(PROMPTS, group_size=32, max_tokens=4, temperature=1.0, seed=0) for engine in (plain, against)
    ]
    assert draws[1].entropy_sum_B.isfinite().all()
    assert not torch.equal(draws[0].response_ids_BT, draws[1].response_ids_BT)
    greedy = [engine.greedy(PROMPTS, max_tokens=8) for engine in (plain, against)]
    assert torch.equal(greedy[0].response_ids_BT, greedy[1].response_ids_BT)
    assert greedy[0].group_size == 1


def test_a_memory_with_mu_0_is_not_evaluated(policy: LoadedModel, model_path: Path) -> None:
    memory_network = MemoryNetwork(Dlc(mu=0.0), policy, start=model_path, learning_rate=1e-3)
    with torch.no_grad():
        for parameter in memory_network.model.parameters():
            parameter.fill_(float("nan"))
    settings = {"group_size": 8, "max_tokens": 4, "temperature": 1.0, "seed": 0}
    assert torch.equal(
        OwnEngine(policy, memory_network=memory_network).sample(PROMPTS, **settings).behaviour_logp_BT,
        OwnEngine(policy).sample(PROMPTS, **settings).behaviour_logp_BT,
    )
