"""Escape and shorten texts of users and models for terminals, spreadsheets and pages.

Names, prompts and responses may contain control characters, bidirectional overrides and spreadsheet formulas.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.amounts import plural

if TYPE_CHECKING:
    import pandas as pd

#: Control characters of ASCII and Latin-1, except tab and line feed.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
#: Bidirectional controls: embeddings, overrides and isolates. Each of them reorders all text after it.
_TURNS = {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
#: First characters that make a spreadsheet treat a cell as a formula.
_FORMULA = "=+-@\t\r"
#: Number of characters shown of the beginning and of the end of a long response.
HEAD_CHARACTERS, TAIL_CHARACTERS = 500, 700
#: Limits in characters: the ``repr`` of one field, and of a record. Fields beyond the second limit are not shown.
_MOST_OF_A_FIELD, _MOST_OF_A_RECORD = 100, 160


def escape_controls(text: str) -> str:
    r"""Escape control characters, which could colour, retitle, clear or reorder a terminal.

    >>> print(escape_controls("a\x1b[31mb\u202ec\n"), end="")
    a\x1b[31mb\u202ec
    """
    return text.translate(_CONTROLS | _TURNS)


def escape_bidi(text: str) -> str:
    r"""Escape bidirectional controls, which would reorder the text after them, also in HTML pages.

    >>> escape_bidi("a\u202eb"), escape_bidi("שלום")
    ('a\\u202eb', 'שלום')
    """
    return text.translate(_TURNS)


def one_line(text: str, most: int) -> str:
    r"""Return the first ``most`` characters of ``text`` on one line, with unprintable ones escaped.

    >>> one_line("a\n\x1b[31mb\u202ec", 40), one_line("abc", 2)
    ('a\\n\\x1b[31mb\\u202ec', 'ab…')
    """
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text[:most]
    )
    return f"{shown}…" if len(text) > most else shown


def short_repr(record: Any) -> str:
    """Return the ``repr`` of a result on one line of at most about 200 characters.

    Long texts are truncated, collections are shown as their length, and empty fields are not shown.

    >>> from dataclasses import make_dataclass
    >>> Result = make_dataclass("Result", ["series", "why", "steps"], namespace={"__repr__": short_repr})
    >>> Result("grpo", None, (20, 40))
    Result(series='grpo', steps=<2>)
    """
    name = type(record).__name__
    parts: list[str] = []
    for field in fields(record):
        value = getattr(record, field.name)
        if not field.repr or value is None or value == ():
            continue
        if sum(map(len, parts)) > _MOST_OF_A_RECORD:
            return f"{name}({', '.join(parts)}, …)"
        parts.append(f"{field.name}={_short(value)}")
    return f"{name}({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, tuple | list | set | frozenset | dict) or (hasattr(value, "keys") and hasattr(value, "items")):
        return f"<{len(value)}>"
    if hasattr(value, "__dataclass_fields__"):
        return f"{type(value).__name__}(…)"
    return one_line(repr(value), _MOST_OF_A_FIELD)


def shorten_response(text: str) -> str:
    """Return the beginning and the end of a long response. The answer is usually at the end.

    >>> len(shorten_response("a" * 5000)), shorten_response("short")
    (1224, 'short')
    """
    left = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if left <= 0:
        return text
    return f"{text[:HEAD_CHARACTERS]} … ({plural(left, 'character')}) … {text[-TAIL_CHARACTERS:]}"


def quote_formula(cell: str) -> str:
    """Prefix an apostrophe to a cell that a spreadsheet would treat as a formula.

    ``unquote_formula`` removes it.

    >>> quote_formula("=HYPERLINK(1)"), quote_formula("'-1"), quote_formula("step 20"), quote_formula("'tis")
    ("'=HYPERLINK(1)", "''-1", 'step 20', "'tis")
    """
    return f"'{cell}" if cell.lstrip("'")[:1] in tuple(_FORMULA) else cell


def unquote_formula(cell: str) -> str:
    """Undo ``quote_formula``.

    >>> [unquote_formula(quote_formula(text)) for text in ("=1", "'-1", "step 20", "'tis", "")]
    ['=1', "'-1", 'step 20', "'tis", '']
    """
    return cell[1:] if cell[:1] == "'" and cell.lstrip("'")[:1] in tuple(_FORMULA) else cell


def without_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with ``quote_formula`` applied to all text columns."""
    texts = frame.select_dtypes(["object", "string"]).columns
    return frame.assign(**{name: frame[name].map(_quote_if_text) for name in texts})


def _quote_if_text(cell: object) -> object:
    return quote_formula(cell) if isinstance(cell, str) else cell
