"""Size and cost in samples of an audit that finds a loss of a given size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int
from pandas import isna

from oversharp.diagnostics.audit.counts import read_cluster_numbers, read_guess_rate
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series, stored_key
from oversharp.diagnostics.verdict.audit_sizes import AuditSizes, PlannedAudit, audit_design
from oversharp.diagnostics.verdict.counts import GuessRate
from oversharp.diagnostics.verdict.losses import ConcentratedLoss, Law, Loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, guessed, window_size

#: Number of simulated audits that test whether false accepts explain the fall, and their seed.
_GUESSED_RUNS, _SEED = 40, 20_260_102
MOST_CHECKPOINTS = 10_000
DEFAULT_CHECKPOINTS = 8


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The audited series that a plan starts from: its base's counts, and the cost of its samples.

    ``n_checkpoints`` counts the trained checkpoints. ``tokens_per_sample`` is a mean over them and the base, None if
    another tool sampled and did not record it. ``cluster_P`` is None without clusters.
    """

    series: str
    correct_P: Int[np.ndarray, " problem"]
    n_P: Int[np.ndarray, " problem"]
    n: int
    n_base: int
    n_checkpoints: int
    tokens_per_sample: float | None
    guess_rate: GuessRate
    cluster_P: Int[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class PlantedChange:
    """Mean change of pass@``k`` (probability) by a planted loss; negative for a fall."""

    k: int
    change: float


@dataclass(frozen=True, kw_only=True)
class PlantedLoss:
    """Changes of pass@k by a planted loss: at smaller k, at the given k, and at ``k_largest``, where it is largest.

    ``k_largest`` is at most half of the base's samples. ``share_lost`` of the problems are never solved again; None for
    a diffuse loss, which lowers many problems a little. ``guessed`` is the share of detected falls that false accepts
    explain, in the cheapest audit, else in that of the highest power; None if it detects none.
    """

    law: Law
    share_lost: float | None
    changes: tuple[PlantedChange, ...]
    k_largest: int
    guessed: float | None


@dataclass(frozen=True, kw_only=True)
class RelatedProblems:
    """Clusters of the audited problems, and the factor by which they may raise the number of problems needed.

    ``most_times`` is the largest design effect: all problems of a cluster change together. Source: Kish 1965, Survey
    Sampling, §5.4: 1 + (size − 1)·ρ at ρ = 1, with sizes weighted by themselves.
    """

    n_clusters: int
    most_times: float

    @classmethod
    def from_clusters(cls, cluster_P: Int[np.ndarray, " problem"]) -> RelatedProblems:
        """Return the design effect of these clusters.

        >>> RelatedProblems.from_clusters(np.array([0, 0, 0, 1]))  # (3² + 1²) / 4
        RelatedProblems(n_clusters=2, most_times=2.5)
        """
        _, size_G = np.unique(cluster_P, return_counts=True)
        return cls(n_clusters=len(size_G), most_times=float((size_G**2).sum() / size_G.sum()))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Possible audits by problems and samples, and the cheapest with the wanted power, None if none has it.

    ``present`` is the power of the audit in the store, None without a trained checkpoint. Each loss in ``planted``
    lowers pass@``k`` by ``drop``, a probability, from ``base_pass_at_k``. ``guess_rate`` is the false-accept rate and
    ``guess_source`` its source. ``related`` is None without clusters.
    """

    series: str
    drop: float
    k: int
    base_pass_at_k: float
    planted: tuple[PlantedLoss, ...]
    guess_rate: float
    guess_source: str
    wanted: float
    n_checkpoints: int
    window: int
    tokens_per_sample: float | None
    audits: tuple[PlannedAudit, ...]
    cheapest: PlannedAudit | None
    present: PlannedAudit | None
    related: RelatedProblems | None

    __repr__ = short_repr


def plan(
    store_path: Path,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    wanted: float = 0.8,
    n_checkpoints: int | None = None,
) -> Plan:
    """Return power and cost of audits of several sizes, for a fall of pass@``k`` by ``drop_points`` percentage points.

    ``k``: by default half of the audit's n. Two losses of that size are planted, each the same in every audit of the
    plan: a diffuse one (a winner-take-all expansion of the base's success rates) and a concentrated one (a few problems
    are never solved again, the others rise). An audit has the wanted power if it has it for both. A kind of loss that
    cannot be that large is left out. The plan is deterministic.

    A fall is detected if both keys are significant, so that the verdict generalizes to the population of problems. One
    look is assumed. If the lost success rates are as small as the false-accept rate, a larger audit cannot exclude
    false accepts: ``PlantedLoss.guessed`` is the share of falls that would get that label.

    The power is an upper bound. Real losses vary more between problems than the planted ones, and changes between
    checkpoints are not simulated: all late checkpoints have the same success rates, so that the fall of their pooled
    samples equals the mean of their falls, which a verdict states. Problems lose independently; with clusters,
    ``Plan.related`` bounds the effect of that assumption.

    Raises:
        ConfigError: a number outside its range, or a fall larger than any loss can cause.
        StoreError: the store has no such audit, or no graded samples of its base.
    """
    if not 0 < drop_points <= 100:
        raise ConfigError(f"--drop {drop_points:g}: must be above 0 and at most 100 points of pass@k")
    if not 0 < wanted < 1:
        raise ConfigError(f"--power {wanted:g}: must be between 0 and 1, for example 0.8")
    if n_checkpoints is not None and not 1 <= n_checkpoints <= MOST_CHECKPOINTS:
        raise ConfigError(f"--checkpoints {n_checkpoints}: must be at least 1 and at most {MOST_CHECKPOINTS:,}")
    with Store.open(store_path, read_only=True) as store:
        pilot = read_pilot(store, choose_series(store, series))
    used_k = _resolve_k(k, pilot)
    rates = BaseRates.of(pilot.correct_P, pilot.n_P)
    losses = rates.losses(fall=drop_points / 100, k=used_k)
    if not pilot.correct_P.any():
        raise ConfigError(
            f"series {pilot.series!r}: the base solved none of {plural(len(pilot.correct_P), 'problem')} in "
            f"{plural(pilot.n_base, 'sample')} each, so nothing can be lost; plan with easier problems, or more "
            "samples of the base"
        )
    if not losses:
        raise ConfigError(
            f"--drop {drop_points:g}: pass@{used_k} of the base is {100 * rates.pass_at_k(used_k):.1f} points, and no "
            "loss lowers it by that much; pass a smaller --drop or another --k"
        )
    used_checkpoints = n_checkpoints or pilot.n_checkpoints or DEFAULT_CHECKPOINTS
    sizes = AuditSizes(
        rates=rates,
        losses=losses,
        wanted=wanted,
        tokens_per_sample=pilot.tokens_per_sample,
    )
    audits = sizes.grid(pilot.n, used_checkpoints)
    enough = [audit for audit in audits if audit.power >= wanted]
    cheapest = min(enough, key=lambda audit: audit.samples, default=None)
    best = cheapest or max(audits, key=lambda audit: audit.power)
    design_of_best = audit_design(best.n_problems, best.n, used_checkpoints)
    present = None
    if pilot.n_checkpoints:
        design = audit_design(rates.n_problems, pilot.n, pilot.n_checkpoints, n_base=pilot.n_base)
        present = sizes.planned(design, pilot.n_checkpoints)
    return Plan(
        series=pilot.series,
        drop=drop_points / 100,
        k=used_k,
        base_pass_at_k=rates.pass_at_k(used_k),
        planted=tuple(_describe_loss(rates, loss, used_k, pilot, design_of_best) for loss in losses),
        guess_rate=pilot.guess_rate.share,
        guess_source=pilot.guess_rate.source,
        wanted=wanted,
        n_checkpoints=used_checkpoints,
        window=window_size(used_checkpoints),
        tokens_per_sample=pilot.tokens_per_sample,
        audits=tuple(audits),
        cheapest=cheapest,
        present=present,
        related=None if pilot.cluster_P is None else RelatedProblems.from_clusters(pilot.cluster_P),
    )


def read_pilot(store: Store, series: str) -> Pilot:
    """Read the current audit of ``series`` as a pilot. Raises ``StoreError`` without a graded sample of its base."""
    counts = store.frame(
        "SELECT n, n_correct FROM sampled_counts WHERE series = $series AND is_base ORDER BY problem_id", series=series
    )
    if counts.empty:
        raise StoreError(
            f"{store.path}: series {series!r} has no graded samples of its base; run its `oversharp audit` to the end"
        )
    audit = store.frame("SELECT n, n_base FROM current_audits WHERE series = $series", series=series).iloc[0]
    sampled = store.frame(
        """
        SELECT
            avg(n_tokens) AS tokens_per_sample,
            count(DISTINCT checkpoint_id) FILTER (NOT is_base) AS n_checkpoints
        FROM graded_samples
        WHERE series = $series AND NOT greedy
        """,
        series=series,
    ).iloc[0]
    key = stored_key(store, series)
    return Pilot(
        series=series,
        correct_P=counts["n_correct"].to_numpy(),
        n_P=counts["n"].to_numpy(),
        n=int(audit["n"]),
        n_base=int(audit["n_base"]),
        n_checkpoints=int(sampled["n_checkpoints"]),
        tokens_per_sample=None if isna(sampled["tokens_per_sample"]) else float(sampled["tokens_per_sample"]),
        guess_rate=read_guess_rate(store, key),
        cluster_P=read_cluster_numbers(store, key),
    )


def _resolve_k(k: int | None, pilot: Pilot) -> int:
    most = max(1, pilot.n_base // 2)
    if k is None:
        return max(1, min(pilot.n // 2, most))
    if not 1 <= k <= most:
        raise ConfigError(
            f"--k {k}: must be between 1 and {most}, half of the {pilot.n_base} samples per problem that series "
            f"{pilot.series!r} has of its base"
        )
    return k


def _describe_loss(rates: BaseRates, loss: Loss, k: int, pilot: Pilot, design: Design) -> PlantedLoss:
    """Return the loss's effect at k = 1, 8, 32, 128, … and ``k``, and the share that false accepts explain."""
    ks = sorted({k, *inference_ks(max(2, pilot.n_base))})
    change_by_k = dict(zip(ks, rates.changes(loss, ks), strict=True))
    k_largest = min(change_by_k, key=change_by_k.__getitem__)
    shown = sorted({1, k, k_largest, *(2 * 4**power for power in range(1, k.bit_length()) if 2 * 4**power < k)})
    rng = np.random.default_rng([_SEED, design.n_problems, design.n])
    return PlantedLoss(
        law=loss.law,
        share_lost=rates.share_lost(loss) if isinstance(loss, ConcentratedLoss) else None,
        changes=tuple(PlantedChange(k=k, change=change_by_k[k]) for k in shown),
        k_largest=k_largest,
        guessed=guessed(rates, loss, design, guess_share=pilot.guess_rate.share, runs=_GUESSED_RUNS, rng=rng),
    )
