"""The precision where nobody names one."""

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
    ("stored", "large", "device", "cpu_has_it", "chosen"),
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
def test_large_models_compute_in_what_their_weights_are_stored_in_where_the_device_can(
    stored: torch.dtype,
    large: bool,
    device: torch.device,
    cpu_has_it: bool,
    chosen: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_file({"w": torch.zeros(9, dtype=stored), "norm": torch.zeros(2)}, tmp_path / "model.safetensors")
    monkeypatch.setattr(devices, "ONE_THREAD_BELOW_PARAMETERS", 10 if large else 100)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: cpu_has_it)
    assert choose_dtype(checkpoint_at(tmp_path), device)[0] == chosen


def test_products_that_this_cpu_has_no_instructions_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    said = devices.slow_products_note("--precision", "bfloat16", CPU)
    assert said is not None
    assert said.startswith("--precision bfloat16: this CPU has no matrix instructions for bfloat16")
    assert devices.slow_products_note("--precision", "float32", CPU) is None
    assert devices.slow_products_note("--precision", "bfloat16", GPU) is None
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert devices.slow_products_note("--precision", "bfloat16", CPU) is None
