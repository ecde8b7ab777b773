r"""A deliberately lenient reader that detects answer styles which the verifiers do not recognize.

It compares the gold with the last number, expression or letter of a response, and ignores the words around it. It
accepts too much, so its accuracy alone is not meaningful. The gap to the verifier's accuracy, and the change of that
gap while pass@k fell, distinguish a change of answer style from a loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from oversharp.diagnostics.verifiers.extraction import collapse_whitespace
from oversharp.diagnostics.verifiers.reading.notation import notation_key, typeset
from oversharp.diagnostics.verifiers.reading.signs import with_point

#: Number of characters at the end of a response that are searched.
_TAIL, _SHORT_TAIL = 200, 40
_NUMBER = re.compile(
    r"(?:(?<!\d)[-−])?(?:(?:\d{1,3}(?:[,\u00a0\u202f ]\d{3})+|\d+)(?:\.\d+)?(?:\s*/\s*\d+)?|\.\d+)", re.ASCII
)
#: Characters that can occur in a match of ``_NUMBER``.
_IN_NUMBERS = "0123456789.,/-− \t\n\r\f\v\u00a0\u202f"
_LAST_NUMBER = re.compile(rf"(?:{_NUMBER.pattern})\Z", re.ASCII)
_LAST_TOKEN = re.compile(r"(?<![\d.,])([-−]?)(\d[\d.,'’]*\d)\Z", re.ASCII)
_LAST_DIGIT, _HAS_DIGIT = re.compile(r"[0-9](?=[^0-9]*\Z)"), re.compile("[0-9]")
_NO_DIGITS = "".join(chr(sign) for sign in range(128) if not chr(sign).isdigit()) + "−–—’”。，！✅"
_FRACTION = re.compile(r"(-?)\\[dt]?frac\s*\{?(-?\d+)\}?\s*\{?(\d+)\}?")
#: Mathematics in a response: between dollars, between LaTeX brackets, and in boxes.
_EXPRESSION = re.compile(
    r"\$+([^$]+)\$+|\\\((.+?)\\\)|\\\[(.+?)\\\]|\\boxed\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", re.DOTALL
)
_LETTER = re.compile(r"(?<![A-Za-z])[(\[{*]*([A-HJ-Z])[)\]}*.:]*(?![A-Za-z])")
_MARKS = str.maketrans("", "", "*_`$\\\"'“”‘’()[]{}")
_END = " \t\n.,;:!?*_`$\"'”’)]}✅"


@dataclass(frozen=True, slots=True)
class _Gold:
    number: Fraction | None
    is_percentage: bool
    key: str
    words: str
    #: Texts of which every accepted response contains one. Most wrong responses contain none.
    needles: tuple[str, ...]


@lru_cache(maxsize=1 << 16)
def _gold(gold: str) -> _Gold:
    answer = typeset(gold.strip().strip("$"))
    plain = answer.removesuffix("\\%").strip()
    number = _value(plain)
    tokens = sorted(re.findall(r"[A-Za-z]+|\d+", answer), key=len)
    return _Gold(
        number=number,
        is_percentage=plain != answer,
        key=notation_key(answer),
        words=collapse_whitespace(gold.translate(_MARKS)).casefold().rstrip("."),
        needles=tuple(tokens[-1:]) if number is None else _digits_of(number),
    )


def _digits_of(number: Fraction) -> tuple[str, ...]:
    """Return the last digits of a number in each notation: integer, decimal, fraction, percentage."""
    endings = set()
    for value in (abs(number), 100 * abs(number), abs(number) / 100):
        if value.denominator == 1:
            endings.add(str(value.numerator)[-3:])
        else:
            endings |= {str(value.denominator), f"{float(value):.15g}".rpartition(".")[2][:3]}
    return tuple(endings)


@lru_cache(maxsize=1 << 14)
def _value(text: str) -> Fraction | None:
    text = re.sub(r"[,\s]", "", text).replace("−", "-")
    try:
        if (fraction := _FRACTION.fullmatch(text)) is not None:
            return Fraction(int(fraction[1] + fraction[2]), int(fraction[3]))
        return Fraction(text) if len(text) <= 40 and _NUMBER.fullmatch(text) else None
    except (ValueError, ZeroDivisionError):
        return None


def accepts_mathematics(gold: str, text: str) -> bool:
    r"""Return whether the last number or expression of a response equals the gold.

    >>> accepts_mathematics("73", "So **73** residents in all."), accepts_mathematics("73", "72 or so")
    (True, False)
    >>> accepts_mathematics(r"\frac{1}{2}", r"thus $x = \frac{1}{2}$ holds"), accepts_mathematics("x+1", "so $x + 1$!")
    (True, True)
    """
    return _accepts_mathematics(gold, text[-_TAIL:])


@lru_cache(maxsize=1 << 14)
def _accepts_mathematics(gold: str, tail: str) -> bool:
    """Compute ``accepts_mathematics`` for the end of a response.

    The result is cached, because ends repeat.
    """
    wanted = _gold(gold)
    for needle in wanted.needles:
        if needle in tail:
            break
    else:
        return not wanted.needles and wanted.words != "" and _ends_with(tail, wanted.words)
    if wanted.number is not None:
        end = len(tail.rstrip(_NO_DIGITS))
        if end and not ("0" <= tail[end - 1] <= "9"):  # a non-ASCII character follows the last digit
            end = _LAST_DIGIT.search(tail).end() if _HAS_DIGIT.search(tail) else 0  # type: ignore[union-attr]
        start = len(tail[:end].rstrip(_IN_NUMBERS))  # finding the start first saves most of the regex's time
        last = _LAST_NUMBER.search(tail, max(start, end - 40), end)
        if last is not None and _is_number(wanted, _value(last[0]), tail[end : end + 3]):
            return True
        if last is not None and _is_number(wanted, _other_value(tail, last), tail[end : end + 3]):
            return True
        if wanted.number.denominator == 1:
            return False
    expressions = _EXPRESSION.findall(tail) if "$" in tail or "\\" in tail else []
    if not expressions:
        return wanted.number is None and bool(wanted.words) and _ends_with(tail, wanted.words)
    inner = next(group for group in expressions[-1] if group)
    side = re.split(r"=|\\approx|≈", inner)[-1]
    if wanted.number is not None and _is_number(wanted, _value(typeset(side.strip()).removesuffix("\\%")), side[-3:]):
        return True
    return notation_key(side) == wanted.key or notation_key(inner) == wanted.key


def _other_value(tail: str, last: re.Match[str]) -> Fraction | None:
    """Parse the last number of a tail with a decimal comma, or with points between groups of digits."""
    if "." not in last[0] and tail[max(0, last.start() - 1) : last.start()] not in (",", ".", "'", "’"):
        return None
    token = _LAST_TOKEN.search(tail, max(0, last.start() - 20), last.end())
    number = with_point(token[2], is_european=True) if token is not None else None
    return None if number is None or token is None else Fraction(token[1].replace("−", "-") + number)


def _is_number(wanted: _Gold, number: Fraction | None, after: str) -> bool:
    if number is None or wanted.number is None:
        return False
    if wanted.is_percentage:
        return number == wanted.number or ("%" not in after and 100 * number == wanted.number)
    return number == wanted.number or ("%" in after and number == 100 * wanted.number)


def accepts_letter(gold: str, text: str) -> bool:
    """Return whether the last single letter of a response is the letter of the gold.

    >>> accepts_letter("C", "I would go with **C** here"), accepts_letter("C", "A or B")
    (True, False)
    """
    wanted = _gold_letter(gold)
    for tail in (_SHORT_TAIL, _TAIL):
        letters = _LETTER.findall(text, max(0, len(text) - tail))
        if letters:
            return bool(letters[-1] == wanted)
    return False


@lru_cache(maxsize=1 << 14)
def _gold_letter(gold: str) -> str:
    return next(iter(_LETTER.findall(gold.upper())[::-1]), "")


def accepts_text(gold: str, text: str) -> bool:
    """Return whether a response ends with the gold, ignoring letter case and marks.

    >>> accepts_text("Paris", "So my guess is **paris**."), accepts_text("Paris", "Paris or Rome")
    (True, False)
    """
    wanted = _gold(gold)
    if wanted.number is not None:  # not cached, because most responses of the verifier "exact" are distinct
        return bool(_accepts_mathematics.__wrapped__(gold, text[-_TAIL:]))
    return wanted.words != "" and _ends_with(text, wanted.words)


def _ends_with(text: str, words: str) -> bool:
    end = text[-len(words) - _SHORT_TAIL :]
    if words.rpartition(" ")[2] not in end.casefold():
        return False
    end = end.rstrip(_END)
    plain = collapse_whitespace(end.translate(_MARKS)).casefold()
    return plain.endswith(words) and not plain[: -len(words)][-1:].isalnum()
