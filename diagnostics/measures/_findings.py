"""Findings of a measure: known with an interval, or unknown with a reason, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int

from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval


def known(
    measure: Measure,
    checkpoint_id: str,
    interval: Interval,
    *,
    scope: str = "all",
    k: int | None = None,
    n: int | None = None,
) -> Finding:
    """A finding from an interval over problems; ``n`` overrides the number of problems where other units count."""
    return Finding(
        checkpoint_id=checkpoint_id,
        measure=measure.name,
        unit=measure.unit,
        scope=scope,
        k=k,
        value=interval.mean,
        low=interval.low,
        high=interval.high,
        n=interval.n if n is None else n,
        interval_over=interval.over if interval.low is not None or interval.high is not None else None,
        why_no_interval=interval.why,
    )


def unknown(measure: Measure, checkpoint_id: str, why: str, *, scope: str = "all", k: int | None = None) -> Finding:
    """A finding without a value."""
    return Finding(checkpoint_id=checkpoint_id, measure=measure.name, unit=measure.unit, scope=scope, k=k, why=why)


def told(
    measure: Measure,
    checkpoint_id: str,
    made: Interval | str,
    *,
    scope: str = "all",
    k: int | None = None,
) -> Finding:
    """A finding from an interval, or without a value where ``made`` is the reason why there is none."""
    if isinstance(made, str):
        return unknown(measure, checkpoint_id, made, scope=scope, k=k)
    return known(measure, checkpoint_id, made, scope=scope, k=k)


def findings_at(
    measure: Measure,
    places: Iterable[tuple[str, str | None]],
    at: Callable[[str], Iterable[Finding]],
    *,
    scopes: Sequence[str] = ("all",),
) -> list[Finding]:
    """``at`` every checkpoint of ``places``; unknown in all ``scopes`` where these have a reason against it."""
    findings: list[Finding] = []
    for checkpoint_id, why_not in places:
        if why_not:
            findings += [unknown(measure, checkpoint_id, why_not, scope=scope) for scope in scopes]
        else:
            findings += at(checkpoint_id)
    return findings


def without_interval(interval: Interval) -> Interval:
    """The same mean, where an interval would promise too much."""
    return replace(interval, low=None, high=None, why=None)


def reciprocal(interval: Interval) -> Interval:
    """Of 1 over what the interval is of, its mean above 0; the upper end is open where that could be 0."""
    return replace(
        interval,
        mean=1.0 / interval.mean,
        low=1.0 / interval.high if interval.high else None,
        high=1.0 / interval.low if interval.low else None,
    )


def among(
    cluster_P: Int[np.ndarray, " problem"] | None, chosen_P: Bool[np.ndarray, " problem"]
) -> Int[np.ndarray, " problem"] | None:
    """The clusters of the chosen problems, where any are named."""
    return None if cluster_P is None else cluster_P[chosen_P]


def checkpoint_ids(evidence: Evidence) -> list[str]:
    """All checkpoints in step order."""
    return [str(checkpoint_id) for checkpoint_id in evidence.checkpoints["checkpoint_id"]]


def places(evidence: Evidence, why: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Every checkpoint, with the reason in ``why`` that speaks against it, if there is one."""
    for checkpoint_id in checkpoint_ids(evidence):
        yield checkpoint_id, why.get(checkpoint_id)


def comparisons(evidence: Evidence, why: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Every checkpoint but the base, with the reason why it cannot be compared to the base, if there is one.

    The base against itself is no finding. ``why`` gives the reasons for single checkpoints.
    """
    ids = checkpoint_ids(evidence)
    if not ids:
        return
    base_id = evidence.base_id
    base_why = f"base: {why[base_id]}" if base_id in why else None
    for checkpoint_id in ids:
        if checkpoint_id != base_id:
            yield checkpoint_id, base_why or why.get(checkpoint_id)
