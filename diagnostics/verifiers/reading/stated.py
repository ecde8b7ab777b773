"""Extract the answer that a response states, or the reason why there is none or no single one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from oversharp.diagnostics.records.types import AnswerStyle
from oversharp.diagnostics.verifiers.extraction import (
    hash_answer,
    json_answer,
    looks_like_formula,
    tagged_answer,
    unwrap,
)
from oversharp.diagnostics.verifiers.reading.boxes import Boxes, boxes
from oversharp.diagnostics.verifiers.reading.forms import as_union
from oversharp.diagnostics.verifiers.reading.labels import Labelled, labelled
from oversharp.diagnostics.verifiers.reading.markdown import without_marks
from oversharp.diagnostics.verifiers.reading.notation import typeset
from oversharp.diagnostics.verifiers.reading.sentences import (
    COMPARED,
    NEGATED,
    ONE_OF_SEVERAL,
    PART,
    RANGED,
    SEVERAL,
    goes_on,
    sentence,
    withdrawn,
)

_PLAIN_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_CORRECTED = re.compile(
    r"\b(?:correct|right|real|actual|true) (?:value|result|count|number|total|solution) (?:is|="
    r"|should be)\s*[$\\(]*(-?\d[\d,.]*)",
    re.IGNORECASE,
)
NESTED, WITHDRAWN = "a box in a box", "withdrawn by the text that follows"
_MOST_ANNOUNCED = 200
#: Number of characters after an answer that are searched for words that withdraw it.
_MOST_WITHDRAWING = 300
_TEXTS = re.compile(r"\\(?:text|mathrm|textrm|textbf|textit|mbox)\s*\{([^{}]*)\}")
_AND_IN_TEXT = re.compile(r"\s*,?\s*\\text\s*\{\s*(?:,\s*)?and\s*\}\s*")
_COMMAND = re.compile(r"\\(?:text|mathrm|textrm|textbf|textit|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+")
#: Words in a box, as opposed to products of letters. Functions are mathematics.
_FUNCTIONS = (
    "sqrt|sinh|cosh|tanh|arcsin|arccos|arctan|frac|infty|infinity|theta|alpha|beta|gamma|lambda|sigma|delta|omega"
)
_PROSE = re.compile(
    rf"(?<![A-Za-z\d\\^_{{*+])(?!(?:{_FUNCTIONS})\b)[A-Za-z]{{4,}}"
    r"|(?<=\s)(?:or|and|to|not|than|per|nor|the|cm|km|mm|kg|ft|in|oz|lbs?|yd|hrs?|mph|pct|a day)(?=\s|$)"
    r"|^(?:not|the|at|no)\s"
)
#: Letters of languages. Greek letters and double-struck capitals are mathematics.
_OTHER_SCRIPTS = re.compile(r"[À-ÖØ-öø-ɏЀ-ӿ֐-ۿऀ-๿ぁ-ヿ㐀-鿿가-힣]")
#: "Alice has 42" in a box, and 4 R 3.
_EURO = re.compile(r"€|\\euro|\beuros?\b|\bEUR\b", re.IGNORECASE)
_WORDS_FIRST = re.compile(
    r"\s*\\text\s*\{(?:(?=[^{}]*[^\W\d_])(?:[^{}]*[\s:=][^{}]*\}\s*|[^{}]*\}\s+)(?=[-−.$\d]|\\\$|\\[dt]?frac"
    r"|\\sqrt)|[^{}]*\d[^{}]*\}\s*$)"
)
_REMAINDER = re.compile(r"-?\d+\s*[Rr]\.?\s*\d+", re.ASCII)
_RELATION = re.compile(r"^\s*(?:[<>≤≥]|\\(?:le|ge|lt|gt|leq|geq|leqslant|geqslant)(?![A-Za-z]))")
_SECOND_THOUGHT = re.compile(r"\b(?:but|correction|i mean)\b", re.IGNORECASE)
_ENDLESS = re.compile(r"(?:positive |negative |[-+] ?)?infinity\.?", re.IGNORECASE)
_GOES_ON = re.compile(r"-?\d+\s*(?:\.\.\.|…|\\[lc]?dots)")
_UNEQUAL = re.compile(r"^\s*(?:\\neq?(?![A-Za-z])|\\not(?![A-Za-z])|≠|!=)")
_LEAD_OF_BOX = re.compile(
    r"(?P<negated>(?:\bnot|n['’]t|\bnever|\bneither|\bcannot)(?:\s+(?:be|been|equal|equals|to|the|actually|really"
    r"|simply|just"
    r"|necessarily|going|answer))*|\b(?:exclude|reject|discard|rule out|ruling out)"
    r"|\\neq?|≠|\b(?:other than|except|instead of|rather than|anything but|unlike))\s*$"
    r"|(?P<compared>\b(?:greater|less|more|fewer|larger|smaller|bigger|higher|lower) than)\s*$"
    r"|(?P<ranged>\bbetween)\s*$|(?P<several>\d[\s$)\]}\\]*(?:\s|text\{)\s*or|\beither\b[^.]*\bor)\s*$",
    re.IGNORECASE,
)
#: Endings of text that ``_LEAD_OF_BOX`` may match. This test is faster than the regex.
_LEADS = tuple(
    str.split("""
