"""Find the extracted answer in the text of a response."""

from __future__ import annotations

import re

from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.verifiers.exact import labelled_line
from oversharp.diagnostics.verifiers.extraction import hash_answer, last_boxed, tagged_answer
from oversharp.diagnostics.verifiers.reading.responses import final_part

#: Verifiers that extract answers by the rules below.
_RULE_VERIFIERS = ("math", "exact")
#: Extraction rules in order of precedence. The regular expression of a rule matches the text right before the answer,
#: to exclude other occurrences of the same words.
_ANSWER_RULES = (
    (last_boxed, r"\\boxed\s*\{\s*"),
    (tagged_answer, r"<answer>\s*"),
    (hash_answer, r"^[ \t]*####\s*"),
    (labelled_line, ""),
)


def split_at_answer(text: str, answer: str, verifier: str) -> tuple[str, str, str]:
    """Return a text in three parts: before its answer, the answer, and after it. Without it, all is before."""
    start, end = answer_span(text, answer, verifier) or (len(text), len(text))
    return text[:start], text[start:end], text[end:]


def answer_span(text: str, answer: str, verifier: str) -> tuple[int, int] | None:
    r"""Return start and end (exclusive) of the extracted ``answer`` in ``text``; None if it does not occur.

    For the verifiers "math" and "exact", the search covers the text that their rules extract. If that text writes the
    answer differently, its whole span is returned. For other verifiers, return the last occurrence of the answer as a
    whole word.

    >>> text = r"Not 12. So \boxed{12} it is, not 12."
    >>> text[slice(*answer_span(text, "12", "math"))], answer_span(text, "12", "math")[0]
    ('12', 18)
    >>> text = r"So \boxed{\frac12}"
    >>> text[slice(*answer_span(text, "1/2", "math"))]
    '\\frac12'
    >>> answer_span("112 pears", "12", "recorded:trl") is None
    True
    """
    if not answer or answer == NO_ANSWER:
        return None
    if verifier not in _RULE_VERIFIERS:
        return _last_word(text, answer, 0, len(text))
    part = final_part(text).text
    start = text.rfind(part)
    for rule, before in _ANSWER_RULES:
        if stated := rule(part):
            span = _span_in_statement(part, answer, stated, before)
            return None if span is None else (span[0] + start, span[1] + start)
    return _last_word(text, answer, 0, len(text))


def _span_in_statement(text: str, answer: str, stated: str, before: str) -> tuple[int, int] | None:
    """Return the span of the answer in the last occurrence of ``stated``, else of that occurrence."""
    places = [match.span(1) for match in re.finditer(f"{before}({re.escape(stated)})", text, re.MULTILINE)]
    return (_last_word(text, answer, *places[-1]) or places[-1]) if places else None


def _last_word(text: str, answer: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the last occurrence in [start, end) that is not part of a longer word or number."""
    word = re.compile(rf"(?<![\w.]){re.escape(answer)}(?!\w|\.\d)")
    spans = [match.span() for match in word.finditer(text, start, end)]
    return spans[-1] if spans else None
