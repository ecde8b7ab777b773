"""The audit beside the papers: own changes first, then what is in print, never as a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import median

import pandas as pd
import pytest

from oversharp.reports.citations import with_sources
from oversharp.reports.context import Context
from oversharp.reports.page import build_page
from oversharp.reports.published import published_tables
from oversharp.reports.published.section import CAUTION, nearest_k, published_pairs, published_section
from oversharp.reports.records import Section
from oversharp.reports.render import render_page
from tests.reports.parts import texts, with_source

LIMIT_BYTES = 40_000


@pytest.fixture
def section_of(context: Context) -> Callable[..., Section]:
    """The section of the store's series ``names`` with ``findings`` edited."""

    def make(*, names: tuple[str, ...] = ("grpo", "iac"), edit: Callable[..., pd.DataFrame]) -> Section:
        series = tuple(one for one in context.source.series if one.name in names)
        return published_section(with_source(context, series=series, findings=edit(context.source.findings)))

    return make


def with_k(k: int) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """``k`` in the place of 4."""
    return lambda findings: findings.assign(k=findings["k"].replace(4, k))


def with_entropies(findings: pd.DataFrame) -> pd.DataFrame:
    """Answer entropies of grpo; scope ``all`` is another estimator than [B]'s and must not be taken."""
    template = findings[(findings["measure"] == "truncation_rate") & (findings["series"] == "grpo")]
    template = template.assign(measure="answer_entropy", unit="nats")
    plug_in = template.assign(scope="plug_in", value=2.0 - template["step"] / 20)
    return pd.concat([findings, template.assign(value=9.0), plug_in])


def test_the_lead_holds_own_changes_and_their_range_in_print(context: Context) -> None:
    """k = 4 stands in [B] 1 to 3 and in [C] 4; the range is counted here from the published rows themselves."""
    own, theirs, caution = published_section(context).lead
    assert own == (
        "From base to last checkpoint pass@1 moved by +25.0 points (grpo) and +20.0 points (iac) and pass@4 by −20.0 "
        "and −1.0."
    )
    rows = published_tables()
    fours = rows[(rows["metric"] == "pass@k") & (rows["k"] == 4)]
    key = ["paper", "table", "model", "benchmark"]
    joined = fours[fours["method"] != "base"].merge(fours[fours["method"] == "base"], on=key)
    changes = (joined["value_x"] - joined["value_y"]).tolist()
    assert len(changes) == 34
    low, high, middle = (f"{v:+.1f}".replace("-", "−") for v in (min(changes), max(changes), median(changes)))
    assert theirs.endswith(
        f"and {low} to {high} in pass@4 (34 pairs, median {middle}; the other 24 do not print it), in percentage "
        "points."
    )
    assert caution == CAUTION


def test_own_series_stand_first_with_their_intervals(context: Context) -> None:
    table, others, *_ = published_section(context).blocks
    assert texts(table)[:2] == [
        ["own", "grpo", "mini", "0.250 → 0.500", "+25.0 [+22.0, +28.0]", "4", "0.800 → 0.600", "−20.0 [−23.0, −17.0]"],
        ["own", "iac", "mini", "0.250 → 0.450", "+20.0 [+17.0, +23.0]", "4", "0.800 → 0.790", "−1.0 [−4.0, +2.0]"],
    ]
    assert {row[0] for row in texts(table)[2:]} == {"[B]\xa01", "[B]\xa02", "[B]\xa03", "[C]\xa01", "[C]\xa04"}
    assert "Series of this audit: 12 problems, 8 samples each." in table.note
    assert others.folded
    assert {row[2] for row in texts(others)} == {"GRPO-N", "GSPO", "GSPO-N", "SELF"}
    assert len(table.rows) - 2 + len(others.rows) == 58


def test_percents_in_print_become_probabilities_and_points(context: Context) -> None:
    """[B] Table 1, Qwen2.5-Math-7B on AMC 2023: 40.4 to 60.4 at k = 1, 71.6 to 79.4 at k = 4."""
    (table, *_) = published_section(context).blocks
    row, shown = table.rows[2], texts(table)[2]
    first, second = (
        published_tables().query(
            "paper == 'B' and table == 1 and benchmark == 'AMC 2023' and method == @method and k == 4"
        )["value"]
        for method in ("base", "GRPO")
    )
    at_4 = f"{first.item() / 100:.3f} → {second.item() / 100:.3f}"
    assert shown[3:7] == ["0.404 → 0.604", "+20.0", "4", at_4]
    assert (row[3].sort, row[4].sort, row[5].sort) == (0.404, 0.2, 4)


