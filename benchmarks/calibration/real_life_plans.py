"""Compare the power that ``oversharp plan`` predicts with how often an audit finds the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.calibration.real_life_series import Law, Outcome, ruled
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.verdict.audit_sizes import audit_design
from oversharp.diagnostics.verdict.losses import Law as LossLaw
from oversharp.diagnostics.verdict.losses import Loss, concentrated_loss, diffuse_loss
from oversharp.diagnostics.verdict.power import BaseRates, Design, power
from oversharp.diagnostics.verdict.seen import SeenCounts

#: Size of the simulated population, and simulated audits per plan. The mean over series is precise enough.
_POPULATION, _RUNS = 20_000, 8
#: Checkpoints of the audit. The verdict uses the last third.
_CHECKPOINTS = 9
_LOSSES: Mapping[LossLaw, Callable[..., Loss | None]] = {"diffuse": diffuse_loss, "concentrated": concentrated_loss}


@dataclass(frozen=True, kw_only=True)
class PlanOutcome(Outcome):
    """``promised``: the power that the plan predicts for this audit, a probability."""

    promised: float


def promised_and_found(
    law: Law, loss_law: LossLaw, *, pilot_problems: int, pilot_n: int, n_problems: int, n: int, points: float
) -> Callable[[np.random.Generator], Outcome]:
    """Simulate a pilot without a loss, the power of its plan, and one audit with the loss.

    The loss removes ``points`` from pass@k at half of the pilot's samples. The plan applies it to the base rates that
    the pilot estimates, the audit to the true population. The audit has new problems.
    """
    k, design = pilot_n // 2, audit_design(n_problems, n, _CHECKPOINTS)

    def draw(rng: np.random.Generator) -> Outcome:
        pilot_P = rng.binomial(2 * pilot_n, law(pilot_problems, rng))
        rates = BaseRates.of(pilot_P, np.full(pilot_problems, 2 * pilot_n))
        planted = [one for one in rates.losses(fall=points / 100, k=k) if one.law == loss_law]
        promised = [power(rates, one, design, wanted=0.8, runs=_RUNS, rng=rng).share for one in planted]
        rate_P = law(n_problems, rng)
        late_P = _true_loss(law, loss_law, points / 100, k).late(rate_P, rng)
        _, outcome = ruled(_audited(rate_P, late_P, design, n, rng), rng)
        return PlanOutcome(label=outcome.label, promised=sum(promised))  # one plan, or none if no loss has this size

    return draw


@cache
def _true_loss(law: Law, loss_law: LossLaw, fall: float, k: int) -> Loss:
    rate_Q = law(_POPULATION, np.random.default_rng(0))
    loss = _LOSSES[loss_law](rate_Q, np.full(_POPULATION, 1 / _POPULATION), fall=fall, k=k)
    if loss is None:
        raise ValueError(f"no {loss_law} loss takes {100 * fall:g} points from pass@{k} of these problems")
    return loss


def _audited(rate_P: np.ndarray, late_P: np.ndarray, design: Design, n: int, rng: np.random.Generator) -> SeenCounts:
    """Draw counts of the base and of the last third of the checkpoints, which have equal rates."""
    base_P, ks = rng.binomial(design.n_base, rate_P), inference_ks(min(design.n, design.n_base))
    hits = [rng.binomial(n, late_P) for _ in range(design.n_late // n)]
    steps = [PairedCounts(base_P=base_P, late_P=hit_P, n_base=design.n_base, n_late=n) for hit_P in hits]
    total = PairedCounts(base_P=base_P, late_P=np.sum(hits, axis=0), n_base=design.n_base, n_late=design.n_late)
    return SeenCounts(total=total, window=steps, steps=steps, ks=ks, step_ks=ks)
