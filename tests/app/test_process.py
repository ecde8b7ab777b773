"""The process of the command leaves nothing undone, though it ends without taking the libraries down."""

from __future__ import annotations

import pytest

from diagnostics.records.errors import ConfigError
from tests.preloaded import RunningServer


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["explain", "parse_failure_rate"], 0, "parse_failure_rate: Responses without an answer"),
        (["explain", "nothing of ours"], ConfigError.exit_code, "error: "),
    ],
)
def test_it_ends_with_the_code_of_the_command_once_all_is_said_and_done(
    arguments: list[str], code: int, said: str, commands: RunningServer
) -> None:
    ended, output = commands.start(arguments, call="tests.app.busy_command:main").communicate()
    lines = output.splitlines()
    assert ended == code, lines
    assert any(line.startswith(said) for line in lines)
    assert lines[-2:] == ["a thread", "a farewell"]
