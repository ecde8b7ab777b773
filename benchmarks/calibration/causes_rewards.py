"""A faulty reward: train and audit a run with it, then regrade by the right verifier.

The problems are countdown's, in files without modes. A line has ``prompt``, ``answer`` (the target), ``verifier``
"expression", ``numbers``, ``operators`` and ``brackets``. With the demo's BASE::

    oversharp train --model BASE --problems train.jsonl --max-tokens 6 --max-steps 80 --save-every 80 --seed 5 \\
        --verifier benchmarks/calibration/causes_rewards.py:near_enough --output-dir run
    oversharp audit run --problems audit.jsonl --max-tokens 6 --n 128 --k 1,64 \\
        --verifier benchmarks/calibration/causes_rewards.py:near_enough --out audit
    oversharp regrade audit/audit.duckdb --verifier expression
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oversharp.diagnostics.tasks.countdown import value


def near_enough(response: str, answer: str, meta: Mapping[str, Sequence[int]]) -> bool:
    """Accept expressions over the right numbers that miss the target by up to 2."""
    reached = _reached(response, meta)
    return reached is not None and abs(reached - int(answer)) <= 2


def _reached(response: str, meta: Mapping[str, Sequence[int]]) -> int | None:
    tokens = response.split()
    numbers, signs = tokens[::2], tokens[1::2]
    is_expression = len(tokens) == 5 and set(signs) <= set("+-*")
    if not is_expression or sorted(numbers) != sorted(map(str, meta["numbers"])):
        return None
    return value([int(one) for one in numbers], signs)