not n't n’t never neither cannot be been equal equals to the actually really simply just necessarily going answer ne neq
≠ than except of but unlike between or exclude reject discard out
""")
)
_OPENED = re.compile(r"(?:[\s$({}\[*:]|\\[(\[]|\\(?:displaystyle|quad|,|;))*$")
#: Signs that show that a box is inside a formula. A dash before a box may be a list bullet, and units may follow a box.
_OPERATED_BEFORE = re.compile(
    r"(?:\\(?:cdot|times|div|pm)|[/^]|\s[<>]|(?:^|(?<=[\s$(]))\d(?=\Z)|(?:=|\$|\\\(|\\\[)\s*-|\\sqrt\s*\{"
    r"|\\[dt]?frac\s*(?:\{[^{}]*\}\s*)?\{)\s*$"
)
_OPERATED_AFTER = re.compile(r"\s*(?:\^\s*\{?[\d(]|\\(?:pm|cdot|times|div)(?![A-Za-z])|[*/+]\s*\d)")
#: Rules for answers without a box, with the style of each.
_MARKED: tuple[tuple[Callable[[str], str | None], AnswerStyle], ...] = (
    (tagged_answer, "tagged"),
    (hash_answer, "hashes"),
    (json_answer, "labelled"),
)
_NAMES_OF_LEAD = {"negated": NEGATED, "compared": COMPARED, "ranged": RANGED, "several": ONE_OF_SEVERAL}


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    r"""The answer that a response states.

    ``values`` are the formulas of the answer, with ``\boxed`` removed. The answer is right if there are values and all
    equal the gold, also with a ``doubt``, as in "1/2 or 0.5". ``doubt`` is the reason why the values are not a single
    answer, or "". ``listed`` is the values as one list, which is right if the gold is that list. ``text`` is the
    answer whose form, unit and words are compared; None without an answer. ``sentence`` is the words around it.
    ``n_boxed`` is the number of distinct contents of boxes. ``why`` is the reason why there is no answer; "" if none is
    announced. ``style`` is how the answer is stated. ``is_european``: a comma may be a decimal comma,
    because the phrase before the answer ("Antwort:") is not English or the answer is in euros.
    """

    values: tuple[str, ...]
    text: str | None
    sentence: str = ""
    doubt: str = ""
    listed: tuple[str, ...] = ()
    n_boxed: int = 0
    why: str = ""
    style: AnswerStyle = "none"
    is_european: bool = False


_NOTHING = Stated(values=(), text=None)
_IN_PROSE = Stated(values=(), text=None, style="prose")


def read(text: str) -> Stated:
    r"""Extract the answer from a response.

    The rules, in order of priority: the last ``\boxed{…}``, with the boxes that are joined with it; the last
    ``<answer>…</answer>``; the last line that starts with ``####``; the text after the last label ("answer is",
    "Answer:", in the languages of ``labels.ANNOUNCEMENTS``), if the response ends there or is finished; the whole
    response if it is a single line of only mathematics. Numbers in prose are not answers. ``text`` is the part of the
    response that may state its answer (``responses.final_part``).

    >>> read(r"so \boxed{3}. No: \boxed{4}").values, read("The answer is **7**.").values
    (('4',), ('7',))
    >>> read(r"\boxed{3} or \boxed{4}").doubt, read("The answer is not 7.").doubt, read("He has 7 pears").text
    ('one of several', 'negated', None)
    """
    statement = boxes(text) if "\\boxed" in text else None
    if statement is not None:
        stated = _read_boxes(statement)
        is_known = stated.n_boxed == statement.n_different and stated.style == "boxed"
        return stated if is_known else replace(stated, n_boxed=statement.n_different, style="boxed")
    for rule, style in _MARKED:
        content = rule(text)
        if content is not None:
            return _read_content(without_marks(content), in_box=False, style=style)
    announced = labelled(text)
    if announced is not None:
        return _read_label(announced, text)
    whole = unwrap(without_marks(text.strip())) if "\n" not in text.strip() else ""
    bare = "\\boxed" not in whole and any(c.isnumeric() or c == "\\" for c in whole)
    if not bare or not looks_like_formula(whole):
        return _IN_PROSE if text.strip() else _NOTHING
    return _read_content(whole, in_box=False, style="bare")


def _read_label(announced: Labelled, text: str) -> Stated:
    line = announced.line[:_MOST_ANNOUNCED]
    if not line:
        return _make_unstated("nothing follows the label of the answer")
    if line.count("{") != line.count("}"):
        # truncated: the end of \frac{1}{2 is unknown
        return _make_unstated("the response ends inside the announced answer")
    if announced.is_doubted:
        return Stated(values=(), text=line, sentence=line, doubt=ONE_OF_SEVERAL, style="labelled")
    stated = _read_content(line, in_box=False, style="labelled")
    if not announced.is_english:
        stated = replace(stated, is_european=True)
    if announced.is_named_list:
        return Stated(values=(), text=f"{line}, …", sentence=line, doubt=SEVERAL, style="labelled")
    rest = sentence(line).rest if not looks_like_formula(unwrap(line)) else ""
    after = text[announced.stop :]
    clause = stated.sentence if _SECOND_THOUGHT.search(line) is not None else ""
    if not stated.doubt and any(map(withdrawn, (rest, after[:_MOST_WITHDRAWING].lstrip(), clause))):
        return _make_withdrawn(stated)
    if goes_on(rest, after):
        return _make_unstated("the response continues after the announced answer and is unfinished")
    return stated


def _make_unstated(why: str) -> Stated:
    return Stated(values=(), text=None, why=why, style="labelled")


def _read_boxes(statement: Boxes) -> Stated:
    if statement.nested:
        return Stated(values=(), text=f"{statement.contents[-1]} (in another box)", doubt=NESTED)
    several = len(statement.contents) > 1 and len(set(statement.contents)) > 1
    stated = _join_boxes(statement) if several else _read_one_box(statement.contents[-1])
    if stated.doubt or stated.text is None:
        return stated
    if _OPERATED_BEFORE.search(statement.before[-24:]) or _OPERATED_AFTER.match(statement.after):
        return Stated(values=(), text=f"{stated.text} (in a formula)", doubt=PART)
    lead = _lead(statement.before)
    if lead is not None:
        words = f"{lead[0].strip()} {stated.text}"
        return Stated(values=(), text=words, doubt=_NAMES_OF_LEAD[str(lead.lastgroup)])
    if withdrawn(statement.after[:_MOST_WITHDRAWING]) or _is_contradicted(stated, statement.after):
        return _make_withdrawn(stated)
    return stated


def _is_contradicted(stated: Stated, after: str) -> bool:
    """Return whether a label or a #### line after a box states another number."""
    if len(stated.values) != 1 or not any(map(str.isdigit, after)):
        return False
    value = _plain_number(stated.values[0])
    if value is None:
        return False
    if (correction := _CORRECTED.search(after)) is not None:
        return _plain_number(correction[1].rstrip(".,")) not in (None, value)
    line = hash_answer(after)
    if line is None:
        announced = labelled(after)
        line = "" if announced is None or announced.is_doubted else announced.line
    if re.match(r"[\s$\\(*]*-?\d", line) is None:
        return False
    later = _read_content(line[:_MOST_ANNOUNCED], in_box=False)
    number = _plain_number(later.values[0]) if len(later.values) == 1 and not later.doubt else None
    return number is not None and number != value and not later.text.rstrip().endswith("%")  # type: ignore[union-attr]


