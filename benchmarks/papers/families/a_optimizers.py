"""[A] App G, Fig 4: momentum and AdamW against SGD."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.papers.claim import Above, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import mean, share
from benchmarks.papers.figures import Path, path_figure
from benchmarks.papers.toy import (
    COLLAPSE,
    GROUP_SIZES,
    LEARNING_RATE,
    cat_config,
    delay,
    is_collapsed,
    largest_probability,
    play,
    steps_to_collapse,
)
from benchmarks.toy import ToyRun
from benchmarks.toy.config import OptimizerName
from oversharp.reports.records import Figure

TITLE = "Optimizers in the cat world"
SOON, MOST = 20, 0.8
Momentum = dict[tuple[float, int], ToyRun]
MOMENTUM_RATES = (0.5, 1.0, 2.0, 5.0)
ADAMW_RATES = (0.01, 0.1, 0.5, 2.0)
#: 1 / (1 - 0.9): the effective step size of heavy-ball momentum.
EFFECTIVE_FACTOR = 10.0


def claims(effort: Effort) -> Family:
    """Run raw rewards with the three optimizers, at several learning rates."""
    momentum = {
        (rate, group): _play(effort, "momentum", rate, group) for rate in MOMENTUM_RATES for group in GROUP_SIZES
    }
    sgd = {group: _play(effort, "sgd", LEARNING_RATE, group) for group in GROUP_SIZES}
    large = {group: _play(effort, "sgd", LEARNING_RATE * EFFECTIVE_FACTOR, group) for group in GROUP_SIZES}
    return Family(
        title=TITLE,
        setting=f"Persian inputs, linear softmax from 0, raw rewards, {effort.steps} steps. {COLLAPSE}",
        claims=(
            _within_20(momentum),
            _faster(effort, momentum, sgd),
            _step_size(effort, momentum, large),
            _adamw(effort),
        ),
        figures=(_figure(effort),),
    )


def _play(effort: Effort, optimizer: OptimizerName, rate: float, group: int) -> ToyRun:
    return play(replace(cat_config(effort, "raw", group), optimizer=optimizer, learning_rate=rate))


def _within_20(momentum: Momentum) -> Claim:
    return Claim(
        claim_id="a-fig4-within-20",
        paper="A",
        place="App G, Fig 4",
        statement=f"With momentum the policy collapses within {SOON} steps, regardless of group size",
        setting="Momentum 0.9.",
        checks=tuple(
            Check(
                setting=(("learning rate", f"{rate:g}"), ("G", str(group))),
                quantity=f"share of seeds collapsed by step {SOON}",
                estimate=share(is_collapsed(played, by_step=SOON)),
                rule=Above(threshold=MOST),
            )
            for (rate, group), played in momentum.items()
        ),
        independent=Finding(text="raw at learning rate ≥ 2", kind="holds when"),
    )


def _faster(effort: Effort, momentum: Momentum, sgd: dict[int, ToyRun]) -> Claim:
    return Claim(
        claim_id="a-fig4-momentum",
        paper="A",
        place="App G, Fig 4",
        statement="Momentum collapses faster than SGD at the same learning rate",
        setting=f"Learning rate {LEARNING_RATE:g}. Seed by seed.",
        checks=tuple(
            Check(
                setting=(("G", str(group)),),
                quantity=f"SGD's more {delay(effort)}",
                estimate=mean(
                    steps_to_collapse(played) - steps_to_collapse(momentum[LEARNING_RATE, group]), unit="steps"
                ),
                rule=Above(threshold=0),
            )
            for group, played in sgd.items()
        ),
    )


def _step_size(effort: Effort, momentum: Momentum, large: dict[int, ToyRun]) -> Claim:
    return Claim(
        claim_id="a-fig4-buffer",
        paper="A",
        place="App G, Fig 4",
        statement="The history buffer causes it: momentum is faster than SGD even at the same effective step size",
        setting=f"Momentum 0.9 at learning rate {LEARNING_RATE:g} against SGD at "
        f"{LEARNING_RATE * EFFECTIVE_FACTOR:g}. Seed by seed.",
        checks=tuple(
            Check(
                setting=(("G", str(group)),),
                quantity=f"SGD's more {delay(effort)}",
                estimate=mean(
                    steps_to_collapse(played) - steps_to_collapse(momentum[LEARNING_RATE, group]), unit="steps"
                ),
                rule=Above(threshold=0),
            )
            for group, played in large.items()
        ),
        independent=Finding(text="SGD at 10× the learning rate is as fast: a step-size effect", kind="fails"),
    )


def _adamw(effort: Effort) -> Claim:
    return Claim(
        claim_id="a-fig4-adamw",
        paper="A",
        place="App G, Fig 4",
        statement="AdamW collapses faster than SGD at the same learning rate",
        setting="Seed by seed.",
        checks=tuple(
            Check(
                setting=(("learning rate", f"{rate:g}"), ("G", str(group))),
                quantity=f"SGD's more {delay(effort)}",
                estimate=mean(
                    steps_to_collapse(_play(effort, "sgd", rate, group))
                    - steps_to_collapse(_play(effort, "adamw", rate, group)),
                    unit="steps",
                ),
                rule=Above(threshold=0),
            )
            for rate in ADAMW_RATES
            for group in (GROUP_SIZES[0], GROUP_SIZES[-1])
        ),
        independent=Finding(text="at equal learning rate ≥ 0.1", kind="holds when"),
    )


def _figure(effort: Effort) -> Figure:
    optimizers: tuple[tuple[OptimizerName, str], ...] = (("sgd", "SGD"), ("momentum", "momentum"), ("adamw", "AdamW"))
    panels = []
    for optimizer, name in optimizers:
        played = {group: _play(effort, optimizer, LEARNING_RATE, group) for group in GROUP_SIZES}
        panels.append(
            (
                f"{name}, learning rate {LEARNING_RATE:g}",
                [
                    Path(label=f"G = {group}", value_ST=largest_probability(run)[:, :101], step_T=run.step_T[:101])
                    for group, run in played.items()
                ],
            )
        )
    return path_figure(
        figure_id="a-fig4",
        title="[A] Fig 4: optimizers",
        caption="Largest probability of any label, raw rewards, the first 100 steps; mean over seeds, "
        "10th to 90th percentile.",
        y_label="largest probability",
        panels=panels,
        ordered=True,
    )
