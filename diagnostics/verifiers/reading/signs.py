"""Signs that math-verify cannot read, as it can: ½, √2, x², full-width digits, repeating decimals, 1 000."""

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
_GROUPS = re.compile(r"-?\d{1,3}(?:(?:\s+|~|\\[,; ])\d{3})+(?:\.\d+)?", re.ASCII)


def as_latex(answer: str) -> str:
    r"""An answer whose signs math-verify can read.

    >>> as_latex("４２"), as_latex("3½"), as_latex("2√3"), as_latex("x²"), as_latex(r"0.1\overline{6}")
    ('42', '3\\frac{1}{2}', '2\\sqrt{3}', 'x^{2}', '\\frac{1}{6}')
    >>> as_latex("1 000"), as_latex("42 43")
    ('1000', '42 43')
    """
    if not answer.isascii():
        answer = _FULL_WIDTH.sub(lambda sign: normalize("NFKC", sign[0]), answer)
        answer = _VULGAR.sub(_fraction, answer)
        answer = _RAISED.sub(lambda raised: f"^{{{raised[0].translate(_SUPERSCRIPTS)}}}", answer)
        answer = _ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2] or root[3]}}}", answer).replace("∅", r"\emptyset")
    if (repeating := _REPEATING.fullmatch(answer)) is not None:
        return _repeating(*repeating.groups(default=""))
    if _GROUPS.fullmatch(answer):
        return re.sub(r"[^-.\d]", "", answer)
    return answer.replace(r"\varnothing", r"\emptyset")


def _fraction(sign: re.Match[str]) -> str:
    above, below = normalize("NFKC", sign[0]).split("⁄")
    return rf"\frac{{{above}}}{{{below}}}"


def _repeating(minus: str, whole: str, once: str, group: str, digit: str) -> str:
    """0.1666… is (16 − 1) / 90."""
    again = group or digit
    value = Fraction(int(whole + once + again or 0) - int(whole + once or 0), (10 ** len(again) - 1) * 10 ** len(once))
    return f"{minus}{value}" if value.denominator == 1 else rf"{minus}\frac{{{value.numerator}}}{{{value.denominator}}}"
