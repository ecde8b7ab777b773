"""The default precision of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from oversharp.diagnostics.models import devices
from oversharp.diagnostics.models.precision import choose_dtype
from tests.samplers.tiny_models import checkpoint_at

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("stored", "large", "device", "has_instructions", "chosen"),
    [
        (torch.float32, True, GPU, True, "float32"),
        (torch.bfloat16, True, GPU, False, "bfloat16"),
        (torch.bfloat16, True, CPU, True, "bfloat16"),
        (torch.bfloat16, True, CPU, False, "float32"),
        (torch.bfloat16, False, GPU, True, "float32"),
        (torch.float16, True, GPU, True, "float16"),
        (torch.float16, True, CPU, True, "float32"),
        (torch.int8, True, GPU, True, "float32"),
    ],
)
def test_large_models_compute_in_the_precision_of_their_weights_if_the_device_supports_it(
    stored: torch.dtype,
    large: bool,
    device: torch.device,
    has_instructions: bool,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_file({"w": torch.zeros(9, dtype=stored), "norm": torch.zeros(2)}, tmp_path / "model.safetensors")
    monkeypatch.setattr(devices, "ONE_THREAD_BELOW_PARAMETERS", 10 if large else 100)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_instructions)
    assert choose_dtype(checkpoint_at(tmp_path), device)[0] == chosen


def test_a_precision_without_instructions_on_this_cpu_gets_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    note = devices.slow_products_note("--precision", "bfloat16", CPU)
    assert note is not None
    assert note.startswith("--precision bfloat16: this CPU has no matrix instructions for bfloat16")
    assert devices.slow_products_note("--precision", "float32", CPU) is None
    assert devices.slow_products_note("--precision", "bfloat16", GPU) is None
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert devices.slow_products_note("--precision", "bfloat16", CPU) is None
