"""Better, or only sharper: planted counts of a base drawn colder, and of runs beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts, SharperDraws
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.words.sharpening import sharpening_text

N, P = 256, 300
BASE = np.tile([60, 40, 4], P // 3)
COLD = np.tile([200, 100, 0], P // 3)
GREEDY = np.tile([True, True, False], P // 3)


def _checkpoint(step: int, correct_P: np.ndarray, unread: int = 0) -> CheckpointCounts:
    none_P = np.zeros(P, dtype=np.int64)
    return CheckpointCounts(
        step=step, checkpoint=f"c{step}", n=N, correct_P=correct_P, minority_P=none_P, rates=None,
        unread_P=none_P + unread,
    )  # fmt: skip


def _series(late_P: np.ndarray, *, sharper: bool = True, unread: int = 0) -> SeriesCounts:
    drawn = SharperDraws(temperature_S=(1.0, 0.5), n_S=(N, N), correct_SP=np.stack([BASE, COLD]), greedy_P=GREEDY)
    return SeriesCounts(
        series="run", base=_checkpoint(0, BASE, unread), trained=(_checkpoint(20, late_P),),
        shows_modes_P=np.zeros(P, dtype=bool), tasks=("toy",), graders=("exact",), tokens_per_sample=None,
        sharper=drawn if sharper else None,
    )  # fmt: skip


def _found(late_P: np.ndarray, **more) -> Verdict:
    return verdict_of(_series(late_P, **more))


@pytest.mark.slow
def test_what_keeps_the_hard_problems_and_solves_the_others_more_often_is_better() -> None:
    verdict = _found(np.tile([240, 200, 40], P // 3))
    assert verdict.sharpening.label == "better"
    assert verdict.sharpening.gain.low > 0
    assert sharpening_text(verdict).startswith("Better than sharpening: ")


@pytest.mark.slow
def test_what_loses_more_problems_than_the_colder_base_is_worse() -> None:
    verdict = _found(np.tile([200, 0, 0], P // 3))
    assert verdict.sharpening.label == "worse"
    assert sharpening_text(verdict).startswith("Worse than sharpening: ")


@pytest.mark.slow
def test_the_colder_base_as_a_run_is_sharpening_only() -> None:
    verdict = _found(COLD)
    assert verdict.sharpening.label == "sharpening_only"
    assert verdict.sharpening.share.value == pytest.approx(1, abs=0.05)
    assert "of the gain of" in sharpening_text(verdict)


@pytest.mark.slow
def test_without_colder_draws_nothing_is_said() -> None:
    verdict = _found(COLD, sharper=False)
    assert verdict.sharpening is None
    assert sharpening_text(verdict) == ""


@pytest.mark.slow
def test_answers_that_can_be_read_now_are_told_apart() -> None:
    told = sharpening_text(_found(COLD, unread=64))
    assert "points of the gain are answers that were not parsed before" in told
    assert _found(COLD).sharpening.read == 0


@pytest.mark.slow
def test_it_survives_the_store() -> None:
    verdict = _found(COLD)
    assert Verdict.from_json(verdict.to_json()) == verdict
    older = replace(verdict, sharpening=None).to_json().replace('"sharpening": null, ', "")
    assert "sharpening" not in older.split('"sentence"')[1].split('"caveats"')[0]
    assert Verdict.from_json(older).sharpening is None


def test_a_run_that_did_not_rise_is_not_called_sharpening() -> None:
    assert _found(BASE).sharpening.label == "not_shown"


def test_a_single_sample_of_a_checkpoint_compares_nothing() -> None:
    series = _series(np.ones(P, dtype=np.int64))
    assert verdict_of(replace(series, trained=(replace(series.trained[0], n=1),))).sharpening is None
