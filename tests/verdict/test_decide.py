"""The verdict from planted counts: every label, the window, what is left out, and what is warned of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oversharp.diagnostics.verdict.claims import FELL, FELL_HERE, POPULATION
from oversharp.diagnostics.verdict.counts import CheckpointCounts, GuessRate, Looks, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import Rates
from oversharp.diagnostics.verdict.rule import KEY_LEVEL
from oversharp.diagnostics.verdict.words.sentence import checkpoints_text

N = 256


def _checkpoint(
    step: int,
    correct: Sequence[int] | np.ndarray,
    *,
    minority: Sequence[int] | np.ndarray | None = None,
    n: int = N,
    n_most: int | None = None,
    rates: tuple[float, float, float] = (0.0, 0.0, 0.0),
    why: str | None = None,
) -> CheckpointCounts:
    truncated, not_parsed, timed_out = rates
    name = f"checkpoint-{step}"
    return CheckpointCounts(
        step=step, checkpoint=name, n=n, n_most=n_most or n, why=why, correct_P=np.asarray(correct, dtype=np.int64),
        minority_P=np.zeros(len(correct), dtype=np.int64) if minority is None else np.asarray(minority),
        rates=Rates(
            step=step, checkpoint=name, truncated=truncated, not_parsed=not_parsed, ambiguous=0.0, timed_out=timed_out
        ),
    )  # fmt: skip


def _series(base: CheckpointCounts, *trained: CheckpointCounts, shows_modes: bool = False) -> SeriesCounts:
    return SeriesCounts(
        series="run", base=base, trained=trained, shows_modes_P=np.full(len(base.correct_P), shows_modes),
        tasks=("toy",), graders=("exact",), tokens_per_sample=10.0,
    )  # fmt: skip


@pytest.fixture
def no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit that would settle it takes half a second to find: for tests that do not read it."""
    monkeypatch.setattr("oversharp.diagnostics.verdict.decide.settle", lambda *_, **__: None)


def _lost(n_problems: int) -> np.ndarray:
    """Half of the problems are never solved any more, the others always."""
    return np.where(np.arange(n_problems) % 2, N, 0)


@pytest.mark.slow
def test_a_repaired_series_is_spoken_of_as_weights_and_has_no_onset_in_steps() -> None:
    base = _checkpoint(0, np.full(60, 20))
    counts = _series(base, *(_checkpoint(step, _lost(60)) for step in (25, 50, 75, 100)))
    trained, repaired = (verdict_of(replace(counts, is_repaired=flag)) for flag in (False, True))
    assert trained.label == repaired.label == "over_sharpened"
    assert trained.sentence.endswith("one training seed.")
    assert "at λ = 1." in repaired.sentence
    assert repaired.sentence.endswith("one repaired series, where λ = 1 is the checkpoint.")
    assert (trained.detected_by, repaired.detected_by) == (25, None)
    assert repaired.caveats[0].startswith("A repaired series: ")


@pytest.mark.slow
def test_points_of_a_repaired_series_are_told_as_weights_in_no_order_of_time(no_remedy: None) -> None:
    base_P = np.full(60, 20)
    counts = _series(
        _checkpoint(0, base_P),
        *(_checkpoint(step, _lost(60) if step in (25, 50) else base_P) for step in (25, 50, 75, 100)),
    )
    trained, repaired = (verdict_of(replace(counts, is_repaired=flag)) for flag in (False, True))
    assert ". Steps 25–50 had lost up to 50.0 points [35.0, 65.0] of pass@128 at step 25." in trained.sentence
    assert ". λ = 0.25–0.5 lost up to 50.0 points [35.0, 65.0] of pass@128 at λ = 0.25." in repaired.sentence
    assert repaired.title == "Coverage lost at λ = 0.25–0.5; not shown at the far end"
    assert checkpoints_text(repaired).endswith("lost at some k at λ = 0.25–0.5")
    assert not re.search(r"\bsteps? \d", repaired.sentence + checkpoints_text(repaired))


