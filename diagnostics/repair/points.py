"""Points on the line from base to checkpoint: requested λ, written folders, results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError

#: Largest λ. No benefit of extrapolating further is known.
LARGEST = 1.5
#: Step number of the checkpoint (λ = 1). The step number of a point is λ in hundredths.
WHOLE = 100


@dataclass(frozen=True, kw_only=True)
class RepairedPoint:
    """One written point of the series.

    ``step`` is λ in hundredths: 0 is the base, 100 the checkpoint. ``rounded_lambda`` is the λ of the point on the line
    nearest to the rounded weights. It is None without rounding, or if it was not measured. ``weights_hash`` identifies
    the weights, as in a store. ``found``: an earlier call wrote the point.
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
    """The series in ``out``: its ends, its points in order, and skipped points (label → reason).

    ``checkpoints`` lists the labels of the checkpoints that were averaged to give the line's end point.
    """

    out: Path
    base: str
    checkpoints: tuple[str, ...]
    points: tuple[RepairedPoint, ...]
    left_out: Mapping[str, str]

    __repr__ = short_repr


def parse_lambdas(lambdas: Sequence[float]) -> tuple[int, ...]:
    """Return the steps of these λ, ascending.

    Raises ``ConfigError`` if a λ is out of range, repeated, or not a multiple of 0.01.

    >>> parse_lambdas([0.5, 0.25, 1.2])
    (25, 50, 120)
    """
    if not lambdas:
        raise ConfigError("--lambdas: empty; pass at least one, for example --lambdas 0.25 0.5 0.75")
    steps: list[int] = []
    for lambda_ in lambdas:
        if not (math.isfinite(lambda_) and 0 < lambda_ <= LARGEST):
            raise ConfigError(f"--lambdas {lambda_:g}: must be above 0 (the base) and at most {LARGEST:g}")
        step = round(lambda_ * WHOLE)
        if not math.isclose(step, lambda_ * WHOLE, abs_tol=1e-6) or step == 0:
            raise ConfigError(f"--lambdas {lambda_:g}: must be a multiple of 0.01; use {max(step, 1) / WHOLE:g}")
        if step in steps:
            raise ConfigError(f"--lambdas {lambda_:g}: duplicated; remove one")
        steps.append(step)
    return tuple(sorted(steps))


def written_steps(out: Path) -> set[int]:
    """Return the steps that have a folder in ``out``. ``out`` must be a repair."""
    matches = [re.fullmatch(r"checkpoint-(\d+)", folder.name) for folder in out.glob("checkpoint-*")]
    return {int(match[1]) for match in matches if match}


def folder_name(step: int) -> str:
    """Return the name of this point's folder."""
    return f"checkpoint-{step}"
