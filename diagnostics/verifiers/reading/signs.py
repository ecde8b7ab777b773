"""Rewrite signs that math-verify cannot parse, such as ½, √2, x², full-width digits and 1 000."""

from __future__ import annotations

import re
from fractions import Fraction
from unicodedata import normalize

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_RAISED = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_VULGAR = re.compile("[¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_FULL_WIDTH = re.compile("[！-～]")
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\d+(?:\.\d+)?|[A-Za-z]))")
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\(?:overline|bar)\s*(?:\{(\d{1,40})\}|(\d))", re.ASCII)
_VULGAR_AFTER = re.compile(r"(?<=\d)\s+(?=[¼½¾⅐-⅞])")
_GROUPS = re.compile(r"-?\d{1,3}(?:(?:\s+|~|\\[,; ])\d{3})+(?:\.\d+)?", re.ASCII)


def as_latex(answer: str) -> str:
    r"""Rewrite signs that math-verify cannot parse as LaTeX.

    >>> as_latex("４２"), as_latex("3½"), as_latex("2√3"), as_latex("x²"), as_latex(r"0.1\overline{6}")
    ('42', '3\\frac{1}{2}', '2\\sqrt{3}', 'x^{2}', '\\frac{1}{6}')
    >>> as_latex("1 000"), as_latex("42 43")
    ('1000', '42 43')
    """
    if not answer.isascii():
        answer = _FULL_WIDTH.sub(lambda sign: normalize("NFKC", sign[0]), answer)
        answer = _VULGAR.sub(_fraction, _VULGAR_AFTER.sub("", answer))
        answer = _RAISED.sub(lambda raised: f"^{{{raised[0].translate(_SUPERSCRIPTS)}}}", answer)
        answer = _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2] or root[3]}}}", answer).replace("∅", r"\emptyset")
    if (repeating := _REPEATING.fullmatch(answer)) is not None:
        return _repeating(*repeating.groups(default=""))
    if _GROUPS.fullmatch(answer):
        return re.sub(r"[^-.\d]", "", answer)
    return answer.replace(r"\varnothing", r"\emptyset")


#: Number formats of languages other than English, and Indian digit groups.
_COMMA = re.compile(r"(?P<whole>\d+),(?P<part>\d+)", re.ASCII)
_MAY_GROUP = re.compile(r"[1-9]\d{0,2}[,.]\d{3}", re.ASCII)
_POINTS = re.compile(r"(?P<whole>[1-9]\d{0,2}(?:\.\d{3})+)(?:,(?P<part>\d+))?", re.ASCII)
_SPACED = re.compile(r"(?P<whole>[1-9]\d{0,2}(?:[ '’\u00a0\u202f\u2009]\d{3})+)(?:[,.](?P<part>\d+))?", re.ASCII)
_INDIAN = re.compile(r"(?P<whole>\d{1,2}(?:,\d{2})+,\d{3})(?:\.(?P<part>\d+))?", re.ASCII)
_OTHER_NUMBER = re.compile(
    r"(?P<lead>[^\d,;()\[\]{}]*)(?P<number>\d[\d.,'’ \u00a0\u202f\u2009]*\d)(?P<rest>(?:[^\d,;]|\^\{?\d)*)"
)


def with_point(number: str, *, is_european: bool = False, decimals: int | None = None) -> str | None:
    """Parse a number with a decimal comma or with digit groups; None if it cannot be parsed that way.

    ``is_european``: the number has a label in a language other than English, or is in euros. Only then is "1.800" 1800.
    Only then, and if the gold has ``decimals`` = 3 decimals, is "1,234" 1.234.

    >>> [with_point(text) for text in ("3,5", "1.234.567", "1.234,56", "12,34,567", "1,234", "1.800", "0,125", "3.5")]
    ['3.5', '1234567', '1234.56', '1234567', None, None, '0.125', None]
    >>> with_point("1.800", is_european=True), with_point("1,234", is_european=True, decimals=3)
    ('1800', '1.234')
    """
    if _MAY_GROUP.fullmatch(number) and not (is_european and ("." in number or decimals == 3)):
        return None
    for form in (_COMMA, _POINTS, _SPACED, _INDIAN):
        if (match := form.fullmatch(number)) is not None:
            whole = re.sub(r"\D", "", match["whole"])
            return f"{whole}.{match['part']}" if match["part"] else whole
    return None


def other_reading(answer: str, *, is_european: bool = False, decimals: int | None = None) -> str | None:
    """Return an answer with its single number replaced by ``with_point``; None if nothing changes.

    >>> other_reading("x = 3,5"), other_reading("4,5 kg"), other_reading("(3,5)"), other_reading("3, 5")
    ('x = 3.5', '4.5 kg', None, None)
    """
    match = _OTHER_NUMBER.fullmatch(answer)
    number = None if match is None else with_point(match["number"].strip(), is_european=is_european, decimals=decimals)
    return None if match is None or number is None else f"{match['lead']}{number}{match['rest']}"


def _fraction(sign: re.Match[str]) -> str:
    above, below = normalize("NFKC", sign[0]).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _repeating(minus: str, whole: str, once: str, group: str, digit: str) -> str:
    """Return a repeating decimal as a fraction: 0.1666… is (16 − 1) / 90."""
    again = group or digit
    value = Fraction(int(whole + once + again or 0) - int(whole + once or 0), (10 ** len(again) - 1) * 10 ** len(once))
    return f"{minus}{value}" if value.denominator == 1 else rf"{minus}\frac{{{value.numerator}}}{{{value.denominator}}}"
