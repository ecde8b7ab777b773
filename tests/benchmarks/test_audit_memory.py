"""What processes hold is seen while they hold it, by kind and in all, and goes to the stage that was going on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.speed.audit_memory import findings_digest, stage_peaks, write_beside
from benchmarks.speed.process_memory import Held, Look, Said, memory_of
from oversharp.diagnostics.store import Store

HOLDING = """
import subprocess, sys, time
held = bytearray(b"x") * (80 << 20)
child = "import time\\nheld = bytearray(b'x') * (120 << 20)\\ntime.sleep(1.5)"
subprocess.run([sys.executable, "-c", child, "vllm_process"], check=True)
print("sample base: 3 done", flush=True)
"""


@pytest.mark.slow
def test_what_a_command_and_its_children_hold_is_seen_by_kind_and_together(tmp_path: Path) -> None:
    held = memory_of([sys.executable, "-c", HOLDING], tmp_path / "log")
    peaks = held.peaks()
    assert held.exit_code == 0
    assert peaks["audit"] == pytest.approx(80 / 1024, abs=0.03)
    assert peaks["engine"] == pytest.approx(120 / 1024, abs=0.03)
    assert peaks["sum"] >= 200 / 1024
    assert (tmp_path / "log").read_text() == "sample base: 3 done\n"
    assert stage_peaks(held)["sample"]["engine"] == round(peaks["engine"], 3)


def test_a_peak_belongs_to_the_stage_that_ends_after_it_and_the_largest_of_a_name_counts() -> None:
    held = Held(
        looks=tuple(
            Look(at_s=at_s, largest_gib={"audit": gib}, sum_gib=2 * gib)
            for at_s, gib in ((1, 1.0), (3, 3.0), (5, 2.0), (7, 0.5))
        ),
        lines=(
            Said(at_s=2, text="sample base: 72 done"),
            Said(at_s=3, text="04:09 kernel base: 0 of 32 after 1 min"),
            Said(at_s=4, text="kernel base: 32 done"),
            Said(at_s=6, text="sample checkpoint-1: 72 done"),
        ),
        exit_code=0,
        cpu_s=1.0,
        wall_s=8.0,
    )
    assert stage_peaks(held) == {
        "sample": {"audit": 2.0, "sum": 4.0},
        "kernel": {"audit": 3.0, "sum": 6.0},
        "after": {"audit": 0.5, "sum": 1.0},
    }


@pytest.mark.slow
def test_two_stores_that_found_the_same_have_one_digest(tmp_path: Path) -> None:
    for name in ("one", "other"):
        Store.open(tmp_path / name / "audit.duckdb").close()
    digests = {findings_digest(tmp_path / name / "audit.duckdb") for name in ("one", "other")}
    assert len(digests) == 1


def test_a_case_that_is_measured_stands_beside_the_others_whatever_stops_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit_memory.json"
    for case, gib in (("smollm2-full", 2.0), ("smollm2", 1.0), ("smollm2-full", 3.0)):
        write_beside({"case": case, "largest_process_gib": gib}, path)
    rows = json.loads(path.read_text())["cases"]
    assert [(row["case"], row["largest_process_gib"]) for row in rows] == [("smollm2", 1.0), ("smollm2-full", 3.0)]
