"""Interface of a verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oversharp.diagnostics.records.types import Grade, Problem


class Verifier(Protocol):
    """Turns responses into grades. Never raises for a bad response: its grade has a state instead.

    A verifier may also have a method ``guess_share(problem) -> float | None``: the share of wrong responses that it
    accepts because their answer is right by luck; 0 if it checks the whole solution, None if unknown.
    """

    name: str

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if this verifier cannot work with the problem's gold (called at load time)."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order. Called with distinct pairs."""