def test_problems_that_sharpen_and_problems_that_are_lost_are_over_sharpening() -> None:
    base = _checkpoint(0, np.full(60, 20))
    same = [_checkpoint(step, np.full(60, 20)) for step in (20, 40, 60, 80)]
    verdict = verdict_of(_series(base, *same, *(_checkpoint(step, _lost(60)) for step in (100, 120))))
    assert verdict.label == "over_sharpened"
    assert max(verdict.p_exact, verdict.p_population) <= 0.04
    assert verdict.window == (100, 120)
    assert verdict.n_late == 2 * N
    by_k = {change.k: change for change in verdict.changes}
    assert by_k[1].change == pytest.approx(0.5 - 20 / 256)
    assert by_k[128].late == pytest.approx(0.5)
    assert by_k[128].change == pytest.approx(-0.5, abs=1e-4)
    assert by_k[128].low < -0.5 < by_k[128].high < 0
    assert verdict.k_most == 128 == max(by_k)
    assert verdict.k_star is not None
    assert 1 < verdict.k_star.value < 16
    assert verdict.detected_by == 100
    assert 60 <= verdict.decline_began.value <= 100
    assert verdict.remedy is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loses", "n_problems", "label"),
    [
        (True, 28, "over_sharpened_here"),
        (True, 30, "over_sharpened"),
        (False, 29, "inconclusive"),
        (False, 30, "no_loss"),
    ],
)
def test_few_problems_say_nothing_of_others(loses: bool, n_problems: int, label: str) -> None:
    base, late = (20, _lost(n_problems)) if loses else (1, np.full(n_problems, N))
    verdict = verdict_of(_series(_checkpoint(0, np.full(n_problems, base)), _checkpoint(20, late)))
    assert verdict.label == label
    assert ("the population of these" in verdict.sentence) == (n_problems == 30)
    assert (verdict.p_population <= 0.04) == loses


@pytest.mark.parametrize(
    ("n_problems", "cluster_P", "why"),
    [
        (28, None, "fewer than 30 problems were solved by the base"),
        (60, np.arange(60) % 8, "fewer than 10 clusters"),
        (60, None, None),
    ],
)
def test_of_few_problems_or_clusters_no_claim_reaches_beyond_them(
    n_problems: int, cluster_P: np.ndarray | None, why: str | None
) -> None:
    base, late = _checkpoint(0, np.full(n_problems, 4)), _checkpoint(40, _lost(n_problems))
    kept = _checkpoint(20, np.full(n_problems, 200))
    verdict = verdict_of(replace(_series(base, kept, late), cluster_P=cluster_P))
    beyond = [claim for claim in verdict.claims if claim.scope == POPULATION]
    assert {claim.why for claim in beyond} == {why}
    assert {claim.name: claim.holds for claim in beyond}[FELL] is (why is None)
    assert {claim.name: claim.holds for claim in verdict.claims}[FELL_HERE]
    assert [one.kept for one in verdict.steps] == [why is None, False]
    assert (verdict.size_given_label is None) is (why is not None)


def test_a_loss_of_single_checkpoints_names_them() -> None:
    base, kept = _checkpoint(0, np.full(60, 20)), [_checkpoint(20 * t, np.full(60, 200)) for t in range(1, 9)]
    verdict = verdict_of(_series(base, *kept, _checkpoint(180, _lost(60))))
    assert (verdict.label, verdict.lost_ranges) == ("lost_at_steps", ((180, 180),))
    assert "at step 180" in verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (Looks(number=3, declared=None), "multiplied by 0.083. Then any number of verdicts together cause"),
        (Looks(number=1, declared=1, runs=4), "multiplied by 0.25. Then 1 verdict on each of 4 runs together cause"),
        (Looks(number=2, declared=1), "This is verdict 2 on this series, and 1 verdict was declared."),
    ],
)
def test_what_looks_and_runs_cost_is_told_and_their_levels_are_still_within_reach(looks: Looks, said: str) -> None:
    base, late = _checkpoint(0, np.full(60, 20)), _checkpoint(20, _lost(60))
    verdict = verdict_of(replace(_series(base, late), looks=looks))
    assert said in " ".join(verdict.caveats)
    assert verdict.label == "over_sharpened"
    assert verdict.steps[0].lost
    assert (
        verdict.explanation.guess_rate > 0.01
    )  # a p value no finer than the level would let the least rate explain it


def test_problems_that_nobody_solves_do_not_count_towards_problems_like_these() -> None:
    base, late = np.repeat((20, 0), (20, 20)), np.repeat((0, 0), (20, 20))
    verdict = verdict_of(_series(_checkpoint(0, base), _checkpoint(20, late)))
    assert "The base solved only 20 of 40 problems." in " ".join(verdict.caveats)
    assert "population" not in verdict.sentence


