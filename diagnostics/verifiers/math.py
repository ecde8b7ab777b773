"""Verifier "math": math-verify in worker processes that can be killed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING

from diagnostics.records.errors import ProblemError
from diagnostics.records.types import NO_ANSWER, Grade, Problem
from diagnostics.verifiers.extraction import (
    announced_answer,
    collapse_whitespace,
    hash_answer,
    last_boxed,
    looks_like_formula,
    tagged_answer,
    unwrap,
    without_bold,
)
from diagnostics.verifiers.killable import KillablePool, Outcome

if TYPE_CHECKING:
    from diagnostics.verifiers.math_worker import MathVerdict

WORKER_MODULE = "diagnostics.verifiers.math_worker"
#: Longer "answers" are runaway text; parsing them is where grammars explode.
MAX_ANSWER_CHARACTERS = 1000
_MAX_ANNOUNCED_CHARACTERS = 200

_PLAIN_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)


def math_candidate(text: str) -> str | None:
    r"""The part of a response that states its answer, as math-verify is to read it; None if there is none.

    The first of these that is there: the last ``\boxed{…}`` (two boxes close to each other would otherwise be read
    as one set); the last ``<answer>…</answer>``; the last line that starts with ``####``; what follows the last
    "answer is" or "answer:" on its line; the whole response if it is one line of nothing but mathematics. Numbers
    in prose are not answers.

    >>> math_candidate(r"so \boxed{3} or rather \boxed{4}"), math_candidate("The answer is **7**.")
    ('\\boxed{4}', '\\boxed{7}')
    >>> math_candidate("The answer is 7 pears."), math_candidate("He has 7 pears.")
    ('answer: 7 pears.', None)
    """
    for rule in (last_boxed, tagged_answer, hash_answer):
        found = rule(text)
        if found is not None:
            return _boxed(found)
    announced = announced_answer(text)
    if announced is not None:
        line = without_bold(announced[:_MAX_ANNOUNCED_CHARACTERS])
        if line.count("{") != line.count("}"):
            return None  # cut short by the token limit: \frac{1}{2 may have been going to be anything
        # math-verify takes the first number of bare LaTeX (2 out of 2\sqrt{3}), so a lone formula is boxed
        return _boxed(line) if looks_like_formula(unwrap(line)) else f"answer: {line}"
    whole = unwrap(text)
    bare = "\n" not in whole and "\\boxed" not in whole and any(c.isdigit() or c == "\\" for c in whole)
    return _boxed(whole) if bare and looks_like_formula(whole) else None


@lru_cache(maxsize=1 << 16)
def boxed_gold(gold: str) -> str:
    r"""The gold in a box: bare, math-verify reads ``2\sqrt{3}`` as 2 and ``x^2+1`` not at all.

    A gold that is a whole solution counts by its own last box.

    >>> boxed_gold(r"2\sqrt{3}"), boxed_gold("$5$"), boxed_gold(r"Thus \boxed{x^2+1}.")
    ('\\boxed{2\\sqrt{3}}', '\\boxed{5}', '\\boxed{x^2+1}')
    """
    inner = last_boxed(gold)
    return _boxed(gold if inner is None else inner) or "\\boxed{}"


def _boxed(answer: str) -> str | None:
    answer = unwrap(answer)
    return f"\\boxed{{{answer}}}" if answer else None


class MathVerifier:
    r"""Grades mathematics: ``math_candidate`` finds the answer, math-verify compares it with the gold.

    Each distinct (gold, answer) pair is verified once in the life of the verifier, whatever the number of samples.
    The answer is a canonical key: the gold's for a correct answer, else an exact rational, 12 significant digits or
    sympy's normal form; mode and answer are the same. No answer, or one that math-verify cannot read, is
    ``parse_fail``; one that takes longer than ``timeout_s`` (wall seconds) is ``timeout`` and its own text the answer.

    Limits, all math-verify's: units after a number in words ("18 dollars" in a box) are read as symbols; the tuple
    (1, 2) and the open interval are the same; text golds are compared as products of letters unless in ``\text{}``.

    Use as a context manager, or ``close()`` it: worker processes start at the first pair.
    """

    name = "math"

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._pool = KillablePool(module=WORKER_MODULE, timeout_s=timeout_s, workers=workers)
        self._verdicts: dict[tuple[str, str], Outcome[MathVerdict]] = {}

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
        """Raise ``ProblemError`` if the gold is too long or math-verify finds no mathematics in it."""
        gold = boxed_gold(problem.gold)
        if _PLAIN_NUMBER.fullmatch(gold[len("\\boxed{") : -1]):
            return  # certain without asking a worker, and most golds are of this kind
        if len(gold) > MAX_ANSWER_CHARACTERS:
            raise ProblemError(f"the answer has {len(gold)} characters; give the final answer alone")
        from diagnostics.verifiers.math_worker import gold_is_mathematics

        [outcome] = self._pool.map(gold_is_mathematics, [(gold,)])
        if outcome.value is not True:
            shown = collapse_whitespace(problem.gold)[:60]
            why = outcome.reason or "math-verify finds no mathematics in it"
            raise ProblemError(f'answer {shown!r} cannot be graded ({why}); mend it, or set "verifier": "exact"')

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order; pairs that were verified before cost no worker."""
        pairs = [(boxed_gold(problem.gold), math_candidate(text)) for problem, text in items]
        self._verify([(gold, found) for gold, found in pairs if found and len(found) <= MAX_ANSWER_CHARACTERS])
        return [self._grade(gold, found) for gold, found in pairs]

    def _verify(self, pairs: Sequence[tuple[str, str]]) -> None:
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._verdicts]
        if new:
            from diagnostics.verifiers.math_worker import judge

            self._verdicts.update(zip(new, self._pool.map(judge, new), strict=True))

    def _grade(self, gold: str, found: str | None) -> Grade:
        if found is None:
            return _no_answer("no \\boxed{}, <answer>, ####, 'answer is' or bare formula in the response")
        if len(found) > MAX_ANSWER_CHARACTERS:
            return _no_answer(f"the answer is longer than {MAX_ANSWER_CHARACTERS} characters")
        outcome = self._verdicts[gold, found]
        if outcome.value is None:
            text = collapse_whitespace(found.removeprefix("\\boxed{").removesuffix("}"))
            assert outcome.state != "ok"
            return Grade(answer=text, mode=text, reward=0.0, state=outcome.state, reason=outcome.reason)
        if outcome.value.answer_key is None:
            return _no_answer("math-verify cannot read the answer")
        key = outcome.value.answer_key
        return Grade(answer=key, mode=key, reward=float(outcome.value.correct))


def _no_answer(reason: str) -> Grade:
    return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=reason)
