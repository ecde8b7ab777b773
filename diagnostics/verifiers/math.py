"""Verifier "math": rules extract the answer, and math-verify compares it in worker processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, GradeState, Problem
from oversharp.diagnostics.verifiers.extraction import collapse_whitespace, looks_like_formula, unwrap
from oversharp.diagnostics.verifiers.killable import KillablePool, Outcome
from oversharp.diagnostics.verifiers.reading.boxes import boxes, with_plain_boxes
from oversharp.diagnostics.verifiers.reading.forms import brackets, is_form, verdict_on_form
from oversharp.diagnostics.verifiers.reading.labels import GOLD_LEAD, labelled
from oversharp.diagnostics.verifiers.reading.lenient import accepts_mathematics
from oversharp.diagnostics.verifiers.reading.markdown import without_marks
from oversharp.diagnostics.verifiers.reading.notation import as_latex_notation, same_notation, typeset
from oversharp.diagnostics.verifiers.reading.responses import answer_text, final_part, marks_thoughts, opens_thoughts
from oversharp.diagnostics.verifiers.reading.signs import as_latex, other_reading
from oversharp.diagnostics.verifiers.reading.stated import Stated, gold_value, read
from oversharp.diagnostics.verifiers.reading.texts import NO_MATHEMATICS, as_text, says_nothing, text_gold
from oversharp.diagnostics.verifiers.reading.units import is_algebra, protected, without_unit

if TYPE_CHECKING:
    from oversharp.diagnostics.verifiers.math_worker import MathVerdict

WORKER_MODULE = "oversharp.diagnostics.verifiers.math_worker"
#: Longest answer in characters. Longer ones are runaway text, whose parsing takes exponential time.
MAX_ANSWER_CHARACTERS = 1000

_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_SCIENTIFIC = re.compile(r"([-+]?\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})", re.ASCII)
_INFINITY = re.compile(r"([-+]?)\s*(?:\\text\{)?\s*(?:positive )?infinity\}?", re.IGNORECASE)
_MIXED = re.compile(r"(-?\d+)\s+(\d+)\s*/\s*(\d+)", re.ASCII)
_CURRENCY = re.compile(r"^[€£¥]\s*(?=\d)")
#: A gold that is a single number, possibly with a currency sign or a unit.
_SINGLE_NUMBER = re.compile(
    r"-?\s*\\?[$€£]?\s*(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<decimals>\d+))?\s*(?:\\?%|\\text\s*\{[^{}\d]*\}"
    r"|[A-Za-z°][^\d,;]*)?",
    re.ASCII,
)
_YES_NO = ("yes", "no", "true", "false")
_LIST = re.compile(r",|;|\b(?:or|and)\b|\\pm")
#: Reason for comparing a mathematical gold as text: math-verify could not parse it within the time limit.
TOO_SLOW = "math-verify does not finish reading it"
_COMPARED_AS_TEXT = (NO_MATHEMATICS, TOO_SLOW)
_NOTHING_STATED = "no \\boxed{}, <answer>, ####, 'answer is' or bare formula in the response"
_PERCENT = re.compile(r"(.*[\d}\])$])\s*\\%", re.DOTALL)
#: Degrees at the end of an angle or a temperature. ``verdict_on_form`` compares the temperature scale.
_DEGREES = re.compile(r"(?<=[\d}])\^\\circ\s*(?:\\(?:text|mathrm)\s*\{\s*)?[CFK]?\s*\}?\s*$")
#: A gold such as 3 million. The scale word is part of the number, not a unit.
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"^(-?[\d.,]+)\s*\\text\s*\{{\s*({'|'.join(_SCALES)})\s*\}}$", re.IGNORECASE)
#: The unit of a quantity on the right side of an equation.
_UNIT_OF_SIDE = re.compile(r"(?<=[A-Za-z}])(\s*=\s*-?[\d.,]+)\s*\\(?:text|mathrm)\s*\{[^{}]*\}(?:\^\{?\d\}?)?\s*$")
_ABOUT = re.compile(r"\\(?:approx|simeq)(?![A-Za-z])|≈")


#: Arguments of ``math_worker.judge``, each in a box: the gold, the answer, the gold whose key a correct answer gets,
#: and the value that the response states as approximately equal to the answer.
Comparison: TypeAlias = tuple[str, str, str, str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gold:
    """A parsed gold.

    ``answer`` is the gold without a box. ``words`` is its text if it is words such as "Paris", else None.
    ``n_decimals`` is the number of digits after the decimal point if the gold is a single number, else None. ``values``
    are alternative formulas, of which an answer must equal one. ``boxed`` is the first of them in a box, for
    math-verify.
    """

    answer: str
    values: tuple[str, ...]
    boxed: str
    words: str | None
    is_list: bool
    algebra: bool
    n_decimals: int | None = None


@lru_cache(maxsize=1 << 16)
def gold_of(gold: str) -> Gold:
    r"""Parse a gold, which may be a whole solution, by the rules for responses.

    The gold is put into a box because math-verify reads a bare ``2\sqrt{3}`` as 2 and cannot read a bare ``x^2+1``.

    >>> gold_of(r"Thus \boxed{x^2+1}.").boxed, gold_of("$5$").boxed, gold_of("Paris").words
    ('\\boxed{x^2+1}', '\\boxed{5}', 'paris')
    >>> gold_of("She has 5 + 3 = <<5+3=8>>8.\n#### 8").boxed, gold_of(r"\boxed{1}, \boxed{2}").answer
    ('\\boxed{8}', '1, 2')
    """
    answer = typeset(unwrap(_gold_text(gold)))
    value = without_unit(gold_value(_SCALED.sub(_write_scale, answer)))
    algebra = is_algebra(value)
    values = tuple(filter(None, map(str.strip, _ABOUT.split(value)))) or (value,)
    return Gold(
        answer=answer,
        values=values,
        boxed=boxed(_without_percent(values[0]), algebra=algebra),
        words=text_gold(answer),
        is_list=bool(_LIST.search(answer)) and brackets(answer) in (None, "{}"),
        algebra=algebra,
        n_decimals=None if (number := _SINGLE_NUMBER.fullmatch(answer)) is None else len(number["decimals"] or ""),
    )


def _write_scale(match: re.Match[str]) -> str:
    return rf"{match[1]} \times 10^{{{_SCALES[match[2].lower()]}}}"


def _gold_text(gold: str) -> str:
    """Return the answer in a gold: its boxes, the text after ####, a label or "A:", else all of it."""
    gold = with_plain_boxes(gold.strip())
    statement = boxes(gold) if "\\boxed" in gold else None
    if statement is not None:
        return ", ".join(statement.contents) if len(set(statement.contents)) > 1 else statement.contents[-1]
    if (hashed := gold.rpartition("####")[2].strip()) and "####" in gold:
        return hashed
    announced = labelled(gold)
    if announced is not None and announced.line:
        return announced.line
    return without_marks(GOLD_LEAD.sub("", gold, count=1))


