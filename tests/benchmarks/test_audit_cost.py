"""The measured table of ``oversharp plan --cost``: what it is made of, and that the code has what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.speed.audit_cost import measured_rates, stage_cpu_s
from benchmarks.speed.process_costs import Line
from benchmarks.speed.results import digits
from oversharp.diagnostics.audit.cost.machines import MEASURED
from oversharp.diagnostics.audit.cost.shapes import ModelShape

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: 10 operations a token without attention.
SHAPE = ModelShape(
    name="m",
    parameters=5,
    product_parameters=5,
    layers=0,
    hidden_size=10,
    attention_width=0,
    kv_bytes=None,
    context=None,
    experts=False,
    shares_prompts=True,
)
LINES = (
    Line(text="series run: 2 checkpoints, base checkpoint-0", cpu_s=4.0, memory_gib=1.0),
    Line(text="15:20 sample checkpoint-0: 0 of 1,020 after 1 min", cpu_s=30.0, memory_gib=1.0),
    Line(text="sample checkpoint-0: 1,020 done", cpu_s=40.0, memory_gib=1.0),
    Line(text="control T=0.6 checkpoint-0: 10 done", cpu_s=42.0, memory_gib=1.0),
    Line(text="teacher-force checkpoint-0: 8 done", cpu_s=43.0, memory_gib=1.0),
    Line(text="sample checkpoint-12: 10 done", cpu_s=46.0, memory_gib=1.0),
    Line(text="kernel checkpoint-0: 8 done", cpu_s=50.0, memory_gib=1.0),
)
COUNTED = {
    "prompt_tokens": 4.0,
    "response_tokens": 2.0,
    "drawn_tokens": 1000.0,
    "scored_rows": 8.0,
    "scored_prompts": 3.0,
    "kernel_rows": 8.0,
}


def test_a_stage_takes_what_was_taken_since_the_one_before_it_ended() -> None:
    assert stage_cpu_s(LINES) == [
        ("sample", 40.0),
        ("control", 2.0),
        ("teacher-force", 1.0),
        ("sample", 3.0),
        ("kernel", 4.0),
    ]


def test_rates_are_operations_over_seconds() -> None:
    # 1,000 tokens of 10 operations in 40 + 2 + 3 s; 8 responses of 2 tokens to 3 prompts of 4 were scored; rows of a
    # kernel have 6
    assert measured_rates(stage_cpu_s(LINES), 56.0, SHAPE, COUNTED) == {
        "sampling_flop": digits(10_000 / 45),
        "scoring_flop": (8 * 2 + 3 * 4) * 10 / 1.0,
        "kernel_flop": 3 * 8 * 60 / 4.0,
        "end_s": 6.0,
    }


def test_an_audit_that_did_not_end_gives_no_rates() -> None:
    with pytest.raises(ValueError, match="no stage kernel was seen to end"):
        measured_rates(stage_cpu_s(LINES[:-1]), 56.0, SHAPE, COUNTED)


def test_the_code_has_the_rates_that_were_measured() -> None:
    result = json.loads((RESULTS / "audit_cost.json").read_text())
    measured = result["rates"]
    assert {name: value for name, value in asdict(MEASURED).items() if name in measured} == measured
    assert asdict(MEASURED.speed) == result["speed"]
    grades = json.loads((RESULTS / "verification.json").read_text())
    stored = json.loads((RESULTS / "large_import.json").read_text())
    added = 1 / grades["samples_per_s"] + stored["stages"]["import"]["cpu_s"] / stored["samples"]
    assert pytest.approx(added, rel=0.05) == MEASURED.sample_s
