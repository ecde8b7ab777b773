"""A dry run of an import has the exit code of the import, for all layouts of dumps."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.app.console.imports import show_import, show_import_preview
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import OversharpError

pytestmark = [pytest.mark.usefixtures("few_measures"), pytest.mark.slow]
Row = dict[str, Any]
FLAT = "prompt=q,response=a,gold=g,reward=ok"


def _rows(step: int) -> list[Row]:
    return [
        {
            "id": f"p{p}",
            "q": f"{p}+1?",
            "g": str(p + 1),
            "a": f"{step} {p} {k} \\boxed{{{p + k}}}",
            "ok": k == 1,
            "step": step,
        }
        for p in range(4)
        for k in range(2)
    ]


def _grouped(step: int) -> list[Row]:
    """One record per problem, the samples in lists."""
    rows = _rows(step)
    groups = [[row for row in rows if row["id"] == f"p{p}"] for p in range(4)]
    return [
        {
            **{name: own[0][name] for name in ("id", "q", "g", "step")},
            "runs": [{"a": one["a"], "ok": one["ok"]} for one in own],
            "texts": [one["a"] for one in own],
            "oks": [one["ok"] for one in own],
            "n": len(own),
            "c": sum(one["ok"] for one in own),
        }
        for own in groups
    ]


def _lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _zstd(text: bytes) -> bytes:
    return bytes(pa.compress(text, codec="zstd", asbytes=True))


def _parquet(rows: list[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def _document(rows: list[Row], **more: Any) -> bytes:
    return json.dumps({"model": "m", "results": rows, **more}, indent=1).encode()


def _table(rows: list[Row]) -> bytes:
    return json.dumps({"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}).encode()


def _chat(row: Row) -> Row:
    turns = [{"role": "user", "content": row["q"]}, {"role": "assistant", "content": row["a"]}]
    return {"messages": turns, "ok": row["ok"]}


def _nulls(step: int) -> list[Row]:
    return [row | {"a": None} if number % 2 == 0 else row for number, row in enumerate(_rows(step))]


#: The end of the file's name, its content at a step, --map, and whether the import is complete.
LAYOUTS: dict[str, tuple[str, Callable[[int], bytes], str, bool]] = {
    "lines": (".jsonl", lambda step: _lines(_rows(step)), FLAT, True),
    "gzip": (".jsonl.gz", lambda step: gzip.compress(_lines(_rows(step))), FLAT, True),
    "zstd": (".jsonl.zst", lambda step: _zstd(_lines(_rows(step))), FLAT, True),
    "xz": (".json.xz", lambda step: lzma.compress(json.dumps(_rows(step)).encode()), FLAT, True),
    "bzip2": (".json.bz2", lambda step: bz2.compress(_document(_rows(step))), FLAT, True),
    "array": (".json", lambda step: json.dumps(_rows(step)).encode(), FLAT, True),
    "pretty array": (".json", lambda step: json.dumps(_rows(step), indent=2).encode(), FLAT, True),
    "object": (".json", lambda step: _document(_rows(step)), FLAT, True),
    "path into an object": (
        ".json", lambda step: _document(_rows(step)), "prompt=results.q,response=results.a,reward=results.ok", True,
    ),
    "table": (".table.json", lambda step: _table(_rows(step)), f"{FLAT},step=step", True),
    "lists of objects": (
        ".jsonl", lambda step: _lines(_grouped(step)), "prompt=q,response=runs[].a,reward=runs[].ok", True,
    ),
    "parallel lists": (".jsonl", lambda step: _lines(_grouped(step)), "prompt=q,response=texts,reward=oks", True),
    "parallel lists of Parquet": (
        ".parquet", lambda step: _parquet(_grouped(step)), "prompt=q,response=texts,reward=oks", True,
    ),
    "by index": (".jsonl", lambda step: _lines(_grouped(step)), "prompt=q,response=texts[1],reward=oks[1]", True),
    "counts": (".jsonl", lambda step: _lines(_grouped(step)), "problem=id,n=n,correct=c", True),
    "chats": (
        ".jsonl", lambda step: _lines(list(map(_chat, _rows(step)))),
        "prompt=messages,response=messages,reward=ok", True,
    ),
    "null responses": (".jsonl", lambda step: _lines(_nulls(step)), FLAT, True),
    "unequal lists": (
        ".jsonl", lambda step: _lines([row | {"oks": [True]} for row in _grouped(step)[:1]] + _grouped(step)[1:]),
        "prompt=q,response=texts,reward=oks", False,
    ),
    "several golds": (
        ".jsonl", lambda step: _lines([row | {"g": [row["g"], "none"]} for row in _rows(step)]),
        "prompt=q,response=a,gold=g", True,
    ),
    "counts that cannot be": (
        ".jsonl", lambda step: _lines([row | {"c": 3} for row in _grouped(step)]), "problem=id,n=n,correct=c", False,
    ),
    "cut compressed": (".jsonl.gz", lambda step: gzip.compress(_lines(_rows(step)))[:-20], FLAT, False),
    "bare lists": (".jsonl", lambda step: b'["a", 1]\n["b", 0]\n', FLAT, False),
    "a pointer": (".jsonl", lambda step: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", FLAT, False),
}  # fmt: skip


def ended(run: Callable[[], int]) -> int | str:
    """The exit code of a command, or the error that it ends with."""
    try:
        return run()
    except OversharpError as error:
        return str(error)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dry_run_ends_as_the_import_does(tmp_path: Path, layout: str) -> None:
    suffix, content, fields, complete = LAYOUTS[layout]
    for step in (0, 20):
        (tmp_path / "dump").mkdir(exist_ok=True)
        (tmp_path / "dump" / f"eval_step{step}{suffix}").write_bytes(content(step))
    (tmp_path / "dump" / "config.json").write_text('{\n "temperature": 1.0\n}\n')
    names = dict(pair.split("=") for pair in fields.split(","))
    config = ImportConfig(store=tmp_path / "audit.duckdb", map=names)
    dry = ended(lambda: show_import_preview(plan_import([tmp_path / "dump"], config), config, True))
    assert not config.store.exists()
    done = ended(lambda: show_import(import_samples([tmp_path / "dump"], config), True))
    assert dry == done
    assert (dry == 0) == complete
