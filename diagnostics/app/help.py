"""The help of the command line: commands in groups, and the flags that matter first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING

from cyclopts import App, Group
from cyclopts.help import DefaultFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

HELP_ALL = "--help-all"
#: Commands with more flags than these print only some of them with --help.
MOST_FLAGS = 12
#: The groups of ``oversharp --help``, in its order.
COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Start here": ("demo", "audit", "import"),
        "Look at results": ("report", "view", "lost", "diff", "sql", "explain"),
        "Decide": ("ship", "plan", "confirm", "regrade", "problems"),
        "Train": ("train-base", "train", "compare", "repair"),
        "Stores and files": ("export", "merge", "drop"),
        "Machine and models": ("doctor", "fetch-model", "convert"),
    }
)
#: The flags that ``COMMAND --help`` prints of a command with many.
FIRST_FLAGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "audit": (
            "--problems", "--task", "--base", "--out", "--name", "--n", "--k", "--temperature", "--max-tokens",
            "--device",
        ),
        "import": (
            "--store", "--name", "--format", "--map", "--base", "--step", "--steps", "--verifier", "--k", "--dry-run",
        ),
        "train": (
            "--algorithm", "--model", "--task", "--problems", "--output-dir", "--max-steps", "--learning-rate",
            "--seed", "--device", "--list",
        ),
        "train-base": (
            "--model", "--output-dir", "--max-steps", "--batch-size", "--learning-rate", "--n-examples",
            "--save-every", "--seed", "--resume", "--device",
        ),
        "confirm": (
            "--series", "--most", "--fresh", "--path", "--base", "--out", "--device", "--batch-size", "--json",
            "--quiet",
        ),
    }
)  # fmt: skip
#: The last panel of each help page.
OPTIONS = Group("Options", sort_key=len(COMMAND_GROUPS) + 1)
_PRINTS_ALL: ContextVar[bool] = ContextVar("_PRINTS_ALL", default=False)


class FirstFlags(DefaultFormatter):
    """Prints the given flags alone, and all of them for ``--help-all``."""

    def __init__(self, flags: Sequence[str]) -> None:
        super().__init__()
        self.flags = frozenset(flags)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one panel; none if all of its flags are left out."""
        if not _PRINTS_ALL.get():
            entries = [one for one in panel.entries if not one.names or self.flags & set(one.names)]
            panel = panel.copy(entries=entries)
        super().__call__(console, options, panel)


@contextmanager
def help_for(tokens: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the tokens with ``--help-all`` as ``--help``, which then prints every flag."""
    token = _PRINTS_ALL.set(HELP_ALL in tokens)
    try:
        yield tuple("--help" if one == HELP_ALL else one for one in tokens)
    finally:
        _PRINTS_ALL.reset(token)


def arrange_help(app: App) -> None:
    """Put the commands of ``app`` into groups, and shorten the help of those with many flags."""
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
