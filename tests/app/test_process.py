"""The process of the command leaves nothing undone, though it ends without taking the libraries down."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from diagnostics.app.process import FAULT_EXIT_CODE
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


def test_what_nobody_foresaw_is_one_line_and_a_file_with_the_traceback(commands: RunningServer) -> None:
    code, output = commands.start(["audit", "runs"], call="tests.app.busy_command:faulty").communicate()
    (line,) = output.splitlines()
    assert code == FAULT_EXIT_CODE
    assert line.startswith("error: TypeError: no such thing; nobody foresaw this")
    report = Path(re.search(r"with (\S+\.txt)", line)[1])
    try:
        text = report.read_text()
    finally:
        report.unlink()
    assert "audit runs" in text
    assert "Traceback" in text
    assert "oversharp 0" in text


@pytest.mark.parametrize("moment", ["stopped", "stopped_while_it_begins", "stopped_in_a_library"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_that_end_it_say_that_what_was_committed_is_kept(
    number: signal.Signals, moment: str, commands: RunningServer
) -> None:
    code, output = commands.start([str(int(number))], call=f"tests.app.busy_command:{moment}").communicate()
    assert code == 128 + number
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("stopped: what was committed is kept")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_when_all_is_said_changes_nothing(number: signal.Signals, commands: RunningServer) -> None:
    asked = [str(int(number)), "explain", "parse_failure_rate"]
    code, output = commands.start(asked, call="tests.app.busy_command:stopped_when_all_is_said").communicate()
    assert code == 0
    assert output.startswith("parse_failure_rate: Responses without an answer")
    assert "Traceback" not in output
    assert "stopped" not in output
