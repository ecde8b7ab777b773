"""Verifier "math": math-verify in worker processes that can be killed, behind rules on what states an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING

from diagnostics.records.errors import ProblemError
from diagnostics.records.types import NO_ANSWER, Grade, GradeState, Problem
from diagnostics.verifiers.extraction import collapse_whitespace, last_boxed, unwrap
from diagnostics.verifiers.killable import KillablePool, Outcome
from diagnostics.verifiers.reading.forms import brackets, is_form, verdict_on_form
from diagnostics.verifiers.reading.signs import as_latex
from diagnostics.verifiers.reading.stated import Stated, gold_value, read
from diagnostics.verifiers.reading.texts import as_text, says_nothing, text_gold
from diagnostics.verifiers.reading.units import is_algebra, protected, without_unit

if TYPE_CHECKING:
    from diagnostics.verifiers.math_worker import MathVerdict

WORKER_MODULE = "diagnostics.verifiers.math_worker"
#: Longer "answers" are runaway text; parsing them is where grammars explode.
MAX_ANSWER_CHARACTERS = 1000

_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})", re.ASCII)
_INFINITY = re.compile(r"([-+]?)\s*(?:\\text\{)?\s*(?:positive )?infinity\}?", re.IGNORECASE)
_MIXED = re.compile(r"(-?\d+)\s+(\d+)\s*/\s*(\d+)", re.ASCII)
_CURRENCY = re.compile(r"^[€£¥]\s*(?=\d)")
_LIST = re.compile(r",|;|\b(?:or|and)\b|\\pm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gold:
    """A gold as it is compared: ``answer`` without a box, ``boxed`` for math-verify, ``words`` where it is text."""

    answer: str
    boxed: str
    words: str | None
    is_list: bool
    algebra: bool


@lru_cache(maxsize=1 << 16)
def gold_of(gold: str) -> Gold:
    r"""Read a gold. One that is a whole solution counts by its own last box.

    Bare, math-verify would read ``2\sqrt{3}`` as 2 and ``x^2+1`` not at all.

    >>> gold_of(r"Thus \boxed{x^2+1}.").boxed, gold_of("$5$").boxed, gold_of("Paris").words
    ('\\boxed{x^2+1}', '\\boxed{5}', 'paris')
    """
    inner = last_boxed(gold)
    answer = unwrap(gold if inner is None else inner)
    value = without_unit(gold_value(answer))
    algebra = is_algebra(value)
    return Gold(
        answer=answer,
        boxed=boxed(value, algebra=algebra),
        words=text_gold(answer),
        is_list=bool(_LIST.search(answer)) and brackets(answer) in (None, "{}"),
        algebra=algebra,
    )


#: How often a gold is asked of that takes too long: mostly the machine had other work, and a gold that was called
#: unreadable for that would be compared as text, another problem than yesterday's.
_CHECKS = 3


@lru_cache(maxsize=1 << 16)
def boxed(answer: str, *, algebra: bool = False) -> str:
    r"""An answer as math-verify is to read it: in a box; ``4e5``, ``3 1/2`` and ``infinity`` as mathematics has them.

    ``algebra``: the gold ends in a variable, so that a last letter is none of a unit.

    >>> boxed("4e5"), boxed("-infinity"), boxed("6t", algebra=True)
    ('\\boxed{4 \\times 10^{5}}', '\\boxed{-\\infty}', '\\boxed{6(t)}')
    """
    answer = protected(without_unit(as_latex(_CURRENCY.sub("", unwrap(answer)))), algebra=algebra)
    if (number := _SCIENTIFIC.fullmatch(answer)) is not None:
        answer = rf"{number[1]} \times 10^{{{int(number[2])}}}"
    elif (endless := _INFINITY.fullmatch(answer)) is not None:
        answer = rf"{endless[1]}\infty"
    elif (mixed := _MIXED.fullmatch(answer)) is not None:
        answer = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    return f"\\boxed{{{answer}}}"


class MathVerifier:
    r"""Grades mathematics: ``reading.stated.read`` finds what a response states, math-verify compares it with the gold.

    What states no single value (negated, compared, a range, alternatives that are not all right, taken back) is
    ``ambiguous``. Words are compared as text, times, dates and numbers to a base by their parts; two different units,
    and a set with a tuple, differ. docs/grading.md has the rules.

    Each distinct (gold, answer) pair is verified once in the life of the verifier, whatever the number of samples.
    The answer is a canonical key: the gold's for a correct answer, else an exact rational, 12 significant digits or
    sympy's normal form; mode and answer are the same. No answer, or one that math-verify cannot read, is
    ``parse_fail``; one that takes longer than ``timeout_s`` (wall seconds) is ``timeout`` and its own text the answer.

    Limits, all math-verify's: an equation states its right side; the tuple (1, 2) and the open interval are the same.

    Use as a context manager, or ``close()`` it: worker processes start at the first pair.
    """

    name = "math"
    #: Whether a response that puts different contents into boxes is ambiguous.
    one_box = False

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._pool = KillablePool(module=WORKER_MODULE, timeout_s=timeout_s, workers=workers)
        self._verdicts: dict[tuple[str, str], Outcome[MathVerdict]] = {}
        self._known: dict[tuple[Gold, Stated], Grade] = {}

    def __enter__(self) -> MathVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes; they start afresh if the verifier is used again."""
        self._pool.close()

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the gold says that there is none, is too long or has no value."""
        gold = gold_of(problem.gold)
        if _PLAIN_NUMBER.fullmatch(gold.answer):
            return  # certain without asking a worker, and most golds are of this kind
        if len(gold.boxed) > MAX_ANSWER_CHARACTERS:
            raise ProblemError(f"the answer has {len(gold.boxed)} characters; give the final answer alone")
        why = "it says that there is no answer" if says_nothing(gold.answer) else self._fault(gold)
        if why:
            shown = collapse_whitespace(problem.gold)[:60]
            raise ProblemError(f'answer {shown!r} cannot be graded ({why}); mend it, or set "verifier": "exact"')

    def _fault(self, gold: Gold) -> str:
        if gold.words is not None or is_form(gold.answer):
            return ""
        from diagnostics.verifiers.math_worker import gold_fault

        for _ in range(_CHECKS):
            [outcome] = self._pool.map(gold_fault, [(gold.boxed,)])
            if outcome.state != "timeout":
                break
        return outcome.reason if outcome.value is None else outcome.value

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order; pairs that were verified before cost no worker."""
        asked = [(gold_of(problem.gold), read(text)) for problem, text in items]
        new = dict.fromkeys(pair for pair in asked if pair not in self._known)
        self._verify([pair for gold, stated in new for pair in _pairs(gold, stated)])
        return [self._known.get(pair) or self._remember(pair) for pair in asked]

    def _remember(self, pair: tuple[Gold, Stated]) -> Grade:
        """Responses repeat what they state far more often than their texts."""
        grade = self._known[pair] = self._grade(*pair)
        return grade

    def _verify(self, pairs: Sequence[tuple[str, str]]) -> None:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._verdicts]
        if new:
            from diagnostics.verifiers.math_worker import judge

            self._verdicts.update(zip(new, self._pool.map(judge, new), strict=True))

    def _grade(self, gold: Gold, stated: Stated) -> Grade:
        grade = self._by_the_rules(gold, stated)
        # what stands there letter by letter as in the gold is right, also where nothing can read it
        told = stated.text is not None and not grade.correct and (not self.one_box or stated.n_boxed < 2)
        if told and _squeezed(gold.answer) in (_squeezed(stated.text or ""), _squeezed(stated.sentence)):
            return _graded(collapse_whitespace(gold.answer), stated, correct=True)
        return grade

    def _by_the_rules(self, gold: Gold, stated: Stated) -> Grade:
        if stated.text is None:
            return _no_answer("no \\boxed{}, <answer>, ####, 'answer is' or bare formula in the response", stated)
        if len(stated.text) > MAX_ANSWER_CHARACTERS:
            return _no_answer(f"the answer is longer than {MAX_ANSWER_CHARACTERS} characters", stated)
        if self.one_box and stated.n_boxed > 1:
            return _ambiguous("different boxes", stated)
        if gold.words is not None:
            return _of_words(gold.words, stated)
        form = verdict_on_form(gold.answer, stated.text)
        if form or (stated.sentence and verdict_on_form(gold.answer, stated.sentence)):
            return _graded(collapse_whitespace(gold.answer), stated, correct=True)
        if stated.doubt and not (is_form(gold.answer) and is_form(stated.sentence)):
            return self._doubtful(gold, stated)
        if not stated.values and not stated.doubt:
            return _no_answer("no number or formula in the answer", stated)
        if form is False or stated.doubt:
            return _graded(collapse_whitespace(stated.text), stated)
        return self._judged(gold, stated.values[0], stated)

    def _judged(self, gold: Gold, value: str, stated: Stated) -> Grade:
        outcome = self._verdicts[gold.boxed, boxed(value, algebra=gold.algebra)]
        if outcome.value is None:
            assert outcome.state != "ok"
            return _graded(collapse_whitespace(value), stated, state=outcome.state, reason=outcome.reason)
        if outcome.value.answer_key is None:
            return _no_answer("math-verify cannot read the answer", stated)
        return _graded(outcome.value.answer_key, stated, correct=outcome.value.correct)

    def _doubtful(self, gold: Gold, stated: Stated) -> Grade:
        """Right where every alternative is, or where the list of them is what the gold lists."""
        grades = [self._judged(gold, value, stated) for value in stated.values]
        if grades and all(
            grade.correct and verdict_on_form(gold.answer, value) is not False
            for grade, value in zip(grades, stated.values, strict=True)
        ):
            return grades[0]
        for value in stated.listed if gold.is_list else ():
            grade = self._judged(gold, value, stated)
            if grade.correct and verdict_on_form(gold.answer, value) is not False:
                return grade
        return _ambiguous(stated.doubt, stated)


