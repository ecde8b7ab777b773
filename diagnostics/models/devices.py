"""Choose the device, the number of CPU threads and the precision of a model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import torch

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.memory import ONEDNN_CACHE_LIMIT

#: Smaller models use one CPU thread, because their operations are too small to split: two threads were up to 14 times
#: slower than one.
ONE_THREAD_BELOW_PARAMETERS = 50_000_000
#: Share of a GPU's memory for one chunk, which needs two float32 tensors. Smaller chunks would be dominated by launch
#: overhead.
_SHARE_OF_A_GPU = 1 / 64


def pick_device(wanted: str | None) -> torch.device:
    """Return the requested device; if ``wanted`` is None, a GPU if there is one, else the CPU.

    Also limits oneDNN's primitive cache in this process, unless the user has set a limit. Raises ``ConfigError`` for a
    device that does not exist.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    os.environ.setdefault(*ONEDNN_CACHE_LIMIT)
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ConfigError(f"--device {wanted}: not a device name; use cpu, cuda or cuda:0") from None
    if device.type == "meta":
        raise ConfigError(f"--device {wanted}: the meta device cannot compute; use cpu, cuda or cuda:0")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {wanted}: this machine has no such CUDA GPU; use --device cpu")
    return device


@cache
def elements_per_chunk(device: torch.device, on_a_cpu: int) -> int:
    """Return how many entries of a (token, vocabulary) table are computed at a time.

    On a CPU it is ``on_a_cpu``; a GPU computes more. On a GPU of 80 GB it is 168 million. It depends on the total
    memory instead of the free memory, so that results are reproducible to the last bit.
    """
    if device.type != "cuda":
        return on_a_cpu
    _, memory_bytes = torch.cuda.mem_get_info(device)
    return max(on_a_cpu, int(_SHARE_OF_A_GPU * memory_bytes) // (2 * 4))


def gpu_name(index: int) -> str:
    """Return the name of a GPU, such as "NVIDIA H100 80GB HBM3"."""
    return torch.cuda.get_device_name(index)


def has_products_of(dtype: str) -> bool:
    """Return whether this CPU has matrix instructions for ``dtype``.

    If it has none, float32 is faster.
    """
    return dtype == "float32" or (dtype == "bfloat16" and torch.cpu._is_avx512_bf16_supported())


def slow_products_note(option: str, dtype: str, device: torch.device) -> str | None:
    """Return a note if ``option`` requests a dtype without matrix instructions, else None."""
    if device.type != "cpu" or has_products_of(dtype):
        return None
    why = f"this CPU has no matrix instructions for {dtype}, so it takes many times as long as float32"
    return f"{option} {dtype}: {why}; {option} float32 is faster here"


def default_threads(model: torch.nn.Module) -> int:
    """Return the number of CPU threads for the model: 1 for small models, else torch's default."""
    return default_threads_of(sum(parameter.numel() for parameter in model.parameters()))


def default_threads_of(n_parameters: int) -> int:
    """Return ``default_threads`` for a model of ``n_parameters`` parameters."""
    return 1 if n_parameters < ONE_THREAD_BELOW_PARAMETERS else torch.get_num_threads()


@contextmanager
def cpu_threads(threads: int) -> Iterator[None]:
    """Limit torch to ``threads`` CPU threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def suitable_threads(model: torch.nn.Module) -> AbstractContextManager[None]:
    """Use ``default_threads`` inside the block."""
    return cpu_threads(default_threads(model))


@contextmanager
def in_float32(model: torch.nn.Module) -> Iterator[None]:
    """Convert the model to float32 inside the block.

    Afterwards the weights are restored, bit for bit.
    """
    before = {name: parameter.dtype for name, parameter in model.named_parameters()}
    parameters = dict(model.named_parameters())
    try:
        for parameter in parameters.values():
            parameter.data = parameter.data.float()
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.data = parameter.data.to(before[name])
