"""Several series side by side: paired, never at their best, and not at all where they were audited differently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from diagnostics.errors import StoreError
from diagnostics.measures.contract import Measure
from diagnostics.store import Store
from reports import build_report
from reports.comparable import differences
from reports.context import Context
from reports.page import load_page
from reports.pairs import pair_sentence, pairs
from reports.records import Missing, Page, Section, Table
from reports.sections.compare import compare


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
    assert at_1[:4] == ["mini", "1", "0.354", "0.333"]
    assert at_1[4].startswith("−2.1 [")
    assert at_1[-1] == "12"
    assert [row[1].text for row in table.rows] == ["1", "2", "4"]


def test_holm_never_makes_a_p_smaller(context: Context) -> None:
    for row in table_of(section_of(context)).rows:
        p, adjusted = row[5].sort, row[6].sort
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


def test_what_was_allowed_is_compared_and_said(context: Context) -> None:
    section = section_of(differing(context, allow=True, temperature=0.6))
    assert section.lead[0] == (
        "Compared because --allow was given, although the series were not audited alike (temperature: grpo 1, iac "
        "0.6): what differs below may come from that."
    )
    assert table_of(section).rows


@pytest.fixture
def mixed_store(page_of: Any, tmp_path: Path) -> Path:
    """A store whose second series was sampled at another temperature: its settings row is its own."""
    page_of()
    path = tmp_path / "audit.duckdb"
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


def test_a_report_of_everything_refuses_inside_and_is_written(mixed_store: Path, tmp_path: Path) -> None:
    text = build_report(mixed_store, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The series were not audited alike and are not compared: temperature differs." in text
    assert "temperature: grpo 1, iac 0.6" in text
