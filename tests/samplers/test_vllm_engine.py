"""Errors of an engine that ended; ``Ended`` replaces its process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from oversharp.diagnostics.samplers import vllm_engine
from oversharp.diagnostics.samplers.vllm_engine import EngineLostError, EngineProcess
from oversharp.diagnostics.samplers.vllm_messages import Answer, EngineCall, Failed, Reply

DUMP = (
    "ERROR 11-22 19:43:01 [dump_input.py:79] Dumping scheduler output for model execution: SchedulerOutput("
    + "NewRequestData(req_id=28_0,error=None,sampling_params=SamplingParams(n=1)), " * 200
    + ")\n"
)
RAISED = "MemoryError: out of memory with 32 rows"
LOGGED = f"(EngineCore pid=7) ERROR 11-22 19:43:01 [core.py:708] {RAISED}\n"


class Ended:
    """Replaces ``subprocess.Popen`` by a process that wrote a log and replies, and ended."""

    def __init__(self, log: str, replies: Sequence[Reply], returncode: int) -> None:
        self.pid, self._log, self._replies, self.returncode = 2**22 + 1, log, replies, returncode  # no real id

    def __call__(self, _: Sequence[str], *, pass_fds: Sequence[int], stdout: Any, **__: Any) -> Ended:
        stdout.write(self._log.encode())
        with Connection(os.dup(pass_fds[0])) as connection:
            for reply in self._replies:
                connection.send(reply)
        return self

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


def error_message(
    log: str, replies: Sequence[Reply], monkeypatch: pytest.MonkeyPatch, *, returncode: int = 0, at_send: bool = False
) -> EngineLostError:
    replaced = SimpleNamespace(**vars(vllm_engine.subprocess) | {"Popen": Ended(log, replies, returncode)})
    monkeypatch.setattr(vllm_engine, "subprocess", replaced)
    process = EngineProcess({})
    try:
        with pytest.raises(EngineLostError) as lost:  # noqa: PT012  # raised by send or receive
            if at_send:
                process.send(EngineCall(method="reset_prefix_cache"))
            while process.receive() is not None:
                pass
    finally:
        process.close()
    return lost.value


@pytest.mark.parametrize("at_send", [False, True])
def test_the_engines_exception_is_the_reason_in_send_and_receive(
    monkeypatch: pytest.MonkeyPatch, *, at_send: bool
) -> None:
    lost = error_message(DUMP, [Answer(value=None), Failed(error=RAISED)], monkeypatch, at_send=at_send)
    assert (str(lost), lost.short_of_memory) == (RAISED, True)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"{LOGGED}{DUMP}", RAISED),
        (f"Traceback (most recent call last):\n  File x\n{RAISED}\nsecond line of its message\n", RAISED),
        (f"{DUMP}engine is going down\n\n", "engine is going down"),
        (DUMP, DUMP[:200]),
        ("", "exit code 0"),
    ],
    ids=["logger", "traceback", "no exception", "only a long line", "empty"],
)
def test_without_a_reply_the_reason_is_read_from_the_log(
    log: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = error_message(log, [], monkeypatch)
    assert (str(lost), lost.short_of_memory) == (reason, "memory" in reason)


def test_a_signal_is_the_reason_regardless_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = error_message(LOGGED, [], monkeypatch, returncode=-9)
    assert (str(lost), lost.short_of_memory) == ("killed by SIGKILL", True)
