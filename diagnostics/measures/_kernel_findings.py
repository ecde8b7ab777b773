"""Findings that several measures on the gradient kernel share the shape of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from oversharp.diagnostics.measures._findings import findings_at, known, places, unknown
from oversharp.diagnostics.measures._kernel import NO_GRADIENT, Coupling, Rows, couplings, fixed_couplings
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval, share_interval
from oversharp.diagnostics.statistics.units import Interval

T = TypeVar("T")


def of_fixed(
    measure: Measure, evidence: Evidence, scopes: Sequence[str], at: Callable[[str, Rows], list[Finding]]
) -> list[Finding]:
    """``at`` of the fixed members of every kernel that have a gradient; unknown where there are none."""
    fixed, why = fixed_couplings(evidence)
    live = {checkpoint_id: rows.live() for checkpoint_id, rows in fixed.items()}
    without = {checkpoint_id: NO_GRADIENT for checkpoint_id, rows in live.items() if not len(rows)}
    found = {checkpoint_id: rows for checkpoint_id, rows in live.items() if len(rows)}
    return _at_each(measure, evidence, scopes, found, {**why, **without}, at)


def of_coupling(
    measure: Measure, evidence: Evidence, scopes: Sequence[str], at: Callable[[str, Coupling], list[Finding]]
) -> list[Finding]:
    """``at`` of every kernel; unknown in all ``scopes`` where there is none."""
    found, why = couplings(evidence)
    return _at_each(measure, evidence, scopes, found, why, at)


def _at_each(
    measure: Measure,
    evidence: Evidence,
    scopes: Sequence[str],
    found: Mapping[str, T],
    why: Mapping[str, str],
    at: Callable[[str, T], list[Finding]],
) -> list[Finding]:
    return findings_at(measure, places(evidence, why), lambda i: at(i, found[i]), scopes=scopes)


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