class StrictMathVerifier(MathVerifier):
    """The same, but a response that puts different contents into boxes, wherever, is ambiguous."""

    name = "math_strict"
    one_box = True


def _squeezed(text: str) -> str:
    """Without spaces, but for those between two numbers."""
    return re.sub(r"(?<!\d)[\s$]+|[\s$]+(?!\d)", "", text).removesuffix(".")


def _pairs(gold: Gold, stated: Stated) -> Iterator[tuple[str, str]]:
    if gold.words is not None or stated.text is None or len(stated.text) > MAX_ANSWER_CHARACTERS:
        return
    for value in (*stated.values, *(stated.listed if gold.is_list else ())):
        yield gold.boxed, boxed(value, algebra=gold.algebra)


def _of_words(words: str, stated: Stated) -> Grade:
    said = as_text(stated.text or "")
    if said == words:
        return _graded(words, stated, correct=True)
    return _ambiguous(stated.doubt, stated) if stated.doubt else _graded(said or NO_ANSWER, stated)


def _graded(answer: str, stated: Stated, *, correct: bool = False, state: GradeState = "ok", reason: str = "") -> Grade:
    return Grade(answer=answer, mode=answer, reward=float(correct), state=state, reason=reason, n_boxed=stated.n_boxed)


def _no_answer(reason: str, stated: Stated) -> Grade:
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=reason, n_boxed=stated.n_boxed)


def _ambiguous(doubt: str, stated: Stated) -> Grade:
    shown = collapse_whitespace(stated.text or "")[:100]
    reason = f"no single answer: {doubt} ({shown!r})"
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="ambiguous", reason=reason, n_boxed=stated.n_boxed)
