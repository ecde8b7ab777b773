"""The files of a store; of token scores the Parquet files beside it: columns, and whether one is what was written."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet
from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

OWN_TOKEN_FILE = re.compile(r"[0-9a-f]{32}\.parquet(\.partial)?")
TOKEN_IDENTITY = ("checkpoint_id", "problem_id", "settings_id", "response_id")
_LISTS = ("token_logps", "token_entropies")
TOKEN_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in TOKEN_IDENTITY), *((name, pa.list_(pa.float32())) for name in _LISTS)]
)

CHECKED_PAGES = ParquetFileFormat(
    default_fragment_scan_options=ParquetFragmentScanOptions(page_checksum_verification=True)
)
#: Of a token file, so much of its end goes into its checksum; what lies before has checksums of its own, page by page.
_END_BYTES = 1 << 16


def checksum_of(path: Path) -> str | None:
    """Of a file's length and its end, where Parquet says what it holds and where; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, n_bytes - _END_BYTES))
            return hashlib.sha256(n_bytes.to_bytes(8, "little") + file.read()).hexdigest()
    except OSError:
        return None


def holds_tokens(path: Path) -> bool:
    """Whether it is a Parquet file of token scores, of a store whose checksums nobody has."""
    try:
        return bool(parquet.read_schema(path).equals(TOKEN_SCHEMA)) and can_be_read(path)
    except (OSError, pa.ArrowInvalid):
        return False


def can_be_read(path: Path) -> bool:
    """Whether all of its pages are whole, by their checksums."""
    try:
        for _ in parquet.ParquetFile(path, page_checksum_verification=True).iter_batches():
            pass
    except (OSError, pa.ArrowException):
        return False
    return True


def listed(paths: Sequence[Path]) -> str:
    """The paths as a list in SQL: where a view is made, parameters cannot be bound."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def tokens_beside(store: Path) -> Path:
    """The folder of a store's token files."""
    return store.resolve().with_suffix(".tokens")


def files_of(stores: Sequence[Path]) -> list[str]:
    """The other files of which DuckDB reads stores: their own, and the logs of a process that was killed."""
    return [f"{path.resolve()}{end}" for path in stores for end in ("", ".wal", ".wal.checkpoint", ".wal.recovery")]
