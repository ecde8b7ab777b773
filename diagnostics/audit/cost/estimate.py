"""Rough estimate of the sampling time before this machine has sampled anything, by rates measured elsewhere."""

from __future__ import annotations

import os

from oversharp.diagnostics.audit.cost.machines import GPUS, Gpu
from oversharp.diagnostics.audit.cost.measured import MEASURED, SLOWER
from oversharp.diagnostics.audit.cost.shapes import ModelShape, read_shape
from oversharp.diagnostics.records.amounts import about_time
from oversharp.diagnostics.records.errors import CheckpointError

#: Responses rarely use all their tokens: the estimate is for this share of them, and for all.
_LEAST_SHARE = 0.25
_UNTIL_MEASURED = "the first checkpoint will measure this machine's pace"


def estimate_sampling(model: str, *, n_samples: int, max_tokens: int, prompt_tokens: float, device: str | None) -> str:
    """Return a line with the estimate; empty where this machine's rates or the model's shape are unknown.

    ``device`` is the device that samples, None for a GPU if there is one. Raises ``ConfigError`` if it is missing.
    """
    from oversharp.diagnostics.models.devices import default_threads_of, has_products_of, pick_device  # brings torch

    try:
        shape = read_shape(model)
    except CheckpointError:
        return ""
    place = pick_device(device)
    gpu = None
    if place.type == "cuda":
        gpu = _find_gpu(place.index or 0)
        if gpu is None:
            return ""
    elif place.type != "cpu":
        return ""
    cores = min(default_threads_of(shape.parameters), len(os.sched_getaffinity(0)))
    share_s = [
        _gpu_seconds(shape, gpu, n_samples, share * max_tokens, prompt_tokens)
        if gpu is not None
        else _cpu_seconds(shape, n_samples, share * max_tokens, prompt_tokens) / cores
        for share in (_LEAST_SHARE, 1.0)
    ]
    name, unlike = None if gpu is None else gpu.name, gpu is None and not has_products_of("bfloat16")
    return estimate_text(share_s[0], share_s[1], max_tokens=max_tokens, gpu=name, unlike=unlike)


def estimate_text(least_s: float, most_s: float, *, max_tokens: int, gpu: str | None, unlike: bool = False) -> str:
    """Return the estimate in words; ``unlike``: the CPU is of another kind than the measured one.

    >>> estimate_text(100, 400, max_tokens=512, gpu="H100 SXM")
    "not measured yet: sampling takes about 2 min if responses take a quarter of their 512 tokens, about 7 min if all,
    at the least, by the H100 SXM's data sheet, which no program reaches; the first checkpoint will measure
    this machine's pace"
    """
    by = f"by rates measured on another machine ({MEASURED.hardware}), which is rough{f' ({SLOWER})' if unlike else ''}"
    if gpu is not None:
        by = f"at the least, by the {gpu}'s data sheet, which no program reaches"
    least, most = about_time(least_s), about_time(most_s)
    times = f"{least} if responses take a quarter of their {max_tokens:,} tokens, {most} if all"
    return f"not measured yet: sampling takes {most if least == most else times}, {by}; {_UNTIL_MEASURED}"


def _cpu_seconds(shape: ModelShape, n_samples: int, tokens: float, prompt_tokens: float) -> float:
    """Return the seconds of one core."""
    return n_samples * tokens * shape.token_flop(prompt_tokens + tokens / 2) / MEASURED.sampling_flop


def _gpu_seconds(shape: ModelShape, gpu: Gpu, n_samples: int, tokens: float, prompt_tokens: float) -> float:
    """Return a lower bound of the seconds of one GPU."""
    from oversharp.diagnostics.audit.cost.cost import decoding_step_s, rows_at_a_time

    rows = rows_at_a_time(shape, prompt_tokens + tokens, gpu)
    return n_samples * tokens / rows * decoding_step_s(shape, prompt_tokens + tokens / 2, rows, gpu)


def _find_gpu(index: int) -> Gpu | None:
    """Return the data sheet of the GPU at ``index``, None if it is not included."""
    from oversharp.diagnostics.models.devices import gpu_name  # brings torch

    words = gpu_name(index).lower().replace("-", " ").split()
    return next((gpu for key, gpu in GPUS.items() if key in words), None)
