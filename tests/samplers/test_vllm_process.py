"""What the process of an engine says when it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from oversharp.diagnostics.samplers.vllm_process import error_message
from oversharp.diagnostics.samplers.vllm_series import start_hint


def load_model(error: Exception) -> None:
    raise error  # vLLM logs its own words about it and raises the same again


def profile_run(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("where", "error", "mended"),
    [
        (load_model, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (load_model, RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (load_model, ValueError("no module of that name"), False),
        (profile_run, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), False),
    ],
)
def test_memory_that_runs_out_while_weights_are_read_is_not_tried_with_fewer_rows(
    where: Callable[[Exception], None], error: Exception, mended: bool
) -> None:
    with pytest.raises(type(error)) as raised:
        where(error)
    said = error_message(raised.value)
    assert said.endswith(f"{type(error).__name__}: {error}")
    hint = start_hint(said)
    assert (hint is not None) is mended
    assert hint is None or "--tensor-parallel" in hint
