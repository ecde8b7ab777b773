"""A change of answer style is no loss: what the lenient reader of the same samples says of a fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.verdict.causes.explanations import Fall, is_misread
from oversharp.diagnostics.verdict.counts import CheckpointCounts, GuessRate, SeriesCounts
from oversharp.diagnostics.verdict.decide import judged_series, verdict_of
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.shipping.choice import recommend

N = 64
BASE = np.arange(60)  # of 64 samples each
NONE = np.zeros(60, dtype=np.int64)


@pytest.fixture(autouse=True)
def _no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit that would settle it takes seconds to find, and nothing here reads it."""
    monkeypatch.setattr("oversharp.diagnostics.verdict.decide.settle", lambda *_, **__: None)


def checkpoint(step: int, correct_P: np.ndarray, lenient_P: np.ndarray | None) -> CheckpointCounts:
    return CheckpointCounts(
        step=step,
        checkpoint=f"step {step}",
        n=N,
        correct_P=correct_P,
        minority_P=NONE,
        rates=None,
        unread_P=NONE,
        lenient_P=lenient_P,
    )


def series(
    *late: tuple[np.ndarray, np.ndarray | None], base: tuple[np.ndarray, np.ndarray] = (BASE, BASE)
) -> SeriesCounts:
    return SeriesCounts(
        series="run",
        base=checkpoint(0, *base),
        trained=tuple(checkpoint(20 * number, *counts) for number, counts in enumerate(late, start=1)),
        shows_modes_P=np.zeros(60, dtype=bool),
        tasks=("toy",),
        graders=("math",),
        tokens_per_sample=None,
        guess_rate=GuessRate(share=0.0, source="given"),
    )


def verdict(*late: tuple[np.ndarray, np.ndarray | None]) -> Verdict:
    return verdict_of(series(*late))


def test_a_fall_that_the_lenient_reader_does_not_show_is_one_of_format() -> None:
    found = verdict((NONE, BASE))
    assert found.label == "format"
    assert found.lenient is not None
    assert found.lenient.explains
    assert found.lenient.rise == pytest.approx(BASE.mean() / N)
    assert found.remaining is not None
    assert [change.change for change in found.remaining.changes] == pytest.approx([0.0] * 6)
    assert (
        "The share of answers in a format that the grader does not parse rose by 46 points. A lenient reader of the "
        in found.sentence
    )


def test_nothing_is_recommended_where_answers_were_not_read() -> None:
    counts = series((NONE, BASE), (NONE, BASE))
    said = recommend([judged_series(counts, verdict_of(counts))])
    assert said.recommended is None
    assert "unparsed or misread answers explain" in said.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    "late",
    [
        # step 20 is as the base and eligible, steps 40 and 60 changed style: the window explains the label
        [(BASE, BASE), (NONE, BASE), (NONE, BASE)],
        # one step of the window changed style
        [(BASE, BASE)] * 4 + [(NONE, BASE), (BASE, BASE)],
    ],
)
def test_an_eligible_checkpoint_changes_nothing_where_the_label_is_format(late: list[tuple[np.ndarray, ...]]) -> None:
    counts = series(*late)  # type: ignore[arg-type]
    found = verdict_of(counts)
    assert found.label == "format"
    assert found.shipping is not None
    assert found.shipping.recommended is None
    assert "unparsed or misread answers explain" in found.shipping.sentence
    assert all(one.why for one in found.shipping.steps)


