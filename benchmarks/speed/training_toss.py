"""A reward that half of random texts get: whether the sum of the characters' code points is even.

With it untrained models train at full speed: nearly every group is mixed, so neither side skips any, and no model
learns it within the few steps of a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oversharp.diagnostics.records.types import Grade, Problem

NAME = "benchmark_toss"


def is_even(text: str) -> bool:
    """Return whether the sum of code points is even.

    >>> is_even("b"), is_even("a")
    (True, False)
    """
    return sum(map(ord, text)) % 2 == 0


class TossVerifier:
    """``is_even`` as a verifier of oversharp."""

    name = NAME

    def check_gold(self, problem: Problem) -> None:
        """Accept any gold."""

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order."""
        from oversharp.diagnostics.records.types import Grade

        return [Grade(answer="toss", mode="toss", reward=float(is_even(text))) for _, text in items]


def announce(folder: Path) -> None:
    """Write the metadata by which oversharp finds ``TossVerifier``, like that of an installed package."""
    record = folder / "oversharp_benchmark-1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: oversharp-benchmark\nVersion: 1\n")
    verifier = "benchmarks.speed.training_toss:TossVerifier"
    (record / "entry_points.txt").write_text(f"[oversharp.verifiers]\n{NAME} = {verifier}\n")
