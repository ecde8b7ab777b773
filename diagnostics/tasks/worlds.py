"""Built-in worlds: tasks with every correct response listed, and separate problems for training and audits.

A world is a module of this folder. ``oversharp.trainers.worlds`` has the base model of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown, programs
from oversharp.diagnostics.tasks.splits import Split


class WorldTask(Protocol):
    """Members of a world's module."""

    TASK: str
    #: Tokens of the longest response, end token included.
    RESPONSE_TOKENS: int

    def problems(self, split: Split = "audit", limit: int | None = None, seed: int = 0) -> tuple[Problem, ...]:
        """Return the problems of one split, in shuffled order, with all their modes."""


_MODULES: tuple[WorldTask, ...] = (countdown, programs)
#: Built-in worlds by name. The first is the default of ``oversharp train``.
WORLDS: Mapping[str, WorldTask] = MappingProxyType({world.TASK: world for world in _MODULES})
