from __future__ import annotations

import json
from pathlib import Path

import pytest

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.samplers import SamplerContext, choose_sampler, make_sampler
from oversharp.diagnostics.samplers.vllm_support import is_faster_without, why_not
from tests.samplers.tiny_models import checkpoint_at, write_adapter, write_checkpoint


def test_auto_is_transformers_with_a_reason_for_head_sizes_that_vllm_lacks(tiny_checkpoint: Path) -> None:
    name, why = choose_sampler("auto", [checkpoint_at(tiny_checkpoint)], device="cpu")
    assert name == "transformers"
    reason = str(why_not(checkpoint_at(tiny_checkpoint), device="cpu"))
    assert reason.removesuffix("; use --sampler transformers") in why
    assert "use --sampler" not in why


def test_auto_is_vllm_where_it_runs_unless_the_model_is_small_and_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = checkpoint_at(write_checkpoint(tmp_path / "checkpoint-0", seed=0, head_dim=32))
    if why_not(base, device="cpu") is not None:
        assert choose_sampler("auto", [base], device="cpu")[0] == "transformers"
        return
    name, why = choose_sampler("auto", [base], device="cpu")
    assert (name, why) == ("transformers", "auto: on a CPU it is faster below 2 million parameters")
    assert choose_sampler("auto", [base], device="cpu", stored="vllm")[0] == "vllm"
    assert not is_faster_without(base, device="cuda")
    monkeypatch.setattr("oversharp.diagnostics.samplers.vllm_support.SMALL_PARAMETERS", 1000)
    assert choose_sampler("auto", [base], device="cpu")[0] == "vllm"


def test_auto_keeps_the_sampler_of_the_store(tmp_path: Path) -> None:
    base = checkpoint_at(write_checkpoint(tmp_path / "checkpoint-0", seed=0, head_dim=32))
    assert choose_sampler("auto", [base], device="cpu", stored="transformers")[0] == "transformers"
    assert choose_sampler("transformers", [base], device="cpu", stored="vllm")[0] == "transformers"


def test_auto_is_transformers_for_an_adapter_that_vllm_does_not_support(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0, head_dim=32)
    adapter = checkpoint_at(write_adapter(tmp_path / "checkpoint-1", path, seed=1), base_path=path)
    config = adapter.path / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_dora": True}))
    assert choose_sampler("auto", [checkpoint_at(path), adapter], device="cpu")[0] == "transformers"


def test_vllm_is_refused_with_its_reason(tiny_checkpoint: Path) -> None:
    reason = why_not(checkpoint_at(tiny_checkpoint), device="cpu")
    assert reason is not None
    with pytest.raises(SamplerError) as caught:
        choose_sampler("vllm", [checkpoint_at(tiny_checkpoint)], device="cpu")
    assert str(caught.value) == f"--sampler vllm: {reason}"


def test_the_error_for_an_unknown_sampler_lists_the_known_ones(tiny_checkpoint: Path) -> None:
    with pytest.raises(SamplerError, match=r"--sampler magic: unknown; choose from auto, endpoint, transformers, vllm"):
        choose_sampler("magic", [checkpoint_at(tiny_checkpoint)], device="cpu")


@pytest.mark.slow
def test_the_chosen_sampler_is_made() -> None:
    context = SamplerContext(models=ModelHolder(device="cpu"))
    for name in ("transformers", "vllm"):
        sampler = make_sampler(name, context)
        assert sampler.name == name
        sampler.close()
