"""[C] App D.1, Fig 9: REINFORCE and maximum likelihood in a bandit of fifty actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from benchmarks.papers.claim import PART, Above, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import share
from benchmarks.papers.figures import Path, path_figure
from benchmarks.toy import ToyConfig, bandit_world, run
from benchmarks.toy.config import Estimator
from oversharp.reports.records import Figure

TITLE = "REINFORCE and maximum likelihood in the bandit"
RATE, LONG_STEPS = 0.5, 10
MOST = 0.9
GREEDY, LIKELIER, RARER = 21, 8, 11
UNIFORM_OTHER = 5
OBJECTIVES: tuple[tuple[Estimator, str], ...] = (("expected", "REINFORCE"), ("mle", "MLE"))


@dataclass(frozen=True, kw_only=True)
class Worlds:
    """Probabilities over steps, one row per random world (input vector and tail)."""

    prob_STK: Float[np.ndarray, "world record label"]


def claims(effort: Effort) -> Family:
    """Run one world per seed.

    Gradients are exact, so only the input vector and the initial distribution are random.
    """
    peaky = ((GREEDY, 0.6), (LIKELIER, 0.2), (RARER, 0.1))
    negative = {name: _play(effort, o, peaky, rewarded=(), punished=(RARER,)) for o, name in OBJECTIVES}
    positive = {name: _play(effort, o, peaky, rewarded=(LIKELIER, RARER), punished=()) for o, name in OBJECTIVES}
    flat_negative = {name: _play(effort, o, (), rewarded=(), punished=(RARER,)) for o, name in OBJECTIVES}
    flat = {name: _play(effort, o, (), rewarded=(RARER, UNIFORM_OTHER), punished=()) for o, name in OBJECTIVES}
    return Family(
        title=TITLE,
        setting=f"50 actions, x ∈ ℝ⁵ from N(0, 1), exact gradients, learning rate {RATE:g}; one random world per seed.",
        claims=(
            _greedy_up(negative, "peaky"),
            _greedy_up(flat_negative, "uniform"),
            _sixty(flat),
            _favours(positive),
            _converges(positive),
        ),
        figures=(_figure(positive, negative),),
    )


def _play(
    effort: Effort,
    objective: Estimator,
    peaks: tuple[tuple[int, float], ...],
    *,
    rewarded: tuple[int, ...],
    punished: tuple[int, ...],
) -> Worlds:
    config = ToyConfig(estimator=objective, learning_rate=RATE, steps=LONG_STEPS, seeds=1, seed=effort.seed)
    worlds = (
        bandit_world(peaks=peaks, rewarded=rewarded, punished=punished, world_seed=effort.seed + i)
        for i in range(effort.seeds)
    )
    return Worlds(prob_STK=np.concatenate([run(world, config).prob_STK for world in worlds]))


def confidence_ratios(worlds: Worlds, step: int = 1) -> Float[np.ndarray, "world label"]:
    """Return α of Lemma D.1: probability after the first update over the one before."""
    return worlds.prob_STK[:, step] / worlds.prob_STK[:, step - 1]


def _greedy_up(negative: dict[str, Worlds], law: str) -> Claim:
    checks = []
    for name, worlds in negative.items():
        alpha_SK = confidence_ratios(worlds)
        greedy_S = worlds.prob_STK[:, 0].argmax(axis=1)
        greedy_up_S = np.take_along_axis(alpha_SK, greedy_S[:, None], axis=1)[:, 0] > 1
        others_SK = np.ones_like(alpha_SK, dtype=bool)
        np.put_along_axis(others_SK, greedy_S[:, None], False, axis=1)
        for what, hit_S in (
            ("the rise of the greedy action", greedy_up_S),
            ("the fall of all others", ((alpha_SK < 1) | ~others_SK).all(axis=1)),
        ):
            checks.append(
                Check(
                    setting=(("", name), (PART, what)),
                    quantity="share of worlds",
                    estimate=share(hit_S, of="worlds"),
                    rule=Above(threshold=MOST),
                    independent=1.0 if law == "peaky" else None,
                )
            )
    return Claim(
        claim_id=f"c-fig9-negative-{law}",
        paper="C",
        place="App D.1, Fig 9",
        statement=f"A negative gradient raises the likeliest action and lowers all others ({law} start)",
        setting=_setting(law) + f" One step on y⁻ = {RARER}.",
        checks=tuple(checks),
        independent=Finding(text="100 %", kind="holds") if law == "peaky" else None,
    )


def _sixty(flat: dict[str, Worlds]) -> Claim:
    rewarded = [RARER, UNIFORM_OTHER]
    ratio_S = confidence_ratios(flat["MLE"])[:, rewarded].mean(axis=1) / confidence_ratios(flat["REINFORCE"])[
        :, rewarded
    ].mean(axis=1)
    return Claim(
        claim_id="c-fig9-sixty",
        paper="C",
        place="App D.1, Fig 9",
        statement="From a uniform start MLE's α of the two correct actions is much larger (about 60×) than REINFORCE's",
        setting=_setting("uniform") + f" One step on y₁ = {RARER}, y₂ = {UNIFORM_OTHER}.",
        checks=tuple(
            Check(
                setting=((PART, f"at least {times}×"),),
                quantity="share of worlds",
                estimate=share(ratio_S >= times, of="worlds"),
                rule=Above(threshold=0.5),
            )
            for times in (2, 10, 60)
        ),
        note=f"Median ratio {np.median(ratio_S):.3g}; it grows as exp(‖x‖²/2), and ‖x‖² is drawn.",
    )


def _favours(positive: dict[str, Worlds]) -> Claim:
    gain = {
        name: confidence_ratios(worlds)[:, LIKELIER] > confidence_ratios(worlds)[:, RARER]
        for name, worlds in positive.items()
    }
    return Claim(
        claim_id="c-fig9-favours",
        paper="C",
        place="5, App D.1, Fig 9",
        statement="Of two correct actions REINFORCE raises the likelier more, MLE the rarer",
        setting=_setting("peaky") + f" One step on y₁ = {RARER}, y₂ = {LIKELIER}; α is compared.",
        checks=(
            Check(
                setting=((PART, "REINFORCE"),),
                quantity="share of worlds",
                estimate=share(gain["REINFORCE"], of="worlds"),
                rule=Above(threshold=MOST),
            ),
            Check(
                setting=((PART, "MLE"),),
                quantity="share of worlds",
                estimate=share(~gain["MLE"], of="worlds"),
                rule=Above(threshold=MOST),
            ),
        ),
        independent=Finding(text="REINFORCE favours the likelier of two correct, MLE the rarer", kind="holds"),
    )


def _converges(positive: dict[str, Worlds]) -> Claim:
    share_of_likelier = {
        name: worlds.prob_STK[:, -1, LIKELIER] / worlds.prob_STK[:, -1, [LIKELIER, RARER]].sum(axis=1)
        for name, worlds in positive.items()
    }
    equal_S = np.abs(share_of_likelier["MLE"] - 0.5) < 0.05
    apart_S = share_of_likelier["REINFORCE"] > 2 / 3
    return Claim(
        claim_id="c-fig9-ten-steps",
        paper="C",
        place="App D.1, Fig 9",
        statement=f"After {LONG_STEPS} steps MLE has the two correct actions equal, REINFORCE favours the likelier",
        setting=_setting("peaky") + " Equal: the likelier holds 45 to 55 % of their mass (at first 67 %).",
        checks=(
            Check(
                setting=((PART, "MLE"),),
                quantity="share of worlds",
                estimate=share(equal_S, of="worlds"),
                rule=Above(threshold=MOST),
            ),
            Check(
                setting=((PART, "REINFORCE"),),
                quantity="share of worlds",
                estimate=share(apart_S, of="worlds"),
                rule=Above(threshold=MOST),
            ),
        ),
    )


def _setting(law: str) -> str:
    start = "Start: .6 on the greedy action, .2 and .1 on two others" if law == "peaky" else "Nearly uniform start"
    return f"{start}."


def _figure(positive: dict[str, Worlds], negative: dict[str, Worlds]) -> Figure:
    step_T = np.arange(LONG_STEPS + 1)
    named: Sequence[tuple[str, int]] = (
        ("greedy action", GREEDY),
        (f"y = {LIKELIER}", LIKELIER),
        (f"y = {RARER}", RARER),
    )
    return path_figure(
        figure_id="c-fig9",
        title="[C] Fig 9: a bandit with a peaky start",
        caption="Ten exact steps: on two correct actions of which neither is greedy, and away from one wrong action. "
        "Mean over random worlds, 10th to 90th percentile.",
        y_label="probability",
        panels=[
            (
                f"{name}, {what}",
                [Path(label=label, value_ST=worlds.prob_STK[:, :, action], step_T=step_T) for label, action in named],
            )
            for what, runs in ((f"y = {LIKELIER}, {RARER} correct", positive), (f"y = {RARER} wrong", negative))
            for name, worlds in runs.items()
        ],
    )
