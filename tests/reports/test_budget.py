"""What a change is made of, as a report shows it: bars that add up, and a sentence of what is sure."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.reports.budget import NAMES, budget_figure, budget_of, budget_sentence
from oversharp.reports.context import Context
from oversharp.reports.decision.section import decision
from oversharp.reports.findings import hints
from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.pictures.waterfall import Waterfall
from tests.reports.parts import with_source

PARTS = {
    "cut_off": (-0.03, -0.04, -0.02),
    "sharpening": (-0.08, -0.1, -0.06),
    "lost": (-0.02, -0.05, 0.01),
    "unexplained": (0.01, -0.02, 0.04),
}


def budgeted(context: Context, parts: dict[str, tuple[float, float, float]] = PARTS, k: int = 4) -> Context:
    """The first series alone, with a budget at its last step."""
    series = context.series[0]
    whole = sum(value for value, _, _ in parts.values())
    rows = [
        {"series": series.name, "step": series.last_step, "measure": "change_budget", "scope": scope, "k": k,
         "value": value, "low": low, "high": high, "n": 12, "unit": "probability"}
        for scope, (value, low, high) in {"all": (whole, whole - 0.04, whole + 0.04), **parts}.items()
    ]  # fmt: skip
    rows.append({**rows[0], "scope": "grader", "value": None, "low": None, "high": None, "why": "one verifier"})
    findings = pd.concat([context.source.findings, pd.DataFrame(rows)], ignore_index=True)
    return with_source(context, findings=findings, series=(series,))


def test_the_sentence_names_what_is_sure_and_sums_up_the_rest(context: Context) -> None:
    told = budgeted(context)
    series = told.series[0]
    assert budget_sentence(told, series) == (
        f"pass@4 changed by −12.0 points from the base to {series.step_text(series.last_step)}: −8.0 [−10.0, −6.0] by "
        "sharpening (a lower temperature of the base has the same effect) and −3.0 by truncated samples. The other "
        "parts, each of which may be 0, sum to −1.0."
    )
    assert budget_sentence(told, series) in decision(told).sentences


def test_where_nothing_is_sure_nothing_is_said(context: Context) -> None:
    told = budgeted(context, {"lost": (-0.01, -0.05, 0.03), "unexplained": (0.0, -0.03, 0.03)})
    assert budget_sentence(told, told.series[0]) == ""


def test_a_sure_change_of_no_sure_part_is_called_that(context: Context) -> None:
    told = budgeted(context, {"lost": (-0.05, -0.12, 0.02), "unexplained": (-0.04, -0.1, 0.02)})
    assert budget_sentence(told, told.series[0]).endswith("No single part differs significantly from 0.")


def test_the_bars_add_up_to_the_whole_and_what_is_unknown_is_named(context: Context) -> None:
    told = budgeted(context)
    figure = budget_figure(told)
    assert figure is not None
    (panel,) = figure.panels
    assert isinstance(panel, Waterfall)
    assert round(sum(part.value for part in panel.parts), 9) == round(panel.whole.value, 9) == -12.0
    assert [part.name for part in panel.parts if part.sure] == [NAMES[one] for one in ("cut_off", "sharpening")]
    assert figure.notes == ("Unknown: second grader (one verifier).",)
    (svg,) = figure_svgs(figure)
    assert "whole change" in svg
    assert "a sharper base" in svg
    (alone,) = figure_svgs(replace(figure, panels=(replace(panel, parts=()),)))
    assert alone.count('class="f-ink"/>') == 1, "without known parts, only the bar of the whole is drawn"
    assert figure.figure_id in {one.figure_id for one in decision(told).figures}


def test_without_a_budget_there_is_no_figure(context: Context) -> None:
    assert budget_figure(context) is None
    assert budget_of(context, context.series[0]) is None


def test_every_part_that_cannot_be_known_has_a_mend() -> None:
    for why, mend in (
        ("some graded samples have no finish reason", "finish_reason=FIELD"),
        ("another tool graded the samples and did not report parse failures", "--verifier math"),
        ("the base was not sampled at a lower temperature; run the audit with --controls", "AUDIT with --controls"),
        ("the sharpened base is known only up to k = 8", "AUDIT with a larger --control-n"),
    ):
        assert mend in hints.split_reason(why)[1]
