"""Verifiers "NAME_thoughts", which accept a box in the model's thinking if no answer follows the thinking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.contract import Verifier
from oversharp.diagnostics.verifiers.reading.responses import final_part

SUFFIX = "_thoughts"


class ThoughtsVerifier:
    r"""Grade like ``verifier``. If no answer follows the thinking, grade the last box in the thinking.

    >>> from oversharp.diagnostics.verifiers.exact import ExactVerifier
    >>> problem = Problem(task="t", prompt="6 * 7", gold="42", verifier="exact_thoughts")
    >>> responses = (r"<think>\boxed{42}</think>", r"<think>\boxed{42}</think> It is 41.")
    >>> [grade.correct for grade in ThoughtsVerifier(ExactVerifier()).grade([(problem, text) for text in responses])]
    [True, False]
    """

    def __init__(self, verifier: Verifier) -> None:
        self.name = verifier.name + SUFFIX
        self._verifier = verifier

    def close(self) -> None:
        """End the worker processes, if the verifier has any."""
        close = getattr(self._verifier, "close", None)
        if close is not None:
            close()

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the verifier cannot work with the problem's gold."""
        self._verifier.check_gold(problem)

    def guess_share(self, problem: Problem) -> float | None:
        """Return the share of wrong responses that are accepted by luck; None if unknown."""
        known = getattr(self._verifier, "guess_share", None)
        return None if known is None else known(problem)

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order."""
        grades = list(self._verifier.grade(items))
        boxed = {
            position: (replace(problem, prompt=""), thoughts)
            for position, (problem, text) in enumerate(items)
            if grades[position].state == "parse_fail" and (thoughts := _boxed_thoughts(problem, text))
        }
        again = self._verifier.grade(list(boxed.values())) if boxed else []
        for position, grade in zip(boxed, again, strict=True):
            grades[position] = grade
        return grades


def _boxed_thoughts(problem: Problem, text: str) -> str:
    """Return the thinking of a response; "" if it contains no box."""
    thoughts = final_part(text, prompt=problem.prompt).thoughts or ""
    return thoughts if "\\boxed" in thoughts else ""
