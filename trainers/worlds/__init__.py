"""Bases of the built-in worlds: a tiny model per world, trained on examples before reinforcement learning.

A world has problems in ``oversharp.diagnostics.tasks.worlds`` and words and examples here, in one file. ``get_world``
finds it by the name of its task.
"""

from __future__ import annotations

from oversharp.trainers.worlds import countdown, programs
from oversharp.trainers.worlds.contract import World

_WORLDS = {module.WORLD.name: module.WORLD for module in (countdown, programs)}


def get_world(name: str) -> World:
    """Return the world of the task ``name``, a key of ``oversharp.diagnostics.tasks.worlds.WORLDS``.

    >>> get_world("programs").prompt_tokens
    7
    """
    return _WORLDS[name]
