"""Interface of a verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oversharp.diagnostics.records.types import Grade, Problem


class Verifier(Protocol):
    """Turn responses into grades.

    A bad response never raises an error: its grade has a state instead. A verifier may also have a method
    ``guess_share(problem) -> float | None``. It returns the share of wrong responses that the verifier accepts because
    their answer is right by luck: 0 if it checks the whole solution, None if unknown.
    """

    name: str

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if this verifier cannot use the problem's gold. Called at load time."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order. The pairs are distinct."""
