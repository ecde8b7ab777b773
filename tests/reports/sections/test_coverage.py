"""Coverage: curves with k*, changes inside one band with the onset, and the map of checkpoint × k."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Estimate
from oversharp.reports.context import Context
from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.pictures.latex import figure_latex
from oversharp.reports.records import ChangeMap, Figure, Mark
from oversharp.reports.sections.coverage import coverage
from oversharp.reports.sections.coverage_figures import change_map, changes_over_steps, curves, ends_table
from tests.reports.decision.judged import judged as recommended
from tests.reports.parts import texts, with_series, with_source

FELL = Verdict(
    series="grpo", label="over_sharpened", sentence="Over-sharpened.", window=(20, 30), k_most=4, detected_by=20,
    k_star=Estimate(value=2.0, low=1.5, high=None), decline_began=Estimate(value=5.0, low=0.0, high=12.0),
)  # fmt: skip


@pytest.fixture
def context(context: Context) -> Context:
    """The differences of the small store as the real measure declares them: signed, so shown in points."""
    signed = replace(context.measures["pass_at_k_delta"], signed=True)
    return replace(context, measures={**context.measures, signed.name: signed})


def judged(context: Context, **changes: object) -> Context:
    """The context with a verdict on its first series."""
    return with_series(context, 0, verdict=replace(FELL, **changes))


def with_band(context: Context, *, half_width: float) -> Context:
    """The same differences inside a band of ``half_width``; its measure is installed."""
    findings = context.source.findings
    rows = findings[(findings["measure"] == "pass_at_k_delta") & (findings["step"] > 0)]
    band = rows.assign(measure="pass_at_k_band", low=rows["value"] - half_width, high=rows["value"] + half_width)
    measure = replace(context.measures["pass_at_k_delta"], name="pass_at_k_band", title="One band")
    banded = with_source(context, findings=pd.concat([findings, band], ignore_index=True))
    return replace(banded, measures={**context.measures, measure.name: measure})


def test_k_star_is_marked_with_its_interval_up_to_the_end_of_the_range(context: Context) -> None:
    figure = curves(judged(context))
    assert figure.panels[0].marks == (Mark(label="k* = 2.0", x=2.0, low=1.5, high=4.0),)
    assert figure.panels[1].marks == ()
    assert "grpo: k* = 2.0, 95\xa0% CI from 1.5 to above 4 (steps 20 to 30, averaged, against the base)." in (
        figure.notes
    )
    assert "k* = 2.0" in figure.panels[0].description


def test_a_k_star_beyond_the_range_is_noted_and_not_drawn(context: Context) -> None:
    figure = curves(judged(context, k_star=Estimate(value=None, low=3.0, high=None)))
    assert figure.panels[0].marks == ()
    assert any(note.startswith("grpo: k* is above 4") for note in figure.notes)


def test_a_crossing_without_a_loss_may_be_chance_and_is_not_drawn(context: Context) -> None:
    figure = curves(judged(context, label="inconclusive"))
    assert figure.panels[0].marks == ()
    assert any(note.endswith("against the base); not significant, so it may be chance.") for note in figure.notes)


def test_marks_are_drawn_as_lines_with_their_words(context: Context) -> None:
    plain, marked = (figure_svgs(curves(one))[0] for one in (context, judged(context)))
    assert ">k* = 2.0</text>" in marked
    assert "k*" not in plain
    assert marked.count("<path") + marked.count("<rect") > plain.count("<path") + plain.count("<rect")


def test_the_changes_are_drawn_inside_the_simultaneous_band(context: Context) -> None:
    (figure,) = changes_over_steps(with_band(context, half_width=0.07))
    line = figure.panels[0].lines[0]
    assert line.high[-1] == pytest.approx(100 * (0.25 + 0.07))
    table = figure.table
    assert table.title.endswith("with pointwise CIs")
    assert table.rows[3][2].text == "+25.0 [+22.0, +28.0]"


def test_without_the_band_the_figure_has_pointwise_cis_and_the_reason(context: Context) -> None:
    figure, missing = changes_over_steps(context)
    assert figure.panels[0].lines[0].high[-1] == pytest.approx(28.0)
    assert missing.title == "Simultaneous band of the changes"
    assert missing.why


def test_an_onset_is_marked_after_a_loss_alone(context: Context) -> None:
    figure, *_ = changes_over_steps(judged(context))
    assert [mark.label for mark in figure.panels[0].marks] == ["decline began, step 5", "detected by step 20"]
    assert figure.panels[1].marks == ()
    quiet, *_ = changes_over_steps(judged(context, label="inconclusive"))
    assert all(panel.marks == () for panel in quiet.panels)


def test_the_map_marks_cells_whose_band_excludes_0(context: Context) -> None:
    figure = change_map(with_band(context, half_width=0.07))
    grpo, iac = figure.panels
    assert (grpo.rows, grpo.columns) == (("10", "20", "30"), ("1", "4"))
    assert [row[1] for row in grpo.cells] == pytest.approx([-5.0, -10.0, -20.0])
    assert [row[1] for row in grpo.sure] == [False, True, True]
    assert [row[0] for row in grpo.sure] == [True, True, True]
    assert [row[1] for row in iac.sure] == [False, False, False]
    assert grpo.scale == iac.scale == 30.0
    assert "of 6, 3 are significantly above the base and 2 below" in grpo.description


def test_a_pointwise_interval_marks_nothing_on_the_map(context: Context) -> None:
    figure = change_map(context)
    assert "No marks: there is no simultaneous band." in figure.caption
    assert not any(any(row) for panel in figure.panels for row in panel.sure)


def test_the_lead_follows_the_band_where_there_is_one(context: Context) -> None:
    wide = coverage(with_band(context, half_width=0.21))
    assert wide.lead[0] == (
        "grpo: at the last checkpoint pass@k is above the base for k = 1 and not significantly different from the "
        "base for k = 4, according to the simultaneous 95\xa0% band."
    )
    assert coverage(context).lead[0].endswith("pass@k is above the base for k = 1 and below it for k = 4.")


def test_the_table_of_ends_has_both_intervals(context: Context) -> None:
    grpo, _ = ends_table(with_band(context, half_width=0.07))
    assert grpo.title == "pass@k of base and last checkpoint: grpo"
    assert texts(grpo)[1] == ["4", "0.800", "0.600", "−20.0 [−23.0, −17.0]", "[−27.0, −13.0]"]


def test_the_row_of_a_temperature_is_marked_by_the_band_of_the_recommendation(
    context: Context,
) -> None:
    """pass@1 rises significantly there, pass@4 falls by one point ±3: one corner of two."""
    hot = recommended(context, lambda one: replace(one, temperature=1.2))
    findings = hot.source.findings
    row = dict(zip(findings.columns, findings.iloc[0], strict=True)) | {"why": None, "low": None, "high": None}
    drawn = [
        {**row, "measure": "control_pass_at_k", "series": "iac", "step": 20, "scope": "T=1.2", "k": k, "value": value}
        for k, value in ((1, 0.45), (4, 0.79))
    ]
    added = pd.DataFrame(drawn).astype({"k": findings["k"].dtype})
    hot = with_source(hot, findings=pd.concat([findings, added], ignore_index=True))
    figure = change_map(with_band(hot, half_width=0.07))
    assert isinstance(figure, Figure)
    panel = figure.panels[1]
    assert isinstance(panel, ChangeMap)
    assert (panel.rows[0], panel.outlined) == ("20, T=1.2", 0)
    assert panel.sure[0] == (True, False)
    (row_of_t,) = [row for row in texts(figure.table) if row[1] == "20, T=1.2"]
    assert row_of_t == ["iac", "20, T=1.2", "+20.0", "−1.0"]
    assert r"iac & 20, T=1.2 & +20.0 & $-$1.0 \\" in figure_latex(figure)