def _without_percent(value: str) -> str:
    match = _PERCENT.fullmatch(value)
    return match[1] if match is not None else value


def comparisons(gold: Gold, value: str) -> Iterator[Comparison]:
    r"""Yield the comparisons to make. ``value`` is right if any of them succeeds.

    A percentage is compared as its number and as a hundredth of it, unless both sides are percentages. "a \approx b"
    states both values if they are approximately equal.

    >>> [pair[:2] for pair in comparisons(gold_of("1/8"), r"12.5\%")]
    [('\\boxed{1/8}', '\\boxed{\\frac{12.5}{100}}'), ('\\boxed{1/8}', '\\boxed{12.5}')]
    """
    sides = [side for side in map(str.strip, _ABOUT.split(value)) if side]
    for right in gold.values:
        for position, stated_side in enumerate(sides):
            about = boxed(sides[position - 1], algebra=gold.algebra) if len(sides) > 1 else None
            for gold_side, answer_side in _by_percent(right, stated_side):
                yield (
                    boxed(gold_side, algebra=gold.algebra),
                    boxed(answer_side, algebra=gold.algebra),
                    gold.boxed,
                    about,
                )


def _by_percent(right: str, answer: str) -> tuple[tuple[str, str], ...]:
    right_share, answer_share = _PERCENT.fullmatch(right), _PERCENT.fullmatch(answer)
    if right_share is not None and answer_share is not None:
        return ((right_share[1], answer_share[1]),)
    if right_share is not None:
        return (right_share[1], answer), (rf"\frac{{{right_share[1]}}}{{100}}", answer)
    if answer_share is not None:
        return (right, rf"\frac{{{answer_share[1]}}}{{100}}"), (right, answer_share[1])
    return ((right, answer),)


