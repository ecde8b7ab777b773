from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.device_memory import (
    DeviceMemoryPlan,
    EngineFootprint,
    Footprint,
    MemoryNeeds,
    measure_footprint,
    plan_device_memory,
)
from oversharp.trainers.model.network import find_network
from oversharp.trainers.model.policy import forward_settings, prepare_policy

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MIB = 2**20
#: Round numbers: a response of 320 tokens keeps 320 KiB of activations.
OWN = Footprint(
    parameters=8 * MIB,
    trained=8 * MIB,
    per_pass=4 * MIB,
    per_token=1024,
    per_pair=0,
    cache_per_token=512,
    vocabulary_size=16,
    logits_per_chunk=1 << 24,
    fixed_cache=False,
)
ENGINE = EngineFootprint(weights=20 * MIB, cache=400 * MIB, least_cache=2 * MIB, has_sleep_mode=True)


@pytest.fixture
def wide(config: TrainConfig) -> TrainConfig:
    return replace(config, batch_prompts=64, group_size=8, max_tokens=256)


def planned(config: TrainConfig, footprint: Footprint = OWN, **given: Any) -> DeviceMemoryPlan:
    """Plan for a CPU with much free memory by default."""
    rows_per_pass = given.pop("rows_per_pass", None)
    settings: dict[str, Any] = {"prompt_tokens": 64, "device": CPU, "free": 1e12, **given}
    return plan_device_memory(MemoryNeeds(footprint=footprint, config=config, **settings), rows_per_pass=rows_per_pass)


def sizes(plan: DeviceMemoryPlan) -> dict[str, float]:
    return {part.name: part.n_bytes / MIB for part in plan.parts}


def test_a_plan_reduces_rows_if_memory_is_short_and_fails_if_one_row_does_not_fit(
    wide: TrainConfig, loaded: LoadedModel
) -> None:
    footprint = measure_footprint(find_network(loaded.model), forward_settings(wide, rows_per_pass=None))
    n_bytes = sum(one.numel() * 4 for one in loaded.model.parameters())
    assert (footprint.parameters, footprint.trained, footprint.logits_per_chunk) == (n_bytes, n_bytes, 1 << 24)
    # keys and values of 2 heads of 24 in 3 layers
    assert footprint.cache_per_token == 2 * 2 * 24 * 3 * 4
    ample = planned(wide, footprint)
    assert ample.rows_per_pass == 512
    short = planned(wide, footprint, free=ample.peak_bytes / 4)
    assert 1 <= short.rows_per_pass < 512
    assert short.peak_bytes <= 0.8 * ample.peak_bytes / 4
    with pytest.raises(TrainingError, match=r"missing; try .*--gradient-checkpointing, --precision bfloat16"):
        planned(wide, footprint, free=n_bytes)


def test_an_adapter_needs_less_than_the_weights(config: TrainConfig, loaded: LoadedModel) -> None:
    settings = forward_settings(config, rows_per_pass=None)
    whole = measure_footprint(find_network(loaded.model), settings)
    adapted = measure_footprint(find_network(prepare_policy(replace(config, lora_rank=2), loaded).model), settings)
    assert adapted.trained < 0.1 * whole.trained


def test_recomputing_keeps_less_of_every_token(config: TrainConfig, loaded: LoadedModel) -> None:
    settings = forward_settings(config, rows_per_pass=None)
    kept = measure_footprint(find_network(loaded.model), settings)
    recomputed = measure_footprint(find_network(loaded.model, recompute=True), settings)
    assert recomputed.per_token < 0.8 * kept.per_token


def test_activations_include_gradients_and_allocator_fragmentation(wide: TrainConfig) -> None:
    # 512 rows of 64 + 256 tokens keep 160 MiB
    for device, on_top in ((CPU, 0.4), (GPU, 0.25)):
        plan = planned(wide, device=device)
        assert sizes(plan)["activations"] == pytest.approx(4 + 160 * (1 + on_top))


def test_a_micro_batch_within_the_margin_is_rejected_with_one_that_fits(wide: TrainConfig) -> None:
    asked = replace(wide, micro_batch=512)
    needed = planned(asked).peak_bytes
    assert planned(asked, free=needed / 0.79).rows_per_pass == 512
    with pytest.raises(
        TrainingError, match=r"80% are usable: .* missing; lower --micro-batch from 512 to 256"
    ) as raised:
        planned(asked, free=needed / 0.81)
    assert "\n" not in str(raised.value)
    fitting = planned(replace(wide, micro_batch=256), free=needed / 0.81)
    assert fitting.rows_per_pass == 256


