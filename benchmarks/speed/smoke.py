"""Compare what is not sampling with plain references, so that a regression of several times does not land.

``python -m benchmarks.speed.smoke`` (``make bench-smoke``, a minute and a half) measures CPU seconds of each part and
of its reference, in turns in the same process, and takes the smallest of each. It compares their ratio with the
recorded one in ``benchmarks/results/smoke.json``. Exit code 1 if a ratio is more than twice the recorded one.
``--record`` writes the ratios.

A reference does only a part of the work: numpy or DuckDB without checks, grades or intervals. So a ratio is no claim
of speed. It only has to stay.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed.count_statistics import counted_evidence, measure_counts
from benchmarks.speed.results import RESULTS, circumstances, digits, write
from benchmarks.speed.synthetic_responses import Plan
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.ingest.read import SeriesReader
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.math import MathVerifier

TURNS, SLACK = 3, 2.0
COUNTED = Plan(n_problems=200, n_checkpoints=10, n=256)
IMPORTED = 60_000


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the product and its plain reference, as functions without arguments."""

    name: str
    ours: Callable[[], object]
    reference: Callable[[], object]


def counts() -> Part:
    """All measures of counts and the verdict, against pass@k alone in numpy."""
    evidence, series = counted_evidence(COUNTED)
    frame = evidence.frames["sampled_counts"]
    n_R, correct_R = frame["n"].to_numpy(), frame["n_correct"].to_numpy()

    def reference() -> float:
        total = 0.0
        for k in COUNTED.ks:
            for draw in range(k):
                total += float(np.maximum(0, 1 - correct_R / (n_R - draw)).mean())
        return total

    return Part(name="counts", ours=lambda: measure_counts(evidence, series), reference=reference)


def importing(folder: Path) -> Part:
    """Samples with rewards from Parquet to the store, against DuckDB's reading, hashing and counting."""
    rng = random.Random(0)
    columns: dict[str, list[object]] = {name: [] for name in ("prompt", "response", "gold", "reward", "step")}
    words = " ".join(f"word{number}" for number in range(30))
    for index in range(IMPORTED):
        problem, right = index // 20 % 100, rng.random() < 0.4
        answer = problem if right else rng.randrange(1000)
        row = (f"Which number is {problem}?", f"{words} {index} \\boxed{{{answer}}}", str(problem), float(right))
        for name, value in zip(columns, (*row, 10 * (index // (IMPORTED // 3))), strict=True):
            columns[name].append(value)
    path = folder / "dump.parquet"
    pq.write_table(pa.table(columns), path)
    stores = (folder / f"{number}.duckdb" for number in range(TURNS + 1))

    def ours() -> None:
        config = ImportConfig(store=next(stores), map={name: name for name in columns})
        (file,) = plan_import([path], config).files
        with Store.open(config.store) as store, Verifiers() as verifiers:
            SeriesReader(store, file.series, config, verifier=None).read(file, verifiers)

    query = f"SELECT prompt, step, count(DISTINCT hash(response)), sum(reward) FROM '{path}' GROUP BY ALL"
    return Part(name="import", ours=ours, reference=lambda: duckdb.execute(query).fetchall())


def grading() -> Part:
    """Grading of repeated answers by ``math``, against a regular loop over the distinct ones."""
    from math_verify import parse, verify

    pairs = [(str(gold), f"so \\boxed{{{gold + wrong}}}") for gold in range(100, 140) for wrong in (0, 1)]
    problems = [(Problem(task="smoke", prompt="?", gold=gold, verifier="math"), text) for gold, text in pairs]

    def ours() -> None:
        with MathVerifier(timeout_s=5.0) as verifier:
            verifier.grade(problems * 50)

    def reference() -> list[bool]:
        return [verify(parse(f"${gold}$"), parse(text)) for gold, text in pairs]

    return Part(name="grading", ours=ours, reference=reference)


def start() -> Part:
    """A wrong flag, against an interpreter that imports pandas."""

    def run(*command: str) -> None:
        subprocess.run([sys.executable, *command], check=False, capture_output=True)

    return Part(
        name="a wrong flag",
        ours=lambda: run("-m", "oversharp", "audit", "--no-such-flag"),
        reference=lambda: run("-c", "import pandas"),
    )


def sampling(folder: Path) -> Part:
    """Responses of a small model by our sampler, against ``generate`` with the prompts repeated."""
    import torch

    from benchmarks.speed.measured_models import make_untrained_model
    from oversharp.diagnostics.models.holder import ModelHolder
    from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
    from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest
    from oversharp.diagnostics.samplers.transformers import TransformersSampler
    from oversharp.diagnostics.tasks import countdown

    path = make_untrained_model(folder / "model")
    checkpoint = Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model")
    holder = ModelHolder(device="cpu")
    problems, each = countdown.problems()[:16], 64
    settings = SamplingSettings(sampler="transformers", max_tokens=6)
    requests = [SampleRequest(problem=problem, sample_indices=tuple(range(each))) for problem in problems]

    def ours() -> int:
        sampler = TransformersSampler(SamplerContext(models=holder))
        return sum(len(block) for block in sampler.sample(checkpoint, requests, settings))

    def reference() -> int:
        loaded = holder.load(checkpoint)
        model: Any = loaded.model
        rows = [problem.prompt for problem in problems for _ in range(each)]
        inputs = loaded.tokenizer(rows, return_tensors="pt", padding=True, padding_side="left")
        with torch.inference_mode():
            ids = model.generate(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=True, top_k=0,
                max_new_tokens=6,
            )  # fmt: skip
        return len(loaded.tokenizer.batch_decode(ids))

    return Part(name="sampling", ours=ours, reference=reference)


def cpu_s(act: Callable[[], object]) -> float:
    """Return the CPU seconds of a function and of the processes that it waited for."""

    def used() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in both)

    before = used()
    act()
    return used() - before


def ratio(part: Part) -> float:
    """Return the CPU time of the part over that of its reference. Both run once before."""
    part.ours(), part.reference()
    turns = [(cpu_s(part.ours), cpu_s(part.reference)) for _ in range(TURNS)]
    return min(ours for ours, _ in turns) / max(1e-3, min(reference for _, reference in turns))


def parts(folder: Path) -> Iterator[Part]:
    """Yield the parts one after the other, because each keeps its input in memory."""
    yield counts()
    yield importing(folder)
    yield grading()
    yield start()
    yield sampling(folder)


def main() -> int:
    """Measure, compare with the recorded ratios, and print them. Return 1 for a ratio of more than twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the ratios")
    flags = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    start_s = time.perf_counter()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oversharp-smoke-")))
        measured = {part.name: digits(ratio(part)) for part in parts(folder)}
    if flags.record:
        write("smoke", {"ratios": measured, "wall_s": digits(time.perf_counter() - start_s), **circumstances(())})
        return 0
    recorded = json.loads((RESULTS / "smoke.json").read_text(encoding="utf-8"))["ratios"]
    slow = {name for name, value in measured.items() if value > SLACK * recorded[name]}
    for name, value in measured.items():
        too_slow = f": more than {SLACK:g} times as slow" if name in slow else ""
        print(f"{name}: {value} times the reference, recorded {recorded[name]}{too_slow}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
