"""Worker side of the "reasoning_gym" verifier."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from reasoning_gym import get_score_answer_fn

from oversharp.diagnostics.verifiers.packing import unpack


def score(generator: str, answer: str, packed_entry: Any) -> float:
    """Return the generator's score of ``answer``, nominally in [0, 1].

    >>> score("chain_sum", "5", {"question": "2 + 3 =", "answer": "5", "metadata": {}})
    1.0
    """
    return float(_scorer(generator)(answer, unpack(packed_entry)))


@lru_cache(maxsize=128)
def _scorer(generator: str) -> Callable[[str, dict[str, Any]], float]:
    scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(generator)
    return scorer
