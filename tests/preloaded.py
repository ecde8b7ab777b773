"""Processes without the seconds that their imports take: one process imports and forks each of them.

A forked process is like any other: it has a session of its own, can be killed, and ends as Python ends. The server is
``python -m tests.preloaded LISTENER PARENT MODULE …``; it takes one request a connection and ends with its parent.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = "oversharp.diagnostics.app.process:main"
OF_COMMANDS = (
    "oversharp.diagnostics.app.cli",
    "oversharp.diagnostics.audit.audit",
    "oversharp.diagnostics.kernel",
    "oversharp.diagnostics.measures:all_measures",
    "oversharp.diagnostics.samplers.transformers",
    "oversharp.diagnostics.verifiers.math",
    "peft",
    "oversharp.reports.page",
    "oversharp.reports.render",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
)
OF_ENGINES = (
    "oversharp.diagnostics.samplers.vllm_process:_import_vllm",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.engine.llm_engine",
    "vllm.model_executor.models.qwen3",
    "vllm.distributed.elastic_ep.elastic_execute",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.core.sched.scheduler",
    "oversharp.diagnostics.samplers.vllm_worker",
    "tests.preloaded:prepare_vllm",
)
LEFT_S = 10.0
"""What a forked process started must have ended so long after it."""
ENGINES = "OVERSHARP_TESTS_ENGINES"
"""Environment variable: the socket where engines are forked."""


class Forked:
    """A forked process, as ``subprocess.Popen`` shows one."""

    def __init__(
        self,
        socket_path: str,
        call: str,
        arguments: Sequence[str],
        *,
        stdout: int,
        stderr: int,
        environment: Mapping[str, str] | None = None,
        more_files: Sequence[int] = (),
    ) -> None:
        """Call ``call`` (``module:function``) with ``sys.argv`` of these arguments; after them come the file
        descriptors ``more_files``, if any, and the id of the parent.
        """
        self._socket_path = socket_path
        request = {"call": call, "arguments": list(arguments), "environment": dict(environment or os.environ)}
        self.pid: int = _ask(socket_path, request, (stdout, stderr, *more_files))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = _ask(self._socket_path, {"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises ``subprocess.TimeoutExpired``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("forked", timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, sent: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sent)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class Command(Forked):
    """A forked ``oversharp`` command; both its streams are one."""

    def __init__(
        self, socket_path: str, arguments: Sequence[str], *, call: str, environment: Mapping[str, str]
    ) -> None:
        self._output, written = os.pipe()
        environment = {**os.environ, **environment}
        super().__init__(socket_path, call, arguments, stdout=written, stderr=written, environment=environment)
        os.close(written)

    def communicate(self) -> tuple[int, str]:
        """Wait for its end and that of all that hold its output: exit code and what was said."""
        with open(self._output, encoding="utf-8") as output:
            said = output.read()
        return self.wait(), said


class RunningServer:
    """The process that forks, which somebody else started."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path

    def start(
        self, arguments: Sequence[str], *, call: str = COMMAND, environment: Mapping[str, str] | None = None
    ) -> Command:
        """Begin a command."""
        return Command(self.socket_path, arguments, call=call, environment=environment or {})


