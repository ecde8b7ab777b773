"""[B] 3.1, App C.4: expected update of a group, and the effect of one sampled action on the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.papers.claim import FAILS_AS_PRINTED, PART, Check, Claim, Effort, Family, Finding, Never
from benchmarks.papers.estimates import counterexamples
from benchmarks.papers.theory.softmax_dynamics import (
    expected_group_update,
    logit_update,
    probability_change,
    update_signs,
)

TITLE = "The expected update of a softmax policy"
ROUNDING = 1e-9
RATE = 0.1
GROUP_SIZES = (2, 3, 4)
ACTIONS = 4
SETTING = "Random policies and rewards; nothing is trained."
#: Whether Theorem 1 is as printed.
FORMS = {True: "the form as printed", False: "the form with the factor (G − 1)/G"}
POLICIES = "random policies from a Dirichlet with α = .5 over 3 to 10 actions"


def claims(effort: Effort) -> Family:
    """Enumerate all groups of small worlds, and draw policies for single updates."""
    return Family(title=TITLE, setting=SETTING, claims=(_theorem_1(effort), _extremes(effort), *_remark_2(effort)))


def enumerated_update(policy_V: np.ndarray, reward_V: np.ndarray, group_size: int) -> np.ndarray:
    """Return E Δz over every ordered group of ``group_size`` actions.

    Advantages are r − mean(r) of the group, and η = 1.
    """
    total_V = np.zeros_like(policy_V)
    for group in itertools.product(range(len(policy_V)), repeat=group_size):
        chosen = list(group)
        reward_G = reward_V[chosen]
        pulled_V = np.bincount(chosen, weights=reward_G - reward_G.mean(), minlength=len(policy_V))
        total_V += math.prod(policy_V[chosen]) * (pulled_V - policy_V * pulled_V.sum()) / group_size
    return total_V


def _small_worlds(effort: Effort) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng([effort.seed, 5])
    for _ in range(max(2, effort.instances // 100)):
        yield random.dirichlet(np.ones(ACTIONS)), random.normal(size=ACTIONS)


def _theorem_1(effort: Effort) -> Claim:
    bad: dict[tuple[str, int], list[bool]] = {}
    for policy_V, reward_V in _small_worlds(effort):
        for group_size in GROUP_SIZES:
            truth_V = enumerated_update(policy_V, reward_V, group_size)
            for as_printed, form in FORMS.items():
                stated_V = expected_group_update(
                    policy_V, reward_V, group_size=group_size, learning_rate=1.0, as_printed=as_printed
                )
                differs = bool(np.abs(stated_V - truth_V).max() > ROUNDING * np.abs(truth_V).max())
                bad.setdefault((form, group_size), []).append(differs)
    return Claim(
        claim_id="b-thm-1",
        paper="B",
        place="Theorem 1",
        statement="The expected logit update of a group with a mean baseline is ηπ(v)[(1−π(v))A(v) − Σπ(u)A(u)]",
        setting=f"Random policies and rewards of {ACTIONS} actions; every possible group enumerated.",
        checks=tuple(
            Check(
                setting=((PART, form), ("G", str(group_size))),
                quantity="share of counterexamples",
                estimate=counterexamples(own),
                rule=Never(),
                form="printed" if form == FORMS[True] else "corrected",
            )
            for (form, group_size), own in sorted(bad.items())
        ),
        independent=Finding(text="needs the factor (G−1)/G with a group-mean baseline", kind=FAILS_AS_PRINTED),
    )


def _extremes(effort: Effort) -> Claim:
    best, worst = [], []
    for policy_V, reward_V in _small_worlds(effort):
        update_V = enumerated_update(policy_V, reward_V, GROUP_SIZES[0])
        best.append(bool(update_V[reward_V.argmax()] < 0))
        worst.append(bool(update_V[reward_V.argmin()] >= 0))
    return Claim(
        claim_id="b-app-c.4",
        paper="B",
        place="App C.4",
        statement="The expected update of the best action is never negative, that of the worst always is",
        setting=f"As above, G = {GROUP_SIZES[0]}.",
        checks=(_check("the best", best), _check("the worst", worst)),
    )


def _remark_2(effort: Effort) -> tuple[Claim, Claim]:
    random = np.random.default_rng([effort.seed, 6])
    rose_with, fell_with, uneven = [], [], []
    sampled_fell, sampled_rose = [], []
    for _ in range(max(2, effort.instances // 4)):
        policy_V = np.maximum(random.dirichlet(np.full(int(random.integers(3, 11)), 0.5)), 1e-9)
        policy_V /= policy_V.sum()
        action = int(random.choice(len(policy_V), p=policy_V))
        others_V = np.arange(len(policy_V)) != action
        up_V, down_V = update_signs(policy_V, action, 1.0), update_signs(policy_V, action, -1.0)
        sampled_fell.append(bool(up_V[action] <= 0))
        rose_with.append(bool((up_V[others_V] > 0).any()))
        sampled_rose.append(bool(down_V[action] >= 0))
        fell_with.append(bool((down_V[others_V] < 0).any()))
        change_V = probability_change(policy_V, logit_update(policy_V, action, -1.0, learning_rate=RATE))
        growth_V = (change_V / policy_V)[others_V]
        uneven.append(bool(np.ptp(growth_V) > 1e-6))
    setting = f"One sampled action, {POLICIES}."
    return (
        Claim(
            claim_id="b-remark-2-up",
            paper="B",
            place="Remark 2",
            statement="A positive advantage raises the sampled action's probability and lowers all others",
            setting=setting,
            checks=(
                _check("the rise of the sampled action", sampled_fell),
                _check("the fall of all others", rose_with),
            ),
            independent=Finding(text="false as stated", kind="fails"),
        ),
        Claim(
            claim_id="b-remark-2-down",
            paper="B",
            place="Remark 2",
            statement="A negative advantage lowers the sampled probability and raises all others in proportion",
            setting=f"{setting} Proportion: the same relative growth at η|A| = {RATE:g}.",
            checks=(
                _check("the fall of the sampled action", sampled_rose),
                _check("the rise of all others", fell_with),
                _check("the proportion", uneven),
            ),
            independent=Finding(text="false as stated", kind="fails"),
        ),
    )


def _check(name: str, bad: Sequence[bool]) -> Check:
    return Check(
        setting=((PART, name),), quantity="share of counterexamples", estimate=counterexamples(bad), rule=Never()
    )
