"""Read members of ZIP archives.

This includes members compressed with zstd, which ``zipfile`` supports only from Python 3.14.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from oversharp.diagnostics.records.errors import ImportFileError, first_line

#: From the ZIP specification: the number of the compression method zstd, and the header before a member's name.
_ZSTD, _LOCAL_HEADER = 93, struct.Struct("<26xHH")
#: Size limit of an unpacked member. Deflate can compress a thousand to one, so a small archive could exceed the memory.
MOST_MIB = 512
_BROKEN = (
    *(OSError, EOFError, LookupError, RuntimeError, ValueError),
    *(zipfile.BadZipFile, zlib.error, struct.error, pa.ArrowException),
)


class MemberTooLargeError(ImportFileError):
    """A member above the size limit."""


class Archive:
    """A ZIP archive open for reading.

    Methods raise ``ImportFileError`` for a missing or broken archive or member.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error
        try:
            self._members = zipfile.ZipFile(self._file)
        except _BROKEN as error:
            self._file.close()
            raise self._error(error) from error
        self.names = tuple(self._members.namelist())

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._members.close()
        self._file.close()

    def content(self, name: str) -> bytes:
        """Return the content of a member. Raises ``MemberTooLargeError`` above ``MOST_MIB``."""
        try:
            member = self._members.getinfo(name)
            if member.file_size > MOST_MIB << 20:
                raise self._too_large(name)
            return self._unpack_zstd(member) if member.compress_type == _ZSTD else self._members.read(member)
        except _BROKEN as error:
            raise self._error(error) from error

    def _unpack_zstd(self, member: zipfile.ZipInfo) -> bytes:
        self._file.seek(member.header_offset)
        n_name, n_extra = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        self._file.seek(n_name + n_extra, 1)
        packed = self._file.read(member.compress_size)
        with pa.input_stream(pa.BufferReader(packed), compression="zstd") as stream:
            content: bytes = stream.read(member.file_size + 1)  # one more byte than declared, to detect a wrong size
        if zlib.crc32(content) != member.CRC:
            raise zipfile.BadZipFile(f"bad CRC-32 of {member.filename}")
        return content

    def _too_large(self, name: str) -> ImportFileError:
        return MemberTooLargeError(f"{self._path}: {name} unpacks to more than {MOST_MIB} MiB and is not read")

    def _error(self, error: Exception) -> ImportFileError:
        return ImportFileError(f"{self._path}: not a readable archive ({first_line(error)}); copy it again")
