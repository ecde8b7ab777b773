"""Which points between base and checkpoint are wanted, and what became of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError

#: Beyond this, weights are extrapolated so far that nobody has seen it help.
LARGEST = 1.5
#: The step of the checkpoint itself; that of λ is so many hundredths.
WHOLE = 100


@dataclass(frozen=True, kw_only=True)
class RepairedPoint:
    """One checkpoint of the series that was written.

    ``step`` is λ in hundredths: 0 the base, 100 the checkpoint. ``rounded_lambda`` is where the weights lie after
    rounding, as the λ of the nearest point on the straight line; None where nothing was rounded or nobody measured it.
    ``weights_hash`` identifies the weights, as in a store. ``found``: it stood there from an earlier call.
    """

    step: int
    lambda_: float
    path: Path
    weights_hash: str
    rounded_lambda: float | None
    found: bool

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class RepairResult:
    """The series in ``out``: what it lies between, its points in order, and those left out (label → reason).

    ``checkpoints`` are the labels whose mean is the end of the line: one, or as many as were averaged.
    """

    out: Path
    base: str
    checkpoints: tuple[str, ...]
    points: tuple[RepairedPoint, ...]
    left_out: Mapping[str, str]

    __repr__ = short_repr


def steps_of(lambdas: Sequence[float]) -> tuple[int, ...]:
    """The steps of these λ, ascending. Raises ``ConfigError`` for one out of range, repeated or too fine.

    >>> steps_of([0.5, 0.25, 1.2])
    (25, 50, 120)
    """
    if not lambdas:
        raise ConfigError("--lambdas: none given; name at least one, for example --lambdas 0.25 0.5 0.75")
    steps: list[int] = []
    for one in lambdas:
        if not (math.isfinite(one) and 0 < one <= LARGEST):
            raise ConfigError(f"--lambdas {one:g}: must lie above 0 (the base) and at most at {LARGEST:g}")
        step = round(one * WHOLE)
        if not math.isclose(step, one * WHOLE, abs_tol=1e-6) or step == 0:
            raise ConfigError(f"--lambdas {one:g}: steps are hundredths; give {max(step, 1) / WHOLE:g}")
        if step in steps:
            raise ConfigError(f"--lambdas {one:g}: given twice; name each once")
        steps.append(step)
    return tuple(sorted(steps))


def standing_steps(out: Path) -> set[int]:
    """The steps of which ``out`` has a folder; such an ``out`` is known to be a repair."""
    found = [re.fullmatch(r"checkpoint-(\d+)", folder.name) for folder in out.glob("checkpoint-*")]
    return {int(one[1]) for one in found if one}


def folder_of(step: int) -> str:
    """The name of the folder that holds this point."""
    return f"checkpoint-{step}"
