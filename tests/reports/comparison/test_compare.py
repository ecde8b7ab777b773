"""Several series side by side: paired, never at their best, and not at all where they were audited differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from diagnostics.measures.contract import Measure
from diagnostics.records.errors import StoreError
from diagnostics.store import Store
from reports import build_report
from reports.comparison.compare import compare
from reports.comparison.pairs import pair_sentence, pair_table, pairs
from reports.context import Context
from reports.evidence.comparable import differences
from reports.page import build_page, load_page
from reports.records import Missing, Page, Section, Table


def differing(context: Context, *, allow: bool = False, **settings: Any) -> Context:
    """The same two series, the second one sampled under other ``settings``."""
    first, second = context.series
    other = replace(second, settings={**second.settings, **settings})
    return replace(context, source=replace(context.source, series=(first, other)), allow=allow)


def section_of(context: Context) -> Section:
    section = compare(context)
    assert section is not None
    return section


def table_of(section: Section) -> Table:
    return next(b for b in section.blocks if isinstance(b, Table) and b.title.endswith("problem by problem"))


def test_the_difference_is_second_minus_first_over_the_same_problems(context: Context) -> None:
    """Of 96 samples each, GRPO has 34 correct at its last checkpoint and IAC 32."""
    table = table_of(section_of(context))
    assert table.title == "iac (step 30) − grpo (step 30), problem by problem"
    at_1 = [cell.text for cell in table.rows[0]]
    assert at_1[:3] == ["1", "0.354", "0.333"]
    assert at_1[3].startswith("−2.1 [")
    assert at_1[-1] == "12"
    assert [row[0].text for row in table.rows] == ["1", "2", "4"]


def test_a_task_has_a_column_where_there_are_several(context: Context) -> None:
    counts = context.source.last_counts
    half = counts.assign(
        task=counts["problem_id"].map(dict(zip(sorted(set(counts["problem_id"])), "ab" * 6, strict=True)))
    )
    two = table_of(section_of(replace(context, source=replace(context.source, last_counts=half))))
    assert [column.name for column in two.columns][:2] == ["task", "k"]
    assert [row[0].text for row in two.rows] == ["a"] * 3 + ["b"] * 3
    one = table_of(section_of(context))
    assert one.columns[0].name == "k"
    assert {len(row) for row in one.rows} == {len(one.columns)}


def test_more_series_cost_more_in_holm(context: Context) -> None:
    """Three series make three tables; the p of all of them are adjusted together."""
    counts = context.source.last_counts
    third = counts[counts["series"] == "iac"].assign(series="third", n_correct=6)
    series = (*context.series, replace(context.series[1], name="third"))
    made = pairs(
        replace(context, source=replace(context.source, series=series, last_counts=pd.concat([counts, third])))
    )
    rows = [row for pair in made for row in pair.rows]
    assert len(made) == 3
    assert len(rows) == 9
    least = min(rows, key=lambda row: row.p or 1.0)
    assert least.p is not None
    assert least.p_adjusted == pytest.approx(min(1.0, 9 * least.p))
    table = pair_table(made[0], n_pairs=3)
    assert isinstance(table, Table)
    assert "all 3 pairs of series" in table.note
    assert table.folded


def test_holm_never_makes_a_p_smaller(context: Context) -> None:
    for row in table_of(section_of(context)).rows:
        p, adjusted = row[4].sort, row[5].sort
        assert p is not None
        assert adjusted is not None
        assert adjusted >= p


def test_no_difference_is_called_none_and_never_a_peak(context: Context) -> None:
    lead = section_of(context).lead
    assert lead[0].startswith("At the last checkpoint of each, iac and grpo show no difference for k = 1 to 4 (least")
    assert lead[1].startswith("These are the last checkpoints, never the best ones")
    assert lead[2].startswith("One training seed each")


def test_different_bases_are_said(context: Context) -> None:
    first, second = context.series
    moved = second.checkpoints.assign(checkpoint_id=second.checkpoints["checkpoint_id"].replace("base-0", "other-base"))
    other = replace(context.source, series=(first, replace(second, checkpoints=moved)))
    assert any("start from different bases" in text for text in section_of(replace(context, source=other)).lead)
    assert not any("start from different bases" in text for text in section_of(context).lead)


def test_a_planted_difference_is_found_and_said(context: Context) -> None:
    counts = context.source.last_counts
    planted = counts.assign(n_correct=(counts["series"] == "iac") * 4)
    (pair,) = pairs(replace(context, source=replace(context.source, last_counts=planted)))
    assert pair_sentence(pair) == (
        "At the last checkpoint of each, iac lies above grpo for k = 1 to 4 (most at k = 4: +98.6 points)."
    )


def test_problems_that_only_one_series_has_are_left_out(context: Context) -> None:
    counts = context.source.last_counts
    fewer = pd.concat([counts[counts["series"] == "grpo"], counts[counts["series"] == "iac"].iloc[:5]])
    (pair,) = pairs(replace(context, source=replace(context.source, last_counts=fewer)))
    assert {row.n_problems for row in pair.rows} == {5}
    (none,) = pairs(replace(context, source=replace(context.source, last_counts=counts[counts["series"] == "iac"])))
    assert pair_sentence(none).endswith("no problem has samples at the last checkpoint of both.")


def test_different_settings_are_refused_by_name_with_both_values(context: Context) -> None:
    section = section_of(differing(context, temperature=0.6, max_tokens=32))
    assert section.lead == (
        "The series were not audited alike and are not compared: temperature and max_tokens differ.",
    )
    (missing,) = section.blocks
    assert isinstance(missing, Missing)
    assert missing.why[:2] == ("temperature: grpo 1, iac 0.6", "max_tokens: grpo 16, iac 32")
    assert "--allow" in missing.why[-1]


def test_a_seed_is_not_a_difference(context: Context) -> None:
    assert differences(differing(context, seed=8).series) == ()
    assert differences(context.series) == ()


def test_graders_and_problem_sets_are_differences(context: Context) -> None:
    first, second = context.series
    found = differences(
        (first, replace(second, graders=("math",), problem_ids=frozenset(list(second.problem_ids)[:5])))
    )
    assert [difference.text for difference in found] == [
        "graders: grpo exact, iac math",
        "problems: grpo 12 problems (5 shared), iac 5 problems (5 shared)",
    ]


def test_series_that_were_not_audited_alike_are_said_so_wherever_they_stand_together(context: Context) -> None:
    page = build_page(differing(context, temperature=0.6))
    (limit,) = [text for text in page.headline.limits if "through training alone" in text]
    assert "the series were not audited alike: temperature: grpo 1, iac 0.6" in limit
    (beside,) = [section for section in page.sections if section.section_id == "published"]
    assert any(text.startswith("Not to be read against each other: the series were not") for text in beside.lead)
    alike = build_page(context)
    assert not any("audited alike" in text for text in alike.headline.limits)
    assert not any("audited alike" in text for section in alike.sections for text in section.lead)


def test_what_was_allowed_is_compared_and_said(context: Context) -> None:
    section = section_of(differing(context, allow=True, temperature=0.6))
    assert section.lead[0] == (
        "Compared because --allow was given, although the series were not audited alike (temperature: grpo 1, iac "
        "0.6): what differs below may come from that."
    )
    assert table_of(section).rows


@pytest.fixture
def mixed_store(store_of: Callable[..., Path]) -> Path:
    """A store whose second series was sampled at another temperature: its settings row is its own."""
    path = store_of()
    with Store.open(path) as store:
        database = store._database
        database.rows(
            "INSERT INTO settings SELECT 'other', * EXCLUDE (settings_id) REPLACE (0.6 AS temperature) FROM settings"
        )
        database.rows("UPDATE audits SET settings_id = 'other' WHERE series = 'iac'")
    return path


def test_named_series_that_differ_are_an_error_with_a_mend(
    mixed_store: Path, tmp_path: Path, measures: tuple[Measure, ...]
) -> None:
    with pytest.raises(StoreError, match=r"temperature: grpo 1, iac 0\.6.*--allow") as caught:
        build_report(mixed_store, tmp_path / "report.html", series=("grpo", "iac"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()
    with Store.open(mixed_store, read_only=True) as store:
        page: Page = load_page(store, measures, store_name="audit.duckdb", series=("grpo", "iac"), allow=True)
    (section,) = [s for s in page.sections if s.section_id == "compare"]
    assert section.lead[0].startswith("Compared because --allow was given")


def test_a_report_of_everything_refuses_inside(mixed_store: Path, measures: tuple[Measure, ...]) -> None:
    with Store.open(mixed_store, read_only=True) as store:
        page = load_page(store, measures, store_name="audit.duckdb")
    (section,) = [s for s in page.sections if s.section_id == "compare"]
    assert section.lead == ("The series were not audited alike and are not compared: temperature differs.",)
    (missing,) = section.blocks
    assert isinstance(missing, Missing)
    assert missing.why[0] == "temperature: grpo 1, iac 0.6"
