"""What the top of the report claims, and what it takes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.forecast.beyond import Beyond
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import ChangeAtK
from oversharp.reports.citations import with_sources
from oversharp.reports.context import Context
from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.records import Figure, Missing, Page, Section, Span
from oversharp.reports.render import render_page
from oversharp.reports.sections.headline import headline
from tests.reports.parts import block, section, with_series, with_source
from tests.reports.sections.test_verdict_card import VERDICT

REASON = "only 5 of 12 problems list every accepted response; see scope with_modes"


def exact(measure: str, value: float | None, *, scope: str = "all", step: int = 30) -> Finding:
    return Finding(
        checkpoint_id=f"grpo-{step}", measure=measure, unit="share of problems", scope=scope, value=value,
        low=None if value is None else value - 0.1, high=None if value is None else min(value + 0.1, 1.0),
        n=None if value is None else 5, why=REASON if value is None else None,
    )  # fmt: skip


@pytest.mark.xdist_group("html")
def test_over_sharpening_is_defined_before_any_number_with_its_source(page: Page, html: str) -> None:
    assert "some correct mode of a problem is less probable than under the base" in page.headline.definition
    assert "[A] When Sharpening Becomes Collapse, arXiv 2601.15609" in page.headline.definition
    assert html.index("Over-sharpening, by Definition 2.1") < html.index("pass@1 rose while pass@4 fell")


def test_letters_of_papers_are_explained_in_the_section_that_uses_them(page: Page) -> None:
    some = Section(section_id="s", title="S", lead=("As in [B].",), blocks=(Missing(title="m", why=("see [C]",)),))
    assert [source[:3] for source in with_sources(some).sources] == ["[B]", "[C]"]
    assert with_sources(replace(some, lead=(), blocks=())).sources == ()
    assert [source[:3] for source in page.sections[-1].sources] == ["[A]", "[B]", "[C]"]


@pytest.mark.slow
def test_the_largest_k_stands_beside_a_k_chosen_for_its_fall(context_of: Callable[..., Context]) -> None:
    def with_k2(findings: list[Finding]) -> list[Finding]:
        """The fall of k = 4 moves to k = 2; k = 4 itself hardly moves."""
        twos = [replace(f, k=2) for f in findings if f.k == 4]
        flat = [
            replace(f, value=0.0, low=-0.02, high=0.02) if f.k == 4 and f.measure == "pass_at_k_delta" else f
            for f in findings
        ]
        return [*twos, *flat]

    card = (top := headline(context_of(names=("grpo",), edit=with_k2))).cards[0]
    assert card.reading == "pass@1 rose while pass@2 fell"
    assert [tile.title for tile in card.tiles][:3] == ["pass@1", "pass@2, the largest fall", "pass@4"]
    assert card.tiles[1].change.endswith("k chosen after looking")
    assert any("chosen after looking" in limit for limit in top.limits)


@pytest.mark.slow
def test_without_a_fall_no_k_is_called_chosen(context_of: Callable[..., Context]) -> None:
    top = headline(context_of(names=("iac",)))
    assert [tile.title for tile in top.cards[0].tiles][:2] == ["pass@1", "pass@4"]
    assert not any("chosen after looking" in limit for limit in top.limits)


@pytest.mark.slow
def test_few_problems_are_too_few_to_tell_not_proof_of_no_change(page_of: Callable[..., Page]) -> None:
    page = page_of(names=("iac",), n_problems=3)
    card = page.headline.cards[0]
    assert (card.reading, card.direction) == ("pass@1 rose; too few problems (3) to decide about pass@4", "unclear")
    assert card.tiles[1].change == "too few problems to decide (−1.0 points over 3 problems)"
    coverage = section(page, "coverage")
    assert coverage.lead[0].endswith("and undecided with 3 problems for k = 4.")
    assert "no change detected" not in render_page(replace(page, brief=(), sections=(coverage,)))


@pytest.mark.slow
def test_an_interval_does_not_go_where_a_probability_cannot(context_of: Callable[..., Context]) -> None:
    def saturated(findings: list[Finding]) -> list[Finding]:
        return [
            replace(f, value=1.0, low=0.9, high=1.0) if f.k == 4 and f.measure == "pass_at_k" and f.value == 0.8 else f
            for f in findings
        ]

    top = headline(context_of(names=("iac",), edit=saturated))
    assert top.cards[0].tiles[1].change == ("no change detected: −1.0 points, 95\xa0% CI −4.0 to 0.0")
    assert top.figure.panels[0].lines[0].high[-1] == 0.0


@pytest.mark.slow
def test_the_share_of_definition_2_1_is_a_tile_with_its_interval(context_of: Callable[..., Context]) -> None:
    top = headline(context_of(names=("grpo",), edit=lambda found: [*found, exact("problems_over_sharpened", 0.8)]))
    tiles = {tile.title: tile for tile in top.cards[0].tiles}
    assert tiles["over-sharpened (Definition 2.1)"].value == "80.0\xa0%"
    assert tiles["over-sharpened (Definition 2.1)"].change == ("of 5 problems, 95\xa0% CI 70.0\xa0% to 90.0\xa0%")
    assert not any("which Definition 2.1 uses" in limit for limit in top.limits)


@pytest.mark.slow
def test_modes_that_cannot_be_counted_are_no_tile_and_no_sentence_but_a_reason(page_of: Callable[..., Page]) -> None:
    why = "no problem shows a second correct mode at any checkpoint"

    def uncounted(findings: list[Finding]) -> list[Finding]:
        return [
            replace(f, value=None, low=None, high=None, why=why) if f.measure == "effective_modes" else f
            for f in findings
        ]

    page = page_of(names=("grpo",), edit=uncounted)
    assert not any("effective modes" in tile.title for tile in page.headline.cards[0].tiles)
    modes = section(page, "modes")
    assert "effective number of modes" not in " ".join(modes.lead)
    assert why in render_page(replace(page, sections=(modes,)))


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["problems_over_sharpened", "modes_fallen_10x"])
def test_values_over_some_problems_never_pass_for_values_over_all(page_of: Callable[..., Page], measure: str) -> None:
    def partial(findings: list[Finding]) -> list[Finding]:
        rest = [f for f in findings if f.measure != measure]
        own = [exact(measure, None, step=step) for step in (10, 20, 30)]
        part = [exact(measure, 0.5 + step / 100, scope="with_modes", step=step) for step in (10, 20, 30)]
        return [*rest, *own, *part]

    page = page_of(names=("grpo",), edit=partial)
    card = page.headline.cards[0]
    exact_tiles = [t.title for t in card.tiles if "Definition" in t.title or "10×" in t.title]
    labelled = [title for title in exact_tiles if title.endswith(", where problems list their modes")]
    assert len(labelled) == 1
    if measure == "problems_over_sharpened":
        assert f"Exact values for all problems are unknown: {REASON}." in card.sentences
    else:
        figure = block(section(page, "modes"), "Modes that fell", Figure)
        assert figure.title.endswith(", problems that list their modes")
        assert figure.notes == (f"No value for all problems: {REASON}.",)
        assert figure.panels[0].lines[0].y == (0.6, 0.7, 0.8)


def with_exact(context: Context, *, without: tuple[int, ...] = ()) -> Context:
    """The sampled pass@k of the small store as if it were exact, and a verdict on k = 4 over steps 20 and 30."""
    findings = context.source.findings
    sampled = pd.concat([context.source.known_findings(measure) for measure in ("pass_at_k", "pass_at_k_delta")])
    exact = sampled[~sampled["step"].isin(without)]
    names = exact["measure"].str.replace("pass_at_k", "pass_at_k_exact")
    changes = tuple(
        ChangeAtK(k=k, base=0.5, late=0.5 + change, change=change, low=None, high=None)
        for k, change in ((1, 0.2), (2, 0.1), (4, -0.2))
    )
    verdict = replace(
        Verdict(series="grpo", label="over_sharpened", sentence=""), window=(20, 30), k_most=4, changes=changes
    )
    judged = with_series(context, 0, verdict=verdict)
    return with_source(judged, findings=pd.concat([findings, exact.assign(measure=names)]))


def test_the_exact_change_stands_at_the_k_and_in_the_window_of_the_verdict(context: Context) -> None:
    """GRPO: pass@4 goes from 0.80 to 0.70 at step 20 and 0.60 at step 30."""
    card = headline(with_exact(context)).cards[0]
    assert (
        "Without sampling noise: exact pass@4 changed by −15.0 points over steps 20 to 30, the mean of −10.0 at step "
        "20, −20.0 at step 30."
    ) in card.sentences


def test_an_exact_change_of_a_part_of_the_window_is_not_the_verdicts(context: Context) -> None:
    card = headline(with_exact(context, without=(20,))).cards[0]
    (exact,) = [sentence for sentence in card.sentences if "exact" in sentence]
    assert exact.startswith("Without sampling noise: at the last checkpoint alone, exact pass@4 fell from 0.800")


@pytest.mark.slow
def test_the_interval_beyond_the_sampled_k_is_a_dashed_bar_and_a_row_of_the_data(
    context_of: Callable[..., Context],
) -> None:
    context = context_of(names=("grpo",))
    assert (plain := headline(context).figure) is not None
    assert not any("Dashed bar" in note for note in plain.notes)
    beyond = Beyond(k=16, cap=8, low=-0.12, high=-0.03, bracket_low=-0.3, bracket_high=0.2)
    known = with_series(context, 0, verdict=replace(VERDICT, beyond=beyond))
    figure = headline(known).figure
    assert isinstance(figure, Figure)
    (line,) = figure.panels[0].lines
    assert line.beyond == Span(x=16, low=-12.0, high=-3.0)
    assert figure.panels[0].description.endswith("between −12.0 and −3.00 at k 16.")
    assert [cell.text for cell in figure.table.rows[-1]] == ["grpo", "16", "[−12.0, −3.0] of the late window"]
    assert figure.notes[-1].startswith("Dashed bar, at twice the sampled k: 95\xa0% CI of the change from the base")
    (svg,) = figure_svgs(figure)
    assert svg.count("stroke-dasharray") == 1 + figure_svgs(plain)[0].count("stroke-dasharray")
    unknown = replace(beyond, low=None, high=None, why="the interval at k = 16 is wider than 15 points")
    context = with_series(context, 0, verdict=replace(VERDICT, beyond=unknown))
    assert headline(context).figure == plain
