"""Plans how large an audit must be to find a loss that one names, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int
from pandas import isna

from diagnostics.records.errors import ConfigError, StoreError
from diagnostics.statistics.keys import inference_ks
from diagnostics.store import Store
from diagnostics.store.load import chosen_series
from diagnostics.verdict.audit_sizes import SAMPLES, audit_design, problem_numbers, sampled_tokens, samples_drawn
from diagnostics.verdict.power import BaseRates, Design, Loss, Power, power, window_size

#: Simulated audits per design; power near 80 % is then known to 2 points (one standard error).
RUNS = 400
MOST_CHECKPOINTS = 10_000
DEFAULT_CHECKPOINTS = 8
_SEED = 20_260_101


@dataclass(frozen=True, kw_only=True)
class Pilot:
    """What a plan starts from: the audited series, its base's counts, and what its samples cost.

    ``n_checkpoints`` counts the trained checkpoints, without the base; ``tokens_per_sample`` is a mean over all of them
    and the base, None where another tool drew them and did not tell.
    """

    series: str
    correct_P: Int[np.ndarray, " problem"]
    n_P: Int[np.ndarray, " problem"]
    n: int
    n_base: int
    n_checkpoints: int
    tokens_per_sample: float | None


@dataclass(frozen=True, kw_only=True)
class PlantedChange:
    """The mean change of pass@``k`` that the planted loss makes, a probability; below 0 where it falls."""

    k: int
    change: float


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """One size of an audit: its power for the named loss, and all the samples and tokens that would be drawn for it.

    ``runs`` is 0 where the power was not simulated: fewer problems found the loss every time already.
    """

    n_problems: int
    n: int
    n_base: int
    samples: int
    tokens: float | None
    power: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Audits that were considered, by problems and samples, and the cheapest with the wanted power, None if none has.

    ``present`` is the power of the audit in the store, None where it has no trained checkpoint. ``drop`` is the fall of
    pass@``k`` in probability, from ``base_pass_at_k``. ``planted`` says what the loss does at smaller k, at
    ``k`` itself, and at ``k_largest``, up to half of the base's samples, where it takes most.
    """

    series: str
    drop: float
    k: int
    base_pass_at_k: float
    planted: tuple[PlantedChange, ...]
    k_largest: int
    wanted: float
    n_checkpoints: int
    window: int
    tokens_per_sample: float | None
    audits: tuple[PlannedAudit, ...]
    cheapest: PlannedAudit | None
    present: PlannedAudit | None


