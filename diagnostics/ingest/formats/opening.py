"""Open plain files, and text compressed with gzip, zstd, xz or bzip2.

Git LFS pointers and web pages saved instead of a dump raise an error.
"""

from __future__ import annotations

import io
import lzma
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from oversharp.diagnostics.ingest.formats.archive import MOST_MIB
from oversharp.diagnostics.records.errors import START_BYTES, ImportFileError, detect_stand_in, first_line

#: Size limit of an unpacked record or JSON document in a compressed file, in bytes.
MOST_BYTES = MOST_MIB << 20
_BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def without_compression(path: Path) -> Path:
    """Return the path without its compression suffix, if it has one.

    >>> without_compression(Path("40.jsonl.gz")).name, without_compression(Path("40.jsonl")).name
    ('40.jsonl', '40.jsonl')
    """
    return path.with_suffix("") if is_compressed(path) else path


def is_compressed(path: Path) -> bool:
    """Return whether the suffix is that of a supported compression."""
    return path.suffix.lower() in _OPENERS


def open_dump(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed on the fly.

    Raises ``OSError`` if the file cannot be opened. Reading a broken file raises ``ImportFileError``.
    """
    if not is_compressed(path):
        return path.open("rb")
    path.open("rb").close()  # open the file first, so that its errors precede those of decompression
    return cast(BinaryIO, io.BufferedReader(_Unpacked(path), buffer_size=1 << 18))


class _Unpacked(io.RawIOBase):
    """Decompressed stream of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._stream = _OPENERS[path.suffix.lower()](path)
        except _BROKEN as error:
            raise self._error(error) from error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._stream.read(len(buffer))
        except _BROKEN as error:
            raise self._error(error) from error
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()

    def _error(self, error: Exception) -> ImportFileError:
        suffix = self._path.suffix.lower()
        return ImportFileError(f"{self._path}: not a readable {suffix} file ({first_line(error)}); copy it again")


def _gzip(path: Path) -> Any:
    import gzip

    return gzip.open(path, "rb")


def _zstd(path: Path) -> Any:
    import pyarrow

    return pyarrow.input_stream(str(path), compression="zstd")


def _xz(path: Path) -> Any:
    return lzma.open(path, "rb")


def _bzip2(path: Path) -> Any:
    import bz2

    return bz2.open(path, "rb")


_OPENERS: Mapping[str, Callable[[Path], Any]] = {".gz": _gzip, ".zst": _zstd, ".xz": _xz, ".bz2": _bzip2}


def starts_as_json(path: Path, start: re.Pattern[bytes]) -> bool:
    """Return whether a ``.json`` file begins with the pattern ``start``."""
    if path.suffix.lower() != ".json":
        return False
    try:
        with path.open("rb") as content:
            return start.match(content.read(4096)) is not None
    except OSError:
        return False


def read_whole(path: Path) -> bytes:
    """Return all bytes of a file.

    Raises ``ImportFileError`` if a compressed file exceeds ``MOST_MIB``.
    """
    with open_dump(path) as content:
        if not is_compressed(path):
            return content.read()
        text = content.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise too_large(path)
    return text


def too_large(path: Path) -> ImportFileError:
    """Return the error for a compressed file that has a too large record or document."""
    return ImportFileError(
        f"{path}: a record or JSON document in it exceeds {MOST_MIB} MiB unpacked; unpack the file first"
    )


def refuse_stand_in(path: Path) -> None:
    """Raise ``ImportFileError`` for a Git LFS pointer or an HTML page instead of a dump."""
    try:
        with open_dump(path) as content:
            why = detect_stand_in(content.read(START_BYTES))
    except OSError:
        return  # reading the file reports this error
    if why is not None:
        raise ImportFileError(f"{path}: {why}")
