"""A line decoded to a class gives the same sample as field by field."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct

from oversharp.diagnostics.ingest.formats import mapped, verl
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded, RecordedRows
from oversharp.diagnostics.ingest.formats.rows import NOT_UTF8, records, typed_records
from tests.ingest.formats.test_bad_input import VERL

#: Our names and those of flat lines.
MAP = {
    "prompt": "q", "response": "r", "gold": "a", "reward": "s", "step": "n", "problem": "p", "index": "i",
    "answer": "x", "n_tokens": "t", "finish_reason": "f", "task": "k", "greedy": "g",
}  # fmt: skip
MAPPED = {
    "q": "1+1?", "r": "2", "a": "2", "s": 1, "n": 40, "p": 17, "i": 3, "x": "2", "t": 9, "f": "EOS", "k": "sums",
    "g": 0.0, "gold": "not ours",
}  # fmt: skip
MISSING = object()
VALUES = [
    *("text", "", "1", "1.5", "True", "stop", "half \ud800 pair", "é😀"),
    *(0, 1, -1, 3, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 10**30, -(10**400)),
    *(0.0, -0.0, 1.5, 40.0, 1e308, float("nan"), float("inf")),
    *(True, False, None, MISSING, [], [1.0, 0.0], ["only"], {}, {"a": 1}, [{"role": "user", "content": "2+2?"}]),
]


class Text(Struct):
    text: str
    n: int = 0


@pytest.mark.parametrize("n_bytes", [1, 1 << 18], ids=["a line per block", "one block"])
@pytest.mark.parametrize(
    ("importer", "line", "options"),
    [(verl, VERL | {"data_source": "sums"}, ReadOptions()), (mapped, MAPPED, ReadOptions(fields=MAP))],
    ids=["verl", "mapped"],
)
def test_every_value_of_every_field_reads_alike(
    importer: ModuleType,
    line: dict[str, Any],
    options: ReadOptions,
    n_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.ingest.formats.rows._BLOCK_BYTES", n_bytes)
    dump = tmp_path / "40.jsonl"
    rows = [line | {name: value} for name in line for value in VALUES]
    texts = [json.dumps({name: value for name, value in row.items() if value is not MISSING}) for row in rows]
    dump.write_text("".join(f"{text}\n" for text in (json.dumps(line), *texts)))
    typed = list(importer.read_samples(dump, options))
    assert isinstance(typed[0], Recorded)
    with monkeypatch.context() as patch:
        patch.setattr(importer, "record_blocks", lambda path, kind: records(path))
        assert typed == list(importer.read_samples(dump, options))
    has_rows = any(isinstance(item, RecordedRows) for item in importer.parts(dump, options))
    assert has_rows == (n_bytes == 1)  # a block with a line of other types has no columns
    assert {item.line for item in typed} == set(range(1, len(rows) + 2))
    assert {type(item) for item in typed} == {Recorded, Fault}


def test_lines_that_fit_come_as_the_class_and_others_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(
        b'{"text": "a", "n": 1}\n\n{"text": "b", "n": "1"}\r\n{"text": "c"\n[1]\n{"text": "\xff"}\n{"text": "d"}'
    )
    found = list(typed_records(path, Text))
    assert found[0] == (1, Text("a", 1))
    assert found[1] == (3, {"text": "b", "n": "1"})
    assert [one.line if isinstance(one, Fault) else one for one in found[2:]] == [4, 5, 6, (7, Text("d"))]


@pytest.mark.parametrize("n_bytes", [1, 30, 1000])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
def test_lines_keep_their_numbers_across_blocks(
    n_bytes: int, ending: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.ingest.formats.rows._BLOCK_BYTES", n_bytes)
    path = tmp_path / "some.jsonl"
    lines = [b'{"text": "%d"}' % number if number % 7 else b"not JSON" for number in range(1, 50)]
    path.write_bytes(b"\n".join(lines) + ending)
    assert [one.line if isinstance(one, Fault) else one for one in typed_records(path, Text)] == [
        (number, Text(str(number))) if number % 7 else number for number in range(1, 50)
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "a"}{"text": "b"}\n{"text": "c"}\n',
        '{"text": "c"}\n{"text": "a"}{"text": "b"}\n\n',
        '\n{"text": "c"}\n{"text": "a"} {"text": "b"}\n',
        '{"text": "c"}\n{"text": "a"}{"text":\n"b"}\n',
        '{"text": "c"}\n{"n":\n1, "text": "a"}{"text": "b"}',
        '{"text": "c"}\n{"n": [{}\n, 1], "text": "a"}{"text": "b"}\n',
    ],
)
def test_only_one_record_a_line_is_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    lines = text.split("\n")
    found = list(typed_records(path, Text))
    assert [one for one in found if not isinstance(one, Fault)] == [(lines.index('{"text": "c"}') + 1, Text("c"))]
    bad = {number for number, line in enumerate(lines, start=1) if line not in ("", '{"text": "c"}')}
    assert {one.line for one in found if isinstance(one, Fault)} == bad


def test_bytes_that_are_no_text_count_also_where_nobody_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"text": "a", "note": "caf\xe9"}\n{"text": "b", "note": "caf\xc3\xa9"}\n')
    assert list(typed_records(path, Text)) == [Fault(1, NOT_UTF8), (2, Text("b"))]
