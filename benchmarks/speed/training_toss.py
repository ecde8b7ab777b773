"""A reward that random text gets every second time: whether its characters' code points sum to an even number.

Untrained models can be trained on it at full speed: nearly every group is mixed, so neither side skips anything, and
no model learns it within the few steps of a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oversharp.diagnostics.records.types import Grade, Problem

NAME = "benchmark_toss"


def is_even(text: str) -> bool:
    """The toss.

    >>> is_even("b"), is_even("a")
    (True, False)
    """
    return sum(map(ord, text)) % 2 == 0


class TossVerifier:
    """``is_even`` as a verifier of oversharp."""

    name = NAME

    def check_gold(self, problem: Problem) -> None:
        """Any gold will do."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order."""
        from oversharp.diagnostics.records.types import Grade

        return [Grade(answer="toss", mode="toss", reward=float(is_even(text))) for _, text in items]


def announce(folder: Path) -> None:
    """Write the metadata that lets oversharp find ``TossVerifier``, as an installed package would."""
    record = folder / "oversharp_benchmark-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: oversharp-benchmark\nVersion: 1\n")
    verifier = "benchmarks.speed.training_toss:TossVerifier"
    (record / "entry_points.txt").write_text(f"[oversharp.verifiers]\n{NAME} = {verifier}\n")
