"""Forms of answers that math-verify compares wrongly, such as times, dates and numbers to a base."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from oversharp.diagnostics.verifiers.reading.notation import typeset
from oversharp.diagnostics.verifiers.reading.units import amounts, differ, unit_of

_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox|textit|textbf)\s*\{([^{}]*)\}")
_TIME = re.compile(r"(\d{1,2})(?::([0-5]\d)(?::([0-5]\d))?)?(?:([ap])m)?")
_ISO_DATE = re.compile(r"(\d{4})[-/](0[1-9]|1[0-2])[-/](0[1-9]|[12]\d|3[01])")
_SLASH_DATE = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_NAMED_DATES = (
    re.compile(rf"{_MONTH}\s*{_DAY},?\s*(?P<year>\d{{4}})?"),
    re.compile(rf"{_DAY}\s*(?:of\s+)?{_MONTH},?\s*(?P<year>\d{{4}})?"),
)
_BASES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
          "eleven": 11, "twelve": 12, "sixteen": 16}  # fmt: skip
_BASE = re.compile(
    rf"\(?(?P<digits>-?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?\s*(?:_\s*\{{?|\(?(?:in\s+)?base)\s*\(?(?P<base>\d{{1,2}}"
    rf"|{'|'.join(_BASES)})\)?\}}?\)?",
)
#: One or several hexadecimal, binary or octal literals, or dotted numbers such as addresses and versions. The second
#: pattern matches the text before or around them.
_ONE_CODE = r"-?0x[0-9a-f]+|-?0b[01]+|-?0o[0-7]+|[0-9]+(?:\.[0-9]+){2,}(?:/\d+)?"
_CODE = re.compile(rf"(?:{_ONE_CODE})(?:,(?:{_ONE_CODE}))*")
_AROUND_CODE = re.compile(r"^[a-z]=|\\(?:texttt|mathtt)\{|[{}]")
_OPENING, _CLOSING = {"(": "(", "[": "[", "\\{": "{"}, {")": ")", "]": "]", "\\}": "}"}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_INTEGER, _TWO_NUMBERS = (
    re.compile(r"-?\d{1,15}", re.ASCII),
    re.compile(r"-?\d+(?:\.\d+)?(?::|\\colon)-?\d+(?:\.\d+)?", re.ASCII),
)
_INEQUALITY_SIGNS = (
    (re.compile(r"<=|⩽|\\(?:leqslant|leq|le)(?![A-Za-z])"), "≤"),
    (re.compile(r">=|⩾|\\(?:geqslant|geq|ge)(?![A-Za-z])"), "≥"),
    (re.compile(r"\\lt(?![A-Za-z])"), "<"),
    (re.compile(r"\\gt(?![A-Za-z])"), ">"),
)
_INEQUALITY = re.compile(
    r"(?P<low>[^<>≤≥=,]+)(?P<low_sign>[<≤])\s*(?P<x>[A-Za-z])\s*(?P<high_sign>[<≤])(?P<high>[^<>≤≥=,]+)"
    r"|(?P<y>[A-Za-z])\s*(?P<sign>[<>≤≥])(?P<bound>[^<>≤≥=,]+)"
)
_EITHER = re.compile(r"\bor\b|∨|\\(?:lor|vee)(?![A-Za-z])")
_SIDE_BY_SIDE = re.compile(r"\d+(?:[\s~]+\d+)+")
_GROUPED = re.compile(r"\d{1,3}(?:[\s~]+\d{3})+")
_ENDLESS = re.compile(r"\[\s*-\s*(?:\\infty|∞)|(?:\\infty|∞)\s*\]")


def verdict_on_form(gold: str, answer: str) -> bool | None:
    r"""Return whether the answer is right if its form, or the gold's, decides; else None.

    >>> verdict_on_form("10:30", "1/3"), verdict_on_form("101_2", "101_3"), verdict_on_form("(1,2)", r"\{1,2\}")
    (False, False, False)
    >>> verdict_on_form("10:30", "10:30 a.m."), verdict_on_form("3:4", "6:8"), verdict_on_form("18", r"18\text{ cm}")
    (True, None, None)
    """
    rules = (
        _judge_plain_number,
        _judge_time,
        _judge_date,
        _judge_base,
        _judge_code,
        _judge_amounts,
        _judge_unit,
        _judge_ratio,
        _judge_digits,
        _judge_brackets,
        _judge_list,
        _judge_dots,
    )
    for rule in rules:
        decided = rule(gold, answer)
        if decided is not None:
            return decided
    return None


def is_form(gold: str) -> bool:
    """Return whether a gold is a time, a date, a number to a base, a code or amounts in several units.

    >>> is_form("4:30 p.m."), is_form("2023-01-05"), is_form("101_2"), is_form("0x1F"), is_form("3:4")
    (True, True, True, True, False)
    """
    return any(form(gold) is not None for form in (_time, _date, _base, _code, amounts))


def _plain(text: str) -> str:
    text = _TEXT.sub(r" \1", text.replace("\\ ", " ").replace("\\,", " ").replace("~", " ").replace("$", ""))
    return " ".join(text.lower().split()).rstrip(" ")


def _clock(text: str) -> re.Match[str] | None:
    plain = _plain(text).replace(".", "").replace(" ", "")
    return _TIME.fullmatch(plain.removesuffix("o'clock").removesuffix("o’clock"))


@lru_cache(maxsize=4096)
def _time(text: str) -> tuple[int, int, int, str] | None:
    """Return hour, minute, second and "a", "p" or ""; None if the text may be a ratio in lowest terms."""
    match = _clock(text)
    if match is None or (match[2] is None and match[4] is None):
        return None
    hour, minute, half = int(match[1]), int(match[2] or 0), match[4] or ""
    ratio = not half and match[3] is None and not match[1].startswith("0") and not match[2].startswith("0")
    if hour > 24 or (ratio and math.gcd(hour, minute) == 1):
        return None
    return hour, minute, int(match[3] or 0), half


def _judge_plain_number(gold: str, answer: str) -> bool | None:
    """Compare a plain number with a time, a ratio or a number to a base.

    Only a full hour and base ten may equal it.
    """
    if _INTEGER.fullmatch(gold) is None:
        return None
    time, number = _time(answer), _base(answer)
    if time is not None:
        return time[0] == int(gold) and time[1:3] == (0, 0)
    if number is not None:
        return number == (gold, 10)
    return False if _TWO_NUMBERS.fullmatch(_bare(answer)) else None


def _judge_time(gold: str, answer: str) -> bool | None:
    right, stated = _time(gold), _time(answer)
    if right is None:
        if stated is None or ":" not in gold:
            return None if stated is None else False
        ratio = _clock(gold)
        same = ratio is not None and ratio[2] is not None and stated[:2] == (int(ratio[1]), int(ratio[2]))
        return True if same else None
    if stated is None:
        match = _clock(answer)
        stated = (int(match[1]), int(match[2] or 0), int(match[3] or 0), match[4] or "") if match else None
    if stated is None:
        return False
    same = right[:3] == stated[:3] and (right[3] == stated[3] or not (right[3] and stated[3]))
    return same or _as_24_hours(right) == _as_24_hours(stated)


def _as_24_hours(time: tuple[int, int, int, str]) -> tuple[int, int, int]:
    hour, minute, second, half = time
    return (hour % 12 + 12 * (half == "p") if half else hour), minute, second


@lru_cache(maxsize=4096)
def _date(text: str) -> tuple[str, ...] | None:
    """Return the stated parts of year, month and day. The month in 3/4/2021 is ambiguous."""
    plain = _plain(text).rstrip(".")
    if (match := _ISO_DATE.fullmatch(plain)) is not None:
        return match[1], str(int(match[2])), str(int(match[3]))
    if (match := _SLASH_DATE.fullmatch(plain)) is not None:
        return "slashes", match[3], str(int(match[1])), str(int(match[2]))
    for form in _NAMED_DATES:
        if (match := form.fullmatch(plain)) is not None:
            return match["year"] or "", str(_MONTHS.index(match["month"]) + 1), str(int(match["day"]))
    return None


def _judge_date(gold: str, answer: str) -> bool | None:
    right, stated = _date(gold), _date(answer)
    if right is None:
        return None if stated is None else False
    if stated is None or len(right) != len(stated):
        return False
    return right[1:] == stated[1:] and (right[0] == stated[0] or not right[0])


@lru_cache(maxsize=4096)
def _base(text: str) -> tuple[str, int] | None:
    match = _BASE.fullmatch(_plain(text))
    if match is None:
        return None
    base = _BASES.get(match["base"]) or int(match["base"])
    digits = match["digits"].lstrip("-")
    number = digits[0].isdigit() or (base > 10 and len(digits) > 1)
    fits = 2 <= base <= 36 and all(digit == "." or int(digit, 36) < base for digit in digits)
    return (match["digits"], base) if number and fits else None


def _judge_base(gold: str, answer: str) -> bool | None:
    right, stated = _base(gold), _base(answer)
    if right is None:
        return None
    if stated is not None:
        return right == stated
    return _plain(answer).replace(" ", "") == right[0]


@lru_cache(maxsize=4096)
def _code(text: str) -> str | None:
    plain = _AROUND_CODE.sub("", _plain(text).replace(" ", ""))
    return plain if _CODE.fullmatch(plain) else None


def _judge_code(gold: str, answer: str) -> bool | None:
    """Compare codes as text. math-verify reads 0x1F, and every address that contains a 0, as a product with 0."""
    right, stated = _code(gold), _code(answer)
    return None if right is None and stated is None else right == stated


def _judge_unit(gold: str, answer: str) -> bool | None:
    return False if differ(unit_of(gold), unit_of(answer)) else None


def _judge_amounts(gold: str, answer: str) -> bool | None:
    right, stated = amounts(gold), amounts(answer)
    return None if right is None and stated is None else right == stated


def _judge_ratio(gold: str, answer: str) -> bool | None:
    """Compare ratios of at least three numbers. math-verify divides the first by all others, in any order."""
    right, stated = _ratio(gold), _ratio(answer)
    if right is None and stated is None:
        return None
    if right is None or stated is None or len(right) != len(stated):
        return False
    return all(part * stated[0] == stated_part * right[0] for part, stated_part in zip(right, stated, strict=True))


@lru_cache(maxsize=4096)
def _ratio(text: str) -> tuple[Fraction, ...] | None:
    parts = re.split(r"\s*(?::|\\colon)\s*", _bare(text).replace("$", ""))
    numbers = [_NUMBER.fullmatch(part) for part in parts]
    if len(parts) < 3 or None in numbers:
        return None
    ratio = tuple(Fraction(part) for part in parts)
    return None if 0 in ratio else ratio


def _judge_digits(gold: str, answer: str) -> bool | None:
    """Reject numbers separated by spaces (which math-verify joins), except groups of three digits."""
    apart = _SIDE_BY_SIDE.fullmatch(answer.strip()) is not None and not _GROUPED.fullmatch(answer.strip())
    return False if apart and not _SIDE_BY_SIDE.fullmatch(gold.strip()) else None


def _judge_list(gold: str, answer: str) -> bool | None:
    """Compare equally long lists with repeated numbers. math-verify reads 1, 2, 2 and 1, 1, 2 as the same set."""
    right, stated = _numbers(gold), _numbers(answer)
    if right is None or stated is None or len(right) != len(stated) or len(set(right)) == len(right):
        return None
    return False if sorted(right) != sorted(stated) else None


@lru_cache(maxsize=4096)
def _numbers(text: str) -> tuple[Fraction, ...] | None:
    bare = _bare(text)
    parts = (bare[2:-2] if bare.startswith("\\{") and bare.endswith("\\}") else bare).split(",")
    return tuple(map(Fraction, parts)) if len(parts) > 1 and all(map(_NUMBER.fullmatch, parts)) else None


def _judge_brackets(gold: str, answer: str) -> bool | None:
    if _ENDLESS.search(_bare(answer)) and not _ENDLESS.search(_bare(gold)):
        return False  # no interval of real numbers contains infinity
    right, stated = brackets(gold), brackets(answer)
    return False if right is not None and stated is not None and "{}" in (right, stated) and right != stated else None


def _judge_dots(gold: str, answer: str) -> bool | None:
    """Distinguish a list with dots from a list without dots. math-verify ignores dots."""
    goes_on = [re.search(r"[,:+].*\\ldots|\\ldots.*[,:+]", typeset(text)) is not None for text in (gold, answer)]
    return False if goes_on[0] != goes_on[1] else None


def _bare(text: str) -> str:
    return re.sub(r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])|\s", "", text)


def as_union(text: str) -> str | None:
    r"""Rewrite inequalities of one variable, joined by "or", as a union of intervals; None for other text.

    >>> as_union(r"x<2 \text{ or } x \ge 3"), as_union("0 < x < 1 or x > 3"), as_union("x<2"), as_union("x<2 or y>3")
    ('(-\\infty,2)\\cup[3,\\infty)', '(0,1)\\cup(3,\\infty)', None, None)
    """
    if "or" not in text and "∨" not in text and "\\lor" not in text and "\\vee" not in text:
        return None
    plain = _TEXT.sub(r" \1 ", text.replace("$", "").replace("\\ ", " "))
    for pattern, sign in _INEQUALITY_SIGNS:
        plain = pattern.sub(sign, plain)
    parts = [_INEQUALITY.fullmatch(part.strip(" .,")) for part in _EITHER.split(plain)]
    if len(parts) < 2 or any(part is None for part in parts):
        return None
    matches = [part for part in parts if part is not None]
    if len({part["x"] or part["y"] for part in matches}) > 1:
        return None
    return r"\cup".join(map(_interval, matches))


def _interval(part: re.Match[str]) -> str:
    if part["x"] is not None:
        open_, close = ("[" if part["low_sign"] == "≤" else "("), ("]" if part["high_sign"] == "≤" else ")")
        return f"{open_}{part['low'].strip()},{part['high'].strip()}{close}"
    bound, is_closed = part["bound"].strip(), part["sign"] in "≤≥"
    if part["sign"] in "<≤":
        return rf"(-\infty,{bound}{']' if is_closed else ')'}"
    return rf"{'[' if is_closed else '('}{bound},\infty)"


def brackets(text: str) -> str | None:
    r"""Return the brackets around a whole list, such as "()", "[)" or "{}"; None without a matching pair.

    >>> brackets(r"\left(1, 2\right]"), brackets(r"\{1, 2\}"), brackets("(1+x)(2,3)"), brackets("(12)")
    ('(]', '{}', None, None)
    """
    tokens = re.findall(r"\\[{}]|\\[A-Za-z]+|.", _bare(text))
    if len(tokens) < 2 or tokens[0] not in _OPENING or tokens[-1] not in _CLOSING:
        return None
    depth, comma = 0, False
    for position, token in enumerate(tokens):
        depth += (token in _OPENING or token == "{") - (token in _CLOSING or token == "}")
        comma = comma or (depth == 1 and token == ",")
        if depth == 0 and position < len(tokens) - 1:
            return None
    return _OPENING[tokens[0]] + _CLOSING[tokens[-1]] if comma else None
