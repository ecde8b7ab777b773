"""Run the sampling stage of an audit with vLLM in one process and time its parts.

The parts are start, load, swap, probe, sampling, storing. ``python -m benchmarks.speed.sampling_stage SERIES OUT --n
256`` writes the samples of an audit to ``OUT/audit.duckdb``, and prints timings and memory as JSON. ``--grade`` adds
the number of correct samples of the first checkpoint by prompt.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings, response_id
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest, make_sampler
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.splits import N_AUDIT
from oversharp.diagnostics.verifiers import Verifiers

MEMORY_ROWS = 20
STEPS = ("start", "swap", "probe")
GIB = 2**20  # in KiB, the unit of the operating system


class TimedSteps:
    """Count starts, swaps and probes of an engine, or of a class of engines, and record their time.

    ``clock`` returns seconds.
    """

    def __init__(self, engines: Any, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.took_s: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        for step in STEPS:
            self.time(engines, f"_{step}", step)

    def time(self, owner: Any, method: str, step: str) -> None:
        """Also record the calls of a method of an object or class, as ``step``."""
        setattr(owner, method, self._timed(step, getattr(owner, method)))

    def _timed(self, step: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            start = self._clock()
            try:
                return act(*arguments, **named)
            finally:
                self.calls[step] += 1
                self.took_s[step] += self._clock() - start

        return timed


@dataclass(frozen=True, kw_only=True)
class CheckpointTimes:
    """Wall seconds of one checkpoint. ``draw_s`` is the rest of ``all_s``."""

    label: str
    samples: int
    tokens: int
    all_s: float
    load_s: float
    start_s: float
    swap_s: float
    probe_s: float
    store_s: float
    draw_s: float


@dataclass(frozen=True, kw_only=True)
class MemoryRow:
    """Resident memory after this number of stored samples."""

    samples: int
    main_gib: float
    engine_gib: float


def resident_gib(process: int | str, *, peak: bool = False) -> float:
    """Return the current or peak resident memory of a process."""
    field = "VmHWM:" if peak else "VmRSS:"
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / GIB


class Stage:
    """One sampler, one store, and the measurements."""

    def __init__(self, out: Path, settings: SamplingSettings) -> None:
        self._settings = settings
        context = SamplerContext(models=ModelHolder(device="cpu"), note=print_note)
        self._models = context.models
        self._sampler: Any = make_sampler("vllm", context)
        self._steps = TimedSteps(self._sampler._engines)
        self._store = Store.open(out / "audit.duckdb")
        self.times: list[CheckpointTimes] = []
        self.memory: list[MemoryRow] = []

    def register(self, series: Any, problems: Sequence[Problem]) -> None:
        self._store.add_series(series)
        self._store.add_problems(problems)

    def draw(self, checkpoint: Checkpoint, problems: Sequence[Problem], n: int) -> None:
        """Sample and store the responses of one checkpoint."""
        start = time.perf_counter()
        self._steps.took_s.clear()
        self._models.load(checkpoint)
        load_s = time.perf_counter() - start
        requests = [SampleRequest(problem=problem, sample_indices=tuple(range(n))) for problem in problems]
        samples = tokens = 0
        store_s = 0.0
        for batch in self._sampler.sample(checkpoint, requests, self._settings):
            before = time.perf_counter()
            self._store.add_samples(self._settings.settings_id, checkpoint.checkpoint_id, batch)
            store_s += time.perf_counter() - before
            samples += len(batch)
            tokens += sum(sample.n_tokens for sample in batch)
            self._note_memory(samples, n * len(problems))
        all_s = time.perf_counter() - start
        steps = {f"{step}_s": self._steps.took_s[step] for step in STEPS}
        self.times.append(
            CheckpointTimes(
                label=checkpoint.label,
                samples=samples,
                tokens=tokens,
                all_s=all_s,
                load_s=load_s,
                store_s=store_s,
                draw_s=all_s - load_s - store_s - sum(steps.values()),
                **steps,
            )
        )

    def peak_gib(self) -> dict[str, float]:
        """Return peak memory of this process and the engine, and the size of the engine's KV cache."""
        engine = self._sampler._engines.running
        return {
            "main": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB,
            "engine": resident_gib(engine.process_id, peak=True),
            "kv_cache": engine.plan.cache_bytes / 2**30,
        }

    def correct(self, checkpoint: Checkpoint, problems: Sequence[Problem]) -> dict[str, int]:
        """Grade a checkpoint into the store. Return prompt → number of correct samples."""
        by_id = {problem.problem_id: problem for problem in problems}
        texts = self._store.frame(
            """
            SELECT problem_id, text, count(*) AS n
            FROM samples
            WHERE checkpoint_id = $checkpoint_id
            GROUP BY problem_id, text
            ORDER BY problem_id, text
            """,
            checkpoint_id=checkpoint.checkpoint_id,
        )
        items = [(by_id[row.problem_id], row.text) for row in texts.itertuples()]
        with Verifiers() as verifiers:
            grades = verifiers.grade(items)
        self._store.add_grades(
            (problem.problem_id, response_id(text), problem.verifier, grade)
            for (problem, text), grade in zip(items, grades, strict=True)
        )
        counts = dict.fromkeys((problem.prompt for problem in problems), 0)
        for (problem, _), grade, n in zip(items, grades, texts["n"].tolist(), strict=True):
            counts[problem.prompt] += n * grade.correct
        return counts

    def close(self) -> None:
        self._sampler.close()
        self._store.close()

    def _note_memory(self, samples: int, planned: int) -> None:
        if samples >= planned * (len(self.memory) + 1) / MEMORY_ROWS:
            engine = self._sampler._engines.running.process_id
            row = MemoryRow(samples=samples, main_gib=resident_gib("self"), engine_gib=resident_gib(engine))
            self.memory.append(row)


def print_note(line: str) -> None:
    """Print a note. A benchmark in which the engine was restarted is void."""
    raise SystemExit(f"the sampler did not run as it should: {line}")


def main() -> None:
    """Sample, and print the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("series", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--problems", type=int, default=N_AUDIT)
    parser.add_argument("--checkpoints", type=int)
    parser.add_argument("--max-tokens", type=int, default=countdown.RESPONSE_TOKENS)
    parser.add_argument("--grade", action="store_true")
    arguments = parser.parse_args()
    start = time.perf_counter()
    split = "audit" if arguments.problems <= N_AUDIT else "train"
    problems = countdown.problems(split, limit=arguments.problems)
    series = find_series([arguments.series])
    stage = Stage(arguments.out, SamplingSettings(sampler="vllm", max_tokens=arguments.max_tokens))
    try:
        stage.register(series, problems)
        checkpoints = series.checkpoints[: arguments.checkpoints]
        for checkpoint in checkpoints:
            stage.draw(checkpoint, problems, arguments.n)
        peak_gib = stage.peak_gib()
        correct = stage.correct(checkpoints[0], problems) if arguments.grade else None
    finally:
        stage.close()
    result = {
        "wall_s": time.perf_counter() - start,
        "times": [asdict(row) for row in stage.times],
        "memory": [asdict(row) for row in stage.memory],
        "peak_gib": peak_gib,
        "correct": correct,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
