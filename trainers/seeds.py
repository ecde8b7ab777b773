"""Derive the seeds of all random streams of a run from its seed.

Every random number comes from a stream that (run seed, purpose, step) determines. A stream does not depend on other
streams. So a resumed run is identical to an uninterrupted run, without saving the state of random generators.
"""

from __future__ import annotations

import random

from oversharp.diagnostics.records.types import content_hash


def stream_seed(seed: int, purpose: str, index: int = 0) -> int:
    """Return the seed of one random stream, from 0 to 2^63 - 1.

    >>> stream_seed(0, "rollouts", 1) == stream_seed(0, "rollouts", 1)
    True
    >>> stream_seed(0, "rollouts", 1) == stream_seed(1, "rollouts", 1)
    False
    """
    return int(content_hash("stream", seed, purpose, index), 16) % 2**63


def batch_positions(seed: int | None, step: int, *, n_problems: int, batch_prompts: int) -> list[int]:
    """Return the indices of the problems of one step. Steps are counted from 1.

    Every epoch has every problem once, in an order that depends on the seed; without a seed, in the given order. A
    batch may contain the end of one epoch and the start of the next.

    >>> first, second = (batch_positions(0, step, n_problems=6, batch_prompts=3) for step in (1, 2))
    >>> sorted(first + second)
    [0, 1, 2, 3, 4, 5]
    >>> batch_positions(None, 2, n_problems=5, batch_prompts=3)
    [3, 4, 0]
    """
    positions = []
    orders: dict[int, list[int]] = {}
    for draw in range((step - 1) * batch_prompts, step * batch_prompts):
        epoch, place = divmod(draw, n_problems)
        if epoch not in orders:
            orders[epoch] = list(range(n_problems))
            if seed is not None:
                random.Random(stream_seed(seed, "problem order", epoch)).shuffle(orders[epoch])
        positions.append(orders[epoch][place])
    return positions
