"""[C] 5, App D: Lemma D.1 on random policies, and the effect of a group of wrong answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from benchmarks.papers.claim import FAILS_AS_PRINTED, PART, Check, Claim, Effort, Family, Finding, Never
from benchmarks.papers.estimates import counterexamples, enumerated
from benchmarks.papers.theory.bandit import Objective, bandit_logit_update, confidence_ratio
from benchmarks.papers.theory.softmax_dynamics import probability_change
from oversharp.diagnostics.theory.coupling import group_advantages

TITLE = "Confidence ratios and wrong groups"
ROUNDING = 1e-9
OBJECTIVES: tuple[tuple[Objective, str], ...] = (("reinforce", "REINFORCE"), ("mle", "MLE"))
GROUP_SIZES = range(2, 9)
#: Whether the row "1" of the lemma is where it is printed.
FORMS = {True: "the row “1” at j = y₁ as printed", False: "the row “1” at j = i"}
#: Rewards of wrong answers. [C] uses −0.5 (wrong) and −1 (no answer) in App A.
WRONG_REWARDS = {"rewards 1, 0": (0.0,), "rewards 1, −0.5, −1": (-0.5, -1.0)}
SETTING = "Single steps; nothing is trained over time."
POLICIES = "Random policies from a Dirichlet with α = .5 over 3 to 50 actions, two rewarded ones, η′ from .01 to 5"


def claims(effort: Effort) -> Family:
    """Compare the lemma with the exact step."""
    return Family(
        title=TITLE, setting=SETTING, claims=(_lemma(effort), _dominant_rises(effort), _all_wrong(), _self_filter())
    )


def _worlds(effort: Effort) -> Iterator[tuple[np.ndarray, tuple[int, int], float]]:
    random = np.random.default_rng([effort.seed, 7])
    for _ in range(max(2, effort.instances // 4)):
        policy_V = np.maximum(random.dirichlet(np.full(int(random.integers(3, 51)), 0.5)), 1e-9)
        first, second = random.choice(len(policy_V), size=2, replace=False)
        yield policy_V / policy_V.sum(), (int(first), int(second)), float(10 ** random.uniform(-2, 0.7))


def _true_ratio(policy_V: np.ndarray, rewarded: tuple[int, int], step: float, objective: Objective) -> np.ndarray:
    change_V = bandit_logit_update(policy_V, rewarded, step=step, objective=objective)
    return 1.0 + probability_change(policy_V, change_V) / policy_V


def _lemma(effort: Effort) -> Claim:
    bad: dict[tuple[str, str], list[bool]] = {}
    for policy_V, rewarded, step in _worlds(effort):
        for objective, name in OBJECTIVES:
            truth_V = _true_ratio(policy_V, rewarded, step, objective)
            for as_printed, form in FORMS.items():
                stated_V = confidence_ratio(policy_V, rewarded, step=step, objective=objective, as_printed=as_printed)
                differs = bool((np.abs(stated_V - truth_V) > 1e-6 * np.maximum(stated_V, 1e-3)).any())
                bad.setdefault((form, name), []).append(differs)
    return Claim(
        claim_id="c-lemma-d.1",
        paper="C",
        place="Lemma D.1",
        statement="The ratio of confidence after and before a step is that of Eq 21 to 23",
        setting=f"{POLICIES}; against the step itself.",
        checks=tuple(
            Check(
                setting=((PART, form), ("", name)),
                quantity="share of counterexamples",
                estimate=counterexamples(own),
                rule=Never(),
                form="printed" if form == FORMS[True] else "corrected",
            )
            for (form, name), own in sorted(bad.items(), reverse=True)
        ),
        independent=Finding(text="right with the “1” row read as j = i", kind=FAILS_AS_PRINTED),
    )


def _dominant_rises(effort: Effort) -> Claim:
    falls = []
    for policy_V, rewarded, step in _worlds(effort):
        likelier = max(rewarded, key=lambda action: policy_V[action])
        change_V = bandit_logit_update(policy_V, rewarded, step=step, objective="reinforce")
        falls.append(bool(probability_change(policy_V, change_V)[likelier] < -1e-15))
    return Claim(
        claim_id="c-app-d-dominant",
        paper="C",
        place="App D, Eq 33",
        statement="Under REINFORCE the likelier of two rewarded actions always gains",
        setting=f"{POLICIES}.",
        checks=(
            Check(
                setting=(),
                quantity="share of counterexamples",
                estimate=counterexamples(falls),
                rule=Never(),
            ),
        ),
    )


def _all_wrong() -> Claim:
    bad = {
        name: [
            bool(np.abs(group_advantages(np.array(group))).max() > ROUNDING)
            for size in GROUP_SIZES
            for group in itertools.combinations_with_replacement(rewards, size)
        ]
        for name, rewards in WRONG_REWARDS.items()
    }
    return Claim(
        claim_id="c-5-all-wrong",
        paper="C",
        place="5",
        statement="A group of wrong answers gives no learning signal: all advantages are 0",
        setting=f"All groups of wrong answers, G from {GROUP_SIZES[0]} to {GROUP_SIZES[-1]}.",
        checks=tuple(
            Check(
                setting=(("", name),),
                quantity="share of groups with a non-zero advantage",
                estimate=enumerated(own, of="groups"),
                rule=Never(),
            )
            for name, own in bad.items()
        ),
        independent=Finding(
            text="with rewards {1, −.5, −1} an all-wrong group still has non-zero advantages", kind="holds when"
        ),
    )


def _self_learns(greedy_correct_P: np.ndarray, *, as_printed: bool) -> np.ndarray:
    """Return on which problems SELF takes its reward: those whose greedy response fails.

    ``as_printed`` follows the indicator 1{r(x, y*) ∉ C(x)} of Eq 9. A reward is never in a set of responses, so the
    indicator excludes no problem.
    """
    return np.ones_like(greedy_correct_P) if as_printed else ~greedy_correct_P


def _self_filter() -> Claim:
    greedy_correct_P = np.array([True, False])
    return Claim(
        claim_id="c-eq-9",
        paper="C",
        place="6, Eq 9",
        statement="SELF takes its reward only from problems whose greedy response fails",
        setting="The two kinds of problem: greedy right, greedy wrong.",
        checks=tuple(
            Check(
                setting=((PART, form),),
                quantity="share of kinds that it treats otherwise",
                estimate=enumerated(
                    list(_self_learns(greedy_correct_P, as_printed=as_printed) == greedy_correct_P),
                    of="kinds of problem",
                ),
                rule=Never(),
                form="printed" if as_printed else "corrected",
            )
            for form, as_printed in (("the indicator to the letter", True), ("the paper's words", False))
        ),
        independent=Finding(
            text="the indicator means “learn only where the greedy response fails”", kind=FAILS_AS_PRINTED
        ),
        note="To the letter it asks whether a reward is in a set of responses, which it never is.",
    )
