"""Choose the checkpoint to ship among the comparable series of a store."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pandas import isna

from oversharp.diagnostics.audit.counts.recorded import (
    record_recommendation,
    recorded_recommendations,
    series_state,
    stored_state,
)
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import (
    choose_series,
    is_recorded,
    left_out_checkpoints,
    stored_clusters,
    stored_key,
)
from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool

    from oversharp.diagnostics.verdict.counts import SeriesCounts
    from oversharp.diagnostics.verdict.shipping.options import JudgedSeries

#: Imported samples have no weights. Two series have the same base if their base samples are equal. The columns are
#: joined to one text before hashing, because DuckDB combines the hashes of several columns linearly: the same change in
#: two rows would cancel out.
_BASE = """
SELECT c.checkpoint_id, bit_xor(hash(concat_ws('/', s.problem_id, s.sample_index, s.response_id))) AS samples
FROM series_checkpoints AS c
JOIN current_audits AS a USING (series)
JOIN audit_problems AS p USING (audit_id)
LEFT JOIN samples AS s
    ON s.checkpoint_id = c.checkpoint_id
    AND s.settings_id = a.settings_id
    AND s.problem_id = p.problem_id
    AND NOT s.greedy
WHERE c.series = $series AND c.is_base
GROUP BY ALL
"""


@dataclass(frozen=True, kw_only=True)
class _SeriesRead:
    """A series of the store. Series with equal ``alike`` can be compared."""

    judged: JudgedSeries
    alike: Hashable
    is_repaired: bool
    certifying_P: Bool[np.ndarray, " problem"]


def ship(
    store_path: Path,
    *,
    series: Sequence[str] | None = None,
    allow_loss_points: float = 0.0,
    held_out: bool = False,
    memory_gib: float | None = None,
) -> tuple[Recommendation, ...]:
    """Return one recommendation per group of comparable series, among ``series`` (default: all).

    Comparable series have the same base, problems, clusters, sampling settings and grader. They are sorted by name,
    with repaired series last. With ``held_out``, one half of the problems is used to choose and the other to compute
    the guarantee. Without it and without an allowed loss, the recommendation is that of the verdicts, if nothing has
    changed since. Otherwise the samples are counted again.

    Raises:
        ConfigError: ``allow_loss_points`` is no number of points from 0 to below 100.
        StoreError: there is no such store or series.
    """
    if not 0 <= allow_loss_points < 100:
        raise ConfigError(f"--allow-loss {allow_loss_points:g}: must be 0 or more and below 100 points of pass@k")
    if not store_path.exists():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit` or `oversharp import` first")
    with Store.open(store_path, read_only=True) as store:
        store.bound_memory(memory_gib)
        names = _series_names(store, series)
        known = None if allow_loss_points or held_out else recorded_recommendations(store, names)
        if known is None:
            groups = _group_comparable([_read_series(store, name) for name in names])
            known = tuple(_recommend(group, allow_loss_points / 100, held_out=held_out) for group in groups)
        return tuple(_add_paths(store, recommendation) for recommendation in known)


def settle_shipping(store: Store, counts: SeriesCounts, verdict: Verdict) -> Verdict:
    """Return ``verdict`` with the recommendation over all comparable series.

    The recommendation is also written to the verdicts of these series. So the console, the viewer, the report and
    ``ship`` without ``--series`` agree. ``counts`` are the counts of ``verdict``, which is not in the store yet.
    """
    if len(_series_names(store, None)) < 2:
        return verdict  # its recommendation is over its own series only
    own = _read_series(store, counts.series, counts=counts, verdict=verdict)
    others = [_read_cached(store, name) for name in _series_names(store, None) if name != counts.series]
    group = _sort_series([own, *(one for one in others if one.alike == own.alike)])
    if len(group) < 2:
        return verdict
    recommendation = _recommend(group, 0.0, held_out=False)
    _write_recommendation(store, recommendation, [one for one in group if one is not own])
    return replace(verdict, shipping=_restrict(recommendation, verdict.series))


def record_shipping(
    store: Store, key: AuditKey, verdict: Verdict, failed: Mapping[str, str], skipped: Mapping[str, str]
) -> None:
    """Record that the stored ``verdict`` has the recommendation for the present samples. Arguments as for ``judge``."""
    if verdict.shipping is not None:
        others = [name for name in verdict.shipping.series if name != key.series]
        states = {name: stored_state(store, name) for name in others}
        own = {key.series: series_state(store, key, failed, skipped)}
        record_recommendation(store, verdict.shipping.series, {**states, **own})


def settle_merged(store_path: Path) -> None:
    """Recompute the recommendation in every verdict after stores were merged."""
    with Store.open(store_path) as store:
        judged = [str(name) for name in store.frame("SELECT series FROM verdicts ORDER BY series")["series"]]
        if len(judged) < 2:
            return
        for group in _group_comparable([_read_series(store, name) for name in judged]):
            if len(group) > 1:
                _write_recommendation(store, _recommend(group, 0.0, held_out=False), group)


def settle_left(store_path: Path) -> None:
    """Recompute the recommendation in every verdict after comparable series were removed."""
    with Store.open(store_path) as store:
        judged = [str(name) for name in store.frame("SELECT series FROM verdicts ORDER BY series")["series"]]
        for group in _group_comparable([_read_series(store, name) for name in judged]):
            _write_recommendation(store, _recommend(group, 0.0, held_out=False), group)


def _write_recommendation(store: Store, recommendation: Recommendation, group: Sequence[_SeriesRead]) -> None:
    for one in group:
        held = store.verdict(one.judged.counts.series)
        if held is not None:
            store.replace_verdict(
                stored_key(store, held.series), replace(held, shipping=_restrict(recommendation, held.series))
            )


def _restrict(recommendation: Recommendation, series: str) -> Recommendation:
    """Keep the steps of the base, of ``series``, and of candidates that may be the best."""
    kept = (one for one in recommendation.steps if one.is_base or one.series == series or one.may_be_best)
    return replace(recommendation, steps=tuple(kept))


#: Cache of series by store, name and hash of their rows. A process that audits many runs into one store reads each
#: series once.
_CACHE: dict[tuple[str, str, str], _SeriesRead] = {}


def _read_cached(store: Store, series: str) -> _SeriesRead:
    state = stored_state(store, series)
    if state is None:
        return _read_series(store, series)
    place = (str(store.path.resolve()), series, state)
    if place not in _CACHE:
        _CACHE[place] = _read_series(store, series)
    return _CACHE[place]


def _group_comparable(reads: Sequence[_SeriesRead]) -> list[list[_SeriesRead]]:
    """Return the series in comparable groups. In a group, trained series precede repaired ones."""
    groups: dict[Hashable, list[_SeriesRead]] = {}
    for one in _sort_series(reads):
        groups.setdefault(one.alike, []).append(one)
    return list(groups.values())


def _sort_series(reads: Sequence[_SeriesRead]) -> list[_SeriesRead]:
    """Sort by name, with repaired series last.

    A checkpoint that they share with their run then has the run's name.
    """
    return sorted(reads, key=lambda one: (one.is_repaired, one.judged.counts.series))


def _recommend(group: Sequence[_SeriesRead], allowed_loss: float, *, held_out: bool) -> Recommendation:
    from oversharp.diagnostics.verdict.shipping.choice import recommend  # a recorded recommendation does not need it

    return recommend(
        [one.judged for one in group],
        allowed_loss=allowed_loss,
        certifying_P=group[0].certifying_P if held_out else None,
    )


def _series_names(store: Store, series: Sequence[str] | None) -> list[str]:
    if series is not None:
        if not series:
            raise ConfigError("--series: is empty; pass the series to choose from, or omit it for all series")
        return [choose_series(store, name) for name in dict.fromkeys(series)]
    names = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    return names or [choose_series(store, None)]  # raises, because there is no audit


def _read_series(
    store: Store, series: str, *, counts: SeriesCounts | None = None, verdict: Verdict | None = None
) -> _SeriesRead:
    """Read a series. ``counts`` and ``verdict``, if given, replace those of the store."""
    # a recorded recommendation needs none of these
    from oversharp.diagnostics.audit.counts.series import read_counts
    from oversharp.diagnostics.verdict.decide import judged_series
    from oversharp.diagnostics.verdict.shipping.choice import certifying
    from oversharp.diagnostics.verdict.shipping.options import JudgedSeries

    key = stored_key(store, series)
    verdict = verdict or store.verdict(series)
    if counts is None:
        failed, skipped = left_out_checkpoints(store, series)
        counts = read_counts(store, key, failed, skipped)
    if verdict is None:
        judged = JudgedSeries(counts=counts, why="there is no verdict yet; run the audit to its end")
    else:
        judged = judged_series(counts, verdict)
    clusters = stored_clusters(store, key.audit_id)
    problem_ids = store.frame(
        "SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id ORDER BY problem_id", audit_id=key.audit_id
    )["problem_id"]
    base = store.frame(_BASE, series=series).iloc[0]
    samples = None if isna(base["samples"]) else int(base["samples"])
    return _SeriesRead(
        judged=judged,
        alike=(
            samples if is_recorded(store, series) else str(base["checkpoint_id"]),
            tuple(problem_ids),
            tuple(sorted(clusters.items())),
            key.settings_id,
            key.verifier,
        ),
        certifying_P=certifying([clusters.get(one, one) for one in problem_ids]),
        is_repaired=counts.is_repaired,
    )


def _add_paths(store: Store, recommendation: Recommendation) -> Recommendation:
    """Add the directory of every checkpoint.

    None for imported samples, whose weights are unknown.
    """
    rows = store.frame(
        """
        SELECT series, step, path
        FROM series_checkpoints
        JOIN checkpoints USING (checkpoint_id)
        WHERE kind <> 'recorded'
        """
    )
    paths = {(str(row.series), int(row.step)): str(row.path) for row in rows.itertuples()}

    def add_path(one: ShippingStep) -> ShippingStep:
        return replace(one, path=paths.get((one.series, one.step)))

    chosen = None if recommendation.recommended is None else add_path(recommendation.recommended)
    return replace(recommendation, recommended=chosen, steps=tuple(map(add_path, recommendation.steps)))
