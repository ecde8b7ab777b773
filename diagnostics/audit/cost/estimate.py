"""Estimate the sampling time of an audit before it samples.

The estimate uses the pace of stored samples. Without any, it is a rough one.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from oversharp.diagnostics.audit.cost.machines import GPUS, MEASURED, SLOWER, Gpu
from oversharp.diagnostics.audit.cost.shapes import ModelShape, read_shape
from oversharp.diagnostics.audit.prepare import PreparedAudit
from oversharp.diagnostics.audit.settings import CHARACTERS_PER_TOKEN
from oversharp.diagnostics.records.amounts import about_time
from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.pace import Pace
from oversharp.diagnostics.store.load import cost_before
from oversharp.diagnostics.store.plan.samples import OtherDraw, samples_to_draw

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.rounds import SampleForecast


def open_pace(prepared: PreparedAudit, forecast: SampleForecast | None) -> Pace:
    """Return a pace tracker for all missing samples: pass@k, greedy, panel, controls.

    ``forecast`` is given for an audit with a stopping rule.
    """
    settings = prepared.settings
    controls = settings.controls
    base, last = prepared.series.base, prepared.series.checkpoints[-1]
    others = []
    if settings.panel:
        others.append(OtherDraw(base.checkpoint_id, settings.panel_sampling.settings_id, settings.panel))
    if controls is not None:
        others += [OtherDraw(base.checkpoint_id, lower.settings_id, controls.n) for lower in controls.lower]
        if last is not base:
            others += [
                OtherDraw(last.checkpoint_id, higher.settings_id, controls.n_higher) for higher in controls.higher
            ]
    lacking = samples_to_draw(prepared.store, prepared.key, others)
    most = None
    if forecast is not None:
        most = sum(lacking.values())
        for checkpoint_id in lacking:
            planned = forecast.n_planned(checkpoint_id)
            most += forecast.n_most(checkpoint_id) - planned
            lacking[checkpoint_id] += forecast.expected[checkpoint_id] - planned
    perhaps = 0
    if controls is not None and len(prepared.series.checkpoints) > 2:  # the checkpoint to ship may be a third one
        perhaps = controls.n_higher * len(controls.higher) * len(prepared.problems)
    return Pace(lacking, began=time.monotonic(), perhaps=perhaps, most=most)


def announce_cost(prepared: PreparedAudit, pace: Pace) -> None:
    """Print the number of samples to draw and the estimated time."""
    store, settings, note = prepared.store, prepared.settings, prepared.progress.note
    note(pace.start_line(max_tokens=settings.sampling.max_tokens))
    cost, estimate = cost_before(store, prepared.key), ""
    is_here = not settings.uses_ray and settings.engine.endpoint is None
    if cost.n == 0 and is_here:  # the speed of other machines is unknown
        prompts = [len(problem.prompt) for problem in prepared.problems]
        estimate = estimate_sampling(
            str(prepared.series.base.path),
            n_samples=pace.total,
            max_tokens=settings.sampling.max_tokens,
            prompt_tokens=sum(prompts) / len(prompts) / CHARACTERS_PER_TOKEN,
            device=settings.engine.config.device,
        )
    note(estimate or pace.cost_line(cost, free_bytes=shutil.disk_usage(store.path.parent).free))


#: Responses rarely reach the token limit. The estimate is a range: for this share of the limit, and for all of it.
_LEAST_SHARE = 0.25
_UNTIL_MEASURED = "the first checkpoint will measure this machine's pace"


def estimate_sampling(model: str, *, n_samples: int, max_tokens: int, prompt_tokens: float, device: str | None) -> str:
    """Return a line with the estimate.

    It is empty if this machine's rates or the model's shape are unknown. ``device`` is the device that samples; None
    means a GPU if there is one. Raises ``ConfigError`` if the device is missing.
    """
    from oversharp.diagnostics.models.devices import default_threads_of, has_products_of, pick_device  # loads torch

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
    """Return the estimate as text.

    ``unlike``: this CPU is of another kind than the measured one.

    >>> estimate_text(100, 400, max_tokens=512, gpu="H100 SXM")
    "not measured yet: sampling takes about 2 min if responses take a quarter of their 512 tokens, about 7 min if all,
    a lower bound from the H100 SXM's data sheet; the first checkpoint will measure this machine's pace"
    """
    by = f"by rates measured on another machine ({MEASURED.hardware}{f'; {SLOWER}' if unlike else ''})"
    if gpu is not None:
        by = f"a lower bound from the {gpu}'s data sheet"
    least, most = about_time(least_s), about_time(most_s)
    times = f"{least} if responses take a quarter of their {max_tokens:,} tokens, {most} if all"
    return f"not measured yet: sampling takes {most if least == most else times}, {by}; {_UNTIL_MEASURED}"


def _cpu_seconds(shape: ModelShape, n_samples: int, tokens: float, prompt_tokens: float) -> float:
    """Return the seconds on one core."""
    return n_samples * tokens * shape.token_flop(prompt_tokens + tokens / 2) / MEASURED.sampling_flop


def _gpu_seconds(shape: ModelShape, gpu: Gpu, n_samples: int, tokens: float, prompt_tokens: float) -> float:
    """Return a lower bound of the seconds on one GPU."""
    from oversharp.diagnostics.audit.cost.cost import decoding_step_s, rows_at_a_time

    rows = rows_at_a_time(shape, prompt_tokens + tokens, gpu)
    return n_samples * tokens / rows * decoding_step_s(shape, prompt_tokens + tokens / 2, rows, gpu)


def _find_gpu(index: int) -> Gpu | None:
    """Return the data sheet of the GPU at ``index``; None if there is none."""
    from oversharp.diagnostics.models.devices import gpu_name  # loads torch

    words = gpu_name(index).lower().replace("-", " ").split()
    return next((gpu for key, gpu in GPUS.items() if key in words), None)
