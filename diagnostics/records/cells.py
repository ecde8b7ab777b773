"""Texts of strangers where they are shown: in a terminal, which obeys control characters, in a spreadsheet, shortened.

Series, folders, prompts and responses may hold anything.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.amounts import plural

if TYPE_CHECKING:
    import pandas as pd

#: Control characters of ASCII and Latin-1, less tab and line feed.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
#: What turns the direction of all that follows: embeddings, overrides and isolates.
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
#: What a spreadsheet takes a cell for a formula by.
_FORMULA = "=+-@\t\r"
#: Of a long response, so much of its beginning and its end is shown.
HEAD_CHARACTERS, TAIL_CHARACTERS = 500, 700
#: Characters of the ``repr`` of one field; once this many are printed of a record, its other fields are left out.
_MOST_OF_A_FIELD, _MOST_OF_A_RECORD = 100, 160


def visible(text: str) -> str:
    r"""``text`` with its control characters written out: none colours, retitles, clears or turns round a terminal.

    >>> print(visible("a\x1b[31mb\u202ec\n"), end="")
    a\x1b[31mb\u202ec
    """
    return text.translate(_CONTROLS | _TURNS)


def upright(text: str) -> str:
    r"""``text`` as it runs: what would turn the direction of the rest is written out, in a page too.

    >>> upright("a\u202eb"), upright("שלום")
    ('a\\u202eb', 'שלום')
    """
    return text.translate(_TURNS)


def one_line(text: str, most: int) -> str:
    r"""The first ``most`` characters of ``text`` on one line: what does not print is written out.

    That is line feeds too, and characters that turn the direction of what follows.

    >>> one_line("a\n\x1b[31mb\u202ec", 40), one_line("abc", 2)
    ('a\\n\\x1b[31mb\\u202ec', 'ab…')
    """
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text[:most])
    return f"{shown}…" if len(text) > most else shown


def short_repr(record: Any) -> str:
    """The ``repr`` of a result: its class and fields on one line of at most about 200 characters.

    Long texts are cut, collections are counted, fields that hold nothing are left out.

    >>> from dataclasses import make_dataclass
    >>> Result = make_dataclass("Result", ["series", "why", "steps"], namespace={"__repr__": short_repr})
    >>> Result("grpo", None, (20, 40))
    Result(series='grpo', steps=<2>)
    """
    name = type(record).__name__
    parts: list[str] = []
    for one in fields(record):
        value = getattr(record, one.name)
        if not one.repr or value is None or value == ():
            continue
        if sum(map(len, parts)) > _MOST_OF_A_RECORD:
            return f"{name}({', '.join(parts)}, …)"
        parts.append(f"{one.name}={_short(value)}")
    return f"{name}({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, tuple | list | set | frozenset | dict) or (hasattr(value, "keys") and hasattr(value, "items")):
        return f"<{len(value)}>"
    if hasattr(value, "__dataclass_fields__"):
        return f"{type(value).__name__}(…)"
    return one_line(repr(value), _MOST_OF_A_FIELD)


def shortened(text: str) -> str:
    """The beginning and the end of a long response: that is where the answer stands.

    >>> len(shortened("a" * 5000)), shortened("short")
    (1224, 'short')
    """
    left = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if left <= 0:
        return text
    return f"{text[:HEAD_CHARACTERS]} … ({plural(left, 'character')}) … {text[-TAIL_CHARACTERS:]}"


def as_text(cell: str) -> str:
    """``cell`` so that no spreadsheet takes it for a formula: an apostrophe before what starts like one.

    ``from_text`` takes it away again.

    >>> as_text("=HYPERLINK(1)"), as_text("'-1"), as_text("step 20"), as_text("'tis")
    ("'=HYPERLINK(1)", "''-1", 'step 20', "'tis")
    """
    return f"'{cell}" if cell.lstrip("'")[:1] in tuple(_FORMULA) else cell


def from_text(cell: str) -> str:
    """What ``as_text`` was given.

    >>> [from_text(as_text(one)) for one in ("=1", "'-1", "step 20", "'tis", "")]
    ['=1', "'-1", 'step 20', "'tis", '']
    """
    return cell[1:] if cell[:1] == "'" and cell.lstrip("'")[:1] in tuple(_FORMULA) else cell


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with ``as_text`` of all of its texts."""
    texts = frame.select_dtypes(["object", "string"]).columns
    return frame.assign(**{name: frame[name].map(_as_text_if_text) for name in texts})


def _as_text_if_text(cell: object) -> object:
    return as_text(cell) if isinstance(cell, str) else cell
