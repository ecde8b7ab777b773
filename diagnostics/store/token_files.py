"""Parquet files of token scores: paths, schema and checksums. Paths of DuckDB's files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

OWN_TOKEN_FILE = re.compile(r"[0-9a-f]{32}\.parquet(\.partial)?")
TOKEN_IDENTITY = ("checkpoint_id", "problem_id", "settings_id", "response_id")
_LISTS = ("token_logps", "token_entropies")
TOKEN_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in TOKEN_IDENTITY), *((name, pa.list_(pa.float32())) for name in _LISTS)]
)

#: The checksum covers this many bytes at the end of a token file. Parquet has page checksums for the rest.
_END_BYTES = 1 << 16


def checksum_of(path: Path) -> str | None:
    """Return a hash of a file's length and last bytes; None if it cannot be read.

    The last bytes contain Parquet's metadata.
    """
    try:
        with path.open("rb") as file:
            n_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, n_bytes - _END_BYTES))
            return hashlib.sha256(n_bytes.to_bytes(8, "little") + file.read()).hexdigest()
    except OSError:
        return None


def tokens_of(paths: Sequence[Path]) -> Dataset:
    """Return the token scores of these files. Page checksums are verified when they are read."""
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions, dataset  # most queries need no tokens

    checked = ParquetFragmentScanOptions(page_checksum_verification=True)
    return dataset(paths, schema=TOKEN_SCHEMA, format=ParquetFileFormat(default_fragment_scan_options=checked))


def holds_tokens(path: Path) -> bool:
    """Return whether a file is an undamaged Parquet file of token scores."""
    from pyarrow import parquet

    try:
        return bool(parquet.read_schema(path).equals(TOKEN_SCHEMA)) and can_be_read(path)
    except (OSError, pa.ArrowInvalid):
        return False


def can_be_read(path: Path) -> bool:
    """Return whether all pages of a Parquet file match their checksums."""
    from pyarrow import parquet

    try:
        for _ in parquet.ParquetFile(path, page_checksum_verification=True).iter_batches():
            pass
    except (OSError, pa.ArrowException):
        return False
    return True


def sql_list(paths: Sequence[Path]) -> str:
    """Return the paths as an SQL list, for statements without bound parameters."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def tokens_beside(store: Path) -> Path:
    """Return the folder of a store's token files."""
    return store.resolve().with_suffix(".tokens")


def files_of(stores: Sequence[Path]) -> list[str]:
    """Return the paths that DuckDB opens for the stores, including the logs of killed processes."""
    return [f"{path.resolve()}{end}" for path in stores for end in ("", ".wal", ".wal.checkpoint", ".wal.recovery")]
