"""The help: every command in one group, at most ten flags first, all flags with --help-all."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oversharp.diagnostics.app.cli import app, main
from oversharp.diagnostics.app.help import COMMAND_GROUPS, FIRST_FLAGS, MOST_FLAGS

Run = Callable[..., str]


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process, which must succeed, and return what it prints."""
    monkeypatch.setenv("COLUMNS", "80")

    def invoke(*arguments: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        return capsys.readouterr().out

    return invoke


def flags_of(command: str) -> set[str]:
    """The first long name of each flag that the command parses."""
    arguments = app[command].assemble_argument_collection()
    return {one.name for one in arguments if one.parse and one.names and one.name.startswith("--")}


def printed_flags(text: str) -> set[str]:
    return set(re.findall(r"^│ (?:\*  | {0,3})(--[a-z][a-z0-9-]*)", text, re.MULTILINE))


def commands() -> set[str]:
    return {name for name in app if not name.startswith("-")} - {"rescore"}


def test_every_command_is_in_one_group_and_the_help_prints_it_once(help_of: Run) -> None:
    listed = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(listed) == sorted(commands())
    text = help_of("--help")
    titles = re.findall(r"^╭─ ([A-Z][a-z ]+) ─", text, re.MULTILINE)
    assert titles == [*COMMAND_GROUPS, "Options"]
    for name in listed:
        assert len(re.findall(rf"^│ {name}( \(rescore\))? +[A-Z]", text, re.MULTILINE)) == 1, name
    assert max(map(len, text.splitlines())) <= 80


def test_commands_with_many_flags_and_no_others_have_a_short_help() -> None:
    many = {name for name in commands() - {"problems"} if len(flags_of(name)) > MOST_FLAGS}
    assert many == FIRST_FLAGS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(FIRST_FLAGS))
def test_the_short_help_prints_ten_flags_and_the_long_one_all(help_of: Run, command: str) -> None:
    short, full = help_of(command, "--help"), help_of(command, "--help-all")
    assert printed_flags(short) == set(FIRST_FLAGS[command])
    assert len(FIRST_FLAGS[command]) == 10
    assert f"oversharp {command} --help-all" in short
    missing = {flag for flag in flags_of(command) if not re.search(rf"{flag}\b", full)}
    assert missing == set()


def test_a_flag_that_the_short_help_leaves_out_still_works(help_of: Run) -> None:
    assert "--seed" not in help_of("audit", "--help")
    _, bound, _ = app.parse_args(["audit", "run", "--task", "countdown", "--seed", "7"], exit_on_error=False)
    assert bound.arguments["config"].seed == 7


def test_until_solved_is_explained_and_adaptive_is_gone(help_of: Run) -> None:
    text = " ".join(help_of("audit", "--help-all").replace("│", " ").split())
    assert "--until-solved" in text
    assert "stop it at a checkpoint after the first round that leaves it with UNTIL_SOLVED correct samples" in text
    assert "Samples per problem in the first round of until_solved. Default: a quarter of n, at most 32;" in text
    assert "--adaptive" not in text
    rule = ["audit", "run", "--task", "countdown", "--until-solved", "4", "--first", "8"]
    _, bound, _ = app.parse_args(rule, exit_on_error=False)
    assert (bound.arguments["config"].until_solved, bound.arguments["config"].used_first) == (4, 8)


def test_help_all_of_a_command_with_few_flags_is_its_help(help_of: Run) -> None:
    assert help_of("ship", "--help-all") == help_of("ship", "--help")
