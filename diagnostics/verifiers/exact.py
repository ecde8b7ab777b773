"""Verifier "exact", which compares the final answer as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from unicodedata import normalize

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, AnswerStyle, Grade, Problem
from oversharp.diagnostics.verifiers.extraction import (
    collapse_whitespace,
    hash_answer,
    json_answer,
    last_boxed,
    last_line,
    tagged_answer,
    unwrap,
)
from oversharp.diagnostics.verifiers.reading.boxes import n_different_boxes
from oversharp.diagnostics.verifiers.reading.labels import labelled
from oversharp.diagnostics.verifiers.reading.lenient import accepts_text
from oversharp.diagnostics.verifiers.reading.markdown import without_marks
from oversharp.diagnostics.verifiers.reading.responses import answer_text, final_part
from oversharp.diagnostics.verifiers.reading.sentences import goes_on
from oversharp.diagnostics.verifiers.reading.stated import box_doubt

_IN_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox)\s*\{([^{}]*)\}")
#: Longest answer for which results are cached, in characters. Short texts repeat often.
_SHORT = 32
#: Longest end of a response (from its last box on) for which results are cached, in characters. The import finds these
#: ends for many responses at once.
SHORT_END = 48


def exact_answer(text: str, *, prompt: str = "") -> str | None:
    r"""Return the final answer of a response as text; None if it states none.

    The text after the model's thinking is searched for these, in this order: the last ``\boxed{…}``; the last
    ``<answer>…</answer>``; the last line that starts with ``####``; the line after the last label ("answer is",
    "Answer:"); the last line. Markdown, dollars, special tokens and a full stop around the answer are removed, and
    whitespace is collapsed. Letter case is preserved.

    >>> exact_answer("Let me think.\nThe answer is **Paris**."), exact_answer("Paris"), exact_answer(" ")
    ('Paris', 'Paris', None)
    """
    return _extract_answer(answer_text(text, prompt=prompt))[0]


def _extract_answer(part: str) -> tuple[str | None, AnswerStyle]:
    """Return the answer in the final part of a response, and the style in which it is stated."""
    start = part.rfind("\\boxed{")
    if start >= 0 and len(part) - start <= SHORT_END:
        closed = answer_of_box(part[start:])
        if closed is not None:
            return closed[0], "boxed"
    for rule, style in _RULES:
        content = rule(part)
        if content is not None:
            answer = _tidy_short(content) if len(content) <= _SHORT else _tidy(content)
            return answer, "prose" if style == "bare" and "\n" in part.strip() else style
    return None, "none"


def labelled_line(text: str) -> str | None:
    """Return the line after the last answer label, without Markdown; None without a label.

    Returns "" if nothing follows the label, or if the response continues after that line and is truncated.

    >>> labelled_line("**Answer:** Paris"), labelled_line("**Answer:**"), labelled_line("Paris")
    ('Paris', '', None)
    """
    label = labelled(text)
    if label is None:
        return None
    return "" if goes_on("", text[label.stop :]) else label.line


def _last_line(text: str) -> str | None:
    line = last_line(text)
    return line if line is None or line[:1] not in _BULLETS else without_marks(line, bullet=True)


_BULLETS = tuple("->*+•#")
#: Rules that search the answer, in order of priority, with the style of each.
_RULES: tuple[tuple[Callable[[str], str | None], AnswerStyle], ...] = (
    (last_boxed, "boxed"),
    (tagged_answer, "tagged"),
    (hash_answer, "hashes"),
    (json_answer, "labelled"),
    (labelled_line, "labelled"),
    (_last_line, "bare"),
)


@lru_cache(maxsize=1 << 16)
def answer_of_box(end: str) -> tuple[str | None] | None:
    r"""Return the answer in the box that ends a response, in a tuple; None if the last ``\boxed`` is not closed.

    >>> answer_of_box(r"\boxed{7}."), answer_of_box(r"\boxed{}"), answer_of_box(r"\boxed{7")
    (('7',), (None,), None)
    """
    content = last_boxed(end)
    return None if content is None else (_tidy(content),)


def _tidy(answer: str) -> str | None:
    tidy = collapse_whitespace(unwrap(without_marks(answer)))
    if (wrapped := _IN_TEXT.fullmatch(tidy)) is not None:
        tidy = collapse_whitespace(wrapped[1])
    return (tidy if tidy.isascii() else normalize("NFC", tidy)) or None


_tidy_short = lru_cache(maxsize=1 << 16)(_tidy)


_gold_answer = lru_cache(maxsize=1 << 16)(exact_answer)


class ExactVerifier:
    """Accept a response whose ``exact_answer`` equals that of the gold.

    >>> problem = Problem(task="t", prompt="Capital of France?", gold="Paris", verifier="exact")
    >>> ExactVerifier().grade([(problem, "Answer: Paris.")])[0].correct
    True
    """

    name = "exact"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the gold contains no answer."""
        if exact_answer(problem.gold) is None:
            raise ProblemError("the answer is blank; give the text that a correct response ends with")

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order.

        A blank response is ``parse_fail``. A response whose last boxes are alternatives or nested is ``ambiguous``.
        """
        return [self._grade(problem, text) for problem, text in items]

    def _grade(self, problem: Problem, text: str) -> Grade:
        part = answer_text(text, prompt=problem.prompt)
        answer, style = _extract_answer(part)
        if answer is None:
            has_thoughts = final_part(text, prompt=problem.prompt).thoughts is not None
            reason = "no answer follows the thoughts" if has_thoughts else "blank response"
            lenient = accepts_text(problem.gold, text)
            return Grade(
                answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=reason, style=style, lenient=lenient
            )
        n_boxed = n_different_boxes(part)
        if n_boxed and (doubt := box_doubt(part)):
            return Grade(
                answer=NO_ANSWER,
                mode=None,
                reward=0.0,
                state="ambiguous",
                reason=f"no single answer: {doubt}",
                n_boxed=n_boxed,
                style=style,
                lenient=accepts_text(problem.gold, text),
            )
        is_correct = answer == _gold_answer(problem.gold)
        lenient = is_correct or accepts_text(problem.gold, text)
        return Grade(
            answer=answer, mode=answer, reward=float(is_correct), n_boxed=n_boxed, style=style, lenient=lenient
        )
