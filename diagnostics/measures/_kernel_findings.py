"""Findings that several measures on the gradient kernel share the shape of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._kernel import NO_GRADIENT, Coupling, Rows, couplings, fixed_couplings
from diagnostics.measures.contract import Evidence, Measure
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import Interval, mean_interval, share_interval

T = TypeVar("T")


def of_fixed(
    measure: Measure, evidence: Evidence, scopes: Sequence[str], findings_at: Callable[[str, Rows], list[Finding]]
) -> list[Finding]:
    """``findings_at`` of the fixed members of every kernel that have a gradient; unknown where there are none."""
    fixed, why = fixed_couplings(evidence)
    live = {checkpoint_id: rows.live() for checkpoint_id, rows in fixed.items()}
    without = {checkpoint_id: NO_GRADIENT for checkpoint_id, rows in live.items() if not len(rows)}
    found = {checkpoint_id: rows for checkpoint_id, rows in live.items() if len(rows)}
    return _at_each(measure, evidence, scopes, found, {**why, **without}, findings_at)


def of_coupling(
    measure: Measure, evidence: Evidence, scopes: Sequence[str], findings_at: Callable[[str, Coupling], list[Finding]]
) -> list[Finding]:
    """``findings_at`` of every kernel; unknown in all ``scopes`` where there is none."""
    found, why = couplings(evidence)
    return _at_each(measure, evidence, scopes, found, why, findings_at)


def _at_each(
    measure: Measure,
    evidence: Evidence,
    scopes: Sequence[str],
    found: Mapping[str, T],
    why: Mapping[str, str],
    findings_at: Callable[[str, T], list[Finding]],
) -> list[Finding]:
    findings: list[Finding] = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in found:
            findings += findings_at(checkpoint_id, found[checkpoint_id])
        else:
            findings += [unknown(measure, checkpoint_id, why[checkpoint_id], scope=scope) for scope in scopes]
    return findings


def over_problems(
    measure: Measure, checkpoint_id: str, values: Sequence[float], *, scope: str, why: str, share: bool = False
) -> Finding:
    """The mean of one value per problem with its interval, or ``why`` where there is no value."""
    if not values:
        return unknown(measure, checkpoint_id, why, scope=scope)
    value_P = np.array(values, dtype=np.float64)
    return known(measure, checkpoint_id, share_interval(value_P) if share else mean_interval(value_P), scope=scope)


def number(value: float, n: int) -> Interval:
    """A value that has no interval."""
    return Interval(mean=float(value), low=None, high=None, n=n)


def lambda_findings(
    measure: Measure, evidence: Evidence, divisor_of: Callable[[Rows], Float[np.ndarray, " row"]]
) -> list[Finding]:
    """The extremes over the fixed members of K_ii divided by what the normalisation says."""

    def at(checkpoint_id: str, rows: Rows) -> list[Finding]:
        # A sum of squares that rounding left below 0 is 0; so is the gradient of a response the model is certain of.
        diagonal_N = np.maximum(np.diag(rows.kernel_NN), 0.0) / divisor_of(rows)
        return [
            known(measure, checkpoint_id, number(diagonal_N.min(), len(rows)), scope="min"),
            known(measure, checkpoint_id, number(diagonal_N.max(), len(rows)), scope="max"),
        ]

    fixed, why = fixed_couplings(evidence)
    return _at_each(measure, evidence, ("min", "max"), fixed, why, at)
