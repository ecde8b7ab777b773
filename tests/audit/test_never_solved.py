"""Cost of unsolved problems, and what thinning them would save and cost: as in a simulation of the whole scheme."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from oversharp.diagnostics.audit.cost.never_solved import KEPT_SHARE, THINNED_AFTER, never_solved
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths, audit_design
from oversharp.diagnostics.verdict.power import BaseRates

P, CHECKPOINTS = 400, 3
DESIGN = replace(audit_design(P, 256, CHECKPOINTS, first=16, enough=4), n_late=512)  # two of three are late


def _rates() -> BaseRates:
    """Many rarely solved problems, and a fifth that is impossible."""
    rng = np.random.default_rng(0)
    rate_P = np.where(rng.random(P) < 0.2, 0.0, expit(rng.normal(-3.5, 2.0, P)))
    return BaseRates.of(rng.binomial(512, rate_P), np.full(P, 512))


def _drawn(rule: StoppingRule, rate_P: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the end points, and whether the first ``THINNED_AFTER`` samples are wrong."""
    correct_RP = rng.binomial(np.diff(rule.rounds, prepend=0)[:, None], rate_P).cumsum(axis=0)
    return rule.stop(correct_RP), correct_RP[rule.rounds.index(THINNED_AFTER)] == 0


@pytest.mark.slow
def test_cost_saving_and_error_are_those_of_a_simulation() -> None:
    rates, rng = _rates(), np.random.default_rng(1)
    made = never_solved(rates, DESIGN, CHECKPOINTS, None)
    assert made is not None
    assert made.thinning is not None
    base, late = DESIGN.of_base, DESIGN.of_checkpoint
    assert isinstance(base, StoppingRule)
    assert isinstance(late, StoppingRule)
    table_base, table_late = (rule.pass_at_k_table([made.thinning.k])[:, 0] for rule in (base, late))
    rules = (base, *[late] * CHECKPOINTS)
    n_all, n_unsolved, n_thinned, unsolved, errors = [], [], [], [], []
    for _ in range(600):
        rate_P = rng.beta(rates.a_P, rates.b_P)
        sides = [_drawn(rule, rate_P, rng) for rule in rules]
        n_XP = np.stack([rule.hits(code)[0] for rule, (code, _) in zip(rules, sides, strict=True)])
        zero_XP = np.stack([code == 0 for code, _ in sides])
        open_P = np.all([wrong for _, wrong in sides], axis=0)
        weight_P = np.where(open_P, (rng.random(P) < KEPT_SHARE) / KEPT_SHARE, 1.0)
        late_P = np.mean([table_late[code] for code, _ in sides[-2:]], axis=0)
        change_P = late_P - table_base[sides[0][0]]
        n_all.append(n_XP.sum())
        n_unsolved.append(n_XP[zero_XP].sum())
        n_thinned.append(np.where(weight_P == 0, np.minimum(n_XP, THINNED_AFTER), n_XP).sum())
        unsolved.append(zero_XP.mean())
        errors.append((change_P.sum(), (weight_P * change_P).sum()))
    assert made.problems == pytest.approx(np.mean(unsolved), abs=0.005)
    assert made.cost == pytest.approx(np.sum(n_unsolved) / np.sum(n_all), abs=0.01)
    assert made.thinning.saved == pytest.approx(1 - np.sum(n_thinned) / np.sum(n_all), abs=0.01)
    assert 0.05 < made.thinning.saved < 0.9 * made.cost
    full, thinned = np.std(errors, axis=0)
    assert made.thinning.error_factor == pytest.approx(thinned / full, rel=0.05)
    assert made.thinning.error_factor > 1.15
    assert np.mean(errors, axis=0) == pytest.approx(0, abs=4 * thinned / 24)  # no bias


def test_no_thinning_of_few_problems_or_few_samples_and_nothing_without_a_rule() -> None:
    rates = _rates()
    made = {
        name: never_solved(rates, design, CHECKPOINTS, None)
        for name, design in (
            ("many", DESIGN),
            ("few", replace(DESIGN, n_problems=299)),
            ("short", audit_design(P, 128, CHECKPOINTS, first=16, enough=4)),
            ("uniform", audit_design(P, 256, CHECKPOINTS)),
        )
    }
    assert {name: each is not None and each.thinning is not None for name, each in made.items()} == {
        "many": True,
        "few": False,
        "short": False,
        "uniform": False,
    }
    assert made["uniform"] is None
    assert made["few"] == replace(made["many"], thinning=None)


def test_long_responses_of_unsolved_problems_take_a_larger_share_of_the_tokens() -> None:
    rates = _rates()
    hard_P = rates.a_P < 1
    of_samples, of_equal, of_tokens = (
        never_solved(rates, DESIGN, CHECKPOINTS, lengths)
        for lengths in (
            None,
            SampleLengths(mean=7.0, mean_P=np.full(P, 7.0)),
            SampleLengths(mean=7.0, mean_P=np.where(hard_P, 30.0, 10.0)),
        )
    )
    assert of_samples is not None
    assert of_equal is not None
    assert of_tokens is not None
    assert of_equal.cost == pytest.approx(of_samples.cost)
    assert of_tokens.cost > of_samples.cost + 0.05
    assert of_tokens.problems == of_samples.problems
    assert of_tokens.thinning is not None
    assert of_samples.thinning is not None
    assert of_tokens.thinning.saved > of_samples.thinning.saved


def test_problems_that_checkpoints_lost_are_never_solved_there() -> None:
    rates, n_P = BaseRates.of(np.full(P, 200), np.full(P, 512)), np.full(P, 10**9)
    lost = BaseRates.of(np.where(np.arange(P) % 4 == 0, 0, n_P // 2), n_P)  # certain rates
    kept, made = (never_solved(rates, DESIGN, CHECKPOINTS, None, trained) for trained in ((), (lost,)))
    assert kept is not None
    assert made is not None
    assert kept.problems < 1e-6
    # a quarter at three of four checkpoints; 256 samples of each, and 16 of the others
    assert made.problems == pytest.approx(3 / 16, abs=0.01)
    assert made.cost == pytest.approx(3 / 4 * 256 / (16 + 3 * (256 + 3 * 16) / 4), abs=0.01)
