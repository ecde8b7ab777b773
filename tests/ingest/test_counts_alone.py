"""A series with only counts of correct samples: all results that need no texts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oversharp
from oversharp.diagnostics.audit.measure import NO_TEXTS
from oversharp.diagnostics.audit.regrade import regrade
from oversharp.diagnostics.changes.lost import NO_ANSWERS, lost
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import ImportResult, import_samples
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.store import Store
from tests.ingest.formats.reading import write_lines

pytestmark = pytest.mark.slow
of_one_root = pytest.mark.xdist_group("counts")  # they share what takes seconds to make
N, STEPS = 16, (0, 20, 40)
COUNTS = {"problem": "id", "n": "n", "correct": "c", "step": "step"}
TEXTS = {"prompt": "q", "response": "a", "reward": "ok", "problem": "id", "step": "step"}


def _counts() -> list[dict[str, Any]]:
    """Sharpening: with every step, problems are solved nearly always or never."""
    rng = np.random.default_rng(0)
    rows = []
    for problem, base in enumerate(rng.uniform(0.05, 0.95, 40)):
        for step in STEPS:
            chance = float(np.clip(base + (0.02 * step if base > 0.4 else -0.02 * step), 0, 1))
            rows.append({"id": f"p{problem}", "n": N, "c": int(rng.binomial(N, chance)), "step": step})
    return rows


def _samples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"q": f"Problem {row['id']}?", "a": f"try {row['step']} {k}", "ok": int(k < row["c"]), **row}
        for row in rows
        for k in range(row["n"])
    ]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of counts with its report, and one without of samples with as many correct ones."""
    root = tmp_path_factory.mktemp("counts")
    write_lines(root / "counts.jsonl", *_counts())
    write_lines(root / "texts.jsonl", *_samples(_counts()))
    for name, fields in (("counts", COUNTS), ("texts", TEXTS)):
        config = ImportConfig(store=root / name / "audit.duckdb", map=fields, name="run")
        import_with_report = partial(oversharp.import_samples, command="oversharp import")
        result = (import_with_report if name == "counts" else import_samples)([root / f"{name}.jsonl"], config)
        assert not result.incomplete
    return root


def findings(root: Path, name: str, sql: str) -> list[tuple[Any, ...]]:
    with Store.open(root / name / "audit.duckdb", read_only=True) as store:
        return list(store.frame(sql).itertuples(index=False, name=None))


@of_one_root
def test_counts_give_the_verdict_and_the_curves_that_samples_give(root: Path) -> None:
    sql = """
        SELECT measure, step, scope, coalesce(k, 0) AS k, round(value, 9) AS value FROM findings
        WHERE value IS NOT NULL AND measure IN ('pass_at_k', 'pass_at_k_delta', 'k_star', 'cover_at_tau',
          'problems_lost', 'pass_hat_k') ORDER BY ALL
    """
    by_counts = findings(root, "counts", sql)
    assert len(by_counts) > 50
    assert by_counts == findings(root, "texts", sql)
    assert findings(root, "counts", "SELECT label FROM verdicts") == [("over_sharpened",)]


@of_one_root
def test_what_needs_texts_is_absent_and_says_so(root: Path) -> None:
    sql = f"SELECT DISTINCT measure FROM findings WHERE why = '{NO_TEXTS}'"
    absent = {measure for (measure,) in findings(root, "counts", sql)}
    read_from_texts = {
        "answer_entropy", "effective_modes", "effective_ways", "majority_at_k", "mode_rarefaction", "recurring_errors",
        "strategy_share", "looped_rate",
    }  # fmt: skip
    assert read_from_texts <= absent
    known = {measure for (measure,) in findings(root, "counts", "SELECT measure FROM findings WHERE value IS NOT NULL")}
    assert not known & absent
    assert not findings(root, "counts", "SELECT 1 FROM response_ways")


@of_one_root
def test_lost_problems_report_and_shipping_need_no_texts(root: Path) -> None:
    path = root / "counts" / "audit.duckdb"
    found = lost(path, answers=True)
    assert found.n_lost == lost(root / "texts" / "audit.duckdb").n_lost > 0
    assert (found.notes, {one.before for one in found.problems}) == ((NO_ANSWERS,), {()})
    report = (root / "counts" / "report.html").read_text(encoding="utf-8")
    assert "the imported counts" in report
    assert NO_TEXTS in report
    with Store.open(path, read_only=True) as store:
        verdict = store.verdict("run")
    assert verdict is not None
    assert verdict.shipping is not None
    with pytest.raises(ConfigError, match=r"only counts were imported; there are no responses to grade"):
        regrade(path, "math")


def imported(tmp_path: Path, rows: list[dict[str, Any]]) -> ImportResult:
    path = write_lines(tmp_path / "counts.jsonl", *rows)
    return import_samples([path], ImportConfig(store=tmp_path / "audit.duckdb", map=COUNTS))


@pytest.mark.usefixtures("few_measures")
def test_equal_counts_are_no_copies(tmp_path: Path) -> None:
    rows = [{"id": f"p{p}", "n": 8, "c": 4 if p % 2 else 8, "step": step} for p in range(30) for step in (0, 10, 20)]
    result = imported(tmp_path, rows)
    assert not result.incomplete
    (series,) = result.series
    assert series.verdict is not None
    assert not series.verdict.left_out


@pytest.mark.usefixtures("few_measures")
def test_a_part_of_more_counted_samples_is_a_random_one(tmp_path: Path) -> None:
    """The base has 256 samples of each problem and 128 are right; the first 16 that are compared are half right."""
    rows = [{"id": f"p{p}", "n": n, "c": n // 2, "step": step} for p in range(40) for step, n in ((0, 256), (10, 16))]
    assert not imported(tmp_path, rows).incomplete
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        counts = store.frame("SELECT n, n_correct FROM problem_counts WHERE step = 0")
        assert set(counts["n"]) == {16}
        assert 0.4 < counts["n_correct"].sum() / counts["n"].sum() < 0.6
        assert counts["n_correct"].nunique() > 3
        whole = store.frame("SELECT DISTINCT n, n_correct FROM sampled_counts WHERE step = 0")
        assert whole.to_numpy().tolist() == [[256, 128]]


@pytest.mark.usefixtures("few_measures")
def test_rows_that_are_not_sorted_by_step_are_no_fault(tmp_path: Path) -> None:
    rows = sorted(_samples(_counts()), key=lambda row: (row["id"], -row["step"]))
    path = write_lines(tmp_path / "texts.jsonl", *rows)
    result = import_samples([path], ImportConfig(store=tmp_path / "audit.duckdb", map=TEXTS))
    assert not result.incomplete
    assert result.series[0].steps == STEPS


@pytest.mark.usefixtures("few_measures")
def test_a_step_that_is_named_counts_whatever_the_folder_is_called(tmp_path: Path) -> None:
    (tmp_path / "run-3").mkdir()
    path = write_lines(tmp_path / "run-3" / "all_2024.jsonl", *_samples(_counts()))
    result = import_samples([path], ImportConfig(store=tmp_path / "audit.duckdb", map=TEXTS))
    assert not result.incomplete
    assert result.series[0].steps == STEPS
