"""Intervals beyond the cap: the benchmark in small, its published coverage, and a fault that it notices."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.sampling import beyond
from benchmarks.sampling.beyond import DESIGNS, Design, page, simulate
from benchmarks.sampling.rates import HELD_OUT, PAIRS, UNCHANGED
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.statistics.stopping import StoppingRule

SMALL = Design(name="small", samples=StoppingRule.doubling(first=16, cap=32, enough=4), cap=32, n_problems=30)


def read_rows() -> list[dict]:
    return json.loads((RESULTS / "beyond.json").read_text(encoding="utf-8"))["rows"]


def test_published_intervals_contain_the_change() -> None:
    rows = read_rows()
    assert {row["pair"] for row in rows} == {*PAIRS, *HELD_OUT}
    assert {(row["design"], row["cap"]) for row in rows} == {(design.name, design.cap) for design in DESIGNS}
    for design in DESIGNS:
        own = [row for row in rows if (row["design"], row["cap"]) == (design.name, design.cap)]
        assert sum(row["covered"] for row in own) > 0.95 * sum(row["audits"] for row in own)
        unfallen = [row for row in own if row["pair"] in UNCHANGED]
        assert sum(row["false_falls"] for row in unfallen) <= 0.025 * sum(row["audits"] for row in unfallen)


@pytest.mark.slow
def test_a_small_simulation_counts_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = simulate(SMALL, "mixed, sharpened, 10 % lost", PAIRS["mixed, sharpened, 10 % lost"], audits=4, seed=[1])
    assert (clean.audits, clean.k, clean.cap) == (4, 64, 32)
    assert clean.covered >= 3
    assert clean.width > 5
    monkeypatch.setattr(beyond, "interval_beyond", lambda *_: (0.04, 0.05))  # the planted fault: wrong and narrow
    fault = simulate(SMALL, "mixed, sharpened, 10 % lost", PAIRS["mixed, sharpened, 10 % lost"], audits=4, seed=[1])
    assert (fault.covered, fault.reported, fault.found) == (0, 4, 0)
    assert fault.width == pytest.approx(1.0)


def test_the_page_has_a_row_of_each_design_and_of_its_unchanged_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beyond, "interval_beyond", lambda *_: (-0.05, 0.05))
    row = simulate(SMALL, "mixed, unchanged", PAIRS["mixed, unchanged"], audits=2, seed=[1])
    assert (row.covered, row.unfallen, row.false_falls, row.change) == (2, 2, 0, 0.0)
    text = page([row], audits=2)
    assert "| small | 32 | 64 | 1 | 2 | 100.0 (100) | 10.0 | 100.0 | 100.0 | – | 0.0 |" in text
    assert "| mixed, unchanged | +0.0 | 100 | 10.0 | 100 | 0 of 0 | 0 of 2 |" in text


def test_rates_on_the_way_are_those_of_the_base_and_of_the_last_checkpoint_at_its_ends() -> None:
    base_P, last_P = np.array([0.1, 0.5]), np.array([0.5, 0.0])
    assert beyond.move_rates(base_P, last_P, 1.0).tolist() == last_P.tolist()
    assert beyond.move_rates(base_P, last_P, 0.0) == pytest.approx(base_P)
    assert beyond.move_rates(base_P, last_P, 0.5)[0] == pytest.approx(0.25)  # odds of 1/9 and 1: 1/3
