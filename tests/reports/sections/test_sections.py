"""Sections below the headline: what their figures say about themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.measures.contract import Measure, Plot
from oversharp.diagnostics.records.types import Finding, TrainingMetric
from oversharp.diagnostics.verdict.words.caveats import NOTABLE_RISE
from oversharp.reports.context import Context
from oversharp.reports.records import Constant, Figure, Missing, Page
from oversharp.reports.sections.health import health
from oversharp.reports.sections.measures import strategy
from oversharp.reports.sections.method import method
from tests.reports.parts import block, blocks, section, texts, with_series, with_source


def with_findings(context: Context, *frames: pd.DataFrame, measure: Measure) -> Context:
    """These findings alone, of one installed measure."""
    return replace(with_source(context, findings=pd.concat(frames)), measures={measure.name: measure})


def rates(findings: pd.DataFrame, **columns: Any) -> pd.DataFrame:
    """The rows of the truncation rate as findings of another measure."""
    return findings[findings["measure"] == "truncation_rate"].assign(**columns)


@pytest.mark.slow
def test_a_range_of_k_bridges_only_neighbours(page_of: Callable[..., Page]) -> None:
    """k = 1, 2 and 64 rise, 4 to 32 are unknown: "1 to 64" would claim all of them."""

    def risen(findings: list[Finding]) -> list[Finding]:
        ones = [f for f in findings if f.k == 1]
        return [*(f for f in findings if f.k is None), *(replace(f, k=k) for f in ones for k in (1, 2, 64))]

    def flat_between(findings: list[Finding]) -> list[Finding]:
        fours = [
            replace(f, value=0.0, low=-0.1, high=0.1) if f.measure == "pass_at_k_delta" else f
            for f in findings
            if f.k == 4
        ]
        return [*risen(findings), *fours]

    page = page_of(names=("grpo",), edit=flat_between)
    assert section(page, "coverage").lead == (
        "At the last checkpoint pass@k is above the base for k = 1, 2 and 64 and not significantly different "
        "from the base for k = 4.",
    )


@pytest.mark.slow
def test_a_curve_beyond_its_band_says_why_and_bands_everywhere_need_no_excuse(
    page: Page, page_of: Callable[..., Page]
) -> None:
    def bare_at_8(findings: list[Finding]) -> list[Finding]:
        return [*findings, *(replace(f, k=8, low=None, high=None) for f in findings if f.k == 4)]

    bare = page_of(names=("grpo",), edit=bare_at_8)
    end = "CIs end at half the number of samples per problem (4 of 8);"
    coverage = section(bare, "coverage")
    assert f"{end} the curve continues without a band." in block(coverage, "pass@k").notes
    assert f"{end} larger k have no band." in block(coverage, "Change of pass@k").notes
    assert any(note.startswith(end) for note in bare.headline.figure.notes)
    assert block(section(page, "coverage"), "pass@k").notes == ()


def test_scopes_left_to_the_table_are_named_for_what_they_are(context: Context) -> None:
    measure = Measure(
        name="answer_entropy", title="Answer entropy", unit="nats", section="entropy", needs=("answer_counts",),
        missing="", plot=Plot(x="step", group="scope"), sql="SELECT 1", doc="Spread of answers.",
    )  # fmt: skip
    template = rates(context.source.findings, measure="answer_entropy", unit="nats")
    plug_in = template.assign(scope="plug_in", value=template["value"] * 0.9)
    figure = with_findings(context, template, plug_in, measure=measure).block("answer_entropy")
    assert figure.notes == ("Also in the table: the plug-in estimate.",)


@pytest.mark.slow
def test_a_constant_metric_is_a_sentence(page_of: Callable[..., Page]) -> None:
    metrics = tuple(
        TrainingMetric(step=step, name=name, value=value)
        for step in range(1, 21)
        for name, value in (("learning_rate", 2e-4), ("reward", 0.1 * step))
    )
    training = section(page_of(names=("grpo", "iac"), metrics=metrics), "training")
    assert block(training, "Constant over the run", Constant).text == "learning_rate constant at 2.0e−4."
    assert [figure.title for figure in blocks(training, Figure)] == ["reward"]


def test_a_strategy_never_seen_is_one_sentence(context: Context) -> None:
    code = rates(context.source.findings, measure="strategy_share", scope="code", value=0.0)
    mode_share = context.measures["mode_share"]
    measure = replace(mode_share, name="strategy_share", title="Strategy", section="strategy")
    never = strategy(with_findings(context, code, code.assign(scope="prose", value=1.0), measure=measure))
    assert never.lead == ()
    (only,) = never.blocks
    assert only.text == "No response matched the strategy pattern ``` at any checkpoint."


@pytest.mark.slow
def test_rates_that_are_zero_throughout_share_one_sentence(page_of: Callable[..., Page]) -> None:
    def without_timeouts(findings: list[Finding]) -> list[Finding]:
        truncated = [f for f in findings if f.measure == "truncation_rate"]
        return [*findings, *(replace(f, measure="timeout_rate", value=0.0) for f in truncated)]

    *others, last = section(page_of(edit=without_timeouts), "health").lead
    assert len(others) == 2
    assert last == "No response of any checkpoint timed out in grading."
    assert "timed out" not in " ".join(others)


def test_the_method_shows_scored_samples_paths_and_whose_clock(context: Context) -> None:
    made = method(context)
    settings = {name: value for name, value, *_ in texts(block(made, "Sampling settings"))}
    assert settings["samples used for token entropy"] == "3"
    paths = [row[4] for row in texts(block(made, "Checkpoints"))]
    assert paths[:2] == ["/runs/grpo/0", "/runs/grpo/10"]
    assert "/runs/iac/0" in paths  # the shared base keeps the path of each series
    assert "local time of the machine that ran the audit" in made.lead[-1]


def test_the_report_speaks_of_problems(page: Page) -> None:
    own = [*page.headline.limits, *(lead for s in page.sections for lead in s.lead)]
    own += [sentence for card in page.headline.cards for sentence in (card.reading, *card.sentences)]
    assert not [text for text in own if "quer" in text.lower()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "ending"),
    [
        (0.02, "truncated changed by more than 1 point, which can change pass@k."),
        (0.005, "It did not change by more than 1 point."),
    ],
)
def test_a_rate_matters_from_where_the_verdict_warns(page_of: Callable[..., Page], share: float, ending: str) -> None:
    def cut(findings: list[Finding]) -> list[Finding]:
        return [replace(f, value=min(f.value or 0.0, share)) if f.measure == "truncation_rate" else f for f in findings]

    assert NOTABLE_RISE == 0.01
    assert section(page_of(names=("grpo",), edit=cut), "health").lead[0].endswith(ending)


def test_doubtful_grades_and_skipped_records_of_an_import_are_in_sample_health(context: Context) -> None:
    before = blocks(health(context), Missing)
    doubt, why = "12 of 480 rewards differ from the verifier's grade", "verifier math cannot read its gold answer"
    imported = with_series(context, 0, provenance={"doubts": [doubt]}, unusable={why: 8})
    doubtful, unusable, *others = blocks(health(imported), Missing)
    assert others == before
    assert doubtful.why == (doubt,)
    assert unusable.title.startswith("Records skipped by the import of")
    assert unusable.why == (f"8 records: {why}",)
