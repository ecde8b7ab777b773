"""Devices, pipes and sockets are refused before they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oversharp.diagnostics.records.files import MOST_BYTES, read_small, require_regular


def test_devices_and_pipes_are_refused_by_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(OSError, match=f"is {kind}, not a regular file"):
            read_small(path)
    require_regular(tmp_path / "missing")


def test_a_pipe_that_the_shell_opened_may_be_read_once() -> None:
    reading, writing = os.pipe()
    try:
        path = Path(f"/dev/fd/{reading}")
        require_regular(path, or_open_pipe=True)
        with pytest.raises(OSError, match="is a pipe"):
            require_regular(path)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(OSError, match="larger than 16 MiB"):
        read_small(tmp_path / "large")
    (tmp_path / "small").write_bytes(b"a = 1")
    assert read_small(tmp_path / "small") == b"a = 1"
