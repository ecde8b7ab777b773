"""Compute the size of an audit that detects a loss of a given size, and its cost in samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.audit.cost.never_solved import NeverSolved, never_solved
from oversharp.diagnostics.audit.cost.rounds import PlannedStopping
from oversharp.diagnostics.audit.counts.series import read_cluster_numbers, read_guess_rate
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import choose_series, stored_key, stored_problems
from oversharp.diagnostics.verdict.audit_sizes import AuditSizes, PlannedAudit, SampleLengths, audit_design
from oversharp.diagnostics.verdict.counts import GuessRate, window_size
from oversharp.diagnostics.verdict.losses import ConcentratedLoss, Law, Loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, guessed

#: Stopping rules to compare with the planned one, by their numbers of correct samples; None: always n samples.
COMPARED_ENOUGH = (None, 4, 2)
#: Precision of their powers: distance to the ends of the 95 % interval, a probability.
COMPARED_TO = 0.07
#: Number of simulated audits in which false accepts are tested as an explanation of the fall, and their seed.
_GUESSED_RUNS, _SEED = 40, 20_260_102
MOST_CHECKPOINTS = 10_000
MOST_TRAINED = 8
DEFAULT_CHECKPOINTS = 8


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """The audited series from which a plan starts: counts of its base, and cost of its samples.

    ``n_checkpoints`` counts the trained checkpoints. ``lengths`` are means over them and the base, None if the imported
    tool did not record tokens. ``trained`` has the success rates of at most ``MOST_TRAINED`` trained checkpoints, at
    equal distances. ``first`` and ``enough`` are the stopping rule, None without one. ``cluster_P`` is None without
    clusters.
    """

    series: str
    correct_P: Int[np.ndarray, " problem"]
    n_P: Int[np.ndarray, " problem"]
    n: int
    n_base: int
    n_checkpoints: int
    lengths: SampleLengths | None
    guess_rate: GuessRate
    cluster_P: Int[np.ndarray, " problem"] | None
    first: int | None
    enough: int | None
    problems: Sequence[Problem]
    trained: tuple[BaseRates, ...]


@dataclass(frozen=True, kw_only=True)
class PlantedChange:
    """Mean change of pass@``k`` (as a probability) by a simulated loss; negative for a fall."""

    k: int
    change: float


@dataclass(frozen=True, kw_only=True)
class PlantedLoss:
    """Changes of pass@k by a simulated loss: at smaller k, at the given k, and at ``k_largest``.

    The change is largest at ``k_largest``, which is at most half of the base's samples. ``share_lost`` of the problems
    are never solved again; None for a diffuse loss, which lowers many problems a little. ``guessed`` is the share of
    detected falls that false accepts explain. It is for the cheapest audit, or for the one with the highest power if
    none is large enough. It is None if that audit detects no fall.
    """

    law: Law
    share_lost: float | None
    changes: tuple[PlantedChange, ...]
    k_largest: int
    guessed: float | None


@dataclass(frozen=True, kw_only=True)
class RelatedProblems:
    """Clusters of the audited problems, and by how much they may raise the needed number.

    ``most_times`` is the largest possible factor, the design effect if all problems of a cluster change together.
    Source:
    Kish 1965, Survey Sampling, §5.4: 1 + (size − 1)·ρ at ρ = 1, averaged over clusters with their sizes as weights.
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
    """Possible audits by number of problems and samples, and the cheapest with the power.

    ``cheapest`` is None if no audit has that power. ``present`` is the power of the audit in the store, None without a
    trained checkpoint. Each loss in ``planted`` lowers pass@``k`` by ``drop``, a probability, from ``base_pass_at_k``.
    ``guess_rate`` is the false-accept rate and ``guess_source`` its source. ``related`` is None without clusters.
    ``stopping`` is the cheapest audit, or the one with the highest power, with other stopping rules and without one.
    Their power is for the loss that is harder to detect. It is empty if the first round has n samples. ``never_solved``
    is the cost of that audit's unsolved problems, None without a stopping rule. Expected numbers of samples of trained
    checkpoints are averages over ``n_trained`` of those in the store. If it is 0, they are those of the base.
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
    stopping: tuple[PlannedAudit, ...] = ()
    never_solved: NeverSolved | None = None
    n_trained: int = 0

    __repr__ = short_repr


def plan(
    store_path: Path,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    wanted: float = 0.8,
    n_checkpoints: int | None = None,
    until_solved: int | None = None,
    first: int | None = None,
) -> Plan:
    """Return power and cost of audits of several sizes, for a fall of pass@``k``.

    The fall is ``drop_points`` percentage points. The default of ``k`` is half of the audit's n. Two losses of that
    size are simulated, and are the same in every audit of the plan. In the diffuse loss, the success rates of the base
    are changed by a winner-take-all expansion. In the concentrated loss, a few problems are never solved again and the
    others rise. An audit has the wanted power if it reaches it for both losses. A kind of loss that cannot be that
    large is left out. The plan is deterministic.

    The audits sample each problem in rounds, from ``first`` samples on, until ``until_solved`` are correct (0: always
    n). The default is the rule of the audit in the store, else the default of ``oversharp audit``.

    A fall is detected if both tests of the verdict are significant: on these problems, and on their population. The
    plan assumes one look. If the lost success rates are as small as the false-accept rate, a larger audit cannot
    exclude false accepts. ``PlantedLoss.guessed`` is the share of falls that would get that label.

    The power is an upper bound, for two reasons. Real losses vary more between problems than the simulated ones.
    Changes between checkpoints are not simulated: all late checkpoints have the same success rates, so the fall of
    their pooled samples equals the mean of their falls, which a verdict reports. Problems lose independently.
    ``Plan.related`` bounds the effect of clusters.

    Raises:
        ConfigError: a number is outside its range, or the fall is larger than any loss can cause.
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
    used_k, stopping = resolve_k(k, pilot), _resolve_stopping(until_solved, first, pilot)
    rates = BaseRates.of(pilot.correct_P, pilot.n_P)
    losses = rates.losses(fall=drop_points / 100, k=used_k)
    if not pilot.correct_P.any():
        raise ConfigError(
            f"series {pilot.series!r}: the base solved none of {plural(len(pilot.correct_P), 'problem')} in "
            f"{plural(pilot.n_base, 'sample')} each, so no problem can be lost; plan with easier problems, or with "
            "more samples of the base"
        )
    if not losses:
        raise ConfigError(
            f"--drop {drop_points:g}: pass@{used_k} of the base is {100 * rates.pass_at_k(used_k):.1f} points, and no "
            "loss lowers it by that much; pass a smaller --drop or another --k"
        )
    used_checkpoints = n_checkpoints or pilot.n_checkpoints or DEFAULT_CHECKPOINTS
    sizes = AuditSizes(rates=rates, losses=losses, wanted=wanted, lengths=pilot.lengths, trained=pilot.trained)
    audits = sizes.grid(pilot.n, used_checkpoints, stopping.for_n)
    powerful = [audit for audit in audits if audit.power >= wanted]
    cheapest = min(powerful, key=lambda audit: audit.cost, default=None)
    best = cheapest or max(audits, key=lambda audit: audit.power)
    design_of_best = audit_design(best.n_problems, best.n, used_checkpoints, first=best.first, enough=best.enough)
    present = None
    if pilot.n_checkpoints:
        rule = {"first": pilot.first, "enough": pilot.enough}
        design = audit_design(rates.n_problems, pilot.n, pilot.n_checkpoints, n_base=pilot.n_base, **rule)
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
        tokens_per_sample=None if pilot.lengths is None else pilot.lengths.mean,
        audits=tuple(audits),
        cheapest=cheapest,
        present=present,
        related=None if pilot.cluster_P is None else RelatedProblems.from_clusters(pilot.cluster_P),
        stopping=_compare_stopping(sizes, best, used_checkpoints, stopping.first_for(best.n)),
        never_solved=never_solved(rates, design_of_best, used_checkpoints, pilot.lengths, pilot.trained),
        n_trained=len(pilot.trained),
    )


