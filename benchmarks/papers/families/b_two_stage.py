"""[B] 3.2, App C.4, Fig 1, 5, 6, 7: exploitation, then exploration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from benchmarks.papers.claim import PART, Above, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import share
from benchmarks.papers.figures import Path, path_figure
from benchmarks.toy import ToyConfig, ToyRun, run, tabular_world
from benchmarks.toy.config import Estimator, OptimizerName
from benchmarks.toy.worlds import World
from oversharp.reports.records import Figure

TITLE = "The two-stage dynamic"
#: [B] prints neither the starting probabilities nor the steps of its figures; these show both stages.
START, REWARDS = (0.5, 0.05, 0.45), (1.0, 2.0, 0.0)
RATE = 0.1
SHRINK, MOST = 0.05, 0.9
GROUP_SIZES, TEMPERATURES = (2, 3, 5, 10), (1.0, 2.0, 5.0, 20.0)
VARIED: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = (
    ("π₀ = (.5, .05, .45)", START, REWARDS),
    ("π₀ = (.6, .1, .3)", (0.6, 0.1, 0.3), REWARDS),
    ("π₀ = (.3, .1, .6)", (0.3, 0.1, 0.6), REWARDS),
    ("r = (1, 1.5, 0)", START, (1.0, 1.5, 0.0)),
    ("r = (1, 3, 0)", START, (1.0, 3.0, 0.0)),
    ("r = (2, 2.5, 0)", START, (2.0, 2.5, 0.0)),
)
FOUR = ("π₀ = (.4, .05, .2, .35)", (0.4, 0.05, 0.2, 0.35), (1.0, 2.0, 0.5, 0.0))


def claims(effort: Effort) -> Family:
    """Run the three-action world over starts, rewards, group sizes, temperatures; then four actions."""
    varied = {name: _play(effort, tabular_world(start, reward)) for name, start, reward in VARIED}
    by_group = {group: _play(effort, tabular_world(START, REWARDS), group_size=group) for group in GROUP_SIZES}
    by_temperature = {
        temperature: _play(effort, tabular_world(START, REWARDS), temperature=temperature)
        for temperature in TEMPERATURES
    }
    four = _play(effort, tabular_world(FOUR[1], FOUR[2]), group_size=2)
    setting = (
        f"Three actions, softmax over free logits, start {START}, rewards {REWARDS}, G = 2, group-mean baseline, Adam "
        f"at {RATE:g}, {effort.steps} steps. Both stages: a1 gains {SHRINK:g} while ahead of a2, and a2 is the "
        "likeliest at the end."
    )
    return Family(
        title=TITLE,
        setting=setting,
        claims=(
            _two_stage(
                "b-fig1",
                "Fig 1",
                "Mass first goes to the explored action, then to the better one that was rarely sampled",
                "",
                [(("", VARIED[0][0]), varied[VARIED[0][0]])],
                Finding(text="100 % of seeds", kind="holds"),
                told=1.0,
            ),
            _two_stage(
                "b-fig1-varied",
                "Fig 1",
                "The same from other starts and rewards",
                "",
                [(("", name), played) for name, played in list(varied.items())[1:]],
            ),
            _negative_shifts(varied[VARIED[0][0]]),
            _two_stage(
                "b-fig5",
                "App C.4, Fig 5",
                "The dynamic is the same for other group sizes",
                "",
                [(("G", str(group)), played) for group, played in list(by_group.items())[1:]],
            ),
            _two_stage(
                "b-fig6",
                "App C.4, Fig 6",
                "The dynamic is the same at higher training temperatures",
                "",
                [(("τ", f"{temperature:g}"), played) for temperature, played in list(by_temperature.items())[1:]],
                Finding(text="it vanishes at τ ≥ 5", kind="fails"),
            ),
            _four(four),
            _negatives(effort),
        ),
        figures=(
            _figure("b-fig1", "[B] Fig 1: starts and rewards", list(varied.items())),
            _figure("b-fig5", "[B] Fig 5: group sizes", [(f"G = {group}", run) for group, run in by_group.items()]),
            _figure("b-fig6", "[B] Fig 6: temperatures", [(f"τ = {t:g}", run) for t, run in by_temperature.items()]),
            _figure("b-fig7", "[B] Fig 7: four actions", [(FOUR[0], four)]),
        ),
    )


def shows_both_stages(played: ToyRun) -> Bool[np.ndarray, " seed"]:
    """Return whether each seed shows both stages.

    Exploitation: before its peak, the explored good action a1 gains at least 0.05 while the better a2 has not overtaken
    it. Exploration: after the peak a2 overtakes a1 and is the most probable action at the end.
    """
    explored_ST, better_ST = played.prob_STK[:, :, 0], played.prob_STK[:, :, 1]
    ahead_ST = np.where(better_ST < explored_ST, explored_ST, 0.0)
    exploited_S = ahead_ST.max(axis=1) >= explored_ST[:, 0] + SHRINK
    return exploited_S & (played.prob_STK[:, -1].argmax(axis=1) == 1)


def _play(
    effort: Effort,
    world: World,
    *,
    group_size: int = 2,
    temperature: float = 1.0,
    estimator: Estimator = "mean_shifted",
    optimizer: OptimizerName = "adam",
) -> ToyRun:
    return run(
        world,
        ToyConfig(
            estimator=estimator,
            group_size=group_size,
            learning_rate=RATE,
            optimizer=optimizer,
            steps=effort.steps,
            seeds=effort.seeds,
            seed=effort.seed,
            temperature=temperature,
        ),
    )


def _two_stage(
    claim_id: str,
    where: str,
    statement: str,
    setting: str,
    runs: Sequence[tuple[tuple[str, str], ToyRun]],
    independent: Finding | None = None,
    *,
    told: float | None = None,
) -> Claim:
    return Claim(
        claim_id=claim_id,
        paper="B",
        place=f"3.2, {where}",
        statement=statement,
        setting=setting,
        checks=tuple(
            Check(
                setting=(factor,),
                quantity="share of seeds with both stages",
                estimate=share(shows_both_stages(played)),
                rule=Above(threshold=MOST),
                independent=told,
            )
            for factor, played in runs
        ),
        independent=independent,
    )


def _negative_shifts(played: ToyRun) -> Claim:
    """Expected relative negatives: actions below the mean reward of the current policy."""
    reward_K = np.asarray(played.world.reward_K)
    mean_reward_ST = played.prob_STK @ reward_K
    first_S, last_S = mean_reward_ST[:, 0] > reward_K[0], mean_reward_ST[:, -1] > reward_K[0]
    return Claim(
        claim_id="b-remark3",
        paper="B",
        place="3.1, Remark 3",
        statement="The relative negative shifts from the bad action to the once dominant good one",
        setting="An action is the negative if it earns less than the policy's mean reward.",
        checks=(
            Check(
                setting=(),
                quantity="share of seeds where a1 is above the mean at first and below it at the end",
                estimate=share(~first_S & last_S),
                rule=Above(threshold=MOST),
            ),
        ),
    )


def _four(played: ToyRun) -> Claim:
    first_SK, last_SK = played.prob_STK[:, 0], played.prob_STK[:, -1]
    best, worst = int(np.argmax(FOUR[2])), int(np.argmin(FOUR[2]))
    peak_SK = played.prob_STK.max(axis=1)
    middle = [action for action in range(4) if action not in (best, worst)]
    return Claim(
        claim_id="b-fig7",
        paper="B",
        place="App C.4, Fig 7",
        statement="With four actions the best rises, the worst falls, and the others rise first and fall later",
        setting=f"{FOUR[0]}, r = {FOUR[2]}. Rise first: at least {SHRINK:g} above the start.",
        checks=(
            _four_check("the rise of the best", last_SK[:, best] > first_SK[:, best]),
            _four_check("the fall of the worst", last_SK[:, worst] < first_SK[:, worst]),
            *(
                _four_check(
                    f"the rise and fall of a{action + 1} (r = {FOUR[2][action]:g})",
                    (peak_SK[:, action] >= first_SK[:, action] + SHRINK) & (last_SK[:, action] < first_SK[:, action]),
                )
                for action in middle
            ),
        ),
    )


def _four_check(name: str, hit_S: np.ndarray) -> Check:
    return Check(setting=((PART, name),), quantity="share of seeds", estimate=share(hit_S), rule=Above(threshold=MOST))


def _negatives(effort: Effort) -> Claim:
    world = tabular_world(START, REWARDS)
    optimizers: tuple[tuple[OptimizerName, str], ...] = (("adam", "Adam"), ("sgd", "SGD"))
    estimators: tuple[tuple[Estimator, str], ...] = (("grpo_n_shifted", "mean baseline"), ("grpo_n", "normalised"))
    return Claim(
        claim_id="b-negatives",
        paper="B",
        place="4, App B.5",
        statement="Relative negative gradients alone (GRPO-N) reach the better action that was rarely sampled",
        setting="Reached: a2 is the likeliest action at the end.",
        checks=tuple(
            Check(
                setting=(("", name), ("", advantage)),
                quantity="share of seeds that reach it",
                estimate=share(
                    _play(effort, world, estimator=estimator, optimizer=optimizer).prob_STK[:, -1].argmax(axis=1) == 1
                ),
                rule=Above(threshold=MOST),
                independent=(0.99 if optimizer == "adam" else 0.0) if estimator == "grpo_n_shifted" else None,
            )
            for optimizer, name in optimizers
            for estimator, advantage in estimators
        ),
        independent=Finding(text="with Adam 99 %, with plain SGD 0 of 200", kind="holds when"),
    )


def _figure(figure_id: str, title: str, runs: Sequence[tuple[str, ToyRun]]) -> Figure:
    return path_figure(
        figure_id=figure_id,
        title=title,
        caption="Probability of each action, mean over seeds, 10th to 90th percentile. "
        "a1 is explored and good, a2 rarely sampled and better, the last one bad.",
        y_label="probability",
        panels=[
            (
                name,
                [
                    Path(label=label, value_ST=played.prob_STK[:, :, action], step_T=played.step_T)
                    for action, label in enumerate(played.world.labels)
                ],
            )
            for name, played in runs
        ],
    )