def _plain_number(value: str) -> Fraction | None:
    return Fraction(value.replace(",", "")) if _PLAIN_NUMBER.fullmatch(value) else None


def _lead(before: str) -> re.Match[str] | None:
    """Find words right before a box that negate, compare or weaken it."""
    if not before.rstrip(" \n$({}[*:\\")[-12:].lower().endswith(_LEADS):
        return None
    return _LEAD_OF_BOX.search(_OPENED.sub("", re.split(r"[.!?]\s|\n", before)[-1]))


def _make_withdrawn(stated: Stated) -> Stated:
    return Stated(values=(), text=f"{stated.text} (taken back)", doubt=WITHDRAWN, style=stated.style)


def box_doubt(text: str) -> str:
    r"""Return why the boxes of a response state no single answer; "" if they do, or without boxes.

    >>> box_doubt(r"\boxed{A} or \boxed{B}"), box_doubt(r"\boxed{A}. No, \boxed{B}")
    ('one of several', '')
    """
    statement = boxes(text) if text.count("\\boxed") > 1 else None
    if statement is None:
        return ""
    return NESTED if statement.nested else _join_boxes(statement).doubt if len(set(statement.contents)) > 1 else ""


def _join_boxes(statement: Boxes) -> Stated:
    """Join the boxes of one statement: alternatives, a range, or the parts of a list."""
    parts = [_read_content(content, in_box=True) for content in statement.contents]
    stated = ", ".join(statement.contents)
    union = as_union(" or ".join(statement.contents)) if statement.joiner in ("or", "\\lor", "\\vee") else None
    if union is not None:
        return Stated(values=(union,), text=stated)
    if statement.joiner in ("to", "through", "-", "–", "—"):
        return Stated(values=(), text=stated, doubt=RANGED)
    doubt = SEVERAL if statement.joiner in ("and", ",", ";", "&", "\\&", "\\land", "\\wedge") else ONE_OF_SEVERAL
    if any(len(part.values) != 1 or part.doubt for part in parts):
        return Stated(values=(), text=stated, doubt=doubt)
    values = tuple(part.values[0] for part in parts)
    return Stated(values=values, text=stated, doubt=doubt, listed=_as_lists(values))


def _as_lists(values: tuple[str, ...]) -> tuple[str, ...]:
    return (", ".join(values), rf"\{{{', '.join(values)}\}}") if len(values) > 1 else ()


@lru_cache(maxsize=1 << 16)
def _read_content(content: str, *, in_box: bool, style: AnswerStyle = "none") -> Stated:
    stated = _read_text(typeset(unwrap(content)), in_box=in_box)
    if _EURO.search(content) is not None:
        stated = replace(stated, is_european=True)
    return stated if style == "none" else replace(stated, style=style)


def _read_text(content: str, *, in_box: bool) -> Stated:
    if not content:
        return _NOTHING
    if (union := as_union(content)) is not None:
        return Stated(values=(union,), text=content)
    if _ENDLESS.fullmatch(content):
        return Stated(values=(content,), text=content)
    bare = _COMMAND.sub(" ", content)
    if _has_words_in_box(bare) if in_box else not looks_like_formula(content):
        return _read_prose(content, in_box=in_box)
    if _REMAINDER.fullmatch(content):
        return Stated(values=(), text=content, doubt=PART)
    if _GOES_ON.fullmatch(content):
        return Stated(values=(), text=content, doubt=RANGED)
    if _UNEQUAL.match(content):
        return Stated(values=(content,), text=content, doubt=NEGATED)
    if _RELATION.match(content):
        return Stated(values=(content,), text=content, doubt=COMPARED)
    members = _AND_IN_TEXT.split(content)
    if len(members) > 1 and all(looks_like_formula(member.strip()) for member in members):
        values = tuple(member.strip(" ,") for member in members)
        return Stated(values=values, text=content, doubt=SEVERAL, listed=(content, *_as_lists(values)))
    words = _TEXTS.sub(r" \1 ", content)
    doubt = sentence(words).doubt if words != content and re.search(r"\d", words) else ""
    if not doubt and (_WORDS_FIRST.match(content) is None or re.search(r"\d", words) is None):
        return Stated(values=(content,), text=content)
    prose = _read_prose(words)
    if not doubt:
        return replace(prose, text=content) if len(prose.values) == 1 else Stated(values=(content,), text=content)
    return replace(prose, text=content, listed=(content, *prose.listed) if prose.listed else ())


def _has_words_in_box(bare: str) -> bool:
    return _PROSE.search(bare) is not None or (not bare.isascii() and _OTHER_SCRIPTS.search(bare) is not None)


def gold_value(gold: str) -> str:
    """Return the value of a gold without the words for what it counts.

    Any other gold is returned unchanged.

    >>> gold_value("350,000 pages"), gold_value("x^2 + 1")
    ('350,000', 'x^2 + 1')
    """
    stated = _read_content(gold, in_box=True)
    if (union := as_union(gold)) is not None:
        return union
    single = len(stated.values) == 1 and not stated.doubt and stated.sentence
    return stated.values[0] if single and not stated.values[0].startswith("\\text{") else gold


@lru_cache(maxsize=1 << 16)
def _read_one_box(content: str) -> Stated:
    return replace(_read_content(without_marks(content), in_box=True), n_boxed=1, style="boxed")


def _read_prose(content: str, *, in_box: bool = False) -> Stated:
    prose = sentence(content)
    whole = content if in_box else prose.clause
    if not prose.values and not prose.doubt:
        return Stated(
            values=(rf"\text{{{content}}}",) if in_box and "{" not in content else (),
            text=prose.stated,
            sentence=whole,
        )
    return Stated(
        values=tuple(unwrap(value) for value in prose.values),
        text=prose.stated,
        sentence=whole,
        doubt=prose.doubt,
        listed=_as_lists(prose.values) if prose.doubt in (ONE_OF_SEVERAL, SEVERAL) else (),
    )
