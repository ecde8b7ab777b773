"""Joined blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from oversharp.diagnostics.ingest import joining
from oversharp.diagnostics.ingest.formats.contract import Fault, RecordedRows
from oversharp.diagnostics.ingest.joining import join_rows
from oversharp.diagnostics.records.errors import ImportFileError


def rows(first: int, *texts: str, **others: pa.Array) -> RecordedRows:
    return RecordedRows(first=first, columns={"response": pa.array(texts), **others})


def shown(items: Iterator[object]) -> list[object]:
    return [
        (item.first, item.columns["response"].to_pylist()) if isinstance(item, RecordedRows) else item for item in items
    ]


def test_consecutive_rows_are_joined_up_to_a_fault_a_gap_or_other_columns() -> None:
    fault = Fault(3, "bad")
    items = [rows(1, "a"), rows(2, "b"), fault, rows(4, "c"), rows(6, "d"), rows(7, "e", reward=pa.array([1.0]))]
    assert shown(join_rows(items)) == [(1, ["a", "b"]), fault, (4, ["c"]), (6, ["d"]), (7, ["e"])]


def test_a_large_block_is_not_enlarged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "ROWS_PER_BLOCK", 2)
    items = [rows(number, str(number)) for number in range(1, 6)]
    assert shown(join_rows(items)) == [(1, ["1", "2"]), (3, ["3", "4"]), (5, ["5"])]


def test_rows_before_an_unreadable_part_are_kept() -> None:
    def items() -> Iterator[RecordedRows]:
        yield rows(1, "a")
        yield rows(2, "b")
        raise ImportFileError("truncated")

    joined = join_rows(items())
    assert shown(iter([next(joined)])) == [(1, ["a", "b"])]
    with pytest.raises(ImportFileError, match="truncated"):
        next(joined)
