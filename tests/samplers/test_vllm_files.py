from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, MambaConfig, Qwen3Config

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.contract import EngineSettings
from oversharp.diagnostics.samplers.seeded import contiguous
from oversharp.diagnostics.samplers.vllm_engine import EnginePlan, VllmEngine, engine_environment
from oversharp.diagnostics.samplers.vllm_messages import Answer, EngineCall, WorkerCall
from oversharp.diagnostics.samplers.vllm_process import Server
from oversharp.diagnostics.samplers.vllm_support import lora_rank, token_bytes, why_no_swap
from tests.samplers.tiny_models import checkpoint_at, write_adapter, write_checkpoint


def changed(source: Path, folder: Path, **config: Any) -> Path:
    shutil.copytree(source, folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def adapter_with(folder: Path, **config: Any) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "bias": "none"} | config))
    return checkpoint_at(folder, base_path=folder)


# ---------------------------------------------------------------- swaps


def test_weights_of_the_same_architecture_can_be_swapped(tmp_path: Path, tiny_checkpoint: Path) -> None:
    assert why_no_swap(tiny_checkpoint, write_checkpoint(tmp_path / "other", seed=3)) is None
    harmless = changed(tiny_checkpoint, tmp_path / "same", transformers_version="0", use_cache=False, dtype="bfloat16")
    assert why_no_swap(tiny_checkpoint, harmless) is None


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"rms_norm_eps": 1e-3}, "its config.json differs in rms_norm_eps"),
        ({"quantization_config": {"quant_method": "gptq"}}, "its weights are quantised"),
    ],
)
def test_another_configuration_prevents_a_swap(
    tmp_path: Path, tiny_checkpoint: Path, config: dict[str, Any], why: str
) -> None:
    assert why_no_swap(tiny_checkpoint, changed(tiny_checkpoint, tmp_path / "other", **config)) == why


def test_other_tensors_with_the_same_configuration_prevent_a_swap(tmp_path: Path, tiny_checkpoint: Path) -> None:
    other = write_checkpoint(tmp_path / "other", seed=0, intermediate_size=64)
    shutil.copy(tiny_checkpoint / "config.json", other)
    assert why_no_swap(tiny_checkpoint, other) == "its tensors have different names or shapes"
    (other / "model.safetensors").unlink()
    torch.save({}, other / "pytorch_model.bin")
    assert why_no_swap(tiny_checkpoint, other) == "its weights are not in safetensors files"


# ---------------------------------------------------------------- adapters


def test_the_rank_is_rounded_up_to_a_rank_of_vllm(tmp_path: Path, tiny_checkpoint: Path) -> None:
    real = write_adapter(tmp_path / "real", tiny_checkpoint, seed=0)
    assert lora_rank(checkpoint_at(tiny_checkpoint)) == 0  # a full model needs no rank
    assert lora_rank(checkpoint_at(real, base_path=tiny_checkpoint)) == 8
    assert lora_rank(adapter_with(tmp_path / "a", r=17)) == 32
    assert lora_rank(adapter_with(tmp_path / "a", r=8, rank_pattern={"q_proj": 40})) == 64


@pytest.mark.parametrize(
    ("config", "feature"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"bias": "all"}, "trained biases"),
        ({"peft_type": "IA3"}, "peft_type IA3"),
        ({"r": 1024}, "the adapter has rank 1024, but vLLM supports at most 512"),
    ],
)
def test_an_adapter_that_vllm_does_not_support_is_refused(tmp_path: Path, config: dict[str, Any], feature: str) -> None:
    with pytest.raises(SamplerError, match=rf"{feature}.*use --sampler transformers"):
        lora_rank(adapter_with(tmp_path / "adapter", **config))


# ---------------------------------------------------------------- requests and processes


def test_runs_cover_all_indices_for_any_partition() -> None:
    for indices, most in ((range(100), 64), ([3, 4, 9, 0], 64), (range(7), 1), ([], 64)):
        runs = contiguous(indices, most=most)
        covered = [first + place for first, n in runs for place in range(n)]
        assert covered == sorted(indices)
        assert all(n <= most for _, n in runs)


def plan_for(*, token_bytes: int | None, cpu_cache_gib: int = 2, row_tokens: int = 500) -> EnginePlan:
    lengths = {"max_model_len": 500, "row_tokens": row_tokens}
    sizes = {**lengths, "max_num_seqs": 8, "max_lora_rank": 0, "threads": 1, "token_bytes": token_bytes}
    where = {"model": Path("model"), "dtype": "float32", "device": "cpu", "eager": True}
    return EnginePlan(**where, **sizes, settings=EngineSettings(cpu_cache_gib=cpu_cache_gib))


