"""The benchmark of the statistics compares the same counts, and would see if they differed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.speed import count_statistics

pytestmark = pytest.mark.slow

SMALL = replace(count_statistics.SAMPLED, n_problems=12, n_checkpoints=3, n=4)


def test_both_ways_of_counting_agree_and_a_difference_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_statistics, "SAMPLED", SMALL)
    path = tmp_path / "audit.duckdb"
    count_statistics.write_sampled(path)
    ours = count_statistics.count_by_store(path)
    count_statistics.count_by_pandas(path)
    assert ours["rows"] == 12 * (8 + 2 * 4)
    assert count_statistics.same_counts(path)
    by_hand = pd.read_parquet(tmp_path / "pandas.parquet")
    by_hand.loc[3, "n_correct"] += 1
    by_hand.to_parquet(tmp_path / "pandas.parquet")
    assert not count_statistics.same_counts(path)


def test_every_measure_of_counts_is_timed_and_the_verdict_finds_the_loss() -> None:
    plan = replace(count_statistics.COUNTED, n_problems=200, n_checkpoints=5, n=64)
    result = count_statistics.measure_statistics(plan)
    assert {"pass_at_k", "pass_at_k_band", "k_star", "problems_lost", "answer_entropy", "verdict"} <= set(
        result["parts_cpu_s"]
    )
    assert result["label"] == "over_sharpened"