def test_checkpoints_with_the_weights_of_an_earlier_one_are_named(no_remedy: None) -> None:
    base = replace(_checkpoint(0, [10] * 40, n=20), weights="ab")
    late = [replace(_checkpoint(step, [10] * 40, n=20), weights=f"ab-{step}") for step in (20, 40)]
    start = "checkpoint-20, checkpoint-40 have the same weights as checkpoint-0: differences between them are sampling"
    assert any(caveat.startswith(start) for caveat in verdict_of(_series(base, *late)).caveats)
    other = replace(late[1], weights="cd")
    assert not any("same weights" in caveat for caveat in verdict_of(_series(base, other)).caveats)


def test_one_lost_problem_of_three_is_a_loss_here_and_no_law() -> None:
    verdict = verdict_of(_series(_checkpoint(0, [128, 128, 128]), _checkpoint(20, [0, 128, 128])))
    assert verdict.label == "over_sharpened_here"
    assert verdict.p_exact <= 0.04 < verdict.p_population
    assert "Scope: these 3 problems only, k = 1 to 128" in verdict.sentence


def test_a_single_problem_can_be_lost_and_has_no_interval() -> None:
    verdict = verdict_of(_series(_checkpoint(0, [128]), _checkpoint(20, [0])))
    assert verdict.label == "degraded"
    assert {change.low for change in verdict.changes} == {None}
    assert verdict.least_change is None
    assert "this one problem" in verdict.sentence


@pytest.mark.slow
def test_lost_minority_modes_behind_a_better_pass_at_k_are_mode_collapse() -> None:
    n_problems = 100
    base = _checkpoint(0, np.full(n_problems, 120), minority=np.full(n_problems, 30))  # 30 of 128
    late = _checkpoint(20, np.full(n_problems, 200), minority=np.full(n_problems, 2))
    verdict = verdict_of(_series(base, late, shows_modes=True))
    assert verdict.label == "mode_collapse"
    assert verdict.modes_collapsed
    assert verdict.n_minority_problems == n_problems
    kept = replace(late, minority_P=np.full(n_problems, 60))  # as many of its 256 samples
    assert verdict_of(_series(base, kept, shows_modes=True)).label == "no_loss"


@pytest.mark.slow
@pytest.mark.parametrize(("minority", "label"), [(30, "mode_collapse"), (60, "no_loss")])
def test_minority_samples_are_counted_among_all_samples_of_the_window(minority: int, label: str) -> None:
    base = _checkpoint(0, np.full(100, 120), minority=np.full(100, 30))  # 30 of 128, as 60 of 256
    late = [_checkpoint(step, np.full(100, 200), minority=np.full(100, minority)) for step in range(20, 140, 20)]
    verdict = verdict_of(_series(base, *late, shows_modes=True))
    assert (verdict.window, verdict.label) == ((100, 120), label)


def test_problems_that_show_no_mode_have_no_say_in_the_minority_channel() -> None:
    base = _checkpoint(0, np.full(100, 120), minority=np.full(100, 30))
    counts = _series(base, _checkpoint(20, np.full(100, 200)), shows_modes=True)
    shows_P = np.arange(100) < 40
    assert verdict_of(replace(counts, shows_modes_P=shows_P)).n_minority_problems == 40
    no_mode = replace(counts, shows_modes_P=np.zeros(100, dtype=bool))
    late = replace(counts.trained[0], minority_P=np.zeros(100, dtype=np.int64))
    one_mode = replace(counts, base=replace(base, minority_P=late.minority_P), trained=(late,))
    for none in (verdict_of(no_mode), verdict_of(one_mode)):
        assert (none.p_minority, none.n_minority_problems, none.label) == (None, 0, "no_loss")
        assert "No problem has correct samples of a second mode, so mode collapse was not tested." in none.caveats


def test_many_problems_without_change_are_no_loss_up_to_their_k() -> None:
    verdict = verdict_of(_series(_checkpoint(0, np.full(200, 128)), _checkpoint(20, np.full(200, 128))))
    assert verdict.label == "no_loss"
    assert "k = 1 to 128" in verdict.sentence
    assert verdict.detected_by is verdict.decline_began is None


@pytest.mark.slow
def test_few_problems_without_change_settle_nothing_and_the_verdict_says_what_would() -> None:
    correct = np.arange(12) * 8 % 64
    base, late = _checkpoint(0, correct, n=64), _checkpoint(20, correct, n=64)
    verdict = verdict_of(_series(base, late))
    assert verdict.label == "inconclusive"
    assert verdict.remedy is not None
    assert verdict.remedy.drop == 0.05
    assert min(verdict.remedy.n, verdict.remedy.n_base) >= 64  # never less than the audit in hand
    assert f"About {verdict.remedy.n_problems} problems" in verdict.sentence


