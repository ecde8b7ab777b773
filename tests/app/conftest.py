"""Fixtures: a small store of imported samples with a fall and a rise of pass@k."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples

FIELDS = {"prompt": "question", "response": "output", "gold": "gold", "reward": "score", "step": "step"}


def rollouts(seed: int, *, steps: tuple[int, ...] = (0, 50, 100), n_problems: int = 40, n: int = 16) -> str:
    """JSON lines of a run that sharpens: often solved problems rise, rarely solved ones fall. Step 0 has no seed."""
    lines = []
    for step in steps:
        draw = random.Random(f"{step} {seed if step else 'base'}")
        for number in range(n_problems):
            rate = random.Random(number).random() ** 2
            if step:
                rate = min(1.0, rate * (1 + step / 80)) if rate > 0.25 else rate * (1 - step / 120)
            for _ in range(n):
                right = draw.random() < rate
                answer = 3 * number + 1 if right else draw.randint(200, 230)
                record = {"question": f"What is {number} * 3 + 1?", "gold": str(3 * number + 1), "score": float(right)}
                record |= {"output": f"Let me see.\nIt is \\boxed{{{answer}}}.", "step": step}
                lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def imported_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of two imported series, ``one`` and ``two``, with the same base samples. Do not write into it."""
    folder = tmp_path_factory.mktemp("imported")
    return import_into(folder, ("one", "two"))


@pytest.fixture
def import_series() -> Callable[..., Path]:
    """Imports series by name into a folder."""
    return import_into


def import_into(folder: Path, names: tuple[str, ...]) -> Path:
    """Import a run of each name; a name has its own seed."""
    for name in names:
        dump = folder / f"{name}.jsonl"
        dump.write_text(rollouts(len(name) * 100 + ord(name[0])), encoding="utf-8")
        import_samples([dump], ImportConfig(map=FIELDS, name=name, store=folder / "audit.duckdb"), command="import")
    return folder / "audit.duckdb"
