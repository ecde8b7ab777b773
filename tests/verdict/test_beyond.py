"""pass@k beyond the sampled k in a verdict: an interval or a reason, and no effect on the label."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.statistics.forecast.beyond import Beyond
from oversharp.diagnostics.verdict import decide
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.words.beyond import beyond_text

N, P = 64, 120
BASE_P = np.tile([0, 40, 64], P // 3)
LOST_P = np.where(np.arange(P) % 10 == 1, 0, BASE_P)


def checkpoint(step: int, correct_P: np.ndarray) -> CheckpointCounts:
    return CheckpointCounts(
        step=step, checkpoint=f"checkpoint-{step}", n=N, correct_P=correct_P, rates=None,
        minority_P=np.zeros(P, dtype=np.int64),
    )  # fmt: skip


@pytest.fixture(name="lost")
def _lost_series() -> SeriesCounts:
    return SeriesCounts(
        series="run", base=checkpoint(0, BASE_P), trained=(checkpoint(10, LOST_P),),
        shows_modes_P=np.zeros(P, dtype=bool), tasks=("sums",), graders=("exact",), tokens_per_sample=None,
    )  # fmt: skip


def test_a_verdict_has_the_change_at_twice_the_samples(lost: SeriesCounts) -> None:
    found = verdict_of(lost).beyond
    assert found is not None
    assert (found.k, found.cap, found.why) == (128, 64, None)
    assert found.low is not None
    assert found.high is not None
    assert found.low < -8 / P < found.high < 0  # 8 of the problems that the base solved are lost
    # by the samples alone: 80 of 120 were solved by the base, and between 72 and all of them later
    assert (found.bracket_low, found.bracket_high) == pytest.approx((72 / P - 1, 1 - 80 / P))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dependence": "a fifth are copies"}, "the samples of a problem are not independent: a fifth are copies"),
        ({"cluster_P": np.arange(P) // 2}, "the problems are in clusters"),
    ],
)
def test_related_samples_or_problems_have_a_reason(lost: SeriesCounts, change: dict, why: str) -> None:
    found = verdict_of(replace(lost, **change)).beyond
    assert found is not None
    assert (found.low, found.high, found.why) == (None, None, why)
    assert beyond_text(found).endswith(f"is unknown: {why}.")


def test_a_greedy_audit_has_no_forecast(lost: SeriesCounts) -> None:
    assert verdict_of(replace(lost, is_greedy=True)).beyond is None


def test_the_forecast_has_no_effect_on_the_verdict(lost: SeriesCounts, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = verdict_of(lost)
    opposite = Beyond(k=128, cap=64, low=0.9, high=1.0, bracket_low=-1.0, bracket_high=1.0)
    monkeypatch.setattr(decide, "change_beyond", lambda *_, **__: opposite)
    planted = verdict_of(lost)
    assert planted.beyond == opposite
    assert replace(planted, beyond=clean.beyond) == clean
    assert planted.attributes == clean.attributes


def test_json_keeps_the_forecast_and_older_verdicts_have_none(lost: SeriesCounts) -> None:
    verdict = verdict_of(lost)
    document = json.loads(verdict.to_json())
    assert document["beyond"]["k"] == 128
    assert Verdict.from_json(json.dumps(document)) == verdict
    del document["beyond"]
    assert Verdict.from_json(json.dumps(document)) == replace(verdict, beyond=None)
