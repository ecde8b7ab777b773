"""Better, or only sharper: a run in the plane of pass@1 and pass@k, beside its base at lower temperatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.verdict.recommendation import Recommendation, ShippingStep
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Estimate, Sharpening
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text
from oversharp.reports.comparison.compare import compare
from oversharp.reports.context import Context
from oversharp.reports.decision.section import decision
from oversharp.reports.page import build_page
from oversharp.reports.pictures.latex import figure_latex
from oversharp.reports.pictures.plane import Plane
from oversharp.reports.records import Figure
from oversharp.reports.render import render_page
from oversharp.reports.sharpening.figure import (
    HOW,
    HOW_OF_SAMPLES,
    first_figure,
    separate_figures,
    shared_figure,
    sharpening_figure,
)
from tests.reports.parts import blocks, texts, with_series, with_source

#: step, scope, pass@1, pass@4 of what was drawn at other temperatures; the base has .25 and .8 at its own.
COLDER = ((0, "T=0.6", 0.3, 0.78), (0, "T=0.3", 0.4, 0.7))
HOTTER = ((30, "T=1.5", 0.35, 0.72),)
SHARPENING = Sharpening(
    label="better",
    k=4,
    rise=Estimate(value=0.25, low=0.2, high=0.3),
    gain=Estimate(value=0.05, low=0.01, high=0.09),
    loss=Estimate(value=None, low=0.01, high=None),
    share=Estimate(value=0.8, low=0.6, high=0.95),
)
VERDICT = Verdict(
    series="grpo", label="inconclusive", sentence="Inconclusive: none.", window=(20, 30), sharpening=SHARPENING
)


def finding(measure: str, series: str, step: int, scope: str, k: int | None, value: float | None) -> dict[str, object]:
    bounds = {} if value is None else {"low": value - 0.05, "high": value + 0.05}
    return {"measure": measure, "series": series, "step": step, "scope": scope, "k": k, "value": value, **bounds}


def controlled(
    context: Context,
    drawn: Sequence[tuple[int, str, float, float]] = (*COLDER, *HOTTER),
    *,
    greedy: float | None = 0.45,
    series: Sequence[str] = ("grpo", "iac"),
) -> Context:
    """The small store as it would be with controls of these ``series``; ``greedy`` is the base's accuracy."""
    rows = []
    for name in series:
        rows += [
            finding("control_pass_at_k", name, step, scope, k, value)
            for step, scope, *values in drawn
            for k, value in zip((1, 4), values, strict=True)
        ]
        rows.append(finding("frontier_gain", name, 30, "temperature", 4, None))
        rows += [finding("greedy_accuracy", name, 0, "all", None, greedy)] if greedy is not None else []
    held = context.source.findings
    added = pd.DataFrame(rows).astype({"k": held["k"].dtype})
    return with_source(context, findings=pd.concat([held, added], ignore_index=True))


def plane(figure: Figure | None) -> Plane:
    assert figure is not None
    (panel,) = figure.panels
    assert isinstance(panel, Plane)
    return panel


def test_run_and_colder_base_lie_in_one_plane_from_the_base_on(context: Context) -> None:
    context = controlled(context)
    figure = sharpening_figure(context, context.series[0])
    panel = plane(figure)
    colder, run = panel.lines
    assert (colder.x, colder.y) == ((0.25, 0.3, 0.4), (0.8, 0.78, 0.7))
    assert (run.x, run.y) == ((0.25, 0.35, 0.45, 0.5), (0.8, 0.75, 0.7, 0.6))
    assert panel.names == (("base", "T=0.6", "T=0.3"), ("", "10", "20", "step 30"))
    assert (panel.greedy.x, panel.greedy.y, panel.greedy.name) == (0.45, 0.45, "greedy")
    ((start, hot, colour),) = panel.higher_t
    assert ((start.x, start.y), (hot.x, hot.y, hot.name), colour) == ((0.5, 0.6), (0.35, 0.72, "T=1.5"), run.colour)
    assert (figure.x_label, figure.y_label) == ("pass@1 (probability)", "pass@4 (probability)")
    assert "grpo: from 0.250 and 0.800 at the base to 0.500 and 0.600 at step 30." in panel.description
    assert "0.400 and 0.700 at T=0.3; greedy 0.450." in panel.description
    rows = texts(figure.table)
    assert rows[1] == ["grpo", "base at T=0.6", "0.300 [0.250, 0.350]", "0.780 [0.730, 0.830]"]
    colder, trained = ["base", "base at T=0.6", "base at T=0.3"], ["step 10", "step 20", "step 30", "step 30 at T=1.5"]
    assert [row[1] for row in rows] == [*colder, *trained]


