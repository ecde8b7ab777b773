"""The process of the command leaves nothing undone, though it ends without taking the libraries down."""

from __future__ import annotations

import atexit
import threading

import pytest

from diagnostics.app import process
from diagnostics.records.errors import ConfigError
from tests.preloaded import ForkServer


def with_more_to_do() -> None:
    """The command in a process that has something to say at its end, and a thread that outlasts the command."""

    def last() -> None:
        threading.main_thread().join()
        print("a thread")

    atexit.register(print, "a farewell")
    threading.Thread(target=last).start()
    process.main()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["explain", "parse_failure_rate"], 0, "parse_failure_rate: Responses without an answer"),
        (["explain", "nothing of ours"], ConfigError.exit_code, "error: "),
    ],
)
def test_it_ends_with_the_code_of_the_command_once_all_is_said_and_done(
    arguments: list[str], code: int, said: str, commands: ForkServer
) -> None:
    ended = commands.start(arguments, call="tests.app.test_process:with_more_to_do").communicate()
    lines = ended[1].splitlines()
    assert ended[0] == code, lines
    assert lines[0].startswith(said)
    assert lines[-2:] == ["a thread", "a farewell"]
