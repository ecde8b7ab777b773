"""Several series side by side: paired, never at their best, and not at all where they were audited differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.reports import build_report
from oversharp.reports.comparison.compare import compare
from oversharp.reports.comparison.pairs import compare_pairs, pair_sentence, pair_table
from oversharp.reports.context import Context
from oversharp.reports.evidence.comparable import find_differences
from oversharp.reports.page import build_page, load_page
from oversharp.reports.records import Table
from tests.reports.parts import blocks, section, texts, with_series, with_source


def differing(context: Context, *, allow: bool = False, **settings: Any) -> Context:
    """The same two series, the second one sampled under other ``settings``."""
    return replace(with_series(context, 1, settings={**context.series[1].settings, **settings}), allow=allow)


def with_counts(context: Context, counts: pd.DataFrame) -> Context:
    return with_source(context, last_counts=counts)


def table_of(context: Context) -> Table:
    return next(block for block in blocks(compare(context), Table) if block.title.endswith("paired by problem"))


def test_the_difference_is_second_minus_first_over_the_same_problems(context: Context) -> None:
    """Of 96 samples each, GRPO has 34 correct at its last checkpoint and IAC 32."""
    table = table_of(context)
    assert table.title == "iac (step 30) − grpo (step 30), paired by problem"
    at_1, *_ = texts(table)
    assert at_1[:3] == ["1", "0.354", "0.333"]
    assert at_1[3].startswith("−2.1 [")
    assert at_1[-1] == "12"
    assert [row[0].text for row in table.rows] == ["1", "2", "4"]


@pytest.mark.slow
def test_a_task_has_a_column_where_there_are_several(context: Context) -> None:
    counts = context.source.last_counts
    tasks = dict(zip(sorted(set(counts["problem_id"])), "ab" * 6, strict=True))
    two = table_of(with_counts(context, counts.assign(task=counts["problem_id"].map(tasks))))
    assert [column.name for column in two.columns][:2] == ["task", "k"]
    assert [row[0].text for row in two.rows] == ["a"] * 3 + ["b"] * 3
    one = table_of(context)
    assert one.columns[0].name == "k"
    assert {len(row) for row in one.rows} == {len(one.columns)}


def test_more_series_cost_more(context: Context) -> None:
    """Three series make three tables; the p of each are multiplied by their number."""
    counts = context.source.last_counts
    third = counts[counts["series"] == "iac"].assign(series="third", n_correct=6)
    series = (*context.series, replace(context.series[1], name="third"))
    made = compare_pairs(with_source(context, series=series, last_counts=pd.concat([counts, third])))
    rows = [row for pair in made for row in pair.rows]
    assert len(made) == 3
    assert len(rows) == 9
    counts_of = {pair.second.name: pair for pair in made if pair.first.name == "grpo"}
    (alone,) = compare_pairs(context)
    for row, before in zip(counts_of["iac"].rows, alone.rows, strict=True):
        assert row.p_adjusted == pytest.approx(min(1.0, 3 * before.p_adjusted))
    table = pair_table(made[0], n_pairs=3)
    assert "all 3 pairs of series" in table.note
    assert table.folded


def test_the_correction_never_makes_a_p_smaller(context: Context) -> None:
    for row in table_of(context).rows:
        assert row[5].sort >= row[4].sort


def test_no_difference_is_called_none_and_never_a_peak(context: Context) -> None:
    lead = compare(context).lead
    assert lead[0].startswith(
        "At the last checkpoint of each, iac and grpo do not differ significantly for k = 1 to 4 (smallest"
    )
    assert lead[1].startswith("This compares the last checkpoints, not the best ones")
    assert lead[2].startswith("Each series has one training seed")


def test_a_repaired_series_is_not_compared_at_the_checkpoint_that_it_ends_in(context: Context) -> None:
    said = Verdict(series="iac", label="inconclusive", sentence="", repaired=True)
    section = compare(with_series(context, 1, verdict=said))
    assert section is not None
    assert any(text.startswith("iac: interpolated weights") for text in section.lead)
    assert compare_pairs(with_series(context, 1, verdict=said)) == ()


@pytest.mark.slow
def test_different_bases_are_said(context: Context) -> None:
    moved = context.series[1].checkpoints.replace({"checkpoint_id": {"base-0": "other-base"}})
    other = with_series(context, 1, checkpoints=moved)
    assert any("start from different bases" in text for text in compare(other).lead)
    assert not any("start from different bases" in text for text in compare(context).lead)


def test_a_planted_difference_is_found_and_said(context: Context) -> None:
    counts = context.source.last_counts
    planted = counts.assign(n_correct=(counts["series"] == "iac") * 4)
    (pair,) = compare_pairs(with_counts(context, planted))
    assert pair_sentence(pair) == (
        "At the last checkpoint of each, iac is significantly above grpo for k = 1 to 4 (most at k = 4: +98.6 points)."
    )


def test_problems_that_only_one_series_has_are_left_out(context: Context) -> None:
    counts = context.source.last_counts
    grpo, iac = (counts[counts["series"] == name] for name in ("grpo", "iac"))
    (pair,) = compare_pairs(with_counts(context, pd.concat([grpo, iac.iloc[:5]])))
    assert {row.n_problems for row in pair.rows} == {5}
    (none,) = compare_pairs(with_counts(context, iac))
    assert pair_sentence(none).endswith("no problem has samples at the last checkpoint of both.")


def test_different_settings_are_refused_by_name_with_both_values(context: Context) -> None:
    section = compare(differing(context, temperature=0.6, max_tokens=32))
    assert section.lead == (
        "The series were audited with different settings and are not compared: temperature and max_tokens differ.",
    )
    missing = section.blocks[0]
    assert missing.why[:2] == ("temperature: grpo 1, iac 0.6", "max_tokens: grpo 16, iac 32")
    assert "--allow" in missing.why[-1]


def test_a_seed_is_not_a_difference(context: Context) -> None:
    assert find_differences(differing(context, seed=8).series) == ()
    assert find_differences(context.series) == ()


def test_graders_and_problem_sets_are_differences(context: Context) -> None:
    fewer = frozenset(list(context.series[1].problem_ids)[:5])
    found = find_differences(with_series(context, 1, graders=("math",), problem_ids=fewer).series)
    assert [difference.text for difference in found] == [
        "graders: grpo exact, iac math",
        "problems: grpo 12 problems (5 shared), iac 5 problems (5 shared)",
    ]


@pytest.mark.slow
def test_series_that_were_not_audited_alike_are_said_so_wherever_they_stand_together(context: Context) -> None:
    page = build_page(differing(context, temperature=0.6))
    (limit,) = [text for text in page.headline.limits if "other causes than training" in text]
    assert "the series were audited with different settings: temperature: grpo 1, iac 0.6" in limit
    beside = section(page, "published").lead
    assert any(
        text.startswith("Do not compare these series with each other: the series were audited with") for text in beside
    )
    alike = build_page(context)
    assert not any("audited with different settings" in text for text in alike.headline.limits)
    assert not any("audited with different settings" in text for one in alike.sections for text in one.lead)


@pytest.mark.slow
def test_what_was_allowed_is_compared_and_said(context: Context) -> None:
    allowed = differing(context, allow=True, temperature=0.6)
    assert compare(allowed).lead[0] == (
        "Compared because of --allow, although the series were audited with different settings (temperature: grpo 1, "
        "iac 0.6): these may cause the differences below."
    )
    assert table_of(allowed).rows


@pytest.mark.slow
def test_named_series_that_differ_are_an_error_with_a_mend_and_a_report_of_everything_refuses_inside(
    store_of: Callable[..., Path], tmp_path: Path, measures: tuple[Measure, ...]
) -> None:
    mixed_store = store_of()
    with Store.open(mixed_store) as store:
        cooler = "SELECT 'other', * EXCLUDE (settings_id) REPLACE (0.6 AS temperature) FROM settings"
        store._database.rows(f"INSERT INTO settings {cooler}")
        store._database.rows("UPDATE audits SET settings_id = 'other' WHERE series = 'iac'")
    with pytest.raises(StoreError, match=r"temperature: grpo 1, iac 0\.6.*--allow") as caught:
        build_report(mixed_store, tmp_path / "report.html", series=("grpo", "iac"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()
    with Store.open(mixed_store, read_only=True) as store:
        allowed = load_page(store, measures, store_name="audit.duckdb", series=("grpo", "iac"), allow=True)
        everything = load_page(store, measures, store_name="audit.duckdb")
    assert section(allowed, "compare").lead[0].startswith("Compared because of --allow")
    inside = section(everything, "compare")
    assert inside.lead == (
        "The series were audited with different settings and are not compared: temperature differs.",
    )
    assert inside.blocks[0].why[0] == "temperature: grpo 1, iac 0.6"
