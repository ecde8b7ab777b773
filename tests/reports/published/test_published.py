"""The papers' tables as data: complete, in range, and as printed."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pandas as pd
import pytest

from oversharp.reports.published import COLUMNS, TABLES, PublishedTable, published_table, published_tables

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "reports" / "published"
RANGES = {"percent": (0.0, 100.0), "bits": (0.0, 8.0), "unstated": (0.0, 1.0)}  # log₂ of 256 responses is 8


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return published_tables()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file_name)
def test_every_file_says_what_it_is_and_holds_nothing_else(table: PublishedTable) -> None:
    first, second, *_ = (FOLDER / table.file_name).read_text(encoding="utf-8").splitlines()
    assert first.startswith(f"# [{table.paper}] ")
    assert second.startswith(f"# Table {table.number}. ")
    rows = published_table(table)
    assert tuple(rows.columns) == COLUMNS
    assert set(rows["paper"]) == {table.paper}
    assert set(rows["table"]) == {table.number}
    assert not rows.duplicated([column for column in COLUMNS if column != "value"]).any()


def test_every_file_has_a_record_and_every_record_a_file() -> None:
    assert {table.file_name for table in TABLES} == {path.name for path in FOLDER.glob("*.csv")}


def test_values_lie_in_the_range_of_their_unit(rows: pd.DataFrame) -> None:
    assert set(rows["unit"]) == set(RANGES)
    for unit, (low, high) in RANGES.items():
        values = rows.loc[rows["unit"] == unit, "value"].dropna()
        assert values.between(low, high).all()


def test_a_missing_value_has_a_reason_a_known_one_none_and_k_stands_with_metrics_at_k_alone(rows: pd.DataFrame) -> None:
    assert (rows["k"].notna() == rows["metric"].isin(["pass@k", "avg@k"])).all()
    assert (rows["value"].isna() == rows["why"].notna()).all()
    assert int(rows["value"].isna().sum()) == 8  # the AIME 2024 token entropies of [B] Table 4


def test_tables_have_a_value_for_every_cell_of_print() -> None:
    sizes = {(table.paper, table.number): len(published_table(table)) for table in TABLES}
    assert sizes == {
        ("A", 2): 15 * 7, ("A", 3): 15 * 7, ("A", 4): 8 * 4, ("A", 5): 4 * 6,
        ("B", 1): 25 * 9, ("B", 2): 9 * 9, ("B", 3): 5 * 9, ("B", 4): 16 * 3,
        ("C", 1): 9 * 8, ("C", 4): 6 * 5, ("C", 5): 3 * 4,
    }  # fmt: skip


def test_pass_at_k_never_falls_with_k(rows: pd.DataFrame) -> None:
    curves = rows[(rows["metric"] == "pass@k") & rows["paper"].isin(["B", "C"])]
    for _, curve in curves.groupby(["paper", "table", "model", "method", "benchmark"]):
        assert curve.sort_values("k")["value"].is_monotonic_increasing


def test_printed_averages_are_those_of_the_six_benchmarks(rows: pd.DataFrame) -> None:
    for _, row in rows[(rows["paper"] == "A") & rows["table"].isin([2, 3])].groupby(["table", "model", "method"]):
        average = row["benchmark"] == "average"
        assert row.loc[average, "value"].item() == pytest.approx(row.loc[~average, "value"].mean(), abs=0.011)


@pytest.mark.parametrize(
    ("paper", "table", "where", "value"),
    [
        ("A", 2, {"model": "Qwen3-14B", "method": "DrGRPO", "benchmark": "AIME24"}, 54.85),
        ("A", 3, {"model": "Qwen3-8B", "method": "IAC", "benchmark": "Minerva"}, 60.60),
        ("A", 4, {"method": "DAPO+IAC", "benchmark": "LightEval", "metric": "pass@k"}, 84.80),
        ("A", 5, {"setting": "alpha=1.5", "benchmark": "O-Bench", "metric": "avg@k"}, 52.11),
        ("A", 5, {"method": "filtering", "benchmark": "Math500", "metric": "pass@k"}, 92.06),
        ("B", 1, {"method": "GRPO-N", "benchmark": "AMC 2023", "k": 128}, 99.1),
        ("B", 1, {"method": "base", "benchmark": "ARC-c", "k": 1}, 35.4),
        ("B", 1, {"method": "GSPO-N", "benchmark": "MMLU-Pro", "k": 256}, 93.8),
        ("B", 2, {"method": "GRPO", "benchmark": "AIME 2024", "k": 256}, 40.0),
        ("B", 3, {"method": "GSPO-N", "k": 64}, 69.5),
        ("B", 4, {"model": "Llama-3.2-3B-Instruct", "method": "base", "benchmark": "AIME 2025",
                  "metric": "answer_entropy"}, 6.062),
        ("B", 4, {"model": "Qwen2.5-Math-7B", "method": "GSPO-N", "benchmark": "AMC 2023",
                  "metric": "token_entropy"}, 0.095),
        ("C", 1, {"model": "Qwen2.5-Math-7B", "method": "SELF", "benchmark": "Minerva", "k": 256}, 71.70),
        ("C", 4, {"model": "Qwen2.5-7B-Instruct-1M", "method": "GRPO", "k": 128}, 61.56),
        ("C", 5, {"model": "Qwen3-4B", "setting": "greedy"}, 91.72),
    ],
)  # fmt: skip
def test_values_are_those_in_print(
    rows: pd.DataFrame, paper: str, table: int, where: dict[str, object], value: float
) -> None:
    found = rows[(rows["paper"] == paper) & (rows["table"] == table)]
    for column, wanted in where.items():
        found = found[found[column] == wanted]
    assert found["value"].tolist() == [value]


def test_the_spread_of_table_1_is_kept(rows: pd.DataFrame) -> None:
    spread = rows[rows["plus_minus"].notna()]
    assert set(zip(spread["paper"], spread["table"], strict=True)) == {("C", 1)}
    assert spread["plus_minus"].max() == 2.12


def test_answer_entropies_can_only_be_bits(rows: pd.DataFrame) -> None:
    """More than ln 256 = 5.545 nats cannot come of 256 responses."""
    entropies = rows.loc[rows["metric"] == "answer_entropy"]
    assert set(entropies["unit"]) == {"bits"}
    assert entropies["value"].max() > 5.545


def test_the_wheel_carries_the_tables() -> None:
    """Package data are patterns within the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    patterns = settings["package-data"]["oversharp.reports"]
    names = [path.relative_to(ROOT / "reports").as_posix() for path in FOLDER.glob("*.csv")]
    assert names
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []
