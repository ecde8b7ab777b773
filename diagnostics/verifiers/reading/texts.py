"""Golds that are words, and answers to them: compared as text, as by the verifier "exact"."""

from __future__ import annotations

import re
from functools import lru_cache

_WRAPPED = re.compile(r"\\(?:text|mathrm|textrm|textbf|textit|mbox|operatorname|mathbf|boldsymbol)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’ ,.&()/-]*[A-Za-z.)]|[A-Za-z]")
_OPTION = re.compile(r"(?:\(([A-Za-z])\)|([A-Z])(?:[).:]|$))(?:\s+(?!(?:or|and|nor)\b|[,/&]).*)?")
#: Why a gold is refused that math-verify cannot read.
NO_MATHEMATICS = "math-verify finds no mathematics in it"
#: Words that are mathematics when they stand alone.
_MATHEMATICS = frozenset(
    str.split("""
sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln exp sqrt max min gcd lcm mod det infinity
infty pi theta alpha beta gamma delta lambda sigma omega epsilon
""")
)
_ARTICLE = re.compile(r"^(?:an?|the) (?=\S)")
_SHORT = frozenset(["yes", "no", "odd", "all", "any", "even", "true", "neither", "none", "never"])
#: What data sets write where they have no answer.
_NO_GOLD = frozenset(["none", "null", "nan", "n/a", "na", "nil", "tbd", "unknown", "?", "-", "--", "[]"])


def says_nothing(gold: str) -> bool:
    """Whether a gold says that there is none.

    >>> [says_nothing(gold) for gold in ("None", "nan", "N/A", "no solution", "0")]
    [True, True, True, False, False]
    """
    return gold.strip().strip("$").casefold() in _NO_GOLD


@lru_cache(maxsize=4096)
def text_gold(gold: str) -> str | None:
    r"""A gold of words as it is compared; None for mathematics.

    Words are what stands in ``\text{}`` without a digit, a single capital, and letters with a word of four or more or
    a name; products of letters (``abc``, ``xy``) and functions are mathematics.

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
    r"""An answer as it is compared with words: without LaTeX's wrapping, quotes, a full stop, and letter case.

    A single letter keeps its case, and loses brackets and what follows them, as options of a question have it.

    >>> as_text(r"\text{Evelyn}."), as_text("(C)"), as_text(r"\textbf{(C) }\ 12"), as_text("No  Solution")
    ('evelyn', 'C', 'C', 'no solution')
    """
    bare = _WRAPPED.sub(r"\1", _WRAPPED.sub(r"\1", answer)).replace("\\ ", " ").replace("$", "").replace("\\", " ")
    bare = " ".join(bare.split()).strip("\"'“”‘’*` ")
    option = _OPTION.fullmatch(bare)
    if option is not None:
        return next(filter(None, option.groups()))
    return _ARTICLE.sub("", bare.rstrip(".!").strip().casefold())