def test_where_the_comparison_is_at_a_k_that_the_curve_was_not_asked_for_the_figure_is_at_one_that_it_was(
    context: Context,
) -> None:
    held = controlled(context).source.findings
    moved = held.assign(k=held["k"].mask(held["measure"] == "frontier_gain", 32))
    figure = sharpening_figure(made := with_source(context, findings=moved), made.series[0])
    assert figure is not None
    assert figure.y_label == "pass@4 (probability)"
    assert plane(figure).lines == plane(sharpening_figure(controlled(context), context.series[0])).lines


def test_the_curve_runs_through_what_was_drawn_and_never_turns_inside_its_band(context: Context) -> None:
    """T=0.3 has less pass@1 than T=0.6 here: chance, and no frontier."""
    straight, turned = (
        plane(sharpening_figure(made, made.series[0]))
        for made in (controlled(context), controlled(context, (COLDER[0], (0, "T=0.3", 0.28, 0.7))))
    )
    xs, ys = np.array(straight.curve).T
    for x, y in zip(straight.lines[0].x, straight.lines[0].y, strict=True):
        assert np.hypot(xs - x, ys - y).min() < 0.002
    for panel in (straight, turned):
        xs, ys = np.array(panel.curve).T
        assert (np.diff(xs) >= 0).all()
        assert (np.diff(ys) <= 0).all()
    assert turned.curve[-1][0] == pytest.approx((0.3 + 0.28) / 2)
    low, high = straight.band[0], straight.band[-1]
    assert (*low, *high) == pytest.approx((0.2, 0.75, 0.3, 0.85))
    assert (0.4, 0.4) in [tuple(round(v, 9) for v in place) for place in straight.band]  # greedy, at its lower bound


def test_a_base_that_was_not_drawn_sharper_leaves_the_path_and_how_to_get_the_rest(context: Context) -> None:
    figure = sharpening_figure(context, context.series[0])
    panel = plane(figure)
    assert [line.label for line in panel.lines] == ["grpo"]
    assert panel.names == (("base", "10", "20", "step 30"),)
    assert (panel.curve, panel.band, panel.greedy, panel.higher_t) == ((), (), None, ())
    assert figure.notes == (HOW,)
    assert "--controls" in HOW
    drawn = controlled(context)
    assert sharpening_figure(drawn, drawn.series[0]).notes == ()


def test_hotter_draws_that_end_below_the_k_of_the_figure_are_said_to_and_how_to_have_them(context: Context) -> None:
    """The controls' default budget: 4 samples of the colder base, 2 of a hotter checkpoint, as 128 and 64 in a demo."""
    colder = controlled(context, COLDER)
    held = colder.source.findings
    shorter = [finding("control_pass_at_k", "grpo", 30, "T=1.5", k, 0.3 * k) for k in (1, 2)]
    rows = pd.DataFrame(shorter).astype({"k": held["k"].dtype})
    short = with_source(colder, findings=pd.concat([held, rows], ignore_index=True))
    figure = sharpening_figure(short, short.series[0])
    assert plane(figure).higher_t == ()
    said = "at higher temperatures are not shown: they have only enough samples for k = 2, and this figure has k = 4 "
    assert figure.notes == (f"Checkpoints {said}(pass oversharp audit --control-n 4).",)
    assert sharpening_figure(short, short.series[1]).notes == ()
    assert shared_figure(short).notes == (f"Checkpoints of grpo {said}(pass oversharp audit --control-n 4).",)
    assert shared_figure(controlled(context)).notes == shared_figure(colder).notes == ()


def test_under_a_truncation_the_curve_is_said_to_be_that_of_the_truncated_base(context: Context) -> None:
    drawn = controlled(context)
    cut = {"settings": {**drawn.series[0].settings, "top_p": 0.9, "top_k": 40}}
    both = with_series(with_series(drawn, 0, **cut), 1, **cut)
    said = "is sampled with top-p 0.9 and top-k 40, which also sharpens. The dashed curve is the base with the same "
    assert shared_figure(both).notes == (f"All of it {said}truncation, at lower temperatures.",)
    assert sharpening_figure(both, both.series[0]).notes == (f"All of grpo {said}truncation, at lower temperatures.",)
    bare = with_series(context, 0, **cut)
    assert sharpening_figure(bare, bare.series[0]).notes == (HOW,)  # no curve, nothing to say of it


