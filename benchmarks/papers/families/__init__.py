"""Families of claims, one per file: a function from the effort to a :class:`~benchmarks.papers.claim.Family`."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.papers.claim import Effort, Family
from benchmarks.papers.families import (
    a_calibration,
    a_coupled_query,
    a_coupling,
    a_estimators,
    a_optimizers,
    a_partition,
    a_sampling_bias,
    b_expected_update,
    b_two_stage,
    c_bandit,
    c_confidence,
)

#: In the order of the papers.
FAMILIES: tuple[Callable[[Effort], Family], ...] = (
    a_sampling_bias.claims,
    a_partition.claims,
    a_coupled_query.claims,
    a_coupling.claims,
    a_estimators.claims,
    a_optimizers.claims,
    a_calibration.claims,
    b_expected_update.claims,
    b_two_stage.claims,
    c_confidence.claims,
    c_bandit.claims,
)
