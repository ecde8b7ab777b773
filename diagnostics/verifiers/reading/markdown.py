r"""Remove Markdown marks around labels and answers."""

from __future__ import annotations

import re
from unicodedata import category

#: Emphasis and code marks around a span. In powers (2**3), products (2*3*4) and subscripts (a_1), the outer side of a
#: mark is a letter, a digit or a closing bracket. These are preserved.
_SPANS = (
    ("*", re.compile(r"(?<![\w)\]}*\\])(\*{1,3})(?=[^\s*])(.{1,300}?)(?<=[^\s*])\1(?![\w*(])", re.DOTALL)),
    ("_", re.compile(r"(?<![\w)\]}\\_])(_{1,3})(?=[^\s_])(.{1,300}?)(?<=[^\s_])\1(?![\w{(])", re.DOTALL)),
    ("`", re.compile(r"(`{1,3})(?=[^`])(.{1,300}?)(?<=[^`])\1", re.DOTALL)),
)
#: A line contains marks only if it contains one of these or a non-ASCII character.
_MAY_HOLD_MARKS = re.compile(r"[*_`~#\"']|[^\x00-\x7f]")
#: Longest line that is changed, in characters. Longer lines are runaway text.
_LONGEST_LINE = 4000
#: Markdown at the start of a line: a quote, a bullet or a heading.
_LINE_START = re.compile(r"\s*(?:(?:>|[-+•‣▪▶]|\*(?!\*)|#{1,6}|➤|👉|\d{1,2}[.)](?=\s+\*\*))[ \t]+|>)+")
_CLOSING_MARKS = "*_`#~"
_CLOSED_LATE = re.compile(r"(?<=[^\s\\*_`])[*_`]+([.!]+)$")
#: Symbols that belong to an answer.
_SIGNS_OF_ANSWERS = frozenset("°℃℉№")
#: Invisible characters and end-of-proof signs.
_MORE_ORNAMENTS = frozenset("∎■□▪▫●\ufe0f\ufeff")
_QUOTES = (('"', '"'), ("“", "”"), ("‘", "’"), ("'", "'"), ("«", "»"), ("「", "」"), ("『", "』"))


def without_marks(line: str, *, bullet: bool = False) -> str:
    r"""Remove emphasis, code marks, quotes and ornaments from a line. Mathematics is not changed.

    ``bullet`` also removes a list bullet at the start, which otherwise looks like a minus before a number.

    >>> without_marks("**73** ✅"), without_marks("73**"), without_marks("2**3*4"), without_marks("`x_1`")
    ('73', '73', '2**3*4', 'x_1')
    >>> without_marks("- __Paris__", bullet=True), without_marks("**"), without_marks('"Paris"')
    ('Paris', '', 'Paris')
    """
    if bullet and (start := _LINE_START.match(line)) is not None:
        line = line[start.end() :]
    if len(line) > _LONGEST_LINE or _MAY_HOLD_MARKS.search(line) is None:
        return line.strip()
    for mark, span in _SPANS:
        if mark in line:
            line = span.sub(r"\2", line)
    while not (line[:1].isalnum() and line[-1:].isalnum()):
        shorter = _without_ornaments(line.strip()).strip()
        shorter = _without_open_marks(shorter).strip()
        for left, right in _QUOTES:
            quoted = shorter.rstrip(".") if shorter.endswith(right + ".") else shorter
            if len(quoted) > 2 and quoted.startswith(left) and quoted.endswith(right) and left not in quoted[1:-1]:
                shorter = quoted[1:-1].strip()
        if shorter == line:
            break
        line = shorter
    return line


def _without_ornaments(line: str) -> str:
    """Remove check marks and other symbols from both ends."""
    start, stop = 0, len(line)
    while start < stop and _is_ornament(line[start]):
        start += 1
    while stop > start and _is_ornament(line[stop - 1]):
        stop -= 1
    return line[start:stop]


def _is_ornament(sign: str) -> bool:
    if sign.isascii() or sign in _SIGNS_OF_ANSWERS:
        return False
    return category(sign) in ("So", "Cf") or sign in _MORE_ORNAMENTS


def _without_open_marks(line: str) -> str:
    """Remove unpaired marks from the ends.

    The other mark of the pair belongs to the label, as in "**Answer: 7**.".
    """
    if (stop := _CLOSED_LATE.search(line)) is not None:
        line = line[: stop.start()] + stop[1]
    line = line.lstrip("*`~") if line[:1] in "*`~" else line
    if line.startswith("__"):
        line = line.lstrip("_")
    return line.rstrip(_CLOSING_MARKS) if line[-1:] in tuple(_CLOSING_MARKS) and not line.endswith("\\_") else line