def test_an_import_is_compared_with_the_answers_that_agree(context: Context) -> None:
    recorded = with_series(context, 0, checkpoints=context.series[0].checkpoints.assign(kind="recorded"))
    row = pd.DataFrame([finding("frontier_gain", "grpo", 30, "answers", 2, -0.02)])
    held = recorded.source.findings
    known = with_source(recorded, findings=pd.concat([held, row.astype({"k": held["k"].dtype})], ignore_index=True))
    said, unknown = (sharpening_figure(one, one.series[0]).notes for one in (known, recorded))
    assert said[0].endswith(
        "at the same pass@2, pass@1 of the last checkpoint is 2.0 points (95\xa0% CI −7.0 to +3.0) below that "
        "of the base's answers on which several samples agree."
    )
    assert said[1:] == unknown
    assert unknown == (HOW_OF_SAMPLES,)


def test_the_base_reweighted_is_a_named_line_of_its_own_as_far_down_as_the_rest(context: Context) -> None:
    powers = ((0, "power=2", 0.35, 0.79), (0, "power=8", 0.46, 0.3))
    figure = sharpening_figure(made := controlled(context, (*COLDER, *HOTTER, *powers)), made.series[0])
    colder, power, run = plane(figure).lines
    assert (power.label, power.x, power.y) == ("base, reweighted to p^α", (0.25, 0.35), (0.8, 0.79))
    assert plane(figure).names[1] == ("", "α=2")
    assert (colder.x, len(run.x)) == ((0.25, 0.3, 0.4), 4)
    assert "Dotted" in figure.caption
    assert ["grpo", "base reweighted, α=8"] in [row[:2] for row in texts(figure.table)]
    below = "Below the plot, not shown: base reweighted, α=8."
    assert figure.table.note == below
    assert f"{below} Brackets:" in figure_latex(figure).splitlines()[0]
    every = sharpening_figure(made := controlled(context, (*COLDER, *HOTTER, powers[0])), made.series[0])
    assert every is not None
    assert every.table.note == ""


def shipping(context: Context, **chosen: object) -> Context:
    """Every series' verdict recommends ``chosen``."""
    fields = {"series": "grpo", "checkpoint": "c", "is_base": False, "role": "recommended", **chosen}
    said = Recommendation(series=("grpo", "iac"), recommended=ShippingStep(**fields))
    for place in range(2):
        context = with_series(context, place, verdict=replace(VERDICT, shipping=said))
    return context


def test_only_what_is_recommended_is_ringed_in_its_own_series_and_side_by_side(context: Context) -> None:
    context = controlled(context)
    assert plane(sharpening_figure(context, context.series[0])).ringed == ()
    made = shipping(context, step=20)
    inner = sharpening_figure(made, made.series[0])
    (ring,) = plane(inner).ringed
    assert (ring.x, ring.y, ring.name) == (0.45, 0.7, "step 20")
    assert plane(inner).names[1] == ("", "10", "", "step 30")
    assert "Ringed" in inner.caption
    assert plane(sharpening_figure(made, made.series[1])).ringed == ()
    assert plane(shared_figure(made)).ringed == (ring,)
    last = shipping(context, step=30)
    (named,) = plane(sharpening_figure(last, last.series[0])).ringed
    assert named.name == "", "the path has named it"


def test_the_base_at_a_lower_temperature_and_a_hotter_checkpoint_are_ringed_where_they_lie(context: Context) -> None:
    context = controlled(context)
    colder = shipping(context, step=0, is_base=True, temperature=0.6)
    for series in colder.series:
        (ring,) = plane(sharpening_figure(colder, series)).ringed
        assert (ring.x, ring.y, ring.name) == (0.3, 0.78, "")
    higher_t = shipping(context, step=30, temperature=1.5)
    (ring,) = plane(sharpening_figure(higher_t, higher_t.series[0])).ringed
    assert (ring.x, ring.y) == (0.35, 0.72)


def test_a_run_without_a_second_checkpoint_or_a_second_k_has_no_plane(context: Context) -> None:
    findings = context.source.findings
    for less in (findings[findings["step"] == 0], findings[findings["k"] == 1]):
        assert sharpening_figure(with_source(context, findings=less), context.series[0]) is None


