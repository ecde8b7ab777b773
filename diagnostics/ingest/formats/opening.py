"""Opens the files of other tools: plain ones, and text that gzip, zstd, xz or bzip2 compressed.

What is not the file itself but stands in its place is named: a Git LFS pointer, a web page that was saved as a dump.
"""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from oversharp.diagnostics.ingest.formats.archive import MOST_MIB
from oversharp.diagnostics.records.errors import START_BYTES, ImportFileError, first_line, why_stand_in

#: What one record, or one JSON document, of a compressed file may unpack to, in bytes.
MOST_BYTES = MOST_MIB << 20
_BROKEN = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)


def unpacked(path: Path) -> Path:
    """The path without the suffix of its compression; a path without one as it is.

    >>> unpacked(Path("40.jsonl.gz")).name, unpacked(Path("40.jsonl")).name
    ('40.jsonl', '40.jsonl')
    """
    return path.with_suffix("") if is_packed(path) else path


def is_packed(path: Path) -> bool:
    """Whether the suffix is one of a compressed file that is read."""
    return path.suffix.lower() in _OPENERS


def open_dump(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked as it is read; a broken one raises ``ImportFileError`` where it breaks.

    Raises ``OSError`` where it cannot be opened.
    """
    if not is_packed(path):
        return path.open("rb")
    path.open("rb").close()  # an error of the file itself, not of its compression
    return cast(BinaryIO, io.BufferedReader(_Unpacked(path), buffer_size=1 << 18))


class _Unpacked(io.RawIOBase):
    """The text of a compressed file."""

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


def whole_content(path: Path) -> bytes:
    """All bytes of a file. Raises ``ImportFileError`` where a compressed one unpacks to more than ``MOST_MIB``."""
    with open_dump(path) as content:
        if not is_packed(path):
            return content.read()
        text = content.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise too_large(path)
    return text


def too_large(path: Path) -> ImportFileError:
    """A compressed file of which one record, or the one document in it, is too large."""
    return ImportFileError(f"{path}: one record or JSON document in it unpacks to more than {MOST_MIB} MiB; unpack it")


def refuse_stand_in(path: Path) -> None:
    """Raise ``ImportFileError`` for a Git LFS pointer or an HTML page in the place of the file, with the fix."""
    try:
        with open_dump(path) as content:
            why = why_stand_in(content.read(START_BYTES))
    except OSError:
        return  # whoever reads it says what is wrong
    if why is not None:
        raise ImportFileError(f"{path}: {why}")
