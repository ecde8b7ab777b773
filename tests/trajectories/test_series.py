"""A series of trajectories, from the dump to findings and report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import oversharp
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.store import Store
from oversharp.reports import build_report
from oversharp.reports.evidence.source import read_source
from oversharp.reports.findings.figures import measure_block
from oversharp.reports.records import Figure

N, PROBLEMS, STEPS = 4, 4, (1, 2)
TOOLS = ("calls_per_sample", "call_sequences", "invalid_calls", "pass_at_k_turns", "repeated_calls", "tool_use")


def message(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": text,
        "name": None,
        "tool_calls": [
            {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in calls
        ]
        or None,
    }


def observation(name: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "name": name, "tool_calls": None}


def completion(step: int, sample: int) -> tuple[list[dict[str, Any]], float]:
    """At step 1 half of the samples use the tool ``add``; at step 2 all call ``look`` three times, in vain."""
    if step == 2:
        look = [message("", ("look", {"key": "x"})), observation("look", "nothing")]
        return [*look * 3, message(r"So \boxed{7}")], float(sample < 2)
    if sample % 2:
        return [message(f"It is {sample}. " + r"\boxed{7}")], 1.0
    calls = message("I add.", ("add", {"a": 3, "b": sample}), ("add", {"a": 1, "b": 2}))
    return [calls, observation("add", "7"), observation("add", "3"), message(r"\boxed{7}")], 1.0


def imported(folder: Path, complete: Callable[[int, int], tuple[list[dict[str, Any]], float]]) -> Path:
    """Write a dump in TRL's layout, and import it."""
    dump = folder / folder.name / "completions"
    dump.mkdir(parents=True)
    for step in STEPS:
        rows = []
        for problem in range(PROBLEMS):
            for sample in range(N):
                turns, reward = complete(step, sample)
                prompt = [{"role": "user", "content": f"{problem}: 3 plus 4?"}]
                turns[-1]["content"] += " " * (10 * problem + sample)
                rows.append({"step": step, "prompt": prompt, "completion": turns, "reward": reward, "advantage": 0.0})
        parquet.write_table(pa.Table.from_pylist(rows), dump / f"completions_{step:05d}.parquet")
    path = folder / "out" / "audit.duckdb"
    import_samples([dump.parent], ImportConfig(store=path, reward="reward"))
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a dump in TRL's layout."""
    return imported(tmp_path_factory.mktemp("agent"), completion)


def findings(store: Path, measure: str) -> dict[tuple[int, str], float]:
    with Store.open(store, read_only=True) as opened:
        rows = opened.frame("SELECT * FROM findings WHERE measure = $measure AND coalesce(k, 1) = 1", measure=measure)
    return {(int(row.step), str(row.scope)): float(row.value) for row in rows.itertuples() if row.value == row.value}


@pytest.mark.slow
def test_turns_and_calls_are_in_the_views(store: Path) -> None:
    with Store.open(store, read_only=True) as opened:
        turns = opened.frame("SELECT role, count(*) AS n FROM turns WHERE step = 1 GROUP BY ALL ORDER BY ALL")
        calls = opened.frame("SELECT * FROM calls WHERE step = 1 AND sample_index = 2 AND turn = 0 ORDER BY call")
        texts = opened.frame("SELECT text FROM graded_samples WHERE step = 1 AND sample_index = 2")["text"]
    assert turns.values.tolist() == [["assistant", 2 * 2 * PROBLEMS], ["tool", 2 * 2 * PROBLEMS]]
    assert [json.loads(text) for text in calls["arguments"][:2]] == [{"a": 3, "b": 2}] * 2
    assert sorted(calls["observation"]) == ["3"] * PROBLEMS + ["7"] * PROBLEMS
    assert not texts.str.contains("7\n").any(), "observations are no text of the model"
    assert texts.str.contains('add({"a": 3, "b": 2})', regex=False).all()