class ForkServer(RunningServer):
    """The process that forks. It imports at the first request. Close it in the end."""

    def __init__(self, preloaded: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp())
        super().__init__(str(self._folder / "socket"))
        # pyarrow's allocator would start a thread, which would not live on in a fork
        more = {"PYTHONPATH": str(ROOT), "JE_ARROW_MALLOC_CONF": "background_thread:false"}
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.socket_path)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", str(listener.fileno()), str(os.getpid()), *preloaded],
                cwd=ROOT,
                env={**(environment or os.environ), **more},
                pass_fds=[listener.fileno()],
            )

    def close(self) -> None:
        """End it, and with it what has not ended."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)


class ForkedEngine(Forked):
    """Takes the place of ``subprocess.Popen`` where an engine of vLLM is started."""

    started: list[ForkedEngine] = []  # noqa: RUF012  # of this process, in order

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], stdout: Any, env: Any, **_: Any) -> None:
        assert command[1:4] == ["-P", "-m", "oversharp.diagnostics.samplers.vllm_process"]
        log, call = stdout.fileno(), "oversharp.diagnostics.samplers.vllm_process:main"
        super().__init__(
            os.environ[ENGINES], call, [], stdout=log, stderr=log, environment=env, more_files=tuple(pass_fds)
        )
        self.started.append(self)


class ForkedAudit(Forked):
    """Takes the place of ``subprocess.Popen`` where an audit beside a training is started."""

    def __init__(self, socket_path: str, command: Sequence[str], *, stdout: Any, env: Any, **_: Any) -> None:
        assert command[1:4] == ["-P", "-m", "oversharp.trainers.integrations.live_process"]
        _training, *arguments = command[4:]
        log, call = stdout.fileno(), "tests.preloaded:audit_beside_training"
        super().__init__(socket_path, call, arguments, stdout=log, stderr=log, environment=env)


def audit_beside_training() -> None:
    """The process of such an audit: it ends with the server that forked it, and draws no report: none is read."""
    from oversharp.diagnostics.app import report
    from oversharp.trainers.integrations import live_process

    report.write_report = lambda store_path, report_path: None

    sys.argv.insert(1, str(os.getppid()))
    live_process.main()


def require_end_of(session: int) -> None:
    """Nothing that a forked process started is left so long after it; raises ``AssertionError`` naming what is."""
    deadline = time.monotonic() + LEFT_S
    while left := _processes_of(session):
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)


def _processes_of(session: int) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == session and "\nState:\tZ" not in (folder / "status").read_text():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended meanwhile
            continue
    return found


def prepare_vllm() -> None:
    """What every engine would begin with: set up the loggers, and look through all modules for kernels to replace."""
    from vllm.config.logging import LoggingConfig
    from vllm.logger import configure_logging_if_needed
    from vllm.platforms import current_platform

    configure_logging_if_needed(LoggingConfig())
    current_platform.register_triton_kernel_overrides()
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda cls: None)


def fork_engines() -> Callable[[], None]:
    """From now on this process has its engines forked where ``ENGINES`` says; returns what ends that."""
    from oversharp.diagnostics.samplers import vllm_engine

    plain = vllm_engine.subprocess
    forking = SimpleNamespace(**vars(plain) | {"Popen": ForkedEngine})
    vllm_engine.subprocess = forking  # type: ignore[attr-defined]
    return functools.partial(setattr, vllm_engine, "subprocess", plain)


def command_with_forked_engines() -> None:
    """An ``oversharp`` command whose engines are forked where ``ENGINES`` says."""
    from oversharp.diagnostics.app.process import main

    fork_engines()
    main()


def _ask(socket_path: str, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(socket_path)
        content = json.dumps(request).encode()
        socket.send_fds(connection, [len(content).to_bytes(4, "big")], files)
        connection.sendall(content)
        with connection.makefile() as answer:
            return json.loads(answer.read())


def _serve(listener: socket.socket, parent: int) -> Callable[[], None]:
    """Fork at every request; returns in the forked process alone, with what it has to do."""
    codes: dict[int, int | None] = {}
    listener.settimeout(1.0)
    while os.getppid() == parent:
        with suppress(TimeoutError), listener.accept()[0] as connection:
            connection.settimeout(None)
            size, files, *_ = socket.recv_fds(connection, 4, 16)
            with connection.makefile() as content:
                request = json.loads(content.read(int.from_bytes(size, "big")))
            if process_id := request.get("poll"):
                if codes.get(process_id) is None:
                    ended, status = os.waitpid(process_id, os.WNOHANG)
                    codes[process_id] = os.waitstatus_to_exitcode(status) if ended else None
                answer = codes[process_id]
            else:
                assert len(os.listdir("/proc/self/task")) == 1, "threads do not live on in a fork"
                ready, told = os.pipe()
                answer = os.fork()
                if not answer:
                    listener.close()
                    os.setsid()
                    os.close(ready)
                    os.close(told)
                    return functools.partial(_become, files, **request)
                for file in (*files, told):
                    os.close(file)
                os.read(ready, 1)  # ends when the child has a session of its own: whoever is told may kill that
                os.close(ready)
            connection.sendall(json.dumps(answer).encode())
    sys.exit()


def _wait_for_a_request(listener: socket.socket, parent: int) -> None:
    while not select.select([listener], [], [], 1.0)[0]:
        if os.getppid() != parent:
            sys.exit()


def _become(files: list[int], call: str, arguments: list[str], environment: dict[str, str]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background would ignore it
    nothing = os.open(os.devnull, os.O_RDONLY)
    output, errors, *more = files
    for new, standard in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(new, standard)
        os.close(new)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["oversharp", *arguments, *map(str, [*more, os.getppid()] if more else ())]
    _named(call)()


def _named(call: str) -> Callable[[], Any]:
    module, _, name = call.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else lambda: None


if __name__ == "__main__":
    requests, asking = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    _wait_for_a_request(requests, asking)
    gc.disable()
    for preloaded in sys.argv[3:]:
        _named(preloaded)()
    gc.freeze()  # no collector of a forked process looks through it, and so copies it
    gc.enable()
    _serve(requests, asking)()
