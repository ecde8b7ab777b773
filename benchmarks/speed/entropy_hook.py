"""Measure the cost of the entropy hook: the same samples with and without it, alternately on one engine.

Besides wall seconds it counts the CPU seconds of the engine's process. With one thread they are equal on a quiet
machine, and still meaningful on a busy one.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.vllm import VllmSampler


@dataclass(frozen=True, kw_only=True)
class HookCost:
    """Medians over the turns with and without the hook: wall seconds, and CPU seconds of the engine."""

    turns: int
    tokens: int
    hooked_wall_s: float
    plain_wall_s: float
    hooked_cpu_s: float
    plain_cpu_s: float


def hook_cost(path: Path, problems: Sequence[Problem], *, n: int, max_tokens: int, turns: int) -> HookCost:
    """Sample ``n`` responses per problem in each turn, with and without entropies, in alternating order."""
    settings = SamplingSettings(sampler="vllm", max_tokens=max_tokens)
    checkpoint = Checkpoint(step=0, label=path.name, path=path, kind="full", weights_hash=path.name)
    requests = [SampleRequest(problem=problem, sample_indices=tuple(range(n))) for problem in problems]
    sampler = VllmSampler(SamplerContext(models=ModelHolder(device="cpu")))
    wall_s: dict[bool, list[float]] = {True: [], False: []}
    cpu_s: dict[bool, list[float]] = {True: [], False: []}
    try:
        for turn in range(-1, turns):  # the first turn warms up
            for hook in (True, False) if turn % 2 else (False, True):
                if turn >= 0:
                    sampler._engines.has_entropy = hook
                start = time.perf_counter()
                start_cpu_s = _cpu_s(sampler) if turn >= 0 else 0.0
                samples = [sample for batch in sampler.sample(checkpoint, requests, settings) for sample in batch]
                elapsed_s = time.perf_counter() - start
                if turn < 0:
                    continue
                wall_s[hook].append(elapsed_s)
                cpu_s[hook].append(_cpu_s(sampler) - start_cpu_s)
                if hook is not all(sample.entropy_sum is not None for sample in samples):
                    raise SystemExit(f"hook {hook}: the entropies do not tell the same")
    finally:
        sampler.close()
    return HookCost(
        turns=turns,
        tokens=sum(sample.n_tokens for sample in samples),
        hooked_wall_s=statistics.median(wall_s[True]),
        plain_wall_s=statistics.median(wall_s[False]),
        hooked_cpu_s=statistics.median(cpu_s[True]),
        plain_cpu_s=statistics.median(cpu_s[False]),
    )


def _cpu_s(sampler: VllmSampler) -> float:
    """Return the CPU seconds of the engine's process."""
    # the name in brackets may contain anything; user and system time are fields 14 and 15, counted from 1
    stat = Path(f"/proc/{sampler._engines.running.process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
