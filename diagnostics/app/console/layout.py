"""Output of commands: rows of label and value, tables of 80 columns, JSON, warnings."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from oversharp.diagnostics.records.cells import escape_controls

WIDTH = 80
#: Width of the label column, in characters.
LABEL_WIDTH = 14
#: Minimum width of a table column that may be shortened.
_LEAST_TEXT = 12
_GAP = "  "
#: Character for a space at which a line is not wrapped. It is printed as an ordinary space.
_NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, kw_only=True)
class OutputRow:
    """A label and its value.

    ``is_whole`` prevents wrapping, for numbers, paths and commands. ``style`` is a rich style.
    """

    label: str
    value: str
    is_whole: bool = False
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class OutputColumn:
    """A column of a table.

    ``is_text`` aligns it to the left. ``may_shorten`` allows shortening if the table is too wide.
    """

    heading: str
    is_text: bool = False
    may_shorten: bool = False


def terminal() -> Console:
    """Return the console on stdout. It has 80 columns, and no colour in a pipe."""
    return Console(highlight=False, width=WIDTH)


def print_rows(rows: Iterable[OutputRow], out: Console | None = None) -> None:
    """Print rows. Lines after the first one of a value are indented by the width of the label."""
    out = out or terminal()
    for row in rows:
        for number, line in enumerate(_value_lines(row)):
            label = f"{escape_controls(row.label) if number == 0 else '':{LABEL_WIDTH - 1}} "
            out.print(Text.assemble((label, "bold"), (line, row.style)) if line else Text(), soft_wrap=True)


def print_lines(lines: Iterable[str], out: Console | None = None) -> None:
    """Print lines without wrapping, with control characters escaped."""
    out = out or terminal()
    for line in lines:
        out.print(Text(escape_controls(line)), soft_wrap=True)


def print_table(
    columns: Sequence[OutputColumn], rows: Sequence[Sequence[str] | str], out: Console | None = None
) -> None:
    """Print a table. A row that is a string is printed as a heading inside the table."""
    out = out or terminal()
    head, *lines = table_lines(columns, rows)
    out.print(Text(head, style="bold"), soft_wrap=True)
    print_lines(lines, out)


def table_lines(columns: Sequence[OutputColumn], rows: Sequence[Sequence[str] | str]) -> list[str]:
    """Return the lines of a table, headings first. Columns are shortened to fit 80 characters.

    >>> columns = (OutputColumn(heading="k"), OutputColumn(heading="status", is_text=True))
    >>> for line in table_lines(columns, [("1", "kept"), "grpo", ("64", "out")]):
    ...     print(line)
     k  status
     1  kept
    grpo
    64  out
    """
    cells = [[column.heading for column in columns], *([*map(_cell, row)] for row in rows if not isinstance(row, str))]
    widths = [max(cell_len(row[place]) for row in cells) for place in range(len(columns))]
    excess = sum(widths) + len(_GAP) * (len(columns) - 1) - WIDTH
    for place, column in enumerate(columns):
        if excess > 0 and column.may_shorten:
            width = max(_LEAST_TEXT, widths[place] - excess)
            excess, widths[place] = excess - max(0, widths[place] - width), min(widths[place], width)
    aligned = iter(_aligned(columns, row, widths) for row in cells)
    head = next(aligned)
    return [head, *(_cell(row) if isinstance(row, str) else next(aligned) for row in rows)]


def unbroken(text: str) -> str:
    """Return ``text`` with its spaces replaced so that lines are not wrapped at them.

    >>> unbroken("pass@1 +3.0 [+1.0, +5.0]").split(" ")[1:]
    []
    """
    return text.replace(" ", _NO_BREAK)


def shortened_cell(text: str, most: int) -> str:
    """Return ``text`` on one line of at most ``most`` columns.

    >>> shortened_cell("a long prompt", 8), shortened_cell("short", 8)
    ('a long…', 'short')
    """
    text = _cell(text)
    return text if cell_len(text) <= most else f"{set_cell_size(text, most - 1).rstrip()}…"


def print_json(summary: Mapping[str, Any]) -> None:
    """Print a JSON object, with control characters in paths and names escaped."""
    print(escape_controls(json.dumps(summary, indent=2, default=str)))


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(escape_controls(f"warning: {text}"), file=sys.stderr)


def warn_left_out(left_out: Mapping[str, str]) -> None:
    """Print a warning for each left-out label, with the reason."""
    for label, reason in left_out.items():
        warn(f"left out {label}: {reason}")


def _value_lines(row: OutputRow) -> list[str]:
    text = escape_controls(row.value)
    if row.is_whole:
        return text.splitlines() or [""]
    wrapped = textwrap.wrap(text, WIDTH - LABEL_WIDTH, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in wrapped] or [""]


def _cell(text: str) -> str:
    return " ".join(escape_controls(text).split())


def _aligned(columns: Sequence[OutputColumn], row: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, text, width in zip(columns, row, widths, strict=True):
        shown = shortened_cell(text, width)
        space = " " * (width - cell_len(shown))
        parts.append(f"{shown}{space}" if column.is_text else f"{space}{shown}")
    return _GAP.join(parts).rstrip()
