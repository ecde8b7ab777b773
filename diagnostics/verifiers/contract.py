"""What a verifier is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oversharp.diagnostics.records.types import Grade, Problem


class Verifier(Protocol):
    """Turns responses into grades. Never raises for a bad response: that is a grade with a state.

    A verifier may have a method ``guess_share(problem) -> float | None`` too: of wrong responses, the share that it
    accepts because they hit upon the answer by luck; 0 where it checks the whole solution, None where nobody knows.
    """

    name: str

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if this verifier cannot work with the problem's gold (called at load time)."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order. Called with distinct pairs."""
