"""Join consecutive rows of a file into larger blocks, since each block has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded, RecordedRows
from oversharp.diagnostics.records.errors import ImportFileError

#: Size from which a block is not enlarged: rows, and bytes of their columns.
ROWS_PER_BLOCK, BYTES_PER_BLOCK = 8192, 1 << 20


def join_rows(
    items: Iterable[Recorded | Fault | RecordedRows],
) -> Iterator[Recorded | Fault | RecordedRows]:
    """Yield the same samples and faults in the same order, with small blocks of rows joined.

    Blocks with different columns are not joined. If ``items`` raises ``ImportFileError``, the rows before it are
    yielded first.
    """
    waiting: list[RecordedRows] = []
    n_rows = n_bytes = 0
    try:
        for item in items:
            if not isinstance(item, RecordedRows):
                yield from _join(waiting)
                waiting, n_rows, n_bytes = [], 0, 0
                yield item
                continue
            if waiting and not _continues(waiting[-1], item):
                yield from _join(waiting)
                waiting, n_rows, n_bytes = [], 0, 0
            waiting.append(item)
            n_rows += len(item)
            n_bytes += sum(column.nbytes for column in item.columns.values())
            if n_rows >= ROWS_PER_BLOCK or n_bytes >= BYTES_PER_BLOCK:
                yield from _join(waiting)
                waiting, n_rows, n_bytes = [], 0, 0
    except ImportFileError:
        yield from _join(waiting)
        raise
    yield from _join(waiting)


def _continues(before: RecordedRows, item: RecordedRows) -> bool:
    return before.first + len(before) == item.first and before.columns.keys() == item.columns.keys()


def _join(blocks: list[RecordedRows]) -> Iterator[RecordedRows]:
    if len(blocks) == 1:
        yield blocks[0]
    elif blocks:
        columns = {name: pa.concat_arrays([block.columns[name] for block in blocks]) for name in blocks[0].columns}
        yield RecordedRows(first=blocks[0].first, columns=columns)
