"""The verdict on problems that the base's own samples chose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of

N = 16


def checkpoint(step: int, correct_P: np.ndarray) -> CheckpointCounts:
    return CheckpointCounts(
        step=step, checkpoint=f"checkpoint-{step}", n=N, correct_P=correct_P,
        minority_P=np.zeros(len(correct_P), dtype=np.int64), rates=None,
    )  # fmt: skip


def series(*, is_filtered: bool, late: float = 1.0) -> SeriesCounts:
    """Sixty problems with rare correct answers; filtered: those that the base solved, but not always."""
    rng = np.random.default_rng(3)
    rate_P = rng.beta(0.4, 2.0, 5_000)
    hits_P = rng.binomial(N, rate_P)
    chosen = np.flatnonzero((hits_P > 0) & (hits_P < N) if is_filtered else hits_P >= 0)[:60]
    if is_filtered and late < 1:  # fresh base samples of the chosen problems
        hits_P = rng.binomial(N, rate_P)
    late_steps = [checkpoint(step, rng.binomial(N, late * rate_P[chosen])) for step in (20, 40, 60)]
    return SeriesCounts(
        series="run",
        base=checkpoint(0, hits_P[chosen]),
        trained=tuple(late_steps),
        shows_modes_P=np.zeros(60, dtype=bool),
        tasks=("t",),
        graders=("exact",),
        tokens_per_sample=None,
    )


def test_an_unchanged_model_on_problems_that_these_samples_chose_gets_no_verdict() -> None:
    verdict = verdict_of(series(is_filtered=True))
    assert (verdict.heading, verdict.label) == ("no_verdict", "no_verdict")
    assert verdict.sentence.startswith("No verdict: the 60 problems were probably selected by these base samples (p = ")
    assert "--selected-by none" in verdict.sentence
    assert verdict.selection_p <= 0.001
    assert verdict.shipping is not None
    assert verdict.shipping.recommended is None


def test_with_selected_by_none_the_fall_is_judged_as_it_is() -> None:
    verdict = verdict_of(replace(series(is_filtered=True), selected_by="none"))
    assert verdict.label != "no_verdict"
    assert verdict.selection_p is None


@pytest.mark.slow
def test_unfiltered_problems_get_a_verdict_unless_the_user_says_that_they_were_chosen() -> None:
    honest = series(is_filtered=False)
    assert verdict_of(honest).heading == "not_shown"
    chosen = verdict_of(replace(honest, selected_by="base"))
    assert "the 60 problems were selected by these base samples (--selected-by base), so" in chosen.sentence


@pytest.mark.slow
@pytest.mark.parametrize("label", ["checkpoint-80", "final"])
def test_a_late_checkpoint_that_was_left_out_leaves_open_how_the_run_ended(label: str) -> None:
    rate_P = np.full(200, N // 2)
    kept = replace(
        series(is_filtered=False),
        base=checkpoint(0, rate_P),
        trained=tuple(checkpoint(step, rate_P + 4) for step in (20, 40, 60)),
        shows_modes_P=np.zeros(200, dtype=bool),
    )
    assert verdict_of(kept).label == "no_loss"
    verdict = verdict_of(replace(kept, skipped={label: "weights are damaged"}))
    assert verdict.heading == "not_shown"
    assert f"Left out: {label} (weights are damaged)." in verdict.sentence
    early = verdict_of(replace(kept, skipped={"checkpoint-10": "weights are damaged"}))
    assert early.label == "no_loss"