def read_pilot(store: Store, series: str) -> Pilot:
    """Read the current audit of ``series``.

    Raises ``StoreError`` if its base has no graded sample.
    """
    counts = store.frame(
        "SELECT problem_id, n, n_correct FROM sampled_counts WHERE series = $series AND is_base ORDER BY problem_id",
        series=series,
    ).set_index("problem_id")
    if counts.empty:
        raise StoreError(
            f"{store.path}: series {series!r} has no graded samples of its base; run its `oversharp audit` to the end"
        )
    sampled = store.frame(
        """
        SELECT
            problem_id, checkpoint_id, is_base,
            coalesce(sum(n_tokens), 0)::BIGINT AS n_tokens, count(n_tokens) AS n_measured
        FROM graded_samples
        WHERE series = $series AND NOT greedy
        GROUP BY ALL
        """,
        series=series,
    )
    key = stored_key(store, series)
    measured = sampled.groupby("problem_id")[["n_tokens", "n_measured"]].sum().reindex(counts.index).to_numpy()
    return Pilot(
        series=series,
        correct_P=counts["n_correct"].to_numpy(),
        n_P=counts["n"].to_numpy(),
        n=key.n,
        n_base=key.n_base,
        n_checkpoints=sampled.loc[~sampled["is_base"], "checkpoint_id"].nunique(),
        lengths=SampleLengths.from_totals(*measured.T, is_stopped=key.enough is not None),
        guess_rate=read_guess_rate(store, key),
        cluster_P=read_cluster_numbers(store, key),
        first=key.first_round,
        enough=key.enough,
        problems=stored_problems(store, list(counts.index)),
        trained=tuple(_read_trained(store, series, counts.index)),
    )


