"""Golds that are words, and their answers. They are compared as text."""

from __future__ import annotations

import re
from functools import lru_cache

_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm|textbf|textit|mbox|operatorname|mathbf|boldsymbol)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’ ,.&()/-]*[A-Za-z.)]|[A-Za-z]")
_OPTION = re.compile(r"(?:\(([A-Za-z])\)|([A-Z])(?:[).:]|$))(?:\s+(?!(?:or|and|nor)\b|[,/&]).*)?")
#: Reason for rejecting a gold that math-verify cannot parse.
NO_MATHEMATICS = "math-verify finds no mathematics in it"
#: Words that are mathematics if no other words occur.
_MATHEMATICS = frozenset(
    str.split("""
sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln exp sqrt max min gcd lcm mod det infinity
infty pi theta alpha beta gamma delta lambda sigma omega epsilon
""")
)
_ARTICLE = re.compile(r"^(?:an?|the) (?=\S)")
_SHORT = frozenset(["yes", "no", "odd", "all", "any", "even", "true", "neither", "none", "never"])
#: Placeholders of data sets for a missing answer.
_NO_GOLD = frozenset(["none", "null", "nan", "n/a", "na", "nil", "tbd", "unknown", "?", "-", "--", "[]"])


def says_nothing(gold: str) -> bool:
    """Return whether a gold is a placeholder for a missing answer.

    >>> [says_nothing(gold) for gold in ("None", "nan", "N/A", "no solution", "0")]
    [True, True, True, False, False]
    """
    return gold.strip().strip("$").casefold() in _NO_GOLD


@lru_cache(maxsize=4096)
def text_gold(gold: str) -> str | None:
    r"""Return the form in which a gold of words is compared; None for mathematics.

    Words are: the content of ``\text{}`` without a digit; a single capital; letters that include a name or a word of at
    least four letters. Products of letters (``abc``, ``xy``) and functions are mathematics.

    >>> text_gold("Paris"), text_gold(r"\text{(C)}"), text_gold("no solution"), text_gold("abc"), text_gold(r"\sin x")
    ('paris', 'C', 'no solution', None, None)
    """
    bare = _WRAPPED.sub(r"\1", gold).replace("\\ ", " ").replace("$", "").strip()
    if _OPTION.fullmatch(bare):
        return as_text(gold)
    if not _WORDS.fullmatch(bare):
        return None
    words = re.findall(r"[A-Za-z]+", bare)
    wrapped = _WRAPPED.fullmatch(gold.strip().strip("$")) is not None
    named = any(len(word) > 3 or (len(word) == 3 and word.istitle()) or word.lower() in _SHORT for word in words)
    mathematics = any(word.lower() in _MATHEMATICS for word in words) or ("/" in bare and max(map(len, words)) == 1)
    return as_text(gold) if not mathematics and (wrapped or named) else None


@lru_cache(maxsize=1 << 14)
def as_text(answer: str) -> str:
    r"""Return an answer without LaTeX wrapping, quotes and full stop, in lower case.

    An option's letter stays a capital, and loses its brackets and the text after it.

    >>> as_text(r"\text{Evelyn}."), as_text("(C)"), as_text(r"\textbf{(C) }\ 12"), as_text("No  Solution")
    ('evelyn', 'C', 'C', 'no solution')
    """
    bare = _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", answer)).replace("\\ ", " ").replace("$", "").replace("\\", " ")
    bare = " ".join(bare.split()).strip("\"'“”‘’*` ")
    option = _OPTION.fullmatch(bare)
    if option is not None:
        return next(filter(None, option.groups()))
    return _ARTICLE.sub("", bare.rstrip(".!").strip().casefold())
