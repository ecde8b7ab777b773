"""[A] 2.4, Fig 1: which policies collapse, how fast, and onto which label."""

from __future__ import annotations

import itertools

import numpy as np

from benchmarks.papers.claim import PART, Above, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import mean, share
from benchmarks.papers.figures import Path, path_figure
from benchmarks.papers.toy import (
    COLLAPSE,
    ESTIMATORS,
    GROUP_SIZES,
    cat_config,
    cat_setting,
    delay,
    is_collapsed,
    long_config,
    play,
    steps_to_collapse,
)
from benchmarks.toy import ToyRun
from benchmarks.toy.worlds import CAT, PERSIAN
from oversharp.reports.records import Figure

TITLE = "Sampling bias in the cat world"
MOST, LONG_MOST = 0.8, 0.5
#: Shares collapsed after 500 steps at G = 4, 8, 16, 32.
INDEPENDENT = {
    "raw": (0.995, 0.98, 0.94, 0.89),
    "mean-shifted": (0.59, 0.45, 0.31, 0.14),
    "normalised": (0.82, 0.70, 0.64, 0.60),
}
Runs = dict[tuple[str, int], ToyRun]


def claims(effort: Effort) -> Family:
    """Run the three estimators at four group sizes."""
    runs = {
        (name, group): play(cat_config(effort, estimator, group))
        for estimator, name in ESTIMATORS
        for group in GROUP_SIZES
    }
    return Family(
        title=TITLE,
        setting=f"{cat_setting(effort)} {COLLAPSE}",
        claims=(
            _all_collapse(effort, runs),
            _eventually(effort),
            _group_size(effort, runs),
            _order(effort, runs),
            _winner(runs),
        ),
        figures=(_figure(runs),),
    )


def _all_collapse(effort: Effort, runs: Runs) -> Claim:
    return Claim(
        claim_id="a-fig1-all-collapse",
        paper="A",
        place="2.4, Fig 1",
        statement=f"Every advantage estimator collapses at every group size within the {effort.steps} steps",
        setting="",
        checks=tuple(
            Check(
                setting=(("", name), ("G", str(group))),
                quantity=f"share of seeds collapsed at step {effort.steps}",
                estimate=share(is_collapsed(played)),
                rule=Above(threshold=MOST),
                independent=dict(zip(GROUP_SIZES, INDEPENDENT[name], strict=True))[group],
            )
            for (name, group), played in runs.items()
        ),
        independent=Finding(text="only raw rewards do by step 500", kind="holds when"),
    )


def _eventually(effort: Effort) -> Claim:
    long = {
        (name, group): play(long_config(effort, estimator, group))
        for estimator, name in ESTIMATORS
        for group in (GROUP_SIZES[0], GROUP_SIZES[-1])
    }
    return Claim(
        claim_id="a-2.4-eventually",
        paper="A",
        place="2.4, Fig 1",
        statement=f"Most seeds collapse by {effort.long_steps:,} steps, whatever the advantage estimator",
        setting="As Fig 1, but longer. The paper says: every estimator collapses eventually. No finite run can refute "
        "that; more than half of the seeds is what is asked for here.",
        checks=tuple(
            Check(
                setting=(("", name), ("G", str(group))),
                quantity=f"share of seeds collapsed at step {effort.long_steps}",
                estimate=share(is_collapsed(played)),
                rule=Above(threshold=LONG_MOST),
            )
            for (name, group), played in long.items()
        ),
        independent=Finding(text="most seeds by 5,000 steps", kind="holds"),
    )


def _group_size(effort: Effort, runs: Runs) -> Claim:
    return Claim(
        claim_id="a-fig1-group-size",
        paper="A",
        place="2.4, Fig 1",
        statement="A larger group delays collapse",
        setting="Each G against the next smaller one, seed by seed.",
        checks=tuple(
            Check(
                setting=(("", name), ("G", f"{smaller} → {larger}")),
                quantity=f"more {delay(effort)}",
                estimate=mean(
                    steps_to_collapse(runs[name, larger]) - steps_to_collapse(runs[name, smaller]), unit="steps"
                ),
                rule=Above(threshold=0),
            )
            for _, name in ESTIMATORS
            for smaller, larger in itertools.pairwise(GROUP_SIZES)
        ),
        independent=Finding(text="holds", kind="holds"),
    )


def _order(effort: Effort, runs: Runs) -> Claim:
    pairs = (("raw", "mean-shifted"), ("mean-shifted", "normalised"))
    return Claim(
        claim_id="a-fig1-order",
        paper="A",
        place="2.4, Fig 1",
        statement="Raw rewards collapse fastest, then mean-shifted, then normalised advantages",
        setting="",
        checks=tuple(
            Check(
                setting=((PART, f"{sooner} before {later}"), ("G", str(group))),
                quantity=f"more {delay(effort)}",
                estimate=mean(
                    steps_to_collapse(runs[later, group]) - steps_to_collapse(runs[sooner, group]), unit="steps"
                ),
                rule=Above(threshold=0),
            )
            for sooner, later in pairs
            for group in GROUP_SIZES
        ),
        independent=Finding(text="raw, then normalised, then mean-shifted (σ ≤ ½ makes A larger)", kind="holds when"),
    )


def _winner(runs: Runs) -> Claim:
    played = runs["raw", 8]
    winner_S = played.prob_STK[is_collapsed(played), -1].argmax(axis=1)
    return Claim(
        claim_id="a-2.4-random-winner",
        paper="A",
        place="2.4, Fig 1",
        statement="Which of the two correct labels wins is random",
        setting="Raw rewards, G = 8; of the seeds that collapsed, those won by each label.",
        checks=tuple(
            Check(
                setting=(("won by", name),),
                quantity="share of collapsed seeds",
                estimate=share(winner_S == label, of="collapsed seeds"),
                rule=Above(threshold=1 / 3),
            )
            for label, name in ((CAT, "Cat"), (PERSIAN, "Persian"))
        ),
    )


def _figure(runs: Runs) -> Figure:
    return path_figure(
        figure_id="a-fig1",
        title="[A] Fig 1: the label that wins",
        caption="Probability of the likelier of Cat and Persian at Persian, mean over seeds, 10th to 90th percentile. "
        "At ½ both share the mass; at 1 one of them is forgotten.",
        y_label="probability of the likelier correct label",
        panels=[
            (
                name,
                [
                    Path(label=f"G = {group}", value_ST=_ahead(runs[name, group]), step_T=runs[name, group].step_T)
                    for group in GROUP_SIZES
                ],
            )
            for _, name in ESTIMATORS
        ],
        ordered=True,
    )


def _ahead(played: ToyRun) -> np.ndarray:
    return played.prob_STK[:, :, [CAT, PERSIAN]].max(axis=2)