def test_related_problems_settle_nothing_and_the_verdict_says_why_it_names_no_size() -> None:
    correct = np.arange(40) * 8 % 64
    alone = _series(_checkpoint(0, correct, n=64), _checkpoint(20, correct, n=64))
    told = verdict_of(replace(alone, cluster_P=np.arange(40) // 2))
    assert (told.label, told.remedy) == ("inconclusive", None)
    start = "The size of an audit that would settle the question is not estimated."
    assert any(caveat.startswith(start) for caveat in told.caveats)


@pytest.mark.usefixtures("no_remedy")
@pytest.mark.parametrize(("n_trained", "n_window"), [(1, 1), (2, 1), (4, 1), (5, 2), (8, 3), (9, 3)])
def test_the_window_is_the_last_third(n_trained: int, n_window: int) -> None:
    correct = np.full(40, 128)
    trained = [_checkpoint(20 * t, correct) for t in range(1, n_trained + 1)]
    verdict = verdict_of(_series(_checkpoint(0, correct), *trained))
    assert verdict.window == tuple(one.step for one in trained[-n_window:])
    assert verdict.n_late == n_window * N


@pytest.mark.slow
def test_k_goes_to_half_of_one_checkpoints_samples_not_of_the_pooled_ones() -> None:
    correct = np.full(40, 32)
    trained = [_checkpoint(20 * t, correct, n=64) for t in range(1, 10)]
    verdict = verdict_of(_series(_checkpoint(0, correct, n=512), *trained))
    assert verdict.k_most == 32
    short_base = verdict_of(_series(_checkpoint(0, np.random.default_rng(0).binomial(8, 0.5, 40), n=8), *trained))
    assert short_base.k_most == 4


def test_greedy_responses_give_accuracies_and_no_verdict() -> None:
    base_P, late_P = np.arange(40) < 20, (np.arange(40) >= 2) & (np.arange(40) < 30)
    base, late = (_checkpoint(step, solved_P.astype(int), n=1) for step, solved_P in ((0, base_P), (20, late_P)))
    verdict = verdict_of(replace(_series(base, late), is_greedy=True))
    assert verdict.label == "no_verdict"
    assert "pass@k for k > 1 needs 8 or more samples" in verdict.sentence
    of_base, of_late = verdict.accuracies
    assert (of_base.n_correct, of_base.change, of_base.p) == (20, None, None)
    assert (of_late.n_correct, of_late.n_lost, of_late.n_gained, of_late.change) == (28, 2, 10, 0.2)
    assert of_late.p == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert "28 of 40 problems" in verdict.sentence
    assert Verdict.from_json(verdict.to_json()) == verdict
    related = verdict_of(replace(_series(base, late), is_greedy=True, cluster_P=np.arange(40) // 2))
    assert related.accuracies[1].p is None
    assert "28 of 40 problems" in related.sentence


def test_one_sample_is_judged_at_k_1_alone_with_its_exact_test_and_a_note() -> None:
    solved_P = (np.arange(60) < 30).astype(int)
    base, late = _checkpoint(0, solved_P, n=1), _checkpoint(20, solved_P * (np.arange(60) < 16), n=1)
    verdict = verdict_of(_series(base, late))
    assert verdict.label == "degraded"
    assert (verdict.accuracies[1].n_lost, verdict.accuracies[1].n_gained) == (14, 0)
    assert verdict.accuracies[1].p == pytest.approx(2 / 2**14)
    assert any("pass@k for k > 1 needs 8 or more samples" in warning for warning in verdict.warnings)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_fewest_samples_still_end_in_a_verdict(n: int) -> None:
    base = _checkpoint(0, np.full(40, n), n=n)
    verdict = verdict_of(_series(base, _checkpoint(20, np.zeros(40), n=n), shows_modes=n > 1))
    assert verdict.label == "degraded"
    assert [change.k for change in verdict.changes] == [1]
    assert "pass@1 rose" not in verdict.sentence


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_compared_is_left_out_of_the_window_by_name() -> None:
    correct = np.full(200, 128)
    broken = _checkpoint(60, np.zeros(200), why="3 of 200 problems lack samples")
    verdict = verdict_of(_series(_checkpoint(0, correct), _checkpoint(20, correct), _checkpoint(40, correct), broken))
    assert verdict.label == "inconclusive"  # how the run ended is unknown
    assert verdict.window == (40,)
    assert "Left out: checkpoint-60 (3 of 200 problems lack samples)." in verdict.caveats
    assert "Left out: checkpoint-60 (3 of 200 problems lack samples)." in verdict.sentence
    assert [rates.step for rates in verdict.rates] == [0, 20, 40, 60]


def test_without_anything_to_compare_the_verdict_says_why_there_is_none() -> None:
    base, late = _checkpoint(0, [8]), _checkpoint(20, [8], why="model.norm.weight is NaN")
    for counts, why in (
        (_series(base), "the series has no checkpoint after the base"),
        (_series(base, late), "no checkpoint after the base can be compared: checkpoint-20 (model.norm.weight is NaN)"),
        (_series(replace(base, why="1 of 1 problems lack samples"), late), "the base checkpoint-0 cannot be used"),
        (_series(_checkpoint(0, []), _checkpoint(20, [])), "the audit has no problems"),
        (replace(_series(base), skipped={"checkpoint-20": "cut short"}), "checkpoint-20 (cut short)"),
    ):
        verdict = verdict_of(counts)
        assert verdict.label == "no_verdict"
        assert why in (verdict.why or "")
        assert verdict.sentence == f"No verdict: {verdict.why}."
        assert verdict.k_most is None


@pytest.mark.usefixtures("no_remedy")
@pytest.mark.parametrize(
    ("base_rates", "late_rates", "said"),
    [
        (
            (0.01, 0.02, 0.0),
            (0.13, 0.025, 0.0),
            "13.0 % of the late samples were truncated before an answer, compared with 1.0 % of the base's. Answers "
            "that seem lost may be in these samples.",
        ),
        ((0.0, 0.0, 0.0), (0.0, 0.3, 0.0), "could not be parsed"),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.3), "timed out in grading"),
    ],
)
def test_unread_responses_are_warned_of_where_they_became_more_and_something_fell(
    base_rates: tuple[float, float, float], late_rates: tuple[float, float, float], said: str
) -> None:
    base = _checkpoint(0, np.full(60, 20), rates=base_rates)
    late = _checkpoint(20, _lost(60), rates=late_rates)
    (caveat,) = (text for text in verdict_of(_series(base, late)).caveats if "late samples" in text)
    assert said in caveat
    for quiet in (replace(late, rates=base.rates), replace(late, correct_P=np.full(60, 200))):
        assert not [text for text in verdict_of(_series(base, quiet)).caveats if "late samples" in text]


@pytest.mark.usefixtures("no_remedy")
def test_few_problems_few_samples_unequal_samples_and_several_tasks_are_warned_of() -> None:
    base = _checkpoint(0, np.full(12, 20), n=64)
    counts = replace(_series(base, _checkpoint(20, np.full(12, 20), n=32, n_most=64)), tasks=("aime", "math"))
    caveats = " ".join(verdict_of(counts).caveats)
    assert "Fewer than 30 problems (12)" in caveats
    assert "Only 32 samples per problem and checkpoint: k above 16 is not tested." in caveats
    assert "Problems have unequal numbers of samples" in caveats
    assert "One verdict covers the problems of 2 tasks (aime, math)." in caveats
    base, late = (_checkpoint(step, np.full(30, 20), minority=np.full(30, (step or 10) // 2)) for step in (0, 20))
    assert verdict_of(_series(base, late, shows_modes=True)).caveats == ()


@pytest.mark.slow
def test_equal_counts_give_an_equal_verdict_to_the_last_digit() -> None:
    counts_TP = np.random.default_rng(5).integers(0, N, (4, 50))
    base, *trained = (_checkpoint(20 * t, correct, minority=correct // 4) for t, correct in enumerate(counts_TP))
    series = _series(base, *trained, shows_modes=True)
    assert verdict_of(series) == verdict_of(series)


_counts_of_8 = arrays(np.int64, (3, 6), elements=st.integers(0, 8))


@pytest.mark.usefixtures("no_remedy")
@given(_counts_of_8)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_counts_end_in_sentences_with_its_range_of_k(correct_TP: np.ndarray) -> None:
    base, *trained = (_checkpoint(20 * t, correct_P, n=8) for t, correct_P in enumerate(correct_TP))
    verdict = verdict_of(_series(base, *trained))
    if verdict.label == "no_verdict":
        assert "and a verdict needs" in verdict.sentence or "selected" in verdict.sentence
    else:
        assert "k = 1 to 4" in verdict.sentence
        assert tuple(change.k for change in verdict.changes) == (1, 2, 4)
    assert verdict.sentence.endswith(".")
    assert "\n" not in verdict.sentence
    assert Verdict.from_json(verdict.to_json()) == verdict


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 18, 24])
def test_a_total_loss_is_seen_at_a_late_look_too(number: int) -> None:
    base, late = _checkpoint(0, np.full(60, 200)), _checkpoint(20, np.zeros(60))
    looked = replace(_series(base, late), looks=Looks(number=number, declared=None))
    assert verdict_of(looked).label == "degraded"


@pytest.mark.usefixtures("no_remedy")
def test_a_checkpoint_is_not_kept_where_the_verdict_cannot_show_it() -> None:
    same = np.full(40, 128)
    verdict = verdict_of(_series(_checkpoint(0, same), _checkpoint(20, same)))
    assert verdict.label == "inconclusive"
    assert [step.kept for step in verdict.steps] == [False]
    assert verdict.steps[0].low < -0.02


def test_late_samples_of_which_none_could_be_read_are_a_matter_of_format() -> None:
    base, late = _checkpoint(0, np.full(60, 128)), _checkpoint(20, np.zeros(60))
    unread = replace(_series(replace(base, unread_P=np.zeros(60, dtype=np.int64)), late))
    unread = replace(unread, trained=(replace(late, unread_P=np.full(60, N)),))
    verdict = verdict_of(unread)
    assert (verdict.label, verdict.explanation.format) == ("format", None)  # nothing is left to see a fall in
    assert "timed out in grading. Too few were parsed to show a fall." in verdict.sentence


#: Twelve problems of 300 are lost at the last of nine checkpoints alone, which the window of three does not show.
KILLED_LAST = np.where(np.arange(300) < 12, 0, 40)


def _read_series(last_P: np.ndarray, unread_P: np.ndarray) -> SeriesCounts:
    """Nine checkpoints, of which two rose before the last; ``unread_P`` samples of that were not read."""
    none_P = np.zeros(300, dtype=np.int64)
    base = replace(_checkpoint(0, none_P + 40), unread_P=none_P)
    late = [replace(_checkpoint(20 * t, none_P + (40 if t < 7 else 46)), unread_P=none_P) for t in range(1, 9)]
    last = replace(_checkpoint(180, last_P), unread_P=unread_P)
    return replace(_series(base, *late, last), guess_rate=GuessRate(share=0.0, source="given"))


@pytest.mark.slow
@pytest.mark.usefixtures("no_remedy")
@pytest.mark.parametrize(
    ("n_unread", "label", "says"),
    [
        (0, "lost_at_steps", "Coverage lost at step 180: "),
        # the lost ones were read: what was not was so at the others
        (5, "lost_at_steps", "Coverage lost at step 180: "),
        (250, "format", "points below the base [1.3, 6.7] at step 180."),
    ],
)
def test_a_single_checkpoint_is_weighed_by_its_own_unread_samples(n_unread: int, label: str, says: str) -> None:
    unread_P = np.where(np.arange(300) < 12, n_unread if n_unread > 5 else 0, n_unread if n_unread <= 5 else 0)
    verdict = verdict_of(_read_series(KILLED_LAST, unread_P))
    assert verdict.label == label
    assert says in verdict.sentence
    assert [one.step for one in verdict.steps if one.lost] == [180]
    assert verdict.steps[-1].cause == ("format" if label == "format" else None)


@pytest.mark.usefixtures("no_remedy")
def test_unread_samples_of_the_other_checkpoints_do_not_explain_one_that_was_read() -> None:
    series = _read_series(KILLED_LAST, np.zeros(300, dtype=np.int64))
    *early, sixth, seventh, last = series.trained
    others = [replace(one, unread_P=np.full(300, 100)) for one in (sixth, seventh)]
    verdict = verdict_of(replace(series, trained=(*early, *others, last)))
    assert (verdict.label, verdict.steps[-1].cause) == ("lost_at_steps", None)


@pytest.mark.slow
@pytest.mark.usefixtures("no_remedy")
def test_a_checkpoint_has_its_own_cause_where_the_window_fell_by_itself() -> None:
    series = _read_series(KILLED_LAST, np.zeros(300, dtype=np.int64))
    first, *others = series.trained
    cut = replace(first, correct_P=np.full(300, 20), unread_P=np.full(300, 128))  # half of its samples
    lost = [replace(one, correct_P=KILLED_LAST) for one in others]
    verdict = verdict_of(replace(series, trained=(cut, *lost)))
    assert (verdict.label, verdict.explanation.format) == ("degraded", None)
    assert [one.cause for one in verdict.steps] == ["format", *[None] * 8]
    otherwise = {claim.name: claim.otherwise for claim in verdict.claims if claim.holds}
    assert otherwise["pass@k fell"] == ()
    assert otherwise["a checkpoint lost"] == ("samples that were truncated, unparsed, or timed out in grading",)
    whys = {step.step: step.why for step in verdict.shipping.steps}
    assert whys[20].startswith("unparsed or misread answers explain a fall of pass@k")
    assert not whys[180].endswith(")") or "possible cause" not in whys[180]


@pytest.mark.usefixtures("no_remedy")
def test_a_single_checkpoint_names_the_guesses_that_would_explain_it() -> None:
    rng = np.random.default_rng(0)
    none_P = np.zeros(100, dtype=np.int64)
    base = _checkpoint(0, rng.binomial(N, 0.02, 100))
    late = [_checkpoint(20 * t, rng.binomial(N, 0.03, 100)) for t in range(1, 9)]
    series = replace(_series(base, *late, _checkpoint(180, none_P)), guess_rate=GuessRate(share=0.03, source="given"))
    verdict = verdict_of(series)
    assert (verdict.label, verdict.explanation.step) == ("guessing", 180)
    assert "at step 180" in verdict.sentence
    assert 0.01 < verdict.explanation.guess_rate < 0.03
    known = verdict_of(replace(series, guess_rate=GuessRate(share=0.0, source="given")))
    assert (known.label, known.explanation.step) == ("lost_at_steps", 180)


@pytest.mark.usefixtures("no_remedy")
def test_unread_samples_that_explain_little_of_a_fall_leave_open_whether_there_is_one() -> None:
    # a small fall, found in all samples; one late sample in forty could not be read, and the others do not show it
    rng = np.random.default_rng(38)
    base_P, hits_P = rng.binomial(N, 0.10, 100), rng.binomial(N, 0.09, 100)
    none_P, cut_P = np.zeros(100, dtype=np.int64), np.full(100, N // 40)
    late = replace(_checkpoint(20, hits_P), unread_P=cut_P)
    series = _series(replace(_checkpoint(0, base_P), unread_P=none_P), late)
    series = replace(series, guess_rate=GuessRate(share=0.0, source="given"))
    verdict = verdict_of(series)
    assert verdict.p_exact <= KEY_LEVEL
    assert (verdict.label, verdict.explanation.format < 0.5) == ("inconclusive", True)
    assert "In all samples, pass@" in verdict.sentence
    assert verdict_of(replace(series, trained=(_checkpoint(20, hits_P),))).label == "over_sharpened"


@pytest.mark.slow
@pytest.mark.usefixtures("no_remedy")
def test_a_collapse_of_modes_does_not_hide_a_checkpoint_that_lost_problems() -> None:
    series = _read_series(KILLED_LAST, np.zeros(300, dtype=np.int64))
    modes = [replace(one, minority_P=np.full(300, 15 if one.step < 120 else 4)) for one in series.trained]
    series = replace(series, base=replace(series.base, minority_P=np.full(300, 8)), trained=tuple(modes))
    verdict = verdict_of(replace(series, shows_modes_P=np.ones(300, dtype=bool)))
    assert verdict.label == "mode_collapse"
    assert ". Step 180 lost up to 4.0 points [1.3, 6.7] of pass@128." in verdict.sentence


@pytest.mark.parametrize("late", [20, 128])
def test_of_samples_that_hang_together_nothing_is_concluded(late: int) -> None:
    series = replace(_series(_checkpoint(0, np.full(60, 128)), _checkpoint(20, np.full(60, late))), dependence="by 3")
    verdict = verdict_of(series)
    assert (verdict.label, verdict.remedy, verdict.explanation, verdict.sharpening) == (
        "inconclusive",
        None,
        None,
        None,
    )
    assert not any(claim.holds for claim in verdict.claims)
    assert not any(step.lost or step.kept for step in verdict.steps)
    assert verdict.warnings[0].startswith("Samples of a problem are correlated: by 3.")
    assert verdict.shipping.recommended is None


@pytest.mark.slow
@pytest.mark.usefixtures("no_remedy")
def test_what_explains_one_checkpoint_does_not_speak_for_another() -> None:
    # steps 60 and 80 lose 12 points and recover; of step 180 alone a third cannot be read
    none_P = np.zeros(300, dtype=np.int64)
    base = replace(_checkpoint(0, none_P + 40), unread_P=none_P)
    late = []
    for step in range(20, 181, 20):
        correct_P = np.where(np.arange(300) < 36, 0, 40) if step in (60, 80) else none_P + (27 if step == 180 else 48)
        late.append(replace(_checkpoint(step, correct_P), unread_P=none_P + (85 if step == 180 else 0)))
    verdict = verdict_of(replace(_series(base, *late), guess_rate=GuessRate(share=0.0, source="given")))
    assert (verdict.label, verdict.explanation.step) == ("format", 180)
    told, rest = verdict.sentence.split(". Steps 60–80 had lost up to 12.0 points")
    assert "at step 180" in told
    assert "which explains 100 % of the fall" in told
    assert "parsed" not in rest


@pytest.mark.usefixtures("no_remedy")
def test_a_collapse_of_modes_does_not_deny_a_fall_that_something_else_explains() -> None:
    none_P = np.zeros(100, dtype=np.int64)
    base = replace(_checkpoint(0, none_P + 100, minority=none_P + 40), unread_P=none_P)
    late = replace(_checkpoint(20, none_P + 60, minority=none_P + 2), unread_P=none_P + 102)
    verdict = verdict_of(
        replace(_series(base, late, shows_modes=True), guess_rate=GuessRate(share=0.0, source="given"))
    )
    assert verdict.label == "mode_collapse"
    assert ". A fall of pass@k may have another explanation." in verdict.sentence


@pytest.mark.usefixtures("no_remedy")
def test_a_fall_over_problems_like_these_is_not_claimed_where_these_do_not_show_it() -> None:
    # all fall by the same hair, which 256 samples of each do not show, though they leave no spread between problems
    verdict = verdict_of(_series(_checkpoint(0, np.full(60, 128)), _checkpoint(20, np.full(60, 126))))
    assert verdict.label == "inconclusive"
    fell = next(claim for claim in verdict.claims if claim.name == FELL)
    assert fell.p <= fell.level
    assert (fell.holds, fell.why) == (False, "the exact test for these problems is not significant")


@pytest.mark.usefixtures("no_remedy")
def test_where_most_samples_could_not_be_read_the_verdict_says_so_whatever_its_label() -> None:
    correct = np.full(60, 5)
    cut_and_unread, unread, read = (0.78, 0.95, 0.0), (0.2, 0.6, 0.02), (0.5, 0.49, 0.01)
    base, late, good = (
        _checkpoint(step, correct, rates=rates) for step, rates in ((0, cut_and_unread), (20, unread), (40, read))
    )
    verdict = verdict_of(_series(base, late, good))
    not_read, cut_off = verdict.warnings[:2]
    assert not_read.startswith(
        "95 % of the samples of checkpoint-0 were unparsed, ambiguous, or timed out in grading (more than half at 2 of "
        "3 checkpoints). "
    )
    assert cut_off.startswith(
        "78 % of the samples of checkpoint-0 were truncated before an answer (more than half at 1 of 3 checkpoints)"
    )
    assert {not_read, cut_off} <= set(verdict.caveats)
    assert verdict_of(_series(replace(good, step=0), good)).warnings == ()
    # nothing to compare with is no reason to be silent
    none = verdict_of(_series(base, replace(late, why="60 of 60 problems lack samples")))
    assert (none.label, none.warnings) == ("no_verdict", (*none.warnings[:1], cut_off.replace("1 of 3", "1 of 2")))


@pytest.mark.usefixtures("no_remedy")
@pytest.mark.parametrize(("unread", "told"), [(80, True), (5, False)])
def test_what_training_mended_of_the_form_is_told_where_no_loss_is_found(unread: int, told: bool) -> None:
    base = replace(_checkpoint(0, np.full(200, 128)), unread_P=np.full(200, unread))
    late = replace(_checkpoint(20, np.full(200, 160)), unread_P=np.zeros(200, dtype=np.int64))
    verdict = verdict_of(_series(base, late))
    assert verdict.label == "no_loss"
    assert any("which would hide a loss" in text for text in verdict.caveats) == told


@pytest.mark.usefixtures("no_remedy")
def test_a_fall_of_samples_at_an_unknown_temperature_may_be_a_lower_temperature() -> None:
    rng = np.random.default_rng(0)
    base, late = rng.binomial(N, 0.5, 100), rng.binomial(N, 0.2, 100)
    series = _series(_checkpoint(0, base), _checkpoint(20, late))
    for knows, others in ((True, ()), (False, ("a lower sampling temperature than the base's",))):
        verdict = verdict_of(replace(series, knows_temperature=knows))
        [fell] = [claim for claim in verdict.claims if claim.name == "pass@k fell here"]
        assert fell.holds
        found = [other for other in fell.otherwise if "temperature" in other]
        assert len(found) == len(others)
        assert all(text.startswith(start) for text, start in zip(found, others, strict=True))