def _read_trained(store: Store, series: str, problem_ids: pd.Index) -> Iterator[BaseRates]:
    """Yield the success rates of trained checkpoints on these problems."""
    rows = store.frame(
        "SELECT step, problem_id, n, n_correct FROM sampled_counts WHERE series = $series AND NOT is_base",
        series=series,
    )
    steps = np.unique(rows["step"])
    if not len(steps):
        return
    for step in steps[np.unique(np.linspace(0, len(steps) - 1, MOST_TRAINED).round().astype(int))]:
        counts = rows[rows["step"] == step].set_index("problem_id").reindex(problem_ids, fill_value=0)
        yield BaseRates.of(counts["n_correct"].to_numpy(), counts["n"].to_numpy())


def resolve_k(k: int | None, pilot: Pilot) -> int:
    """Return ``k``, by default half of the audit's n. Raises ``ConfigError`` above half of the base's samples."""
    most = max(1, pilot.n_base // 2)
    if k is None:
        return max(1, min(pilot.n // 2, most))
    if not 1 <= k <= most:
        raise ConfigError(
            f"--k {k}: must be between 1 and {most}, half of the {pilot.n_base} samples per problem of the base in "
            f"series {pilot.series!r}"
        )
    return k


def _resolve_stopping(until_solved: int | None, first: int | None, pilot: Pilot) -> PlannedStopping:
    """Return the rule that the user gave, else that of the audit in the store, else the default of an audit.

    The default depends on n, so a store's audit with the default of its n does not set the rule of other n.
    """
    default = PlannedStopping(problems=pilot.problems)
    if default.for_n(pilot.n) != {"first": pilot.first, "enough": pilot.enough}:
        until_solved = pilot.enough if until_solved is None else until_solved
        first = pilot.first if first is None and until_solved != 0 else first
    return PlannedStopping(enough=until_solved, first=first, problems=pilot.problems)


def _compare_stopping(
    sizes: AuditSizes, audit: PlannedAudit, n_checkpoints: int, first: int
) -> tuple[PlannedAudit, ...]:
    """Return the same audit with its rule and each of ``COMPARED_ENOUGH``, the one with most samples first.

    Only the loss that this audit detects less often is simulated.
    """
    if first >= audit.n:
        return ()
    _, harder = min(zip(audit.by_law, sizes.losses, strict=True), key=lambda pair: pair[0].power)
    compared, sizes = [], replace(sizes, losses=(harder,))
    for enough in {audit.enough, *COMPARED_ENOUGH}:
        rule = {} if enough is None else {"first": first, "enough": enough}
        design = audit_design(audit.n_problems, audit.n, n_checkpoints, **rule)
        compared.append(sizes.planned(design, n_checkpoints, known_to=COMPARED_TO))
    return tuple(sorted(compared, key=lambda each: -each.samples))


def _describe_loss(rates: BaseRates, loss: Loss, k: int, pilot: Pilot, design: Design) -> PlantedLoss:
    """Return the effect of a loss at k = 1, 8, 32, 128, … and ``k``, and its share ``guessed``."""
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
