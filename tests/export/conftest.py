"""A store of imported samples: some are correct, and much that an audit knows is unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples

PROBLEMS, REPEATS, STEPS = 6, 4, (0, 10)


@pytest.fixture(scope="session")
def imported_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of six problems in verl's layout: half of the samples are correct at step 0, a quarter at step 10."""
    folder = tmp_path_factory.mktemp("imported")
    (folder / "val").mkdir()
    for step, n_right in zip(STEPS, (2, 1), strict=True):
        rows = [
            {
                "input": f'What is 7 × {problem}?\nSay "it" | or —',
                "output": f"So \\boxed{{{problem * 7 if repeat < n_right else -1 - repeat}}}\n",
                "gts": str(problem * 7),
                "score": float(repeat < n_right),
                "step": step,
            }
            for problem in range(PROBLEMS)
            for repeat in range(REPEATS)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "val" / f"{step}.jsonl").write_text(lines, encoding="utf-8")
    store = folder / "audit.duckdb"
    import_samples([folder / "val"], ImportConfig(store=store))
    return store
