"""Read files given by users: regular files up to a size limit, no devices, pipes or sockets."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

#: Size limit of configuration and source files, in bytes.
MOST_BYTES = 1 << 24
#: Paths of files that this process has open, such as the shell's ``<(command)``.
_OPEN_FILES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
_KINDS = {
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


def require_regular(path: Path, *, or_open_pipe: bool = False) -> None:
    """Raise ``OSError`` for a device, pipe or socket, because reading it may never end.

    A missing file raises nothing. ``or_open_pipe`` accepts a pipe that the shell opened for this process.
    """
    if not path.exists():
        return
    mode = path.stat().st_mode
    kind = next((name for is_kind, name in _KINDS.items() if is_kind(mode)), None)
    if kind is None or (or_open_pipe and stat.S_ISFIFO(mode) and str(path).startswith(_OPEN_FILES)):
        return
    raise OSError(errno.EINVAL, f"is {kind}, not a regular file", str(path))


def read_small(path: Path) -> bytes:
    """Return the content of a regular file of at most ``MOST_BYTES``.

    Raises ``OSError`` for any other file.
    """
    require_regular(path)
    with path.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {MOST_BYTES >> 20} MiB", str(path))
        return stream.read(MOST_BYTES)
