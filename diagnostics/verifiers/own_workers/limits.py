"""Limits of a grader function in the user's file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GraderLimits:
    """Limits: wall seconds per call, memory of one process in GiB, and number of calls at a time (``workers``).

    The default is one call, because the function may write to a fixed file, keep state in a variable or load a model.
    """

    timeout_s: float = 30.0
    memory_gib: float = 4.0
    workers: int = 1
