"""Where the answer that a grader read stands in a response. Pure."""

from __future__ import annotations

import re

from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.verifiers.exact import labelled_line
from oversharp.diagnostics.verifiers.extraction import hash_answer, last_boxed, tagged_answer
from oversharp.diagnostics.verifiers.reading.responses import final_part

#: Verifiers that read an answer by these rules, the first that finds one.
_BY_RULES = ("math", "exact")
#: With what stands right before it, by which the same words elsewhere are told apart.
_RULES = (
    (last_boxed, r"\\boxed\s*\{\s*"),
    (tagged_answer, r"<answer>\s*"),
    (hash_answer, r"^[ \t]*####\s*"),
    (labelled_line, ""),
)


def answer_span(text: str, answer: str, verifier: str) -> tuple[int, int] | None:
    r"""First and last character, exclusive, of what was read as ``answer``; None where it is not to be found.

    Of the verifiers "math" and "exact" it is looked for in what their rules take for the statement, and the whole
    statement is taken where the answer is written differently there. Of others it is the last place where the answer
    stands as a word.

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
    if verifier not in _BY_RULES:
        return _last_word(text, answer, 0, len(text))
    part = final_part(text).text
    start = text.rfind(part)
    for rule, before in _RULES:
        if stated := rule(part):
            found = _within(part, answer, stated, before)
            return None if found is None else (found[0] + start, found[1] + start)
    return _last_word(text, answer, 0, len(text))


def _within(text: str, answer: str, stated: str, before: str) -> tuple[int, int] | None:
    """The answer in the last statement of these words, or the statement."""
    places = [match.span(1) for match in re.finditer(f"{before}({re.escape(stated)})", text, re.MULTILINE)]
    return (_last_word(text, answer, *places[-1]) or places[-1]) if places else None


def _last_word(text: str, answer: str, start: int, end: int) -> tuple[int, int] | None:
    """The last place between ``start`` and ``end`` where the answer is not a part of a longer word or number."""
    word = re.compile(rf"(?<![\w.]){re.escape(answer)}(?!\w|\.\d)")
    found = [match.span() for match in word.finditer(text, start, end)]
    return found[-1] if found else None