@pytest.mark.slow
def test_measures_of_turns_and_calls(store: Path) -> None:
    assert findings(store, "calls_per_sample") == {
        **{(1, "all"): 1.0, (1, "correct"): 1.0},
        **{(2, scope): 3.0 for scope in ("all", "correct", "not_correct")},
    }
    assert findings(store, "tool_use") == {(1, "add"): 0.5, (1, "look"): 0.0, (2, "add"): 0.0, (2, "look"): 1.0}
    assert findings(store, "repeated_calls") == {(1, "all"): 0.0, (2, "all"): 1.0}
    assert findings(store, "invalid_calls") == {(1, "all"): 0.0, (2, "all"): 0.0}
    assert findings(store, "call_sequences") == {
        **{(1, "tools"): 2.0, (1, "calls"): 3.0},  # two samples with calls, two without
        **{(2, "tools"): 1.0, (2, "calls"): 1.0},
    }
    within = findings(store, "pass_at_k_turns")
    assert within == pytest.approx(
        {
            **{(1, "T=1"): 0.5, (1, "T=2"): 1.0, (1, "T=3"): 1.0, (1, "T=4"): 1.0},
            **{(2, "T=1"): 0.0, (2, "T=2"): 0.0, (2, "T=3"): 0.0, (2, "T=4"): 0.5},
        }
    )


@pytest.mark.slow
def test_the_report_names_the_tool_whose_use_changed_most(store: Path) -> None:
    page = build_report(store, store.parent / "report.html").read_text(encoding="utf-8")
    assert "Turns and tool calls" in page
    assert "Calls per sample went from 1.00 to 3.00. The tool whose use changed most is look" in page
    assert "Pass@k within T turns of the model" in page


@pytest.mark.slow
def test_a_series_of_plain_responses_has_no_findings_of_tools(tmp_path: Path) -> None:
    rows = [
        {"p": f"{problem}?", "r": rf"{sample} \boxed{{7}}", "g": "7", "s": step}
        for step in STEPS
        for problem in range(PROBLEMS)
        for sample in range(N)
    ]
    dump = tmp_path / "dump.jsonl"
    dump.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    path = tmp_path / "out" / "audit.duckdb"
    import_samples([dump], ImportConfig(store=path, map={"prompt": "p", "response": "r", "gold": "g", "step": "s"}))
    with oversharp.open_store(path) as opened:
        known = set(opened.frame("SELECT DISTINCT measure FROM findings")["measure"])
    assert not known & set(TOOLS)
    assert "Turns and tool calls" not in build_report(path, tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_merged_and_dropped_series_keep_exactly_their_trajectories(store: Path, tmp_path: Path) -> None:
    def ids(path: Path) -> set[str]:
        with Store.open(path, read_only=True) as opened:
            return set(opened.frame("SELECT response_id FROM trajectories")["response_id"])

    def stop(step: int, sample: int) -> tuple[list[dict[str, Any]], float]:
        return [message("", ("stop", {"at": step})), observation("stop", "ok"), message("done")], 1.0

    other = imported(tmp_path / "other", stop)
    merged = tmp_path / "merged" / "audit.duckdb"
    oversharp.merge([store, other], merged.parent)
    assert ids(merged) == ids(store) | ids(other)
    assert len(ids(other)) == len(STEPS) * PROBLEMS * N
    oversharp.drop(merged, "other")
    assert ids(merged) == ids(store)


@pytest.mark.slow
def test_the_figure_of_pass_at_k_within_turns_has_one_value_per_step_and_line(store: Path) -> None:
    with Store.open(store, read_only=True) as opened:
        source = read_source(opened, "store", None)
    block = measure_block(source, get_measure("pass_at_k_turns"))
    assert isinstance(block, Figure)
    lines = [line for panel in block.panels for line in panel.lines]
    assert [line.label for line in lines] == ["T=1", "T=2", "T=3", "T=4"]
    assert {line.x for line in lines} == {tuple(map(float, STEPS))}