#: Number of attempts to parse a gold that times out. Usually the machine was busy. A gold reported as unparsed would be
#: compared as text, so its grades would differ between runs.
_CHECKS = 3


@lru_cache(maxsize=1 << 16)
def boxed(answer: str, *, algebra: bool = False) -> str:
    r"""Return an answer in a box for math-verify. ``4e5``, ``3 1/2`` and ``infinity`` become LaTeX.

    ``algebra``: the gold ends in a variable, so a last letter is not a unit.

    >>> boxed("4e5"), boxed("-infinity"), boxed("6t", algebra=True)
    ('\\boxed{4 \\times 10^{5}}', '\\boxed{-\\infty}', '\\boxed{6(t)}')
    """
    answer = _UNIT_OF_SIDE.sub(r"\1", _DEGREES.sub("", typeset(unwrap(answer))))
    answer = protected(without_unit(as_latex_notation(as_latex(_CURRENCY.sub("", answer)))), algebra=algebra)
    if (number := _SCIENTIFIC.fullmatch(answer)) is not None:
        answer = rf"{number[1]} \times 10^{{{int(number[2])}}}"
    elif (endless := _INFINITY.fullmatch(answer)) is not None:
        answer = rf"{endless[1]}\infty"
    elif (mixed := _MIXED.fullmatch(answer)) is not None:
        answer = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    return f"\\boxed{{{answer}}}"


