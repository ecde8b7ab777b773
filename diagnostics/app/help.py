"""Help texts of the command line, and errors for wrong arguments and unusable paths."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.help import DefaultFormatter

from oversharp.diagnostics.records.names import synonym

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

HELP_ALL = "--help-all"
#: A command with more flags than this prints only some of them with --help.
MOST_FLAGS = 12
#: Groups of commands, in the order of ``oversharp --help``.
COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Start here": ("demo", "audit", "import"),
        "Look at results": ("report", "view", "lost", "diff", "sql", "explain"),
        "Decide": ("ship", "plan", "confirm", "regrade", "judge", "problems"),
        "Train": ("train-base", "train", "compare", "repair"),
        "Stores and files": ("export", "merge", "drop"),
        "Machine and models": ("doctor", "fetch-model", "convert"),
    }
)
#: Command with many flags → the flags that ``--help`` prints.
FIRST_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "audit": (
            "--problems", "--task", "--base", "--out", "--name", "--n", "--k", "--temperature", "--max-tokens",
            "--device",
        ),
        "import": (
            "--store", "--name", "--format", "--map", "--base", "--steps", "--verifier", "--k", "--until-solved",
            "--dry-run",
        ),
        "train": (
            "--algorithm", "--model", "--task", "--problems", "--output-dir", "--max-steps", "--learning-rate",
            "--seed", "--device", "--list",
        ),
        "train-base": (
            "--model", "--task", "--output-dir", "--max-steps", "--batch-size", "--learning-rate", "--save-every",
            "--seed", "--resume", "--device",
        ),
        "plan": (
            "--top-up", "--drop", "--k", "--power", "--until-solved", "--cost", "--problems", "--n", "--tokens",
            "--gpu",
        ),
        "confirm": (
            "--series", "--most", "--fresh", "--path", "--base", "--out", "--device", "--batch-size", "--json",
            "--quiet",
        ),
    }
)  # fmt: skip
#: Text of the last panel of each help page.
OPTIONS = Group("Options", sort_key=len(COMMAND_GROUPS) + 1)
_PRINTS_ALL: ContextVar[bool] = ContextVar("_PRINTS_ALL", default=False)


class FirstFlags(DefaultFormatter):
    """Help formatter that prints only some flags, or all of them with ``--help-all``."""

    def __init__(self, flags: Sequence[str]) -> None:
        super().__init__()
        self.flags = frozenset(flags)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print the panel with the chosen flags."""
        if not _PRINTS_ALL.get():
            entries = [entry for entry in panel.entries if not entry.names or self.flags & set(entry.names)]
            panel = panel.copy(entries=entries)
        super().__call__(console, options, panel)


@contextmanager
def help_for(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the tokens with ``--help-all`` replaced by ``--help``.

    Inside the block, help has every flag.
    """
    reset = _PRINTS_ALL.set(HELP_ALL in tokens)
    try:
        yield tuple("--help" if token == HELP_ALL else token for token in tokens)
    finally:
        _PRINTS_ALL.reset(reset)


def arrange_help(app: App) -> None:
    """Group the commands of ``app``, and shorten the help of commands with many flags."""
    for flag in (*app.help_flags, *app.version_flags):
        app[flag].group = OPTIONS
    for place, (title, names) in enumerate(COMMAND_GROUPS.items(), start=1):
        group = Group(title, sort_key=place)
        for number, name in enumerate(names):
            app[name].group = group
            app[name].sort_key = number
    for name, flags in FIRST_FLAGS.items():
        app[name].help_formatter = FirstFlags(flags)
        app[name].help_epilogue = f"More flags: `oversharp {name} {HELP_ALL}`"


#: Operating-system errors that concern a path.
_REFUSALS = (
    errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP,
)  # fmt: skip
#: Largest number of characters of a path or value in an error.
_MOST_SHOWN = 120


def wrong_arguments_text(error: CycloptsError, arguments: Sequence[str], *, commands: Collection[str]) -> str:
    """Return one line with the fault in ``arguments`` and a hint."""
    command = arguments[0] if arguments and arguments[0] in commands else ""
    usage = f"see oversharp {command} --help" if command else "see oversharp --help"
    steps = [argument for argument in arguments if argument.isdigit()]
    if command == "diff" and "--steps" not in arguments and len(steps) == 2:
        return f"diff needs --steps; did you mean --steps {' '.join(steps)}?"
    match error:
        case UnknownOptionError() if error.token.source == "cli":
            option = (error.token.keyword or error.token.value).partition("=")[0]
            flags = [name for argument in error.argument_collection if argument.parse for name in argument.names]
            return f"unknown option: {_shown(option)}; {_nearest(option, flags)}{usage}"
        case UnknownCommandError() if not command:
            return f"unknown command: {_shown(arguments[0])}; {_nearest(arguments[0], commands)}{usage}"
        case MissingArgumentError() if error.argument is not None:
            name = error.keyword or error.argument.name
            is_given = any(argument.partition("=")[0] == name for argument in arguments)
            return f"{name} {'needs a value' if is_given else 'is missing'}; {usage}"
        case UnusedCliTokensError():
            left = " ".join(map(_shown, error.unused_tokens or []))
            return f"too many arguments: {left}; remove them ({usage})"
    wrong = " ".join(map(_shown, str(error).split()))
    return f"{wrong} ({usage})"


def refused_path_text(error: OSError) -> str | None:
    """Return an error message for an operating-system error about a path. None for other errors."""
    if error.errno == errno.ENOSPC:
        where = error.filename or "the output directory"
        return f"{where}: the disk is full; free some space and run the same command again"
    if error.errno not in _REFUSALS or not error.filename:
        return None
    where = _shown(str(error.filename))
    return f"{where}: cannot be used ({error.strerror}); pass another path, or change its permissions"


def _nearest(given: str, known: Collection[str]) -> str:
    """Return a question that suggests the option or command with similar meaning or spelling."""
    plain = {name.lstrip("-").replace("-", "_"): name for name in known}
    same = plain.get(synonym(given.lstrip("-").replace("-", "_"), plain) or "")
    near = [same] if same else get_close_matches(given, known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def _shown(word: str) -> str:
    return word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}…"