def test_the_kv_cache_fits_every_response_at_its_longest_within_the_limit() -> None:
    rows_of_whole_blocks = 8 * 512 + 32
    assert plan_for(token_bytes=1000).cache_bytes == rows_of_whole_blocks * 1000
    assert plan_for(token_bytes=1000, row_tokens=65).cache_bytes == (8 * 96 + 32) * 1000
    # a probe may have the maximum length
    assert plan_for(token_bytes=1000, row_tokens=9).cache_bytes == (512 + 32) * 1000
    assert plan_for(token_bytes=1 << 20).cache_bytes == 2 << 30
    assert plan_for(token_bytes=None, cpu_cache_gib=3).cache_bytes == 3 << 30


def test_an_engine_on_a_gpu_can_sleep_without_expandable_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    on_gpu = replace(plan_for(token_bytes=None), device="cuda:1")
    assert on_gpu.arguments()["enable_sleep_mode"] is True
    assert "enable_sleep_mode" not in plan_for(token_bytes=None).arguments()
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64,expandable_segments:True")
    assert "enable_sleep_mode" not in on_gpu.arguments()


SLEEP, WAKE_UP = EngineCall(method="sleep", arguments={"level": 1}), EngineCall(method="wake_up")


class Recording:
    """Replaces an engine's process: records the orders and answers them."""

    def __init__(self) -> None:
        self.orders: list[Any] = []

    def send(self, order: Any) -> None:
        self.orders.append(order)

    def receive(self) -> Answer:
        return Answer(value=True)


@pytest.mark.parametrize(
    ("device", "orders"),
    [
        ("cuda", [SLEEP, WAKE_UP]),
        ("cpu", [EngineCall(method="reset_prefix_cache"), WorkerCall(method="oversharp_empty_cache")]),
    ],
)
def test_a_resting_engine_releases_its_gpu_or_its_cache_on_a_cpu(
    device: str, orders: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    process = Recording()
    engine = VllmEngine(replace(plan_for(token_bytes=1000), device=device), process)  # type: ignore[arg-type]
    del process.orders[:]
    engine.rest()
    engine.wake()
    assert process.orders == orders


def test_the_process_of_an_engine_calls_vllms_sleep_and_wake_up() -> None:
    calls: list[str] = []
    server = Server(None, outbox := SimpleQueue())  # type: ignore[arg-type]
    server._llm = SimpleNamespace(
        sleep=lambda level: calls.append(f"sleep {level}"), wake_up=lambda: calls.append("wake up")
    )
    server._execute(SLEEP)
    server._execute(WAKE_UP)
    assert calls == ["sleep 1", "wake up"]
    assert [outbox.get(timeout=1), outbox.get(timeout=1)] == [Answer(value=None)] * 2


def test_the_engine_runs_code_from_a_checkpoint_only_if_needed_and_allowed(tmp_path: Path) -> None:
    arguments = []
    for model_type, trust in (("own", False), ("own", True), ("qwen3", True)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
        plan = replace(plan_for(token_bytes=None), model=tmp_path, settings=EngineSettings(trust_remote_code=trust))
        arguments.append(bool(plan.arguments().get("trust_remote_code")))
    assert arguments == [False, True, False]


def test_a_model_with_recurrent_layers_has_no_cache_size_per_token() -> None:
    config = Qwen3Config(num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"])
    assert token_bytes(config, "float32") == 2 * 2 * config.num_key_value_heads * config.head_dim * 4
    config.layer_types = ["full_attention", "linear_attention"]
    assert token_bytes(config, "float32") is None
    assert token_bytes(GPT2Config(n_layer=3, n_embd=64, n_head=4), "float16") == 2 * 3 * 64 * 2
    assert token_bytes(MambaConfig(), "float32") is None


def environment(device: str, inherited: dict[str, str], *, tensor_parallel: int = 1) -> dict[str, str]:
    return engine_environment(device, EngineSettings(tensor_parallel=tensor_parallel), inherited)


def test_the_engine_sees_the_gpus_of_its_device() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in environment("cuda", {})
    assert "CUDA_VISIBLE_DEVICES" not in environment("cpu", {})
    assert environment("cuda:1", {})["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,6"})["CUDA_VISIBLE_DEVICES"] == "6"
    assert environment("cuda:1", {}, tensor_parallel=2)["CUDA_VISIBLE_DEVICES"] == "1,2"
    with pytest.raises(SamplerError, match="CUDA_VISIBLE_DEVICES=4,6 has 2 GPUs"):
        environment("cuda:1", {"CUDA_VISIBLE_DEVICES": "4,6"}, tensor_parallel=2)


def test_the_users_environment_variables_are_kept() -> None:
    assert environment("cpu", {})["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment("cpu", {})["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "128"
    own = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "9",
        "VLLM_LOGGING_LEVEL": "DEBUG",
        "OMP_NUM_THREADS": "3",
    }
    assert own.items() <= environment("cpu", own).items()
