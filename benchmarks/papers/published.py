"""Test whole published benchmarks: is every gold parsed, right in a box, and other golds wrong?

``python -m benchmarks.papers.published gsm8k=test.jsonl math500=… …`` takes files like ``--task benchmark:NAME=PATH``
and writes ``results/published.json``: figures, row numbers and hashes of the files, never their texts. For each problem
it asks whether the verifier accepts the gold in a box, and refuses the gold of the next problem that has another one.
It lists rows with wrong grades, and golds that only ``exact`` can grade. Results of benchmarks that are not given are
kept.
"""

from __future__ import annotations

import argparse
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.benchmarks import benchmark_problems, get_benchmark
from oversharp.diagnostics.verifiers import Verifiers

ACCEPTED = "So the answer is \\boxed{{{}}}."


def tried(name: str, path: Path) -> dict[str, Any]:
    """Return the figures of one file.

    Problems are numbered from 1, in their order.
    """
    problems = benchmark_problems(f"{name}={path}")
    others = [_next_gold(problems, place) for place in range(len(problems))]
    with Verifiers() as verifiers:
        own = verifiers.grade([(one, ACCEPTED.format(one.gold)) for one in problems])
        other = verifiers.grade([(one, ACCEPTED.format(gold)) for one, gold in zip(problems, others, strict=True)])
    content = path.read_bytes()
    return {
        "benchmark": name,
        "sha256": sha256(content).hexdigest(),
        "rows": sum(1 for line in content.splitlines() if line.strip()),
        "rows_at_the_hub": get_benchmark(name).n_problems,
        "problems": len(problems),
        "graded_as_text": _places(one.verifier == "exact" for one in problems),
        "own_gold_refused": _places(not grade.correct for grade in own),
        "other_gold_accepted": _places(grade.correct for grade in other),
    }


def _next_gold(problems: tuple[Problem, ...], place: int) -> str:
    """Return the gold of the next problem with a different text, cyclically."""
    own = problems[place].gold
    return next(one.gold for one in (*problems[place + 1 :], *problems[:place]) if one.gold != own)


def _places(found: Any) -> list[int]:
    return [place for place, holds in enumerate(found, start=1) if holds]


def main() -> None:
    """Test every file, write the result file and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="NAME=PATH")
    files = []
    for one in parser.parse_args().files:
        name, _, path = one.partition("=")
        files.append(tried(name, Path(path)))
        print({key: len(value) if isinstance(value, list) else value for key, value in files[-1].items()})
    kept = json.loads((RESULTS / "published.json").read_text(encoding="utf-8"))["files"]
    named = {one["benchmark"] for one in files}
    files = sorted([one for one in kept if one["benchmark"] not in named] + files, key=lambda one: one["benchmark"])
    write("published", {"benchmark": "published", "files": files, **circumstances(("oversharp", "math-verify"))})


if __name__ == "__main__":
    main()
