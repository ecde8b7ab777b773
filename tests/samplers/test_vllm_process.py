"""Error messages of an engine's process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from oversharp.diagnostics.samplers.vllm_process import error_message
from oversharp.diagnostics.samplers.vllm_series import start_hint


def load_model(error: Exception) -> None:
    raise error  # as in vLLM, which logs a message and raises the error again


def profile_run(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("where", "error", "has_hint"),
    [
        (load_model, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (load_model, RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (load_model, ValueError("no module of that name"), False),
        (profile_run, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), False),
    ],
)
def test_a_memory_error_while_weights_are_read_has_a_hint_instead_of_fewer_rows(
    where: Callable[[Exception], None], error: Exception, has_hint: bool
) -> None:
    with pytest.raises(type(error)) as raised:
        where(error)
    message = error_message(raised.value)
    assert message.endswith(f"{type(error).__name__}: {error}")
    hint = start_hint(message)
    assert (hint is not None) is has_hint
    assert hint is None or "--tensor-parallel" in hint
