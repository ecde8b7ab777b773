"""Reads the series of a store, and says which of their checkpoints to ship."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool
from pandas import isna

from oversharp.diagnostics.audit.counts import read_counts
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.derivations import findings_of, recorded_derivations
from oversharp.diagnostics.store.load import (
    choose_series,
    is_recorded,
    left_out_checkpoints,
    stored_clusters,
    stored_key,
)
from oversharp.diagnostics.verdict.counts import SeriesCounts
from oversharp.diagnostics.verdict.decide import judged_series
from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.shipping.choice import certifying, recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries

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
    """Which checkpoint to ship of ``series`` (default: all), one recommendation for those that can be compared.

    These have the same base, problems, clusters, sampling settings and grader; in the order of their names, repaired
    ones last. With ``held_out`` one half of the problems chooses and the other certifies.

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
        reads = [_read(store, name) for name in _names(store, series)]
        return tuple(
            _with_paths(store, _over(group, allow_loss_points / 100, held_out=held_out)) for group in _comparable(reads)
        )


def settle_shipping(store: Store, counts: SeriesCounts, verdict: Verdict) -> Verdict:
    """``verdict`` with what is shipped of all series that can be compared with it, which all their verdicts then say.

    So console, view and report say the same of each, and what ``ship`` says without ``--series``. ``counts`` are those
    of ``verdict``, which is not in the store yet.
    """
    if len(_names(store, None)) < 2:
        return verdict  # it says that of itself alone
    own = _read(store, counts.series, counts=counts, verdict=verdict)
    others = [_known(store, name) for name in _names(store, None) if name != counts.series]
    group = _ordered([own, *(one for one in others if one.alike == own.alike)])
    if len(group) < 2:
        return verdict
    said = _over(group, 0.0, held_out=False)
    _have_verdicts_say(store, said, [one for one in group if one is not own])
    return replace(verdict, shipping=_of(said, verdict.series))


def settle_merged(store_path: Path) -> None:
    """Have the verdicts of series that came from several stores say what is shipped of all that can be compared."""
    with Store.open(store_path) as store:
        judged = [str(name) for name in store.frame("SELECT series FROM verdicts ORDER BY series")["series"]]
        if len(judged) < 2:
            return
        for group in _comparable([_read(store, name) for name in judged]):
            if len(group) > 1:
                _have_verdicts_say(store, _over(group, 0.0, held_out=False), group)


def settle_left(store_path: Path) -> None:
    """Compute the recommendation in every verdict again, after series that it was compared with were removed."""
    with Store.open(store_path) as store:
        judged = [str(name) for name in store.frame("SELECT series FROM verdicts ORDER BY series")["series"]]
        for group in _comparable([_read(store, name) for name in judged]):
            _have_verdicts_say(store, _over(group, 0.0, held_out=False), group)


def _have_verdicts_say(store: Store, said: Recommendation, group: Sequence[_Read]) -> None:
    for one in group:
        held = store.verdict(one.judged.counts.series)
        if held is not None:
            store.replace_verdict(stored_key(store, held.series), replace(held, shipping=_of(said, held.series)))


def _of(said: Recommendation, series: str) -> Recommendation:
    """What the verdict on ``series`` keeps: base, own checkpoints, and what may be the best; not all of every run."""
    kept = (one for one in said.steps if one.is_base or one.series == series or one.may_be_best)
    return replace(said, steps=tuple(kept))


#: Series that this process has read, by store, series and what its findings were made from: a process that audits many
#: runs into one store reads each of them once.
_KNOWN: dict[tuple[str, str, str], _Read] = {}


def _known(store: Store, series: str) -> _Read:
    held = recorded_derivations(store.path).get(findings_of(series))
    if held is None:
        return _read(store, series)
    place = (str(store.path.resolve()), series, held.made_from)
    if place not in _KNOWN:
        _KNOWN[place] = _read(store, series)
    return _KNOWN[place]


def _comparable(reads: Sequence[_Read]) -> list[list[_Read]]:
    """The series in groups whose checkpoints can be compared, each with the trained before the repaired."""
    groups: dict[Hashable, list[_Read]] = {}
    for one in _ordered(reads):
        groups.setdefault(one.alike, []).append(one)
    return list(groups.values())


def _ordered(reads: Sequence[_Read]) -> list[_Read]:
    """By name, repaired series last: what they share with the run that they were made of has its name there."""
    return sorted(reads, key=lambda one: (one.is_repaired, one.judged.counts.series))


def _over(group: Sequence[_Read], allowed_loss: float, *, held_out: bool) -> Recommendation:
    return recommend(
        [one.judged for one in group],
        allowed_loss=allowed_loss,
        certifying_P=group[0].certifying_P if held_out else None,
    )


def _names(store: Store, series: Sequence[str] | None) -> list[str]:
    if series is not None:
        if not series:
            raise ConfigError("--series: names none; name the series to choose from, or leave it out for all")
        return [choose_series(store, name) for name in dict.fromkeys(series)]
    names = [str(name) for name in store.frame("SELECT series FROM current_audits ORDER BY series")["series"]]
    return names or [choose_series(store, None)]  # which says that there is none


def _read(store: Store, series: str, *, counts: SeriesCounts | None = None, verdict: Verdict | None = None) -> _Read:
    """A series as the store has it; ``counts`` and ``verdict`` where they are newer."""
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
        is_repaired=counts.is_repaired,
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
