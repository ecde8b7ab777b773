"""[A] 2.4, Fig 2: effect of training on Persian on the held-out Siamese."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from benchmarks.papers.claim import Above, Below, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import mean
from benchmarks.papers.figures import Path, path_figure
from benchmarks.papers.toy import ESTIMATORS, GROUP_SIZES, cat_config, cat_setting, play
from benchmarks.toy import ToyRun, cat_world
from benchmarks.toy.worlds import Similarity
from oversharp.reports.records import Figure

TITLE = "Semantic coupling in the cat world"
SIMILARITIES: tuple[Similarity, ...] = ("high", "mid", "low")
RATES = (0.5, 2.0)
Key = tuple[str, int, float, Similarity]


def claims(effort: Effort) -> Family:
    """Run three estimators, four group sizes, two learning rates and three similarities."""
    runs: dict[Key, ToyRun] = {
        (name, group, rate, similarity): play(
            replace(cat_config(effort, estimator, group), learning_rate=rate, record_every=5), cat_world(similarity)
        )
        for estimator, name in ESTIMATORS
        for group in GROUP_SIZES
        for rate in RATES
        for similarity in SIMILARITIES
    }
    claims_made = (_squeezed(runs), _similarity(runs), _group_size(runs))
    return Family(
        title=TITLE,
        setting=cat_setting(effort),
        claims=claims_made,
        figures=(_figure(runs),),
    )


def _last(runs: dict[Key, ToyRun], key: Key) -> Float[np.ndarray, " seed"]:
    accuracy_ST = runs[key].held_out_prob_ST
    assert accuracy_ST is not None  # the cat world has a held-out query
    return accuracy_ST[:, -1]


def _squeezed(runs: dict[Key, ToyRun]) -> Claim:
    return Claim(
        claim_id="a-fig2-squeezed",
        paper="A",
        place="2.4, Fig 2",
        statement="Training on Persian squeezes Siamese, which is never trained on",
        setting="High similarity. It starts at 0.25.",
        checks=tuple(
            Check(
                setting=(("", name), ("G", str(group))),
                quantity="last π(Siamese | Siamese)",
                estimate=mean(_last(runs, (name, group, 2.0, "high")), unit="probability"),
                rule=Below(threshold=0.25),
            )
            for _, name in ESTIMATORS
            for group in GROUP_SIZES
        ),
    )


def _similarity(runs: dict[Key, ToyRun]) -> Claim:
    return Claim(
        claim_id="a-fig2-similarity",
        paper="A",
        place="2.4, Fig 2",
        statement="The more similar Siamese is, the more it is squeezed",
        setting="Also at learning rate 0.5. Seed by seed.",
        checks=tuple(
            Check(
                setting=(
                    ("learning rate", f"{rate:g}"),
                    ("", name),
                    ("G", str(group)),
                    ("", f"{more} below {less}"),
                ),
                quantity="more of last π(Siamese | Siamese) at less similarity",
                estimate=mean(
                    _last(runs, (name, group, rate, less)) - _last(runs, (name, group, rate, more)),
                    unit="probability",
                ),
                rule=Above(threshold=0),
            )
            for rate in RATES
            for _, name in ESTIMATORS
            for group in GROUP_SIZES
            for more, less in itertools.pairwise(SIMILARITIES)
        ),
        independent=Finding(text="holds in 48 of 48 settings", kind="holds"),
    )


def _group_size(runs: dict[Key, ToyRun]) -> Claim:
    small, large = GROUP_SIZES[0], GROUP_SIZES[-1]
    return Claim(
        claim_id="a-fig2-group-size",
        paper="A",
        place="2.4, Fig 2",
        statement="A larger group squeezes Siamese more",
        setting=f"G = {small} against G = {large}, seed by seed.",
        checks=tuple(
            Check(
                setting=(("", name), ("similarity", similarity)),
                quantity=f"more of last π(Siamese | Siamese) at G = {small}",
                estimate=mean(
                    _last(runs, (name, small, 2.0, similarity)) - _last(runs, (name, large, 2.0, similarity)),
                    unit="probability",
                ),
                rule=Above(threshold=0),
            )
            for _, name in ESTIMATORS
            for similarity in SIMILARITIES
        ),
        independent=Finding(text="mean-shifted and normalised, not raw", kind="holds when"),
    )


def _figure(runs: dict[Key, ToyRun]) -> Figure:
    panels = []
    for similarity in SIMILARITIES:
        paths = []
        for group in GROUP_SIZES:
            run = runs["normalised", group, 2.0, similarity]
            assert run.held_out_prob_ST is not None
            paths.append(Path(label=f"G = {group}", value_ST=run.held_out_prob_ST, step_T=run.step_T))
        panels.append((f"{similarity} similarity", paths))
    return path_figure(
        figure_id="a-fig2",
        title="[A] Fig 2: the held-out query",
        caption="π(Siamese | Siamese) while only Persian is trained on, normalised advantages; mean over seeds, "
        "10th to 90th percentile.",
        y_label="π(Siamese | Siamese)",
        panels=panels,
        y_range=(0.0, 0.4),
        ordered=True,
    )
