"""What the report says, checked against a store whose numbers are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store import Store
from oversharp.reports.context import Context, problems_of_tasks
from oversharp.reports.evidence.source import read_source
from oversharp.reports.page import build_page, page_figures
from oversharp.reports.records import Constant, Figure, Folded, Missing, Page, Table
from tests.reports.parts import block, blocks, section, texts, with_series


def test_the_reading_of_a_series_follows_its_intervals(page: Page) -> None:
    grpo, iac = page.headline.cards
    assert (grpo.reading, grpo.direction) == ("pass@1 rose while pass@4 fell", "fell")
    assert (iac.reading, iac.direction) == ("pass@1 rose; no change detected in pass@4", "unchanged")


def test_tiles_show_base_to_last_and_the_paired_interval(page: Page) -> None:
    tiles = {tile.title: (tile.value, tile.change) for tile in page.headline.cards[0].tiles}
    fell = "fell: −20.0 points, 95\xa0% CI −23.0 to −17.0; k chosen after looking"
    assert tiles["pass@4, the largest fall"] == ("0.800 → 0.600", fell)
    interval = "95\xa0% CI 25.0\xa0% to 35.0\xa0%"
    assert tiles["modes that fell > 10×"] == ("30.0\xa0%", f"of 30 correct modes, {interval}")
    assert tiles["effective modes per problem"] == ("4.00 → 1.00", "95\xa0% CIs [3.50, 4.50] → [0.50, 1.50]")


def test_the_limits_name_seed_problems_grader_and_range_of_k(page: Page) -> None:
    text = " ".join(page.headline.limits)
    assert "training seed" in text
    assert "12 problems of mini" in text
    assert "graded by exact" in text
    assert "no pointwise CIs for k above 4" in text


def test_samples_that_name_no_task_are_not_said_to_be_of_their_series(context: Context) -> None:
    source = context.source
    unnamed = replace(source, problems=source.problems.assign(task="grpo"))
    recorded = replace(source.series[0], checkpoints=source.series[0].checkpoints.assign(kind="recorded"))
    imported = replace(unnamed, series=(recorded, *source.series[1:]))
    assert [problems_of_tasks(one) for one in (source, unnamed, imported)] == [
        "12 problems of mini",
        "12 problems of grpo",  # audited with a problem set of this name
        "12 problems",
    ]


def test_the_headline_figure_holds_the_last_differences_in_points(page: Page) -> None:
    grpo, iac = page.headline.figure.panels[0].lines
    assert grpo.x == (1.0, 4.0)
    assert grpo.y == pytest.approx((25.0, -20.0))
    assert iac.y == pytest.approx((20.0, -1.0))
    assert iac.low == pytest.approx((17.0, -4.0))


def test_coverage_says_for_which_k_the_curve_moved(page: Page) -> None:
    lead = section(page, "coverage").lead
    assert lead[0] == "grpo: at the last checkpoint pass@k is above the base for k = 1 and below it for k = 4."
    assert lead[1] == (
        "iac: at the last checkpoint pass@k is above the base for k = 1 and not significantly different from the "
        "base for k = 4."
    )


def test_curves_are_drawn_for_base_middle_and_last(page: Page) -> None:
    curves = block(section(page, "coverage"), "pass@k", Figure)
    assert curves.figure_id == "measure-pass-at-k"
    assert [panel.title for panel in curves.panels] == ["grpo", "iac"]
    lines = curves.panels[0].lines
    assert [line.label for line in lines] == ["base (step 0)", "step 20", "step 30"]
    assert lines[2].y == (0.5, 0.6)
    assert lines[2].high == pytest.approx((0.55, 0.65))


def test_every_figure_has_a_data_table_a_description_and_units(page: Page) -> None:
    figures = [*page.decision.figures, *(f for s in (*page.brief, *page.sections) for f in blocks(s, Figure))]
    assert len(figures) > 5
    for figure in figures:
        assert figure.table.rows, figure.title
        assert all(panel.description for panel in figure.panels), figure.title
        assert figure.x_label, figure.title
        assert figure.y_label, figure.title


def test_a_measure_without_data_shows_its_reason_once(page: Page) -> None:
    assert block(section(page, "entropy"), "Token entropy", Missing).why == ("no sample was scored",)


def test_a_measure_of_another_package_appears_in_its_section(page: Page) -> None:
    assert block(section(page, "health"), "Measure of another package", Figure)


def test_series_are_compared_at_equal_accuracy(page: Page) -> None:
    compare = section(page, "compare")
    assert compare.lead[-1] == "At matched pass@1 = 0.450 pass@4 is 0.790 for iac and 0.700 for grpo."
    table = blocks(compare, Table)[-1]
    assert texts(table)[-1] == ["0.450", "0.700 (step 20)", "0.790 (step 30)", "+9.0"]


@pytest.mark.slow
def test_a_single_series_is_not_compared_and_not_named_in_every_sentence(page_of: Callable[..., Page]) -> None:
    page = page_of(names=("grpo",))
    assert "compare" not in [s.section_id for s in page.sections]
    assert section(page, "coverage").lead == (
        "At the last checkpoint pass@k is above the base for k = 1 and below it for k = 4.",
    )


@pytest.mark.slow
def test_a_base_alone_claims_no_change(page_of: Callable[..., Page]) -> None:
    page = page_of(names=("grpo",), steps=(0,))
    card = page.headline.cards[0]
    assert (card.reading, card.direction) == ("No comparison with the base yet", "unknown")
    assert isinstance(page.headline.figure, Missing)


@pytest.mark.slow
def test_a_value_that_never_changes_is_a_sentence(page_of: Callable[..., Page]) -> None:
    page = page_of(names=("grpo", "iac"), steps=(0,))
    constant = block(section(page, "health"), "Truncated responses", Constant)
    assert "It is the same at every checkpoint: 0.000" in constant.text


def test_settings_versions_and_the_command_are_there_to_repeat_the_audit(page: Page) -> None:
    text = repr(section(page, "method"))
    for expected in ("oversharp audit runs/grpo --n 8", "2.13.0", "grpo-30", "transformers", "temperature"):
        assert expected in text


@pytest.mark.slow
def test_the_order_of_series_is_the_callers(session_store: Path) -> None:
    with Store.open(session_store, read_only=True) as store:
        source = read_source(store, "audit.duckdb", ("iac", "grpo"))
    assert [series.name for series in source.series] == ["iac", "grpo"]


def test_an_unknown_series_is_refused_with_the_known_ones(session_store: Path) -> None:
    with (
        Store.open(session_store, read_only=True) as store,
        pytest.raises(StoreError, match="no audit of series 'dapo'; available: grpo, iac"),
    ):
        read_source(store, "audit.duckdb", ("dapo",))


def test_every_figure_of_the_page_is_there_once_and_folded_ones_too(page: Page) -> None:
    figures = page_figures(page)
    assert [one.figure_id for one in page.decision.figures] == ["compare-sharpening", "coverage-map"]
    assert figures[:3] == (*page.decision.figures, page.headline.figure)
    assert len({one.figure_id for one in figures}) == len(figures) > 5
    folded = [fold for one in (*page.brief, *page.sections) for fold in one.blocks if isinstance(fold, Folded)]
    inside = [figure for fold in folded for figure in fold.blocks if isinstance(figure, Figure)]
    assert all(one in figures for one in inside)


@pytest.mark.slow
def test_figures_of_series_that_were_audited_differently_are_drawn_and_not_compared(context: Context) -> None:
    unlike = with_series(context, 1, problem_ids=frozenset(sorted(context.series[1].problem_ids)[1:]))
    alike, apart = ({figure.figure_id for figure in page_figures(build_page(each))} for each in (context, unlike))
    compared = {name for name in alike if name.startswith("compare")}
    assert compared
    assert apart == (alike - compared - {"sharpening-1", "sharpening-2"}) | {"sharpening"}
