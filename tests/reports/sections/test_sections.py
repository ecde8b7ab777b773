"""Sections below the headline: what their figures say about themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from diagnostics.measures.contract import Measure, Plot
from diagnostics.records.types import Finding, TrainingMetric
from diagnostics.store import Store
from diagnostics.verdict.record import NOTABLE_RISE
from reports.context import Context
from reports.evidence.source import read_source
from reports.records import Constant, Figure, Page, Table
from reports.sections.method import method
from reports.sections.modes import strategy


def block(page: Page, section: str, title: str) -> Any:
    (found,) = [b for s in page.sections if s.section_id == section for b in s.blocks if b.title == title]
    return found


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
    (coverage,) = [s for s in page.sections if s.section_id == "coverage"]
    assert coverage.lead == (
        "At the last checkpoint pass@k is above the base for k = 1, 2 and 64 and no difference was detected for k = 4.",
    )


def test_a_curve_beyond_its_band_says_why(page_of: Callable[..., Page]) -> None:
    def bare_at_8(findings: list[Finding]) -> list[Finding]:
        return [*findings, *(replace(f, k=8, low=None, high=None) for f in findings if f.k == 4)]

    page = page_of(names=("grpo",), edit=bare_at_8)
    end = "Intervals end at half the number of samples per problem (4 of 8);"
    curves = block(page, "coverage", "pass@k")
    assert f"{end} beyond that the curve is drawn without one." in curves.notes
    assert f"{end} larger k are drawn without one." in block(page, "coverage", "Change of pass@k").notes
    assert isinstance(page.headline.figure, Figure)
    assert any(note.startswith(end) for note in page.headline.figure.notes)


def test_bands_everywhere_need_no_excuse(page: Page) -> None:
    assert block(page, "coverage", "pass@k").notes == ()


def test_scopes_left_to_the_table_are_named_for_what_they_are(session_store: Path) -> None:
    measure = Measure(
        name="answer_entropy", title="Answer entropy", unit="nats", section="entropy", needs=("answer_counts",),
        missing="", plot=Plot(x="step", group="scope"), sql="SELECT 1", doc="Spread of answers.",
    )  # fmt: skip
    with Store.open(session_store, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
    frame = source.findings
    template = frame[frame["measure"] == "truncation_rate"].assign(measure="answer_entropy", unit="nats")
    plug_in = template.assign(scope="plug_in", value=template["value"] * 0.9)
    context = Context(source=replace(source, findings=pd.concat([template, plug_in])), measures={measure.name: measure})
    figure = context.block("answer_entropy")
    assert isinstance(figure, Figure)
    assert figure.notes == ("Also in the table: the plug-in estimate.",)


def test_a_constant_metric_is_a_sentence(page_of: Callable[..., Page]) -> None:
    metrics = tuple(
        metric
        for step in range(1, 21)
        for metric in (
            TrainingMetric(step=step, name="learning_rate", value=2e-4),
            TrainingMetric(step=step, name="reward", value=0.1 * step),
        )
    )
    page = page_of(names=("grpo", "iac"), metrics=metrics)
    constant = block(page, "training", "Constant over the run")
    assert isinstance(constant, Constant)
    assert constant.text == "learning_rate constant at 2.0e−4."
    (training,) = [s for s in page.sections if s.section_id == "training"]
    assert [b.title for b in training.blocks if isinstance(b, Figure)] == ["reward"]


def test_a_strategy_never_seen_is_one_sentence(session_store: Path, measures: tuple[Measure, ...]) -> None:
    with Store.open(session_store, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
    rows = source.findings[source.findings["measure"] == "truncation_rate"]
    code = rows.assign(measure="strategy_share", scope="code", value=0.0)
    shares = pd.concat([code, code.assign(scope="prose", value=1.0)])
    measure = replace(next(m for m in measures if m.name == "mode_share"), name="strategy_share", title="Strategy")
    context = Context(source=replace(source, findings=shares), measures={measure.name: measure})
    section = strategy(context)
    assert section.lead == ()
    (only,) = section.blocks
    assert isinstance(only, Constant)
    assert only.text == "No response matched the strategy pattern ``` at any checkpoint."


def test_rates_that_are_zero_throughout_are_told_once(page_of: Callable[..., Page]) -> None:
    def without_timeouts(findings: list[Finding]) -> list[Finding]:
        rates = [f for f in findings if f.measure == "truncation_rate"]
        return [*findings, *(replace(f, measure="timeout_rate", value=0.0) for f in rates)]

    page = page_of(edit=without_timeouts)
    (health,) = [s for s in page.sections if s.section_id == "health"]
    assert len(health.lead) == 3
    assert health.lead[-1] == "No response of any checkpoint timed out."
    assert "timed out" not in " ".join(health.lead[:-1])


def test_the_method_shows_scored_samples_paths_and_whose_clock(context: Context) -> None:
    section = method(context)
    tables = {b.title: b for b in section.blocks if isinstance(b, Table)}
    settings = {row[0].text: row[1].text for row in tables["Sampling settings"].rows}
    assert settings["of those used for token entropy"] == "3"
    paths = [row[4].text for row in tables["Checkpoints"].rows]
    assert paths[:2] == ["/runs/grpo/0", "/runs/grpo/10"]
    assert "/runs/iac/0" in paths  # the shared base keeps the path of each series
    assert "local time of the machine that ran the audit" in section.lead[-1]


def test_the_report_speaks_of_problems(page: Page) -> None:
    own = [*page.headline.limits, *(lead for s in page.sections for lead in s.lead)]
    own += [sentence for card in page.headline.cards for sentence in (card.reading, *card.sentences)]
    assert not [text for text in own if "quer" in text.lower()]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.02, "truncated changed by more than 1 point: a change of pass@k may come from that."),
        (0.005, "It did not move by more than 1 point."),
    ],
)
def test_a_rate_matters_from_where_the_verdict_warns(page_of: Callable[..., Page], share: float, said: str) -> None:
    def cut(findings: list[Finding]) -> list[Finding]:
        return [replace(f, value=min(f.value or 0.0, share)) if f.measure == "truncation_rate" else f for f in findings]

    assert NOTABLE_RISE == 0.01
    (health,) = [s for s in page_of(names=("grpo",), edit=cut).sections if s.section_id == "health"]
    assert health.lead[0].endswith(said)
