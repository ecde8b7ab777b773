"""What a verifier is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from diagnostics.records.types import Grade, Problem


class Verifier(Protocol):
    """Turns responses into grades. Never raises for a bad response: that is a grade with a state."""

    name: str

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if this verifier cannot work with the problem's gold (called at load time)."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order. Called with distinct pairs."""
