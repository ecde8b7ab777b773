"""Run the stub server in a thread of this process, or in a separate process that can be killed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tests.samplers.endpoint.stub import Stub

#: Contents of a file for ``--endpoints``: two checkpoints by name, at a URL to be filled in.
SERVERS = """
url = "{url}"
[[checkpoint]]
step = 0
model = "base"
[[checkpoint]]
step = 50
model = "late"
"""


@contextmanager
def stub_server(kind: type[Stub] = Stub, **settings: Any) -> Iterator[tuple[str, Stub]]:
    """Yield URL and state of a server with these settings."""
    stub = kind(settings)
    with serve(stub.app()) as url:
        yield url, stub


@contextmanager
def serve(app: Starlette) -> Iterator[str]:
    """Serve an application in a thread, and yield its URL."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{opened.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


class StubProcess:
    """A stub server that can be killed and started again at the same port."""

    def __init__(self, **settings: Any) -> None:
        self.port, self._settings = free_port(), settings
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        file = Path(__file__).with_name("stub.py")
        self._process = subprocess.Popen([sys.executable, str(file), str(self.port), json.dumps(self._settings)])
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(600):
            try:
                opener.open(f"{self.url}/health", timeout=1)
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the stub does not start")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