class MathVerifier:
    r"""Grade mathematics with math-verify, after ``reading.stated.read`` has extracted the answer.

    A response without a single value (negated, compared, a range, alternatives that are not all right, withdrawn) is
    ``ambiguous``. Words are compared as text. Times, dates and numbers to a base are compared by their parts. Different
    units are different answers, and so are a set and a tuple. docs/grading.md has the rules.

    Each distinct (gold, answer) pair is verified only once, for any number of samples. The answer is a canonical key.
    For a correct answer it is the gold's key, else an exact rational, 12 significant digits or sympy's normal form. The
    mode equals the answer. A missing answer, or an answer that math-verify cannot parse, is ``parse_fail``. A
    comparison that takes longer than ``timeout_s`` (wall seconds) is ``timeout``, and its answer is the text.

    math-verify has two limits: an equation states its right side, and the tuple (1, 2) equals the open interval.

    Use the verifier as a context manager, or call ``close()``: worker processes start at the first pair.
    """

    name = "math"
    #: Whether a response with several boxes of different contents is ambiguous.
    one_box = False

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._pool = KillablePool(module=WORKER_MODULE, timeout_s=timeout_s, workers=workers)
        self._verdicts: dict[Comparison, Outcome[MathVerdict]] = {}
        self._known: dict[tuple[Gold, Stated], Grade] = {}
        self._lenient: dict[int, Grade] = {}

    def __enter__(self) -> MathVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes. They start again if the verifier is used again."""
        self._pool.close()

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the gold is a placeholder such as "None", is too long or has no value."""
        gold = gold_of(problem.gold)
        if _PLAIN_NUMBER.fullmatch(gold.answer):
            return  # fast path for plain numbers, which need no worker
        if len(gold.boxed) > MAX_ANSWER_CHARACTERS:
            raise ProblemError(f"the answer has {len(gold.boxed)} characters; give the final answer alone")
        why = "it is a placeholder for a missing answer" if says_nothing(gold.answer) else self._fault(gold)
        if why and not (why in _COMPARED_AS_TEXT and _is_notation(gold.answer)):
            shown = collapse_whitespace(problem.gold)[:60]
            raise ProblemError(f'answer {shown!r} cannot be graded ({why}); correct it, or set "verifier": "exact"')

    def _fault(self, gold: Gold) -> str:
        if gold.words is not None or is_form(gold.answer):
            return ""
        from oversharp.diagnostics.verifiers.math_worker import gold_fault

        for _ in range(_CHECKS):
            [outcome] = self._pool.map(gold_fault, [(gold.boxed,)])
            if outcome.state != "timeout":
                break
        return TOO_SLOW if outcome.state == "timeout" else outcome.reason if outcome.value is None else outcome.value

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order. Known pairs need no worker."""
        asked = [(gold_of(problem.gold), _find_answer(problem, text)) for problem, text in items]
        # hash each pair only once, because hashing takes most of the time
        known = [self._known.get(pair) for pair in asked]
        new = dict.fromkeys(pair for pair, grade in zip(asked, known, strict=True) if grade is None)
        self._verify(
            [pair for gold, stated in new for reading in _readings(gold, stated) for pair in _pairs(gold, reading)]
        )
        grades = [
            grade or self._known.get(pair) or self._remember(pair) for pair, grade in zip(asked, known, strict=True)
        ]
        return [
            self._mark_lenient(grade) if not grade.lenient and accepts_mathematics(problem.gold, text) else grade
            for grade, (problem, text) in zip(grades, items, strict=True)
        ]

    def _remember(self, pair: tuple[Gold, Stated]) -> Grade:
        """Grade a pair and cache the grade, because answers repeat far more often than response texts."""
        grade = self._grade(*pair)
        grade = self._known[pair] = replace(grade, style=pair[1].style, lenient=grade.correct)
        return grade

    def _mark_lenient(self, grade: Grade) -> Grade:
        """Mark the grade of a response that only the lenient reader accepts."""
        lenient_grade = self._lenient.get(id(grade))
        if lenient_grade is None:
            # self._known keeps the grade alive, so its id is not reused
            lenient_grade = self._lenient[id(grade)] = replace(grade, lenient=True)
        return lenient_grade

    def _verify(self, pairs: Sequence[Comparison]) -> None:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._verdicts]
        if new:
            from oversharp.diagnostics.verifiers.math_worker import judge

            self._verdicts.update(zip(new, self._pool.map(judge, new), strict=True))

    def _grade(self, gold: Gold, stated: Stated) -> Grade:
        grade = self._grade_by_rules(gold, stated)
        for reading in _readings(gold, stated)[1:] if not grade.correct else ():
            if (other := self._grade_by_rules(gold, reading)).correct:
                return other
        # an answer that is the same text as the gold is right, even if it cannot be parsed
        may_compare_text = stated.text is not None and not grade.correct and (not self.one_box or stated.n_boxed < 2)
        if may_compare_text and any(
            same_notation(gold.answer, statement) for statement in (stated.text or "", stated.sentence)
        ):
            return _make_grade(collapse_whitespace(gold.answer), stated, correct=True)
        return grade

    def _grade_by_rules(self, gold: Gold, stated: Stated) -> Grade:
        if stated.text is None:
            return _no_answer(stated.why or _NOTHING_STATED, stated)
        if len(stated.text) > MAX_ANSWER_CHARACTERS:
            return _no_answer(f"the answer is longer than {MAX_ANSWER_CHARACTERS} characters", stated)
        if self.one_box and stated.n_boxed > 1:
            return _ambiguous("different boxes", stated)
        if gold.words is not None:
            return _grade_words(gold.words, stated)
        form = verdict_on_form(gold.answer, stated.text)
        if form or (stated.sentence and verdict_on_form(gold.answer, stated.sentence)):
            return _make_grade(collapse_whitespace(gold.answer), stated, correct=True)
        if stated.doubt and not (is_form(gold.answer) and is_form(stated.sentence)):
            return self._grade_doubtful(gold, stated)
        if not stated.values and not stated.doubt:
            return _no_answer("no number or formula in the answer", stated)
        if form is False or stated.doubt:
            return _make_grade(collapse_whitespace(stated.text), stated)
        return self._judge_value(gold, stated.values[0], stated)

    def _judge_value(self, gold: Gold, value: str, stated: Stated) -> Grade:
        outcomes = [self._verdicts[pair] for pair in comparisons(gold, value)]
        right = next(
            (candidate for candidate in outcomes if candidate.value is not None and candidate.value.correct), None
        )
        outcome = (
            right
            or next((candidate for candidate in outcomes if candidate.value is None), None)
            or next(iter(outcomes), None)
        )
        if outcome is None:
            return _no_answer("the answer has only a sign of approximation", stated)
        if outcome.value is None:
            assert outcome.state != "ok"
            return _make_grade(collapse_whitespace(value), stated, state=outcome.state, reason=outcome.reason)
        if outcome.value.answer_key is None:
            return _no_answer("math-verify cannot read the answer", stated)
        return _make_grade(outcome.value.answer_key, stated, correct=outcome.value.correct)

    def _grade_doubtful(self, gold: Gold, stated: Stated) -> Grade:
        """Grade alternatives.

        They are right if each is right, or if their list equals the list in the gold.
        """
        grades = [self._judge_value(gold, value, stated) for value in stated.values]
        if grades and all(
            grade.correct and verdict_on_form(gold.answer, value) is not False
            for grade, value in zip(grades, stated.values, strict=True)
        ):
            return grades[0]
        for value in stated.listed if gold.is_list else ():
            grade = self._judge_value(gold, value, stated)
            if grade.correct and verdict_on_form(gold.answer, value) is not False:
                return grade
        return _ambiguous(stated.doubt, stated)


class StrictMathVerifier(MathVerifier):
    """Grade like ``MathVerifier``, but a response with boxes of different contents is always ambiguous."""

    name = "math_strict"
    one_box = True


def _find_answer(problem: Problem, text: str) -> Stated:
    """Return the answer that a response states, or the reason why it states none."""
    stated = read(answer_text(text, prompt=problem.prompt))
    if stated.text is not None or stated.why or not (marks_thoughts(text) or opens_thoughts(problem.prompt)):
        return stated
    part = final_part(text, prompt=problem.prompt)
    if part.thoughts is None:
        return stated
    why = "the thoughts are not finished" if part.is_unfinished else "no answer follows the thoughts"
    return replace(stated, why=why)


def _readings(gold: Gold, stated: Stated) -> tuple[Stated, ...]:
    """Return the stated answer, and if the gold is a number, also its reading with a decimal comma."""
    if gold.n_decimals is None or len(stated.values) != 1 or stated.doubt or stated.text is None:
        return (stated,)
    value = other_reading(stated.values[0], is_european=stated.is_european, decimals=gold.n_decimals)
    if value is None:
        return (stated,)
    text = other_reading(stated.text, is_european=stated.is_european, decimals=gold.n_decimals) or value
    return stated, replace(stated, values=(value,), text=text, sentence="")


def _is_notation(gold: str) -> bool:
    """Return whether a gold is a formula that is compared as text if math-verify cannot parse it."""
    written = "\\" in gold and looks_like_formula(gold) and gold.count("{") == gold.count("}")
    return written and any(sign.isalnum() for sign in re.sub(r"\\[A-Za-z]+", "", gold))


def _pairs(gold: Gold, stated: Stated) -> Iterator[Comparison]:
    if gold.words is not None or stated.text is None or len(stated.text) > MAX_ANSWER_CHARACTERS:
        return
    for value in (*stated.values, *(stated.listed if gold.is_list else ())):
        yield from comparisons(gold, value)


def _grade_words(words: str, stated: Stated) -> Grade:
    answer = as_text(stated.text or "")
    if answer == words or (words in _YES_NO and answer.startswith(f"{words},")):
        return _make_grade(words, stated, correct=True)
    return _ambiguous(stated.doubt, stated) if stated.doubt else _make_grade(answer or NO_ANSWER, stated)


def _make_grade(
    answer: str, stated: Stated, *, correct: bool = False, state: GradeState = "ok", reason: str = ""
) -> Grade:
    return Grade(answer=answer, mode=answer, reward=float(correct), state=state, reason=reason, n_boxed=stated.n_boxed)


def _no_answer(reason: str, stated: Stated) -> Grade:
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=reason, n_boxed=stated.n_boxed)


def _ambiguous(doubt: str, stated: Stated) -> Grade:
    shown = collapse_whitespace(stated.text or "")[:100]
    reason = f"no single answer: {doubt} ({shown!r})"
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="ambiguous", reason=reason, n_boxed=stated.n_boxed)
