"""Verifier "exact": the final answer, compared as text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from diagnostics.records.errors import ProblemError
from diagnostics.records.types import NO_ANSWER, Grade, Problem
from diagnostics.verifiers.extraction import (
    announced_answer,
    collapse_whitespace,
    hash_answer,
    last_boxed,
    last_line,
    tagged_answer,
    unwrap,
)
from diagnostics.verifiers.reading.boxes import n_different_boxes
from diagnostics.verifiers.reading.stated import box_doubt

#: Characters of an answer that is remembered once it is tidied, and of the end of a response from its last box on:
#: responses repeat them a lot.
_SHORT, _SHORT_END = 32, 48


def exact_answer(text: str) -> str | None:
    r"""The final answer of a response as text; None if the response is blank.

    The first of these that is there: the last ``\boxed{…}``; the last ``<answer>…</answer>``; the last line that
    starts with ``####``; the rest of the line after the last "answer is" or "answer:"; the last line. Dollars,
    bold marks and a full stop around it are removed and whitespace is collapsed; letter case stays.

    >>> exact_answer("Let me think.\nThe answer is **Paris**."), exact_answer("Paris"), exact_answer(" ")
    ('Paris', 'Paris', None)
    """
    start = text.rfind("\\boxed")
    if start >= 0 and len(text) - start <= _SHORT_END:
        closed = _closed_box(text[start:])
        if closed is not None:
            return closed[0]
    for rule in (last_boxed, tagged_answer, hash_answer, announced_answer, last_line):
        found = rule(text)
        if found is not None:
            return _tidy_short(found) if len(found) <= _SHORT else _tidy(found)
    return None


@lru_cache(maxsize=1 << 16)
def _closed_box(end: str) -> tuple[str | None] | None:
    r"""The answer in the box that a response ends with; None where the last ``\boxed`` is not closed."""
    found = last_boxed(end)
    return None if found is None else (_tidy(found),)


def _tidy(found: str) -> str | None:
    return collapse_whitespace(unwrap(found)) or None


_tidy_short = lru_cache(maxsize=1 << 16)(_tidy)


class ExactVerifier:
    """Correct if the final answer and the gold are the same text under the rules of ``exact_answer``.

    >>> problem = Problem(task="t", prompt="Capital of France?", gold="Paris", verifier="exact")
    >>> ExactVerifier().grade([(problem, "Answer: Paris.")])[0].correct
    True
    """

    name = "exact"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the gold holds no answer."""
        if exact_answer(problem.gold) is None:
            raise ProblemError("the answer is blank; give the text that a correct response ends with")

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order.

        A blank response is ``parse_fail``, one whose last boxes are alternatives or lie in each other ``ambiguous``.
        """
        return [self._grade(problem, text) for problem, text in items]

    def _grade(self, problem: Problem, text: str) -> Grade:
        answer = exact_answer(text)
        if answer is None:
            return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason="blank response")
        n_boxed = n_different_boxes(text)
        if n_boxed and (doubt := box_doubt(text)):
            reason = f"no single answer: {doubt}"
            return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="ambiguous", reason=reason, n_boxed=n_boxed)
        return Grade(answer=answer, mode=answer, reward=float(answer == exact_answer(problem.gold)), n_boxed=n_boxed)