@pytest.mark.slow
def test_the_card_says_it_right_below_the_verdict_and_the_figure_has_it_where_it_is_a_file(context: Context) -> None:
    made = with_series(controlled(context), 0, verdict=VERDICT)
    assert sharpening_figure(made, made.series[0]).finding == sharpening_text(VERDICT)
    html = render_page(replace(build_page(made), sections=()))
    order = (f"<p>{VERDICT.sentence}</p>", f"<p>{sharpening_text(VERDICT)}</p>")
    places = [html.replace(' class="sentence"', "").index(text) for text in order]
    assert places[1] - places[0] == len(order[0])
    without = build_page(with_series(context, 0, verdict=replace(VERDICT, sharpening=None)))
    assert without.headline.cards[0].verdict.sharpening == ""


@pytest.mark.slow
def test_series_of_one_base_are_in_one_picture_on_the_first_screen(context: Context) -> None:
    page = build_page(controlled(context))
    assert [figure.figure_id for figure in page.decision.figures] == ["compare-sharpening", "coverage-map"]
    alone = build_page(with_source(controlled(context), series=context.series[:1]))
    assert alone.decision.figures[0].figure_id == "sharpening-1"


@pytest.mark.slow
def test_runs_of_one_base_share_its_frontier_and_others_do_not(context: Context) -> None:
    context = controlled(context)
    figure = shared_figure(context)
    panel = plane(figure)
    assert [line.label for line in panel.lines] == ["base at lower temperatures", "grpo", "iac"]
    assert panel.names[1:] == (("", "", "", "step 30"), ("", "", "", "step 30"))
    assert len(panel.higher_t) == 2
    each = [block.figure_id for block in blocks(compare(context), Figure)]
    assert each[:2] == ["sharpening-1", "sharpening-2"]
    other = context.series[1].checkpoints.replace({"checkpoint_id": {"base-0": "another"}})
    assert shared_figure(with_series(context, 1, checkpoints=other)) is None


@pytest.mark.slow
def test_series_that_cannot_be_compared_each_have_a_panel_on_the_first_screen(context: Context) -> None:
    made = with_series(controlled(context), 1, settings_id="others")
    figure = first_figure(made)
    assert figure is not None
    assert figure.figure_id == "sharpening"
    assert [panel.title for panel in figure.panels] == ["grpo: pass@4", "iac: pass@4"]
    assert [column.name for column in figure.table.columns] == ["series", "checkpoint", "pass@1", "k", "pass@k"]
    assert {row[0] for row in texts(figure.table)} == {"grpo", "iac"}
    assert figure.caption.startswith("Solid: one point per checkpoint")
    page = build_page(made)
    assert [one.figure_id for one in page.decision.figures] == ["sharpening", "coverage-map"]
    assert separate_figures(made) == ()


@pytest.mark.slow
def test_samples_of_another_tool_share_a_panel_where_they_are_compared_because_they_have_one_base(
    context: Context,
) -> None:
    """Two imports know no weights: each has a base of its own, and `oversharp ship` finds them the same samples."""
    made = context
    for number, series in enumerate(context.series):
        ids = series.name + series.checkpoints["checkpoint_id"]
        own = series.checkpoints.assign(kind="recorded", checkpoint_id=ids)
        made = with_series(made, number, checkpoints=own, verdict=replace(VERDICT, series=series.name))
    apart, together = made, made
    for number, series in enumerate(made.series):
        assert series.verdict is not None
        alone, both = (
            replace(series.verdict, shipping=Recommendation(series=names))
            for names in ((series.name,), ("grpo", "iac"))
        )
        apart, together = with_series(apart, number, verdict=alone), with_series(together, number, verdict=both)
    for one in (made, apart):
        assert [panel.title for panel in first_figure(one).panels] == ["grpo: pass@4", "iac: pass@4"]
    shared = first_figure(together)
    assert shared.title == "grpo and iac: better, or only sharper?"
    assert plane(shared).names == (("base", "", "", "step 30"), ("", "", "", "step 30")), "one base, named once"
    said = ["equal changes have equal lengths" in " ".join(decision(one).reading) for one in (apart, together)]
    assert said == [True, False]


@pytest.mark.slow
def test_of_three_series_those_of_one_base_share_a_panel_and_come_by_themselves_further_down(
    context_of: Callable[..., Context],
) -> None:
    names = ("grpo", "iac", "iac-seed-2")
    made = with_series(controlled(context_of(names=names), series=names), 2, settings_id="others")
    figure = first_figure(made)
    assert figure is not None
    assert [panel.title for panel in figure.panels] == ["grpo and iac: pass@4", "iac-seed-2: pass@4"]
    assert [one.figure_id for one in separate_figures(made)] == ["sharpening-1", "sharpening-2"]
    assert [block.figure_id for block in blocks(compare(made), Figure)][:2] == ["sharpening-1", "sharpening-2"]
