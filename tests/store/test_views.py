"""The documented relations, and the examples that query them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest

from oversharp import open_store
from oversharp.diagnostics.measures import FORMER_NAMES
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.schema import script
from oversharp.diagnostics.store.views import (
    NO_UNIT,
    PAGE,
    common_columns,
    documented_views,
    meaning_of,
    store_columns,
    views_page,
)

ROOT = Path(__file__).resolve().parents[2]
#: A heading with a number, and the query under it.
EXAMPLE = re.compile(r"^## \d+\. (.+?)\n.*?```sql\n(.+?)```", re.MULTILINE | re.DOTALL)
EXAMPLES = EXAMPLE.findall((ROOT / "docs" / "queries.md").read_text(encoding="utf-8"))


def test_the_page_in_the_tree_is_the_one_that_the_code_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == views_page(), (
        "docs/views.md is out of date; run: python -m oversharp.diagnostics.store.views"
    )


def test_every_view_of_a_store_is_documented_and_no_column_is_missing_or_gone() -> None:
    columns = store_columns()
    held = {str(name): set(own["column"]) for name, own in columns.groupby("name")}
    documented = set(documented_views())
    script = (ROOT / "diagnostics" / "store" / "views.sql").read_text(encoding="utf-8")
    views = re.findall(r"CREATE OR REPLACE (?:TEMP )?VIEW (\w+)", script)
    assert len(views) == len(set(views))
    assert len(views) > 15
    assert set(views) <= documented <= set(held)
    for view in documented_views().values():
        assert all(meaning_of(view.name, column).text for column in held[view.name])
        assert set(view.columns) <= held[view.name], view.name
    assert set(common_columns()) <= set().union(*held.values())


def test_the_comments_are_sql_that_duckdb_accepts() -> None:
    scripts = [
        (ROOT / "diagnostics" / "store" / name).read_text(encoding="utf-8") for name in ("tables.sql", "views.sql")
    ]
    comments = [line for script in scripts for line in script.splitlines() if line.startswith("COMMENT ON ")]
    with duckdb.connect() as connection:
        for name in ("tables.sql", "views.sql"):
            connection.execute(script(name).partition("CREATE OR REPLACE TEMP VIEW")[0])
        kept = [one for one in comments if not re.search(r" (every_view|response_tokens|\w+_tokens)\b", one)]
        assert len(kept) > 150
        for one in kept:
            connection.execute(one)
        ((told,),) = connection.execute(
            "SELECT comment FROM duckdb_columns() WHERE table_name = 'findings' AND column_name = 'k'"
        ).fetchall()
    assert told == f"{meaning_of('findings', 'k').text} [samples]"


def test_renamed_measures_can_be_looked_up_by_their_former_names(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        renamed = store.frame("FROM renamed_measures")
    assert dict(zip(renamed["formerly"], renamed["measure"], strict=True)) == FORMER_NAMES


def _with_document(store: Store, document: str) -> None:
    store._database.rows("INSERT INTO series VALUES ('run', '/x', 'hf')")
    store._database.rows("""
        INSERT INTO audits BY NAME
        SELECT 'a' AS audit_id, 'run' AS series, 's' AS settings_id, 1 AS n, 1 AS n_base, 0 AS entropy_samples,
               [1] AS ks, '' AS strategy_regex, now()::TIMESTAMP AS updated_at, '{}' AS provenance, 0 AS panel,
               0 AS kernel_problems, 0 AS kernel_responses, 1 AS runs
    """)
    said = ["a", "no_verdict", "No verdict.", None, None, None, None, document]
    store._database.rows("INSERT INTO audit_verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", said)


def test_claims_and_checkpoints_of_a_verdict_are_rows(tmp_path: Path) -> None:
    size = {"value": -0.05, "low": -0.08, "high": None}
    claims = [
        {"name": "fall", "null": "pass@k fell at no k", "scope": "all", "p": 0.01, "level": 0.03, "holds": True,
         "size": size, "why": None},
        {"name": "collapse", "holds": False, "why": "no problem shows a second mode", "later": 3},
    ]  # fmt: skip
    steps = [{"step": 20, "checkpoint": "checkpoint-20", "lost": True, "kept": None, "k": 8, "change": -0.05}]
    steps[0] |= {"cause": "format", "is_of_population": True}
    with Store.open(tmp_path / "audit.duckdb") as store:
        gone = [{"step": None, "checkpoint": "checkpoint-40", "why": "model.safetensors is cut short"}]
        _with_document(store, json.dumps({"claims": claims, "steps": steps, "left_out": gone}))
        known, unknown = store.frame("FROM verdict_claims").astype(object).replace({np.nan: None}).to_dict("records")
        step, broken = store.frame("FROM checkpoint_verdicts").astype(object).replace({np.nan: None}).to_dict("records")
    assert known == {
        "series": "run", "name": "fall", "null_hypothesis": "pass@k fell at no k", "scope": "all", "p": 0.01,
        "level": 0.03, "holds": True, "size": -0.05, "low": -0.08, "high": None, "why": None,
    }  # fmt: skip
    assert (unknown["name"], unknown["p"], unknown["size"]) == ("collapse", None, None)
    assert unknown["why"] == "no problem shows a second mode"
    assert step == {
        "series": "run", "step": 20, "checkpoint": "checkpoint-20", "lost": True, "is_of_population": True,
        "kept": None, "k": 8, "change": -0.05, "low": None, "high": None, "cause": "format", "why": None,
    }  # fmt: skip
    unsaid = dict.fromkeys(["step", "lost", "is_of_population", "kept", "k", "change", "low", "high", "cause"])
    told = "left out: model.safetensors is cut short"
    assert broken == {"series": "run", "checkpoint": "checkpoint-40", **unsaid, "why": told}


@pytest.mark.parametrize("document", ["{}", '{"claims": [], "steps": []}', '{"claims": null, "steps": "none"}'])
def test_verdicts_of_before_have_no_claims(tmp_path: Path, document: str) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        _with_document(store, document)
        assert store.frame("FROM verdict_claims").empty
        assert store.frame("FROM checkpoint_verdicts").empty


def test_numbers_have_units() -> None:
    columns = store_columns()
    numbers = columns[columns["type"].isin(["DOUBLE", "FLOAT[]"])]
    for row in numbers.itertuples():
        if row.name in documented_views():
            assert meaning_of(row.name, row.column).unit != NO_UNIT, f"{row.name}.{row.column}"


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
@pytest.mark.parametrize(("question", "query"), EXAMPLES, ids=[question for question, _ in EXAMPLES])
def test_every_example_returns_rows_of_a_real_store_and_stands_on_documented_relations_alone(
    audited_store: Path, question: str, query: str
) -> None:
    assert len(EXAMPLES) > 10
    with open_store(audited_store) as store:
        assert len(store.frame(query)), question
    named = set(re.findall(r"(?:FROM|JOIN) (\w+)", query)) - set(re.findall(r"(\w+) AS \(", query))
    assert named <= set(documented_views()), question
