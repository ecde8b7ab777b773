"""[A] App G, Fig 3: RLOO and REINFORCE++ with baseline."""

from __future__ import annotations

from benchmarks.papers.claim import Above, Check, Claim, Effort, Family, Finding
from benchmarks.papers.estimates import mean, share
from benchmarks.papers.figures import Path, path_figure
from benchmarks.papers.toy import (
    COLLAPSE,
    GROUP_SIZES,
    cat_config,
    cat_setting,
    delay,
    is_collapsed,
    largest_probability,
    long_config,
    play,
    steps_to_collapse,
)
from benchmarks.toy.config import Estimator

TITLE = "Other advantage estimators in the cat world"
ADVANCED: tuple[tuple[Estimator, str], ...] = (("rloo", "RLOO"), ("reinforce_pp", "REINFORCE++"))
MOST = 0.5


def claims(effort: Effort) -> Family:
    """Run both against raw rewards, also long enough to reach their end state."""
    raw = {group: play(cat_config(effort, "raw", group)) for group in GROUP_SIZES}
    runs = {
        (name, group): play(cat_config(effort, estimator, group))
        for estimator, name in ADVANCED
        for group in GROUP_SIZES
    }
    persists = Claim(
        claim_id="a-fig3-persists",
        paper="A",
        place="App G, Fig 3",
        statement=f"Most seeds collapse by {effort.long_steps:,} steps under RLOO and REINFORCE++ too",
        setting="As Fig 1, but longer. The paper says: they modulate the rate, but collapse persists. More than half "
        "of the seeds is what is asked for here.",
        checks=tuple(
            Check(
                setting=(("", name), ("G", str(group))),
                quantity=f"share of seeds collapsed at step {effort.long_steps}",
                estimate=share(is_collapsed(play(long_config(effort, estimator, group)))),
                rule=Above(threshold=MOST),
            )
            for estimator, name in ADVANCED
            for group in (GROUP_SIZES[0], GROUP_SIZES[-1])
        ),
        independent=Finding(text="holds", kind="holds"),
    )
    delays = Claim(
        claim_id="a-fig3-delay",
        paper="A",
        place="App G, Fig 3",
        statement="RLOO and REINFORCE++ delay collapse against raw rewards",
        setting="Seed by seed against raw rewards.",
        checks=tuple(
            Check(
                setting=(("", name), ("G", str(group))),
                quantity=f"more {delay(effort)}",
                estimate=mean(steps_to_collapse(runs[name, group]) - steps_to_collapse(raw[group]), unit="steps"),
                rule=Above(threshold=0),
            )
            for _, name in ADVANCED
            for group in GROUP_SIZES
        ),
        independent=Finding(text="holds", kind="holds"),
    )
    figure = path_figure(
        figure_id="a-fig3",
        title="[A] Fig 3: RLOO and REINFORCE++",
        caption="Largest probability of any label at Persian, mean over seeds, 10th to 90th percentile.",
        y_label="largest probability",
        panels=[
            (
                name,
                [
                    Path(label=f"G = {group}", value_ST=largest_probability(run), step_T=run.step_T)
                    for group in GROUP_SIZES
                    for run in (runs[name, group],)
                ],
            )
            for _, name in ADVANCED
        ],
        ordered=True,
    )
    return Family(
        title=TITLE, setting=f"{cat_setting(effort)} {COLLAPSE}", claims=(persists, delays), figures=(figure,)
    )
