"""Objectives over seeds: which series belong together, numbers by hand, and what a seed does not reach."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.verdict.record import Verdict
from oversharp.reports.comparison.compare import SEEDS, compare
from oversharp.reports.comparison.over_seeds import over_seeds
from oversharp.reports.comparison.pairs import compare_pairs
from oversharp.reports.comparison.seeds import may_pair, objectives, seed_of
from oversharp.reports.context import Context
from oversharp.reports.page import build_page
from oversharp.reports.records import Figure, Table
from oversharp.reports.render import render_page
from tests.reports.parts import block, blocks, texts, with_series, with_source

T_9 = 2.2621571627409915  # 97.5 % point of Student's t, nine degrees of freedom

#: pass@1 at steps 0 and 100, and pass@4 at both, by series.
Course = tuple[float, float, float, float]
RUNS: dict[str, Course] = {
    "grpo-seed-0": (0.2, 0.6, 1.0, 0.7),
    "grpo-seed-1": (0.2, 0.6, 1.0, 0.6),
    "grpo-seed-2": (0.2, 0.6, 1.0, 0.5),
    "iac-seed-0": (0.2, 0.5, 1.0, 0.9),
    "iac-seed-1": (0.2, 0.5, 1.0, 0.8),
    "iac-seed-2": (0.2, 0.4, 1.0, 0.7),
}


#: Ten seeds, which is what an interval takes.
TEN: dict[str, Course] = {f"grpo-seed-{seed}": (0.2, 0.6, 1.0, 0.7 if seed % 2 else 0.5) for seed in range(10)}


def seeded(context: Context, runs: Mapping[str, Course] = RUNS, extra: Sequence[tuple[Any, ...]] = ()) -> Context:
    """The context with ``runs`` in place of its series; ``extra``: (series, step, measure, k, value, unit)."""
    rows = [
        (name, step, "pass_at_k", k, value, "probability")
        for name, course in runs.items()
        for (k, step), value in zip([(1, 0), (1, 100), (4, 0), (4, 100)], course, strict=True)
    ]
    frame = pd.DataFrame([*rows, *extra], columns=["series", "step", "measure", "k", "value", "unit"])
    frame = frame.assign(scope="all", low=math.nan, high=math.nan, n=6.0, checkpoint="", why=None, why_no_interval=None)
    frame = frame.assign(interval_over=None)
    checkpoints = pd.DataFrame(
        {"step": [0, 100], "checkpoint": ["a", "b"], "checkpoint_id": ["base-0", "late"], "is_base": [True, False]}
    ).assign(kind="full", path="a")
    of_all = replace(context.series[0], checkpoints=checkpoints, last_step=100)
    series = tuple(
        replace(of_all, name=name, verdict=Verdict(series=name, label="over_sharpened", sentence="")) for name in runs
    )
    unlogged = context.source.training.iloc[:0]  # its rows are of the other series
    return with_source(context, findings=frame, series=series, training=unlogged)


def table(made: Context, start: str) -> Table:
    return block(over_seeds(made), start, Table)


def row(found: Table, *starts: str) -> list[str]:
    """The texts of the one row that begins with ``starts``."""
    (only,) = [row for row in texts(found) if tuple(row[: len(starts)]) == starts]
    return only


def test_the_name_of_a_series_carries_objective_and_seed() -> None:
    assert seed_of("iac-seed-12") == ("iac", 12)
    assert seed_of("iac-lr-1e-4-seed-0") == ("iac-lr-1e-4", 0)
    assert [seed_of(name) for name in ("iac", "iac-seed-", "iac-seed-x", "-seed-1", "iac-seed-01")] == [None] * 5


def test_single_series_and_series_without_seeds_have_no_such_section(context: Context) -> None:
    assert over_seeds(context) is None  # grpo and iac
    assert over_seeds(seeded(context, {"grpo-seed-0": RUNS["grpo-seed-0"]})) is None


def test_means_at_the_same_step_by_hand(context: Context) -> None:
    same = table(seeded(context, TEN), "Objectives at the same step (100)")
    half = T_9 * math.sqrt(0.1 / 9 / 10 + 0.2**2 / 2 / 100)  # pass@4: five times .7 and five times .5
    assert row(same, "grpo") == ["grpo", "10", "0.600", f"0.600 [{0.6 - half:.3f}, {0.6 + half:.3f}]"]
    # pass@1 .6 on all seeds: no interval, and the note says why
    assert "or if all values are equal" in same.note


def test_means_at_matched_pass_at_1_follow_each_seeds_own_course(context: Context) -> None:
    found = table(seeded(context), "Objectives at matched pass@1")
    # the weakest seed ends at .4; there GRPO has gone halfway: 1 − (.3, .4, .5) / 2
    assert row(found, "0.400", "grpo")[2:] == ["3 of 3", "50", "0.800"]
    iac = [1 - 0.1 * 2 / 3, 1 - 0.2 * 2 / 3, 0.7]
    mean = sum(iac) / 3
    assert row(found, "0.400", "iac")[4] == f"{mean:.3f}"
    assert row(found, "0.400", "iac")[3] == f"{(200 / 3 * 2 + 100) / 3:.0f}"


def test_a_seed_that_never_reaches_a_level_is_counted_and_named(context: Context) -> None:
    found = table(seeded(context), "Objectives at matched pass@1")
    assert row(found, "0.500", "iac")[2] == "2 of 3"
    assert row(found, "0.500", "grpo")[2] == "3 of 3"
    assert "iac seed 2 never reaches 0.5: the run covers 0.2 to 0.4." in found.note


def test_differences_are_paired_by_seed(context: Context) -> None:
    found = table(seeded(context), "Differences between objectives")
    assert row(found, "iac − grpo", "step 100")[2:] == ["3", "−13.3", "+20.0"]
    assert row(found, "iac − grpo", "pass@1 = 0.400")[3] == "–"
    assert any("There iac − grpo, paired by seed, is " in sentence for sentence in over_seeds(seeded(context)).lead)


@pytest.mark.slow
def test_verdicts_are_counted_and_shown_by_seed(context: Context) -> None:
    made = seeded(context)
    mixed = with_series(made, 4, verdict=Verdict(series="iac-seed-1", label="no_loss", sentence=""))
    assert (
        "Verdicts by seed: grpo: Coverage lost 3 of 3; iac: Coverage lost 2 of 3, No loss (within 2 points) 1 of 3."
        in (over_seeds(mixed).lead)
    )
    assert row(table(mixed, "Single seeds"), "iac", "1", "No loss (within 2 points)", "step 100")[4] == "0.500"


def test_few_seeds_have_no_interval_and_the_note_says_why(context: Context) -> None:
    three = over_seeds(seeded(context))
    assert any("without a CI: 3 seeds are too few for an interval, which needs 10." in s for s in three.lead)
    one_seed = {name: RUNS[name] for name in ("grpo-seed-0", "iac-seed-0")}
    made = seeded(context, one_seed)
    same = table(made, "Objectives at the same step")
    assert row(same, "grpo") == ["grpo", "1", "0.600", "0.700"]
    assert "Too few seeds for a CI: grpo and iac." in same.note
    assert any("without a CI: one seed is too few" in sentence for sentence in over_seeds(made).lead)


def test_measures_of_change_are_zero_at_the_base(context: Context) -> None:
    """Interference has no row at the base: matched below the first checkpoint it starts from 0, not from nothing."""
    extra = [
        (name, 100, measure, math.nan, value, unit)
        for name in RUNS
        for measure, value, unit in (("modes_fallen_10x", 0.4, "share of modes"), ("effective_modes", 2.0, "modes"))
    ]
    found = table(seeded(context, extra=extra), "Objectives at matched")
    names = [column.name for column in found.columns]
    assert names[-2:] == ["effective modes", "modes fallen > 10× (share)"]
    assert row(found, "0.400", "grpo")[-1] == "0.200"
    assert row(found, "0.400", "grpo")[-2] == "–"  # the base's effective modes are not known here


def test_a_seed_that_only_some_objectives_have_and_a_series_without_one_are_said(context: Context) -> None:
    fewer = {name: course for name, course in RUNS.items() if name != "iac-seed-1"}
    lead = " ".join(over_seeds(seeded(context, {**fewer, "dapo": RUNS["grpo-seed-0"]})).lead)
    assert "iac lacks 1 seed that others have (1). If that run failed, the means omit the failure." in lead
    assert "Not in this section, because the name has no seed: dapo." in lead


def test_other_bases_are_said(context: Context) -> None:
    made = seeded(context)
    other = made.series[-1].checkpoints.replace({"checkpoint_id": {"base-0": "base-1"}})
    assert "from different bases" in over_seeds(with_series(made, -1, checkpoints=other)).lead[0]
    assert "all from one base" in over_seeds(made).lead[0]


def test_series_that_were_audited_differently_are_not_averaged(context: Context) -> None:
    made = seeded(context)
    mixed = with_series(made, -1, settings={**made.series[-1].settings, "temperature": 0.5})
    assert over_seeds(mixed) is None
    assert over_seeds(replace(mixed, allow=True)) is not None


def test_the_band_of_the_figure_is_over_seeds(context: Context) -> None:
    (figure,) = blocks(over_seeds(seeded(context, TEN)), Figure)
    line = figure.panels[1].lines[0]
    assert (line.label, line.x, line.y) == ("grpo", (0.0, 100.0), (1.0, pytest.approx(0.6)))
    assert line.low[0] is None  # all seeds start from one base
    assert line.low[1] == pytest.approx(0.6 - T_9 * math.sqrt(0.1 / 9 / 10 + 0.2**2 / 2 / 100))
    assert figure.caption.startswith("Band:")
    (unbanded,) = blocks(over_seeds(seeded(context)), Figure)
    assert unbanded.caption == ""


def test_series_are_paired_by_problem_for_equal_seeds_of_different_objectives_only(context: Context) -> None:
    made = compare_pairs(seeded(context))
    assert [(pair.first.name, pair.second.name) for pair in made] == [
        (f"grpo-seed-{seed}", f"iac-seed-{seed}") for seed in range(3)
    ]
    assert may_pair("grpo", "iac")
    assert may_pair("grpo", "iac-seed-0")


@pytest.mark.slow
def test_with_seeds_the_comparison_does_not_say_that_there_are_none(context: Context) -> None:
    one_each = seeded(context, {name: RUNS[name] for name in ("grpo-seed-0", "iac-seed-0")})
    assert SEEDS not in compare(seeded(context)).lead
    assert SEEDS in compare(context).lead
    assert SEEDS in compare(one_each).lead


def test_seeds_of_one_objective_alone_have_means_and_no_pairs(context: Context) -> None:
    alone = seeded(context, {name: course for name, course in RUNS.items() if name.startswith("grpo")})
    assert compare_pairs(alone) == ()
    assert compare(alone) is not None
    assert row(table(alone, "Objectives at the same step"), "grpo")[1] == "3"
    assert not any(one.title.startswith("Differences") for one in over_seeds(alone).blocks)


def test_seeds_are_in_ascending_order_whatever_the_order_of_series(context: Context) -> None:
    made = seeded(context, dict(reversed(RUNS.items())))
    found = objectives(made.series)
    assert [(one.name, list(one.runs)) for one in found] == [("iac", [0, 1, 2]), ("grpo", [0, 1, 2])]


@pytest.mark.slow
def test_the_page_holds_the_section_before_the_comparison(context: Context) -> None:
    page = build_page(seeded(context))
    order = [section.section_id for section in page.sections]
    assert order.index("seeds") == order.index("compare") - 1
    html = render_page(replace(page, sections=(page.sections[order.index("seeds")],)))
    start = html.index('id="seeds"')
    assert len(html[start : html.index("</section>", start)]) < 20_000
