"""Reads the series of a store, and says which of their checkpoints to ship."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from pandas import isna

from diagnostics.audit.counts import read_counts
from diagnostics.records.errors import ConfigError, StoreError
from diagnostics.store import Store
from diagnostics.store.load import chosen_series, is_recorded, left_out_checkpoints, stored_clusters, stored_key
from diagnostics.verdict.decide import judged_series
from diagnostics.verdict.recommendation import Recommendation, ShippingStep
from diagnostics.verdict.shipping import JudgedSeries, certifying, recommend

#: Samples of another tool know no weights: two series have one base where they have its very samples. The parts are
#: hashed as one text: hashes of several columns are joined linearly, so that equal changes of two rows would cancel.
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
class _Read:
    """A series of the store. ``alike``: what series whose checkpoints can be compared have in common."""

    judged: JudgedSeries
    alike: Hashable
    certifying_P: Bool[np.ndarray, " problem"]


def ship(
    store_path: Path, *, series: Sequence[str] | None = None, allow_loss_points: float = 0.0, held_out: bool = False
) -> tuple[Recommendation, ...]:
    """Which checkpoint to ship of ``series`` (default: all), one recommendation for those that can be compared.

    These have the same base, problems, clusters, sampling settings and grader; in the order of their names. With
    ``held_out`` one half of the problems chooses and the other certifies.

    Raises:
        ConfigError: ``allow_loss_points`` is no number of points from 0 to below 100.
        StoreError: there is no such store or series.
    """
    if not 0 <= allow_loss_points < 100:
        raise ConfigError(f"--allow-loss {allow_loss_points:g}: must be 0 or more and below 100 points of pass@k")
    if not store_path.exists():
        raise StoreError(f"{store_path}: no such store; run `oversharp audit` or `oversharp import` first")
    with Store.open(store_path, read_only=True) as store:
        groups: dict[Hashable, list[_Read]] = {}
        for name in _names(store, series):
            one = _read(store, name)
            groups.setdefault(one.alike, []).append(one)
        return tuple(
            _with_paths(
                store,
                recommend(
                    [one.judged for one in group],
                    allowed_loss=allow_loss_points / 100,
                    certifying_P=group[0].certifying_P if held_out else None,
                ),
            )
            for group in groups.values()
        )


def _names(store: Store, series: Sequence[str] | None) -> list[str]:
    if series is not None:
        return [chosen_series(store, name) for name in dict.fromkeys(series)]
    names = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    return names or [chosen_series(store, None)]  # which says that there is none


def _read(store: Store, series: str) -> _Read:
    key = stored_key(store, series)
    verdict = store.verdict(series)
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
    return _Read(
        judged=judged,
        alike=(
            samples if is_recorded(store, series) else str(base["checkpoint_id"]),
            tuple(problem_ids),
            tuple(sorted(clusters.items())),
            key.settings_id,
            key.verifier,
        ),
        certifying_P=certifying([clusters.get(one, one) for one in problem_ids]),
    )


def _with_paths(store: Store, said: Recommendation) -> Recommendation:
    """With the folder of every checkpoint; None where another tool drew the samples, and nobody saw the weights."""
    rows = store.frame(
        """
        SELECT series, step, path
        FROM series_checkpoints
        JOIN checkpoints USING (checkpoint_id)
        WHERE kind <> 'recorded'
        """
    )
    paths = {(str(row.series), int(row.step)): str(row.path) for row in rows.itertuples()}

    def placed(one: ShippingStep) -> ShippingStep:
        return replace(one, path=paths.get((one.series, one.step)))

    chosen = None if said.recommended is None else placed(said.recommended)
    return replace(said, recommended=chosen, steps=tuple(map(placed, said.steps)))