def plan(
    store_path: Path,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    wanted: float = 0.8,
    n_checkpoints: int | None = None,
) -> Plan:
    """Power and cost of audits of several sizes for a fall of pass@``k`` by ``drop_points`` (percentage points).

    ``k``: by default half of the audit's n. The loss is the same in every audit of the plan: one winner-take-all
    expansion of the base's success rates, as strong as it takes. The same store gives the same plan.

    The power is an upper estimate. Real losses scatter more from problem to problem than the planted one, and the churn
    from checkpoint to checkpoint is not simulated: all late checkpoints have the same success rates, so that a fall of
    their pooled samples is also the mean of their falls, which is what a verdict states.

    Raises:
        ConfigError: a number outside its range, or a fall that no loss of this kind can cause.
        StoreError: the store has no such audit, or no graded samples of its base.
    """
    if not 0 < drop_points <= 100:
        raise ConfigError(f"--drop {drop_points:g}: must lie above 0 and at most at 100 points of pass@k")
    if not 0 < wanted < 1:
        raise ConfigError(f"--power {wanted:g}: must lie between 0 and 1, for example 0.8")
    if n_checkpoints is not None and n_checkpoints < 1:
        raise ConfigError(f"--checkpoints {n_checkpoints}: must be at least 1")
    if n_checkpoints is not None and n_checkpoints > MOST_CHECKPOINTS:
        raise ConfigError(f"--checkpoints {n_checkpoints}: must be at most {MOST_CHECKPOINTS:,}")
    with Store.open(store_path, read_only=True) as store:
        pilot = read_pilot(store, chosen_series(store, series))
    used_k = _used_k(k, pilot)
    rates = BaseRates.of(pilot.correct_P, pilot.n_P)
    loss = rates.loss(fall=drop_points / 100, k=used_k)
    if loss is None:
        raise ConfigError(
            f"--drop {drop_points:g}: pass@{used_k} of the base is {100 * rates.pass_at_k(used_k):.1f} points, too few "
            "to lose that many; name a smaller --drop or another --k"
        )
    used_checkpoints = n_checkpoints or pilot.n_checkpoints or DEFAULT_CHECKPOINTS
    planted, k_largest = _planted(rates, loss, used_k, most_k=max(1, pilot.n_base // 2))
    audits = _grid(rates, loss, pilot, used_checkpoints, wanted)
    enough = [audit for audit in audits if audit.power >= wanted]
    present = None
    if pilot.n_checkpoints:
        design = audit_design(rates.n_problems, pilot.n, pilot.n_checkpoints, n_base=pilot.n_base)
        present = _planned(rates, loss, design, pilot.tokens_per_sample, pilot.n_checkpoints, wanted)
    return Plan(
        series=pilot.series,
        drop=drop_points / 100,
        k=used_k,
        base_pass_at_k=rates.pass_at_k(used_k),
        planted=planted,
        k_largest=k_largest,
        wanted=wanted,
        n_checkpoints=used_checkpoints,
        window=window_size(used_checkpoints),
        tokens_per_sample=pilot.tokens_per_sample,
        audits=tuple(audits),
        cheapest=min(enough, key=lambda audit: audit.samples, default=None),
        present=present,
    )


def read_pilot(store: Store, series: str) -> Pilot:
    """What the current audit of ``series`` says for a plan.

    Raises ``StoreError`` without a graded sample of its base.
    """
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
    return Pilot(
        series=series,
        correct_P=counts["n_correct"].to_numpy(),
        n_P=counts["n"].to_numpy(),
        n=int(audit["n"]),
        n_base=int(audit["n_base"]),
        n_checkpoints=int(sampled["n_checkpoints"]),
        tokens_per_sample=None if isna(sampled["tokens_per_sample"]) else float(sampled["tokens_per_sample"]),
    )


def _used_k(k: int | None, pilot: Pilot) -> int:
    most = max(1, pilot.n_base // 2)
    if k is None:
        return max(1, min(pilot.n // 2, most))
    if not 1 <= k <= most:
        raise ConfigError(
            f"--k {k}: must lie between 1 and {most}, half of the {pilot.n_base} samples per problem that series "
            f"{pilot.series!r} has of its base"
        )
    return k


def _planted(rates: BaseRates, loss: Loss, k: int, *, most_k: int) -> tuple[tuple[PlantedChange, ...], int]:
    """What the loss does at k = 1, 8, 32, 128, … and at ``k``, and the k up to ``most_k`` where it takes most."""
    looked_at = sorted({k, *inference_ks(2 * most_k)})
    change_at = dict(zip(looked_at, rates.changes(loss, looked_at), strict=True))
    k_largest = min(change_at, key=lambda at: change_at[at])
    shown = sorted({1, k, k_largest, *(2 * 4**power for power in range(1, k.bit_length()) if 2 * 4**power < k)})
    return tuple(PlantedChange(k=at, change=change_at[at]) for at in shown), k_largest


def _grid(rates: BaseRates, loss: Loss, pilot: Pilot, n_checkpoints: int, wanted: float) -> list[PlannedAudit]:
    """By samples, then by problems, in ascending order."""
    audits: list[PlannedAudit] = []
    for n in sorted({*SAMPLES, pilot.n}):
        certain: Power | None = None
        for n_problems in problem_numbers(rates.n_problems):
            design = audit_design(n_problems, n, n_checkpoints)
            audit = _planned(rates, loss, design, pilot.tokens_per_sample, n_checkpoints, wanted, at_least=certain)
            if audit.runs and audit.power == 1.0:
                certain = Power(found=audit.runs, runs=audit.runs)
            audits.append(audit)
    return audits


def _planned(
    rates: BaseRates,
    loss: Loss,
    design: Design,
    tokens_per_sample: float | None,
    n_checkpoints: int,
    wanted: float,
    *,
    at_least: Power | None = None,
) -> PlannedAudit:
    """``at_least``: the power of a smaller audit that is not worth to be simulated again."""
    # a size's own generator: the same power whatever other sizes are asked for
    rng = np.random.default_rng([_SEED, design.n_problems, design.n, design.n_base, design.n_late])
    estimate = at_least or power(rates, loss, design, wanted=wanted, runs=RUNS, rng=rng)
    low, high = estimate.interval()
    return PlannedAudit(
        n_problems=design.n_problems,
        n=design.n,
        n_base=design.n_base,
        samples=samples_drawn(design, n_checkpoints),
        tokens=sampled_tokens(design, tokens_per_sample, n_checkpoints),
        power=estimate.share,
        low=low,
        high=high,
        runs=0 if at_least else estimate.runs,
    )
