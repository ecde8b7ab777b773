"""Workers for a function in the user's file, reused until a call times out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from oversharp.diagnostics.verifiers.killable import Outcome
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.own_workers.round import Reward, Round
from oversharp.diagnostics.verifiers.own_workers.team import GraderTeam


class GraderPool:
    """Worker processes of one function.

    They start on first use, and end with this process or ``close()``. ``name`` and ``path`` are used in messages.
    Threads may share a pool: its calls are serialized.
    """

    def __init__(self, *, name: str, path: str, source: bytes, function: str, limits: GraderLimits) -> None:
        self.limits = limits
        self._team = GraderTeam(name=name, path=path, source=source, function=function, limits=limits)
        self._lock = threading.Lock()

    def load(self) -> Mapping[str, Any]:
        """Start a worker and return its reply: ``asked`` (the function's arguments), or why it cannot be used."""
        with self._lock:
            return self._team.load()

    def map(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome[Reward]]:
        """Return the outcome of each call, in order. Each call is a dict of keyword arguments for the function.

        Raises ``VerifierError`` if the verifier file can no longer be loaded.
        """
        with self._lock:
            try:
                return Round(self._team, calls).run()
            except BaseException:  # otherwise late replies would be matched with the next calls
                self._team.end(0.0)
                raise

    def interrupt(self, *, is_on: bool) -> None:
        """Make a ``map`` of another thread, and each later one, raise ``VerifierError`` soon, until ``is_on=False``."""
        self._team.is_interrupted = is_on

    def close(self) -> None:
        """End the workers; they start again at the next call."""
        with self._lock:
            self._team.end()