def test_the_hint_does_not_lower_a_micro_batch_if_one_row_does_not_fit(wide: TrainConfig) -> None:
    asked = replace(wide, micro_batch=512)
    with pytest.raises(TrainingError, match=r"try --lora-rank 16, .*--max-tokens below 256") as raised:
        planned(asked, free=20 * MIB)
    assert "--micro-batch" not in str(raised.value)


def test_a_resumed_run_keeps_its_rows_and_is_not_rejected(wide: TrainConfig) -> None:
    needed = planned(wide).peak_bytes
    plan = planned(wide, rows_per_pass=100, free=2 * needed)
    assert plan.rows_per_pass == 100
    # it fitted before, and other settings would not apply
    plan = planned(wide, rows_per_pass=512, free=needed)
    assert (plan.fits, plan.rows_per_pass) == (False, 512)
    assert "of which 80% are usable:" in plan.sentence()


def test_an_engine_with_sleep_mode_shares_memory_with_the_update(wide: TrainConfig) -> None:
    alone, turns, stays = (
        planned(wide, device=GPU, engine=engine) for engine in (None, ENGINE, replace(ENGINE, has_sleep_mode=False))
    )
    assert (sizes(turns)["vLLM weights"], sizes(turns)["vLLM cache"], turns.engine_cache) == (20, 400, 400 * MIB)
    assert "vLLM" not in alone.sentence()
    assert "vLLM weights 20 MiB, vLLM cache 400 MiB" in turns.sentence()
    # gradients and optimizer, then the larger of the two: an update of 204 MiB and logits, or 420 MiB and logits
    assert alone.peak_bytes / MIB == pytest.approx(24 + 204 + sizes(alone)["logits"])
    assert turns.peak_bytes / MIB == pytest.approx(24 + 420 + sizes(turns)["decoding"])
    assert stays.peak_bytes / MIB == pytest.approx(24 + 420 + 204 + sizes(stays)["logits"])


def test_an_engines_cache_fills_the_free_memory_and_fits_at_least_one_response(wide: TrainConfig) -> None:
    plan = planned(wide, device=GPU, engine=ENGINE, free=200 * MIB)
    assert 2 * MIB < plan.engine_cache < 170 * MIB
    assert plan.peak_bytes <= 170 * MIB
    # less than 2 of 50 MiB remain
    with pytest.raises(TrainingError, match=r"vLLM weights 20 MiB, vLLM cache 2 MiB; .*try --engine own, "):
        planned(wide, device=GPU, engine=ENGINE, free=50 * MIB)


def test_a_memory_network_adds_training_and_decoding_memory(wide: TrainConfig) -> None:
    plain = planned(wide)
    memory_network = replace(OWN, trained=2 * MIB, cache_per_token=128)
    both = planned(wide, memory_network=memory_network)
    assert sizes(both)["memory network"] == 6
    # its passes are as large as the policy's, and run after them
    learning = sizes(both)["its activations and logits"]
    assert (
        learning
        == sizes(both)["activations"] + sizes(both)["logits"]
        == sizes(plain)["activations"] + sizes(plain)["logits"]
    )
    larger = replace(memory_network, per_token=10 * OWN.per_token)
    assert planned(wide, memory_network=larger).peak_bytes - both.peak_bytes == pytest.approx(
        9 * 512 * 320 * OWN.per_token * 1.4
    )
    # 512 rows of 320 tokens, and 16 bytes for each of 16 logits
    assert sizes(both)["decoding"] - sizes(plain)["decoding"] == pytest.approx(512 * (320 * 128 + 256) / MIB)


def test_permanent_buffers_count_during_the_update(wide: TrainConfig) -> None:
    fixed = replace(OWN, fixed_cache=True)
    grows, stays = (planned(wide, one, device=GPU) for one in (OWN, fixed))
    assert (stays.peak_bytes - grows.peak_bytes) / MIB == pytest.approx(sizes(stays)["decoding"])
    rehearsing = planned(wide, fixed, device=GPU, rehearsal_samples=2)
    # two samples for each of 64 prompts
    assert (rehearsing.peak_bytes - stays.peak_bytes) == pytest.approx(128 * (320 * 512 + 256))
