"""The held-out cells: what is committed of them, what is counted as wrong, and what breaks the bound."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration.held_out import broken, fingerprint, joined, row_of, table
from benchmarks.calibration.held_out_cells import CELLS
from benchmarks.calibration.held_out_laws import Course, drifting, items, moved, shifted
from benchmarks.calibration.held_out_series import Judged, changes, drawn, judged, said_of
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.verdict.decide import verdict_of

ROWS = json.loads((RESULTS / "held_out.json").read_text())["rows"]
ROW = {"series": 1000, "wrong": {"loss": 50, "no_loss": 0, "kept": 0}, "expected": None}


@pytest.mark.slow
def test_every_cell_was_drawn_no_bound_is_broken_and_the_table_is_that_of_the_results() -> None:
    assert [row["name"] for row in ROWS] == list(CELLS)
    assert not [row["name"] for row in ROWS if broken(row)]
    assert table(ROWS) == (RESULTS / "held_out.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["items", "ways lost", "cut right", "small base lost"])
def test_what_is_judged_is_what_the_verdict_says(name: str) -> None:
    counts = drawn(CELLS[name], np.random.default_rng(3)).counts
    said, verdict = said_of(counts), verdict_of(counts)
    assert (said.label, said.steps) == (verdict.label, verdict.steps)
    assert [counts.trained[place].step for place in said.window] == list(verdict.window)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drawn_as", "true_of", "wrong"),
    [
        ("winner takes all", "items", {"loss"}),
        ("ways lost", "ways kept", {"loss"}),
        ("skills gained", "few carry it", {"no_loss", "kept"}),
    ],
)
def test_what_is_said_is_held_against_the_rates_that_were_drawn_from(drawn_as: str, true_of: str, wrong: set) -> None:
    series = drawn(CELLS[drawn_as], np.random.default_rng(0))
    said = said_of(series.counts)
    # the fault: its own rates are said to stand still, and those of its law to move as another cell's
    base_SP = np.repeat(series.course.able_SP[:1], len(series.course.able_SP), axis=0)
    planted = replace(series, course=Course(able_SP=base_SP), minority_SP=np.zeros_like(base_SP))
    for cell, judged_by, false in ((CELLS[drawn_as], series, set()), (CELLS[true_of], planted, wrong)):
        told = judged(cell, judged_by, said)
        assert {name for name in ("loss", "no_loss", "kept") if getattr(told, name)} == false
        assert set(broken(row_of(cell, [told] * 5, 0.0))) == false


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"wrong": {"loss": 51, "no_loss": 0, "kept": 0}}, ["loss"]),
        ({"wrong": {"loss": 0, "no_loss": 51, "kept": 51}}, ["no_loss", "kept"]),
        ({"wrong": {"loss": 51, "no_loss": 0, "kept": 0}, "expected": "it goes wrong"}, []),
    ],
)
def test_a_bound_is_broken_by_more_than_one_false_verdict_in_twenty(changed: dict, said: list) -> None:
    assert broken({**ROW, **changed}) == said


def test_parts_of_a_cell_join_to_their_sums() -> None:
    told = Judged(label="degraded", loss=True, no_loss=False, kept=False)
    parts = [row_of(CELLS["items"], [replace(told, loss=loss)] * 2, 1.0) for loss in (True, False)]
    whole = joined(parts[0], parts[1])
    assert (whole["series"], whole["wrong"]["loss"], whole["cpu_s"]) == (4, 2, 2.0)
    assert whole["labels"] == {"degraded": 4}


@pytest.mark.slow
def test_a_cell_is_drawn_again_when_a_number_of_its_law_changes_and_no_address_is_part_of_it() -> None:
    gained, same, more, harder = (
        fingerprint(replace(CELLS["items"], law=moved(items(ability), *[shifted(by)] * 6)))
        for ability, by in ((0.0, 0.1), (0.0, 0.1), (0.0, 0.2), (-0.1, 0.1))
    )
    assert gained == same
    assert len({gained, more, harder, fingerprint(CELLS["items"])}) == 4


def test_changes_of_pass_at_k_are_those_of_the_chances() -> None:
    chance_SP = np.array([[0.5, 0.0], [0.0, 0.5], [0.5, 0.5]])
    assert changes(chance_SP, [1, 2]).tolist() == [[0.0, 0.0], [0.25, 0.375]]


def test_what_drifts_has_the_same_rates_by_law_at_every_step() -> None:
    course = drifting(3, stays=0.5, largest_topic=4, shared=0.5)(np.random.default_rng(1), 40_000)
    assert np.abs(changes(course.able_SP, [1, 8])).max() < 0.01
    assert np.abs(course.able_SP[1] - course.able_SP[0]).mean() > 0.1
    assert np.bincount(course.cluster_P).max() == 4
