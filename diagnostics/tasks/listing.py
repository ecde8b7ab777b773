"""Texts of ``oversharp explain`` about benchmarks and presets."""

from __future__ import annotations

from oversharp.diagnostics.tasks.benchmark_sources import how_to_copy
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS, Benchmark, benchmark_of
from oversharp.diagnostics.tasks.presets import PRESET_SETTINGS, PRESETS, PromptPreset

_PREFIX = "benchmark:"


def task_titles() -> list[tuple[str, str, str]]:
    """Return kind, name and title of each benchmark and each preset."""
    benchmarks = [("benchmark", _PREFIX + name, benchmark.title) for name, benchmark in BENCHMARKS.items()]
    return [*benchmarks, *(("preset", name, benchmark.title) for name, benchmark in PRESETS.items())]


def task_listing() -> str:
    """Return a line for each benchmark and each preset."""
    flag = {"benchmark": "", "preset": " [--preset]"}
    return "\n".join(f"{name:24} {title}{flag[kind]}" for kind, name, title in task_titles())


def task_explanation(name: str) -> str | None:
    """Return the description of a benchmark (``benchmark:NAME``) or preset; None for any other name.

    Raises ``ProblemError`` for a benchmark that is not known.

    >>> print(task_explanation("benchmark:aime25"))
    benchmark:aime25: AIME 2025, I and II
    data set   math-ai/aime25, split test, 30 problems
    commit     563bb8404243c5f09de6ec262f2db674fe5bce9b
    columns    problem, answer
    verifier   math
    offline    where there is a network, run: python -c 'from datasets import load_dataset; ...
    """
    if name.startswith(_PREFIX):
        return _benchmark_text(name, benchmark_of(name.removeprefix(_PREFIX)))
    return _preset_text(name, PRESETS[name]) if name in PRESETS else None


def _benchmark_text(name: str, benchmark: Benchmark) -> str:
    data = benchmark.data
    config = f", configuration {data.config}" if data.config else ""
    lines = [
        f"{name}: {benchmark.title}",
        f"data set   {data.path}{config}, split {data.split}, {benchmark.n_problems:,} problems",
        f"commit     {data.revision}",
        f"columns    {', '.join(benchmark.columns)}",
        f"verifier   {benchmark.verifier}",
    ]
    if benchmark.limit_draws:
        lines.append("--limit    draws problems at random, by --seed")
    lines.append(f"offline    {how_to_copy(name.removeprefix(_PREFIX), data)}")
    return "\n".join(lines)


def _preset_text(name: str, preset: PromptPreset) -> str:
    settings = (f"{setting:16} {getattr(preset, setting)!r}" for setting in PRESET_SETTINGS)
    return "\n".join((f"--preset {name}: {preset.title}", *settings, f"Source: {preset.source}"))