def test_without_the_k_in_print_the_nearest_stands_and_is_named(section_of: Callable[..., Section]) -> None:
    section = section_of(names=("grpo",), edit=with_k(100))
    (table, *_) = section.blocks
    ks = {(row[0], row[5]) for row in texts(table) if row[0] in ("own", "[B]\xa01", "[C]\xa01", "[C]\xa04")}
    # [C] 1 prints one k per benchmark
    assert ks == {("own", "100"), ("[B]\xa01", "128"), ("[C]\xa04", "128"), ("[C]\xa01", "256"), ("[C]\xa01", "1024")}
    assert "in pass@128 (the k nearest to 100; 34 pairs, median" in section.lead[1]
    assert section.lead[0].startswith("From base to last checkpoint pass@1 moved by +25.0 points and pass@100 by")


def test_the_nearest_k_is_never_1_where_a_larger_one_is_asked_for() -> None:
    assert all(1 not in pair.ks for pair in published_pairs())
    assert nearest_k(2, [256, 1024]) == 256


def test_series_without_a_common_large_k_are_told_by_pass_at_1(section_of: Callable[..., Section]) -> None:
    def uneven(findings: pd.DataFrame) -> pd.DataFrame:
        return findings.assign(k=findings["k"].where(findings["series"] != "iac", findings["k"].replace(4, 8)))

    section = section_of(edit=uneven)
    table = section.blocks[0]
    assert [column.name for column in table.columns] == ["table", "series or model", "benchmark", "pass@1", "change"]
    assert section.lead[0].endswith("pass@1 moved by +25.0 points (grpo) and +20.0 points (iac).")


def test_a_base_alone_is_laid_beside_nothing(context: Context) -> None:
    series = tuple(
        replace(one, checkpoints=one.checkpoints[one.checkpoints["is_base"]], last_step=one.base_step)
        for one in context.source.series
    )
    findings = with_entropies(context.source.findings)
    section = published_section(with_source(context, series=series, findings=findings[findings["step"] == 0]))
    assert section.lead == ()
    (missing,) = section.blocks
    assert missing.why == ("the series share no k with a pass@k at base and at a later checkpoint",)


def test_answer_entropies_are_laid_beside_print_in_nats_by_the_same_estimator(
    section_of: Callable[..., Section],
) -> None:
    """[B] Table 4 prints 2.563 and 1.667 bits for GRPO on AMC 2023: 1.7765 and 1.1555 nats."""
    (*_, table) = section_of(names=("grpo",), edit=with_entropies).blocks
    own, amc, aime, *_ = texts(table)
    assert own == ["own", "grpo", "mini", "2.000 → 0.500", "−1.500", "–"]
    assert amc[2:] == ["AMC 2023", "1.776 → 1.155", "−0.621", "0.118 → 0.063"]
    assert aime[-1] == "–"  # printed as a dash
    assert "the bits that [B] prints" in table.note
    assert "(8 per problem here, 256 in [B])" in table.note


def test_papers_are_named_and_the_full_data_has_a_place(context: Context) -> None:
    section = with_sources(published_section(context))
    assert [source[:3] for source in section.sources] == ["[A]", "[B]", "[C]"]
    assert not [block for block in section.blocks if "ntropies" in block.title], "there are none in the store"
    (table, *_) = section.blocks
    assert "oversharp.reports.published.published_tables()" in table.note


@pytest.mark.slow
def test_the_section_does_not_bloat_the_report(section_of: Callable[..., Section], context: Context) -> None:
    """Both series, and the entropies."""
    section = section_of(edit=lambda findings: with_entropies(with_k(128)(findings)))
    assert len(section.blocks) == 3
    page = build_page(context)
    without = render_page(replace(page, sections=()))
    assert len(render_page(replace(page, sections=(section,))).encode()) - len(without.encode()) < LIMIT_BYTES