@pytest.mark.slow
def test_the_same_checkpoints_without_a_change_of_style_get_a_recommendation() -> None:
    risen = np.minimum(N, BASE + 2)
    found = verdict_of(series((risen, risen), (BASE // 2, BASE // 2), (BASE // 2, BASE // 2)))
    assert found.label != "format"
    assert found.shipping is not None
    assert found.shipping.recommended is not None
    assert found.shipping.recommended.step == 20


@pytest.mark.slow
def test_a_loss_that_both_readers_show_is_a_loss_and_both_readings_are_printed_if_they_differ() -> None:
    half = BASE // 2
    lost = np.where(np.arange(60) % 4 == 0, 0, BASE)
    found = verdict((NONE, lost))
    assert found.label == "degraded"
    assert found.lenient is not None
    assert not found.lenient.explains
    assert "The answer style changed. A lenient reader of the same samples finds pass@1 −" in found.sentence
    assert any("and the heading would be the same" in warning for warning in found.warnings)
    same = verdict((half, half))
    assert (same.label, same.lenient, same.warnings) == ("degraded", None, ())


def test_pass_at_1_is_open_where_only_the_grader_reads_a_fall() -> None:
    """Some problems were lost and the others improved; the grader does not parse most late answers."""
    lost = np.where(np.arange(60) % 4 == 0, 0, np.minimum(N, 2 * BASE))
    found = verdict((lost // 4, lost))
    assert found.label == "degraded"
    assert found.attributes.pass_at_1 == "open"
    assert found.title == "Coverage lost"
    assert (found.attributes.k, found.attributes.scope) == (32, "population")
    assert found.attributes.change > -0.3  # of what remains; as graded it is larger
    assert "points and pass@" not in found.sentence
    assert "A lenient reader of the same samples finds pass@1 +" in found.sentence


@pytest.mark.slow
def test_without_a_second_reader_nothing_changes() -> None:
    alone, read = verdict((BASE // 2, None)), verdict((BASE // 2, BASE // 2))
    assert replace(alone, lenient=None) == replace(read, lenient=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "lenient"),
    [
        # the lenient reader accepts wrong responses too, at the base as late
        (lambda rng: BASE // 3, lambda late, rng: late + rng.binomial(N - late, 0.05)),
        # it accepts some more late ones, but not those that were lost
        (lambda rng: np.where(BASE < 20, 0, BASE), lambda late, rng: np.where(BASE < 20, 0, np.minimum(N, BASE + 2))),
    ],
)
def test_accidents_of_the_lenient_reader_hide_no_loss(
    late: Callable[..., np.ndarray], lenient: Callable[..., np.ndarray]
) -> None:
    rng = np.random.default_rng(0)
    base_lenient = BASE + rng.binomial(N - BASE, 0.05)
    late_P = late(rng)
    found = verdict_of(series((late_P, lenient(late_P, rng)), base=(BASE, base_lenient)))
    assert found.label in ("degraded", "over_sharpened", "over_sharpened_here")


def test_a_style_that_training_made_readable_may_hide_a_loss_and_says_so() -> None:
    few = BASE // 8
    lost = np.where(np.arange(60) % 3 == 0, 0, BASE)
    found = verdict_of(series((lost, lost), base=(few, BASE)))
    assert found.label not in ("degraded", "over_sharpened")
    assert found.lenient is not None
    start = "The share of answers that only a lenient reader accepts changed"
    assert any(warning.startswith(start) for warning in found.warnings)


def test_the_verdict_with_both_readings_survives_the_way_to_json_and_back() -> None:
    found = verdict((NONE, BASE))
    assert Verdict.from_json(found.to_json()) == found


def test_false_accepts_of_the_lenient_reader_are_no_change_of_style() -> None:
    """A lenient reader that accepts half of all wrong samples accepts more where more is wrong."""
    rng = np.random.default_rng(1)
    late = np.where(BASE % 3 == 0, 0, BASE)
    base_lenient, late_lenient = (one + rng.binomial(N - one, 0.5) for one in (BASE, late))
    found = verdict_of(series((late, late_lenient), base=(BASE, base_lenient)))
    assert found.label in ("degraded", "over_sharpened")
    assert found.lenient is None


def test_unread_samples_are_not_added_to_what_the_lenient_reader_accepts() -> None:
    lost = np.where(BASE % 3 == 0, 0, BASE)
    unread = np.minimum(N - lost, 20)
    counts = series((lost - np.minimum(lost, 4), lost))
    counts = replace(counts, trained=(replace(counts.trained[0], unread_P=unread),))
    assert verdict_of(counts).label in ("degraded", "over_sharpened", "format")


def _restyled(seed: int, *, with_loss: bool) -> Fall:
    """A fall of unread answers; with a loss, one problem of eight is never solved again. 2 % false accepts."""
    rng = np.random.default_rng(seed)
    rate_P = np.clip(rng.beta(0.5, 0.8, 100), 1e-4, 0.999)
    late_rate_P = np.where(rate_P > 0.2, 2 * rate_P / (1 + rate_P), rate_P)
    if with_loss:
        late_rate_P = np.where(rng.random(100) < 1 / 8, 0.0, late_rate_P)
    base_P, late_P = rng.binomial(N, rate_P), rng.binomial(N, late_rate_P)
    false_base_P, false_late_P = rng.binomial(N - base_P, 0.02), rng.binomial(N - late_P, 0.02)
    strict = PairedCounts(base_P=base_P, late_P=np.zeros_like(late_P), n_base=N, n_late=N)
    lenient = PairedCounts(base_P=base_P + false_base_P, late_P=late_P + false_late_P, n_base=N, n_late=N)
    return Fall(counts=strict, ks=(1, 2, 4, 8, 16, 32), unread=None, level=0.03, lenient=lenient)


@pytest.mark.parametrize("seed", [32, 47, 109])  # the exact test of all problems together does not show these losses
def test_a_loss_of_few_problems_is_shown_by_tests_of_single_problems(seed: int) -> None:
    assert not is_misread(_restyled(seed, with_loss=True), np.random.default_rng(0))
    assert is_misread(_restyled(seed, with_loss=False), np.random.default_rng(0))


def test_what_unparsed_samples_do_not_explain_is_printed_as_the_size_of_the_loss() -> None:
    rng = np.random.default_rng(5)
    lost = np.where(np.arange(60) % 5 == 0, 0, BASE)
    unparsed = rng.binomial(N - lost // 2, 0.3)
    counts = series((lost // 2, None), base=(BASE, None))
    counts = replace(counts, trained=(replace(counts.trained[0], unread_P=unparsed),))
    found = verdict_of(counts)
    assert found.heading == "coverage_lost"
    assert found.remaining is not None
    assert found.remaining_fall is not None
    graded = min(found.changes, key=lambda change: change.change)
    assert graded.change < found.remaining_fall.change < 0
    assert found.attributes.change == found.remaining_fall.change
    assert Verdict.from_json(found.to_json()) == found
