"""The process of the command finishes its work, though it skips the cleanup of libraries."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oversharp.diagnostics.app.process import FAULT_EXIT_CODE
from oversharp.diagnostics.records.errors import ConfigError
from tests.preloaded import ForkServer, RunningServer

#: Imports of these commands: a second, where those of ``OF_COMMANDS`` take ten.
IMPORTS = ("tests.app.busy_command", "oversharp.diagnostics.measures:all_measures")

pytestmark = pytest.mark.xdist_group("process")  # they share these imports


@pytest.fixture(scope="module")
def commands() -> Iterator[RunningServer]:
    """Fork server of the commands of ``busy_command``."""
    server = ForkServer(IMPORTS)
    yield server
    server.close()


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
    assert line.startswith("error: TypeError: no such thing; unexpected error")
    report = Path(re.search(r"with (\S+\.txt)", line)[1])
    try:
        text = report.read_text()
    finally:
        report.unlink()
    assert "audit runs" in text
    assert "Traceback" in text
    assert "oversharp 0" in text


def test_an_exit_in_code_of_a_user_is_no_success(commands: RunningServer) -> None:
    code, output = commands.start(
        ["audit", "runs"], call="tests.app.busy_command:ended_by_code_of_a_user"
    ).communicate()
    assert code == FAULT_EXIT_CODE
    assert output.splitlines() == [
        "error: a library or your code called exit() (SystemExit(0)); the command did not finish; remove exit() "
        "from your code, or report this error"
    ]


#: A command that prints on both streams what latin-1 lacks.
PRINTS = (
    "import sys; sys.argv = ['oversharp', 'explain', 'frontier']; from oversharp.diagnostics.app import process, cli; "
)
SPEAKS = PRINTS + "cli.main = lambda: print('≥ …') or print('≤', file=sys.stderr); process.main()"


@pytest.mark.slow
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_command_without_standard_streams_prints_into_none_of_its_files(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    writes = f"cli.main = lambda: print('x') or open({str(tmp_path / 'file')!r}, 'w').write('y'); process.main()"
    command = " ".join([shlex.quote(sys.executable), "-c", shlex.quote(PRINTS + writes), *(f"{n}>&-" for n in closed)])
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == ("" if 1 in closed else "x\n")
    assert (tmp_path / "file").read_text() == "y"


@pytest.mark.slow
def test_characters_that_the_output_lacks_are_written_as_escapes() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    ended = subprocess.run([sys.executable, "-c", SPEAKS], capture_output=True, env=environment, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"\\u2265 \\u2026\n", b"\\u2264\n")


@pytest.mark.slow
def test_a_deleted_directory_is_told_in_one_line(tmp_path: Path) -> None:
    program = f"import os; os.chdir({str(tmp_path / 'gone')!r}); os.rmdir({str(tmp_path / 'gone')!r}); {SPEAKS}"
    (tmp_path / "gone").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert (ended.returncode, ended.stderr) == (
        2,
        "error: the current directory was deleted; change to another with cd\n",
    )


@pytest.mark.parametrize("moment", ["stopped", "stopped_while_it_begins", "stopped_in_a_library"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_that_end_it_say_that_what_was_committed_is_kept(
    number: signal.Signals, moment: str, commands: RunningServer
) -> None:
    code, output = commands.start([str(int(number))], call=f"tests.app.busy_command:{moment}").communicate()
    assert code == 128 + number
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("stopped: committed results are kept")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_when_all_is_said_changes_nothing(number: signal.Signals, commands: RunningServer) -> None:
    asked = [str(int(number)), "explain", "parse_failure_rate"]
    code, output = commands.start(asked, call="tests.app.busy_command:stopped_when_all_is_said").communicate()
    assert code == 0
    assert output.startswith("parse_failure_rate: Responses without an answer")
    assert "Traceback" not in output
    assert "stopped" not in output
