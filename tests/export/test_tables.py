from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.export.tables import findings, findings_markdown, verdicts, verdicts_markdown, write_table
from oversharp.diagnostics.records.cells import unquote_formula

pytestmark = pytest.mark.xdist_group("audited_store")

ROW = {"series": "a|b", "checkpoint": "c", "measure": "pass_at_k", "unit": "probability", "scope": "all"}
BOUNDS = {"low": None, "high": None, "why": None, "interval_over": None, "why_no_interval": None}


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, **BOUNDS, **row} for row in rows]).astype({"k": "Int64"})


@pytest.mark.slow
def test_every_finding_is_in_every_file_with_all_its_digits(audited_store: Path, tmp_path: Path) -> None:
    with open_store(audited_store) as store:
        held = store.frame("FROM findings")
        taken = findings(store, ["iac, seed 1", "grpo"])
    assert len(taken) == len(held) > 100
    assert list(taken["series"].unique()) == ["iac, seed 1", "grpo"]
    assert set(taken.columns) == set(held.columns)
    write_table(taken, tmp_path / "f.csv", "csv")
    write_table(taken, tmp_path / "f.parquet", "parquet")
    from_csv = pd.read_csv(tmp_path / "f.csv").astype({"k": "Int64", "n": "Int64"})
    from_parquet = pd.read_parquet(tmp_path / "f.parquet")
    # a column without a value has no type in a text file
    typed = {"interval_over": "string", "why_no_interval": "string"}
    for read in (from_csv, from_parquet):
        pd.testing.assert_frame_equal(read.astype(typed), taken.astype(typed), check_dtype=False, rtol=0, atol=0)


@pytest.mark.slow
def test_only_the_named_series_are_taken(audited_store: Path) -> None:
    with open_store(audited_store) as store:
        assert set(findings(store, ["grpo"])["series"]) == {"grpo"}
        assert verdicts(store, ["grpo"])["series"].tolist() == ["grpo"]


def test_markdown_has_steps_down_and_k_across_and_says_why_a_value_is_unknown() -> None:
    text = findings_markdown(
        frame(
            {"step": 0, "k": 1, "value": 0.25, "low": 0.2, "high": 0.3},
            {"step": 0, "k": 8, "value": 0.5},
            {"step": 20, "k": 1, "value": None, "why": "left out | cut\nshort"},
        )
    )
    assert "## Pass@k\n\n`pass_at_k`, unit: probability." in text
    assert "### a\\|b" in text
    table = "| step | k = 1 | k = 8 |\n| --- | --- | --- |\n| 0 | 0.25 [0.2, 0.3] | 0.5 |\n| 20 | – |  |"
    assert table in text
    assert "– at step 20: left out \\| cut short." in text


def test_markdown_says_what_intervals_are_over_and_why_related_problems_leave_none() -> None:
    related = {"step": 0, "k": 1, "value": 0.25, "low": 0.2, "high": 0.3, "interval_over": "clusters"}
    few = {"step": 0, "k": 8, "value": 0.5, "why_no_interval": "the problems form 9 clusters"}
    text = findings_markdown(frame(related, few))
    assert "Intervals are over clusters of related problems." in text
    assert "No interval: the problems form 9 clusters." in text
    assert "luster" not in findings_markdown(frame({**related, "interval_over": "problems"}))


def test_markdown_without_k_has_one_column_of_values_and_scopes_where_there_are_some() -> None:
    rows = [{"step": 5, "k": None, "value": 1.0, "measure": "unheard_of", "scope": scope} for scope in ("all", "x")]
    text = findings_markdown(frame(*rows))
    assert "## unheard_of" in text
    assert "| step | scope | value |\n| --- | --- | --- |\n| 5 | all | 1 |\n| 5 | x | 1 |" in text


@pytest.mark.slow
def test_the_verdicts_page_has_sentence_and_numbers(audited_store: Path) -> None:
    with open_store(audited_store) as store:
        text = verdicts_markdown(verdicts(store, ["grpo", "iac, seed 1"]))
        sentence = store.frame("SELECT sentence FROM verdicts WHERE series = 'iac, seed 1'")["sentence"].iloc[0]
    assert f"- **iac, seed 1**: {sentence}" in text
    assert "| grpo | No verdict |" in text


def test_a_text_that_a_spreadsheet_would_run_is_a_text_in_csv_and_comes_back(tmp_path: Path) -> None:
    named = pd.DataFrame({"series": ["=HYPERLINK(1)", "'-1", "grpo", None], "value": [-1.0, 2.0, 3.0, 4.0]})
    write_table(named, tmp_path / "a.csv", "csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[1:] == ["'=HYPERLINK(1),-1.0", "''-1,2.0", "grpo,3.0", ",4.0"]
    read = pd.read_csv(tmp_path / "a.csv")["series"].dropna()
    assert read.map(unquote_formula).tolist() == named["series"].dropna().tolist()
