"""Rows of Parquet read at once give the same samples as one by one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.ingest import batch
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import mapped
from oversharp.diagnostics.ingest.formats.contract import Importer, RecordedRows
from oversharp.diagnostics.ingest.formats.rows import parquet_parts
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.ingest.read import FileResult, SeriesReader
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers import Verifiers

NAMES = {
    "prompt": "prompt", "response": "response", "reward": "reward", "step": "step", "index": "index", "gold": "gold",
    "task": "task", "greedy": "greedy", "n_tokens": "n_tokens", "finish_reason": "finish", "problem": "id",
    "answer": "answer",
}  # fmt: skip
TYPES = {"reward": pa.float64(), "step": pa.int32(), "index": pa.int64(), "greedy": pa.bool_(), "n_tokens": pa.int16()}
TABLES = ("samples", "grades", "problems", "import_faults", "series_checkpoints")


def dump(n: int, seed: int) -> list[dict[str, Any]]:
    """Samples with every fault that a row of usual types can have, in runs of unequal length."""
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = []
    while len(records) < n:
        prompt, step = f"{rng.integers(4)}+1?", int(rng.integers(3))
        first, greedy, numbered = int(rng.integers(20)), bool(rng.random() < 0.2), rng.random() < 0.7
        for place in range(int(rng.integers(1, 9))):
            index = first + place if rng.random() < 0.9 else int(rng.choice([0, 5, 65_535, 65_536, 2**31 - 1]))
            answer = int(rng.integers(3))
            records.append({
                "prompt": " " if rng.random() < 0.05 else prompt,
                "response": str(rng.choice([f"so \\boxed{{{answer}}}", f"Ünd: {answer}", "", "\\boxed{1"])),
                "reward": None if rng.random() < 0.05 else float(answer == 1),
                "step": None if rng.random() < 0.05 else step,
                "index": index if numbered else None,
                "gold": ["", "1", None][int(rng.integers(3))] if rng.random() < 0.1 else "1",
                "task": "sums" if rng.random() < 0.9 else None,
                "greedy": greedy,
                "n_tokens": int(rng.integers(9)),
                "finish": str(rng.choice(["stop", "EOS", "length", "abort"])),
                "id": f"p{prompt}",
                "answer": "1" if rng.random() < 0.1 else None,
            })  # fmt: skip
    return records[:n]


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    columns = {name: pa.array([one[name] for one in records], TYPES.get(name, pa.string())) for name in records[0]}
    parquet.write_table(pa.table(columns), path)
    return path


def one_by_one(importer: Importer) -> Importer:
    return replace(importer, parts=None)


def imported(path: Path, store: Path, *, by_rows: bool, **flags: Any) -> tuple[list[FileResult], dict[str, list[Any]]]:
    """Results of two imports of a file, and the rows of the store."""
    config = ImportConfig(store=store, map=NAMES, name="run", **flags)
    (file,) = plan_import([path], config).files
    if not by_rows:
        file = replace(file, importer=one_by_one(file.importer))
    with Store.open(store) as opened, Verifiers() as verifiers:
        said = [SeriesReader(opened, "run", config, verifier=None).read(file, verifiers) for _ in range(2)]
        held = {name: opened.frame(f"FROM {name} ORDER BY ALL").astype(str).to_numpy().tolist() for name in TABLES}
    return said, held


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("flags", [{}, {"steps": (0, 2)}, {"correct_at": 0.5, "window": 2}, {"regrade": True}])
def test_rows_come_to_the_same_store_and_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, flags: dict[str, Any]
) -> None:
    monkeypatch.setattr(batch, "SAMPLES_PER_COMMIT", 70)
    monkeypatch.setattr(batch, "SAMPLES_PER_BLOCK", 16)
    monkeypatch.setattr(mapped, "parquet_parts", partial(parquet_parts, rows_at_once=64))
    path = write(tmp_path / "dump.parquet", dump(300, seed))
    said, held = imported(path, tmp_path / "rows.duckdb", by_rows=True, **flags)
    said_1, held_1 = imported(path, tmp_path / "one.duckdb", by_rows=False, **flags)
    assert said == said_1
    assert held == held_1
    assert said[0].n_samples == len(held["samples"]) > 50
    assert not flags or said[0].faults
    assert said[1].known


def test_the_dump_of_these_tests_is_read_as_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "parquet_parts", partial(parquet_parts, rows_at_once=90))
    path = write(tmp_path / "dump.parquet", dump(100, 0))
    parts = list(mapped.parts(path, mapped.ReadOptions(fields=NAMES)))
    assert all(isinstance(rows, RecordedRows) for rows in parts)
    assert [(rows.first, len(rows)) for rows in parts if isinstance(rows, RecordedRows)] == [(1, 90), (91, 10)]


@pytest.mark.slow
def test_an_import_that_ended_within_rows_is_carried_on_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "dump.parquet", dump(300, 9))
    _, whole = imported(path, tmp_path / "whole.duckdb", by_rows=True)
    monkeypatch.setattr(batch, "SAMPLES_PER_COMMIT", 50)
    config = ImportConfig(store=tmp_path / "cut.duckdb", map=NAMES, name="run")
    (file,) = plan_import([path], config).files
    write_part = SeriesReader._commit
    n_parts = 0

    def cut(self: SeriesReader, *given: Any, **named: Any) -> None:
        nonlocal n_parts
        n_parts += 1
        if n_parts == 3:
            raise KeyboardInterrupt
        write_part(self, *given, **named)

    monkeypatch.setattr(SeriesReader, "_commit", cut)
    with Store.open(config.store) as store, Verifiers() as verifiers, pytest.raises(KeyboardInterrupt):
        SeriesReader(store, "run", config, verifier=None).read(file, verifiers)
    with Store.open(config.store) as store:
        assert len(store.frame("FROM samples")) == 100
    _, held = imported(path, config.store, by_rows=True)
    assert held == whole


def test_long_responses_are_taken_few_at_a_time() -> None:
    rows = RecordedRows(first=1, columns={"response": pa.array(["", "1234", "12345", "1", "123"]).slice(1)})
    assert [rows.fitting(n) for n in (0, 4, 8, 9, 10, 13, 99)] == [1, 1, 1, 2, 3, 4, 4]
    assert rows.rows(1).fitting(5) == 1


def test_a_text_that_is_no_utf_8_is_no_row(tmp_path: Path) -> None:
    texts = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    table = pa.table({"q": pa.array(["1+1?"]), "a": texts, "right": pa.array([1.0])})
    parquet.write_table(table, tmp_path / "any.parquet")
    names = {"prompt": "q", "response": "a", "reward": "right"}
    (part,) = table.to_batches()
    assert mapped._columns(part, names) is None
    result = imported_words(tmp_path / "any.parquet", names)
    assert "not a readable Parquet file" in result


def imported_words(path: Path, names: dict[str, str]) -> str:
    from oversharp.diagnostics.records.errors import ImportFileError

    with pytest.raises(ImportFileError) as raised:
        list(mapped.parts(path, mapped.ReadOptions(fields=names)))
    return str(raised.value)
