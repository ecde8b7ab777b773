"""Servers that a command starts: start, wait until they answer, stop."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from oversharp.diagnostics.http.transport import Transport
from oversharp.diagnostics.records.errors import ConfigError, EndpointError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.endpoint import keeper
from oversharp.diagnostics.samplers.endpoint.places import ServedPlace

#: Largest time from the start of a command to the first answer of its server.
START_S = 3600.0
_POLL_S = 1.0
#: Time between two lines about a server that does not answer yet.
_REMIND_S = 120.0
_STOP_S = keeper.GRACE_S + 10.0
#: Number of characters of the log's last line in an error.
_LOG_TAIL = 300


class CommandServer:
    """A server that a command started for one checkpoint. Its output is in ``log``."""

    def __init__(self, place: ServedPlace, checkpoint: Checkpoint, log_folder: Path) -> None:
        """Start the command.

        Raises ``ConfigError`` if it is not a command line, ``EndpointError`` if another server uses the URL.
        """
        port = _free_port()
        self.url = place.url or f"http://127.0.0.1:{port}"
        self._label = checkpoint.label
        _require_unused(self.url)
        path = checkpoint.path.resolve()
        fields = {"path": shlex.quote(str(path)), "port": port, "step": checkpoint.step, "label": checkpoint.label}
        text = (place.serve or "").format(**fields)
        try:
            self._command = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"--serve {text!r}: {error}; check its quotes") from None
        log_folder.mkdir(parents=True, exist_ok=True)
        self.log = log_folder / f"{checkpoint.label.replace('/', '-')}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, keeper.__file__, str(os.getpid()), *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self, transport: Transport, note: Callable[[str], None]) -> None:
        """Wait until the server lists its models. Raises ``EndpointError`` if the command ends before, or hangs."""
        note(f"{self._label}: `{shlex.join(self._command)}` starts; its output is in {self.log}")
        began_s = time.monotonic()
        remind_s = began_s + _REMIND_S
        while (now_s := time.monotonic()) < began_s + START_S:
            if self._process.poll() is not None:
                raise EndpointError(
                    f"{self._label}: `{shlex.join(self._command)}` ended with exit code {self._process.returncode} "
                    f"before it answered ({self._last_line()}); see {self.log}"
                )
            try:
                status, _ = transport.run(transport.get("/v1/models", timeout_s=10.0))
                fault = f"status {status}"
            except EndpointError:
                status, fault = 0, "no answer"
            if status == 200:
                note(f"{self._label}: the server answers after {time.monotonic() - began_s:.0f} s")
                return
            if now_s > remind_s:
                remind_s = now_s + _REMIND_S
                note(
                    f"{self._label}: waits for {self.url}/v1/models for {now_s - began_s:.0f} of at most "
                    f"{START_S:g} s ({fault}; {self.log}: {self._last_line()})"
                )
            time.sleep(_POLL_S)
        self.close()
        raise EndpointError(
            f"{self._label}: no server answers at {self.url} {START_S:g} s after its start; see {self.log}"
        )

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the command and its child processes. Closing twice is allowed."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][-_LOG_TAIL:] if lines else "without output"


def _require_unused(url: str) -> None:
    """Raise ``EndpointError`` if a server answers already. It would be mistaken for the command's."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_POLL_S).close()
    except OSError:
        return
    raise EndpointError(f"{url}: a server answers before --serve starts one; stop it, or remove --serve")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
