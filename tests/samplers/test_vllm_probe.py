"""The tolerance between an engine and transformers is the rounding error, measured with the model in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.samplers import vllm_probe
from oversharp.diagnostics.samplers.vllm_messages import DrawnRow
from oversharp.diagnostics.samplers.vllm_probe import compare, next_token_logp, tolerance_nats
from tests.samplers.tiny_models import checkpoint_at, load, write_checkpoint

PROMPT, RESPONSE = (2, 3, 4), (5, 6, 7, 8)


def rows_of(loaded: LoadedModel, prompt: tuple[int, ...] = PROMPT) -> list[DrawnRow]:
    """Return the row of an engine that computes exactly this model."""
    logp_T = next_token_logp(loaded, prompt, RESPONSE).gather(1, torch.tensor(RESPONSE)[:, None])[:, 0].numpy()
    return [DrawnRow(token_ids=RESPONSE, logp_T=logp_T, entropy_T=None)]


@pytest.mark.parametrize(("dtype", "least", "most"), [("float32", 0.0, 0.0), ("bfloat16", 1e-3, 1.0)])
def test_noise_is_the_difference_between_a_model_and_itself_in_float32(
    dtype: Literal["float32", "bfloat16"], least: float, most: float, tmp_path: Path
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    loaded = load_model(checkpoint_at(path), device=torch.device("cpu"), dtype=dtype)
    before = loaded.model.state_dict()["lm_head.weight"].clone()
    result = compare(loaded, [PROMPT], rows_of(loaded))
    assert result.logp == 0.0
    assert least <= result.noise <= most
    assert torch.equal(loaded.model.state_dict()["lm_head.weight"], before)


def test_without_memory_to_measure_noise_the_largest_tolerance_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    loaded = load_model(checkpoint_at(path), device=torch.device("cpu"), dtype="bfloat16")
    monkeypatch.setattr(vllm_probe, "free_bytes", lambda: 1000.0)
    assert tolerance_nats(compare(loaded, [PROMPT], rows_of(loaded)), "bfloat16") == 0.5


def test_an_engine_with_other_weights_exceeds_the_tolerance(tmp_path: Path) -> None:
    loaded, other = (load(write_checkpoint(tmp_path / f"checkpoint-{seed}", seed=seed)) for seed in (0, 1))
    result = compare(loaded, [PROMPT], rows_of(other))
    assert result.logp > tolerance_nats(result, "float32")
    assert compare(loaded, [PROMPT], rows_of(loaded)).logp <= tolerance_nats(result, "float32")
