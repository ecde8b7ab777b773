"""Boxes (``\boxed{}``) of a response.

The last box is the answer, unless it is joined with others or nested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACE = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
#: A box whose content has at most one level of braces: \boxed{\frac{1}{2}}, \boxed{\{1, 2\}}.
_PLAIN = re.compile(r"\\boxed\{(?:[^{}\\]|\\.|\{(?:[^{}\\]|\\.)*\})*\}", re.DOTALL)
_SPACES = re.compile(r"\s|\\[ ,;!]|\\(?:left|right|displaystyle)(?![A-Za-z])|\\(?=[dt]frac)[dt]")
#: Text between boxes that together form one statement: math delimiters, "x =", and a joining word or sign.
_JOINER = re.compile(
    r"(?:[\s$.,;()\[\]]|\\[()\[\], ;]|\\(?:quad|qquad|text|mathrm|,)|[{}])*"
    r"(?P<word>or|and/or|and|to|through|versus|vs|,|;|/|-|–|—|\||\\?&|\\(?:lor|land|vee|wedge|mid)(?![A-Za-z]))?"
    r"(?:[\s$.,;()\[\]{}]|\\[()\[\], ;]|\\(?:quad|qquad)|(?:perhaps|maybe|possibly|even|else|either|also)\b)*"
    r"(?:\\?[A-Za-z](?:_\{?\w\}?)?\s*=\s*)?[\s$\\(\[]*",
    re.IGNORECASE,
)
#: Other commands that frame an answer, and boxes without braces: \boxed 7, \boxed7, \boxed x.
_FRAME = re.compile(r"\\(?:fbox|framebox|tboxed|bbox|mathbox|fcolorbox\{[^{}]*\}\{[^{}]*\})\s*(?:\[[^\[\]]*\])*(?=\{)")
_UNBRACED = re.compile(
    r"\\boxed\s*(?![\s{])(-?\d+(?:,\d{3})*(?:\.\d+)?|[A-Za-z](?![A-Za-z])|\\[dt]?frac\{[^{}]*\}\{[^{}]*\})"
)
#: Longest text between two joined boxes in characters, and largest number of boxes in one statement.
_MOST_BETWEEN, _MOST_JOINED = 60, 9
#: Number of characters after a box that are searched for a statement that contradicts it.
_MOST_AFTER = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxes:
    r"""Contents of the last ``\boxed{}`` and of the boxes joined with it, in order.

    ``joiner`` is the word or sign between the boxes, "" for a single box. ``nested``: the last box is inside another
    box that has more content. ``n_different`` is the number of distinct contents of all closed boxes, ignoring spaces.
    ``before`` and ``after`` are the texts around the statement.
    """

    contents: tuple[str, ...]
    joiner: str
    nested: bool
    n_different: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Box:
    start: int  # of \boxed
    inner: int
    end: int  # start of the content, without the brace after it
    nested: bool


def boxes(text: str) -> Boxes | None:
    r"""Return the statement in the boxes of a response; None without a closed box.

    >>> boxes(r"So \boxed{1} or \boxed{2}.").contents, boxes(r"\boxed{1} Hence \boxed{2}").contents
    (('1', '2'), ('2',))
    >>> boxes(r"\boxed{2\boxed{1}}").nested, boxes("no box") is None
    (True, True)
    """
    first = text.find("\\boxed")
    plain = _PLAIN.match(text, first) if first >= 0 and text.find("\\boxed", first + 6) < 0 else None
    # fast path: most responses have a single box with simple braces
    closed_boxes = [_Box(first, first + 7, plain.end() - 1, False)] if plain else _find_closed(text, first)
    if not closed_boxes:
        return None
    joined, joiner = [closed_boxes[-1]], ""
    for box in reversed(closed_boxes[-_MOST_JOINED:-1]):
        between = text[box.end + 1 : joined[0].start]
        match = _JOINER.fullmatch(between) if len(between) <= _MOST_BETWEEN else None
        if match is None or (match["word"] is None and "\n" in between):
            break
        joined.insert(0, box)
        joiner = joiner or (match["word"] or ",").lower()
    return Boxes(
        contents=tuple(text[box.inner : box.end].strip() for box in joined),
        joiner=joiner,
        nested=closed_boxes[-1].nested,
        n_different=1
        if len(closed_boxes) == 1
        else len({_SPACES.sub("", text[box.inner : box.end]) for box in closed_boxes}),
        before=text[max(0, joined[0].start - 120) : joined[0].start],
        after=text[joined[-1].end + 1 : joined[-1].end + _MOST_AFTER],
    )


def with_plain_boxes(text: str) -> str:
    r"""Rewrite every frame in a response as ``\boxed{…}``.

    >>> with_plain_boxes(r"So \boxed 7, or \fbox{8}."), with_plain_boxes(r"\boxed{x}")
    ('So \\boxed{7}, or \\boxed{8}.', '\\boxed{x}')
    """
    start = text.find("box")
    while start > 0 and text.startswith("\\boxed{", start - 1):
        start = text.find("box", start + 3)
    if start < 0:
        return text
    return _FRAME.sub(r"\\boxed", _UNBRACED.sub(lambda match: rf"\boxed{{{match[1]}}}", text))


def n_different_boxes(text: str) -> int:
    r"""Return the number of distinct contents of the closed boxes of a response.

    >>> n_different_boxes(r"\boxed{1}, \boxed{ 1} and \boxed{2}"), n_different_boxes("none")
    (2, 0)
    """
    first = text.find("\\boxed")
    if first < 0:
        return 0
    if text.find("\\boxed", first + 6) < 0 and _PLAIN.match(text, first) is not None:
        return 1  # fast path that builds no record, for most responses
    statement = boxes(text)
    return statement.n_different if statement else 0


def _find_closed(text: str, first: int) -> list[_Box]:
    """Return the closed boxes in order, in one pass. A box that contains only another box is skipped."""
    closed_boxes: list[_Box] = []
    # for each open brace, the start of \boxed and of its content; None for other braces
    opened: list[tuple[int, int] | None] = []
    for match in _BRACE.finditer(text, first) if first >= 0 else ():
        token = match.group()
        if token == "}":
            box = opened.pop() if opened else None
            if box is not None and not _holds_box_alone(text, closed_boxes, box, match.start()):
                nested = any(other is not None and text[other[1] : box[0]].strip() for other in opened)
                while closed_boxes and closed_boxes[-1].start > box[0]:
                    closed_boxes.pop()
                inner_nested = "\\boxed" in text[box[1] : match.start()]
                closed_boxes.append(_Box(box[0], box[1], match.start(), nested or inner_nested))
        elif token[-1] == "{" and token != "\\{":  # \{ is the brace of a set, not a group
            opened.append(None if token == "{" else (match.start(), match.end()))
    return closed_boxes


def _holds_box_alone(text: str, closed_boxes: list[_Box], box: tuple[int, int], end: int) -> bool:
    if not closed_boxes or closed_boxes[-1].start < box[1]:
        return False
    inner = closed_boxes[-1]
    return not (text[box[1] : inner.start] + text[inner.end + 1 : end]).strip(" $\n")
