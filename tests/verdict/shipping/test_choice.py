"""Which checkpoint is shipped, what is sure of it, and when it is the base or none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest

from oversharp.diagnostics.verdict.counts import CheckpointCounts, ControlCounts, SeriesCounts, SharperDraws
from oversharp.diagnostics.verdict.recommendation import Recommendation
from oversharp.diagnostics.verdict.shipping.choice import certifying, recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries
from oversharp.diagnostics.verdict.shipping.words import alternatives_text

#: Of four samples, correct ones of every problem: pass@1 is .5 and pass@2 is 5/6.
BASE = [2] * 200
RISEN = [3] * 200
#: 30 % of the problems die, the others are always solved: pass@1 is .7, and pass@2 too, 13 points below the base.
SHARPENED = [0] * 60 + [4] * 140
#: One in ten dies: pass@1 is .9 and pass@2 too.
FEW_LOST = [0] * 20 + [4] * 180
#: Of 40 problems 8 die: pass@1 and pass@2 are .8, 3.3 points below the base, and nothing is sure.
MAYBE = [0] * 8 + [4] * 32


def _series(*trained: Sequence[int], base: Sequence[int] = BASE, name: str = "run", **changes: object) -> JudgedSeries:
    said = {"lost": (), "why": None, "cluster_P": None, "weights": {}, "controls": (), **changes}
    weights = said.pop("weights")
    checkpoints = [
        CheckpointCounts(
            step=10 * t, checkpoint=f"checkpoint-{10 * t}", weights=weights.get(10 * t), n=4,
            correct_P=np.array(correct_P),
            minority_P=np.zeros(len(correct_P), dtype=int), rates=None,
        )
        for t, correct_P in enumerate([base, *trained])
    ]  # fmt: skip
    counts = SeriesCounts(
        series=name, base=checkpoints[0], trained=tuple(checkpoints[1:]), cluster_P=said.pop("cluster_P"),
        controls=said.pop("controls"),
        shows_modes_P=np.zeros(len(base), dtype=bool), tasks=("toy",), graders=("exact",), tokens_per_sample=None,
    )  # fmt: skip
    return JudgedSeries(counts=counts, **said)


def _roles(said: Recommendation) -> list[str | None]:
    return [one.role for one in said.steps]


def test_the_highest_pass_at_1_is_shipped_unless_it_lost_something() -> None:
    kept = recommend([_series(RISEN, FEW_LOST)])
    assert _roles(kept) == ["candidate", "candidate", "recommended"]
    fell = recommend([_series(RISEN, SHARPENED)])
    assert _roles(fell) == ["candidate", "recommended", "out"]
    assert fell.steps[2].why is not None
    assert fell.steps[2].why.startswith("pass@2 fell significantly: −13.3 [")
    assert fell.sentence.startswith("Ship checkpoint-10: pass@1 50.0 % → 75.0 %; up by at least ")
    assert "oversharp plan" not in fell.sentence


def test_what_is_sure_is_the_band_of_the_chosen_checkpoint() -> None:
    sure = recommend([_series(RISEN)]).guarantee
    assert sure is not None
    # problems that all move alike leave the floor alone, 1 / 200, the same noise at all k: Student's t, near 1.97
    assert sure.gain == pytest.approx(0.25 - 1.97 / 200, abs=1e-3)
    assert (sure.loss, sure.n_units, sure.units, sure.pass_at_1) == (0.0, 200, "problems", 0.75)
    small = recommend([_series([2] * 150 + [1] * 20 + [3] * 30)])
    assert small.guarantee is not None
    assert small.guarantee.gain < 0
    assert "a fall by up to 0.9 points is not excluded" in small.sentence


def test_a_fall_that_is_not_sure_puts_a_checkpoint_out_by_the_estimate_unless_it_is_allowed() -> None:
    series = _series(MAYBE, base=[2] * 40)
    said = recommend([series])
    assert _roles(said) == ["recommended", "out"]
    assert said.steps[1].why is not None
    assert said.steps[1].why.startswith("the estimate of pass@2 fell by more than 2 points, not significantly: −3.3 [")
    assert said.sentence.startswith(
        "Ship the base, checkpoint-0: the only compared checkpoint is out: some pass@k is estimated to be "
        "more than 2 points lower. Too few data: "
    )
    allowed = recommend([series], allowed_loss=0.05)
    assert _roles(allowed) == ["candidate", "recommended"]
    assert allowed.guarantee is not None
    assert allowed.guarantee.loss > 0.05
    assert "oversharp plan prints how large an audit must be to detect one" in allowed.sentence


def test_a_gain_that_may_be_none_is_a_toss_up_with_the_base_and_a_larger_one_is_not() -> None:
    # 50 of 200 problems change by 0.25: the mean by 0.005 or 0.0125, its standard error is 0.0088, its z 0.57 or 1.42
    open_gain = recommend([_series([2] * 150 + [1] * 23 + [3] * 27)])
    assert open_gain.recommended is not None
    assert open_gain.recommended.is_base
    assert _roles(open_gain) == ["recommended", "candidate"]
    toss_up = open_gain.toss_up
    assert toss_up is not None
    assert (toss_up.step, toss_up.needed) == (10, 0.8)
    assert (toss_up.gain, toss_up.expected_gain) == pytest.approx((0.005, 0.005))
    assert toss_up.better == pytest.approx(0.714, abs=0.005)
    assert open_gain.sentence == (
        "Ship the base, checkpoint-0: toss-up with the base, the safe choice: checkpoint-10 has an expected "
        "gain of +0.5 points of pass@1 (+0.5 measured), and the probability that its pass@1 is above the base's is "
        "0.71, below 0.8."
    )
    larger = recommend([_series([2] * 150 + [1] * 20 + [3] * 30)])
    assert larger.toss_up is None
    assert larger.steps[1].better == pytest.approx(0.921, abs=0.005)
    assert Recommendation.from_fields(json.loads(json.dumps(asdict(open_gain)))) == open_gain


def test_the_best_of_many_that_fell_is_a_toss_up_although_it_would_be_shipped_alone() -> None:
    rng = np.random.default_rng(0)
    best = [2] * 150 + [1] * 20 + [3] * 30
    others = [rng.permutation([2] * 150 + [1] * 28 + [3] * 22).tolist() for _ in range(12)]
    alone, among = (recommend([_series(*trained)], allowed_loss=0.05) for trained in ([best], [best, *others]))
    assert _roles(alone) == ["candidate", "recommended"]
    assert among.toss_up is not None
    assert among.toss_up.step == 10
    assert among.toss_up.expected_gain < among.toss_up.gain / 2


def test_lost_checkpoints_do_not_make_a_small_gain_of_another_look_real() -> None:
    rng = np.random.default_rng(0)
    lucky = [2] * 150 + [1] * 22 + [3] * 28
    others = [rng.permutation([2] * 150 + [1] * 25 + [3] * 25).tolist() for _ in range(6)]
    collapsed = [0] * 120 + [2] * 80
    series = _series(lucky, *others, collapsed, collapsed, lost=frozenset({80, 90}))
    among = recommend([series], allowed_loss=0.05)
    assert among.toss_up is not None
    without = recommend([_series(lucky, *others)], allowed_loss=0.05)
    assert without.toss_up is not None
    assert among.toss_up.better == pytest.approx(without.toss_up.better, abs=0.05)


def test_a_checkpoint_beside_one_that_lost_much_is_out_by_its_expected_fall_and_alone_it_is_not() -> None:
    lost_little, lost_much = [0] * 7 + [4] * 33, [0] * 12 + [4] * 28
    alone = recommend([_series(lost_little, base=[2] * 40)])
    assert _roles(alone) == ["candidate", "recommended"]
    together = recommend([_series(lost_little, lost_much, base=[2] * 40)])
    assert [step.out_by for step in together.steps] == [None, "expected", "estimate"]
    step = together.steps[1]
    assert step.worst is not None
    assert step.expected_loss is not None
    assert step.worst.change == pytest.approx(33 / 40 - 5 / 6)
    assert step.expected_loss > 0.02
    assert step.why == "the expected fall of pass@k at the worst k is 2.2 points, more than 2"
    allowed = recommend([_series(lost_little, lost_much, base=[2] * 40)], allowed_loss=0.03)
    assert allowed.steps[1].role == "recommended"


def test_neighbours_that_kept_pass_at_k_correct_an_estimate_that_fell() -> None:
    kept, fell = [0] * 5 + [4] * 35, MAYBE
    alone = recommend([_series(fell, base=[2] * 40)])
    assert alone.steps[1].out_by == "estimate"
    between = recommend([_series(kept, kept, fell, kept, kept, base=[2] * 40)])
    step = between.steps[3]
    assert (step.role, step.step) == ("candidate", 30)
    assert step.worst is not None
    assert step.expected_loss is not None
    assert step.expected_loss < 0.02 < -step.worst.change


def test_the_highest_expected_pass_at_1_is_shipped_and_not_the_luckiest() -> None:
    rng = np.random.default_rng(5)
    # gains of 0 to 3.5 points, and of 4 at the second
    rises = [(25 - t, 25 + t) for t in range(0, 16, 2)]
    rises[1] = (9, 41)
    trained = [rng.permutation([2] * (200 - fell - rose) + [1] * fell + [3] * rose).tolist() for fell, rose in rises]
    said = recommend([_series(*trained)], allowed_loss=0.05)
    assert max(said.steps, key=lambda step: step.pass_at_1 or 0.0).step == 20
    assert said.recommended is not None
    assert said.recommended.step == 80


def test_what_the_verdict_calls_lost_is_out_unless_losses_are_allowed() -> None:
    series = _series(RISEN, FEW_LOST, lost=(20,))
    assert _roles(recommend([series])) == ["candidate", "recommended", "out"]
    assert _roles(recommend([series], allowed_loss=0.01)) == ["candidate", "candidate", "recommended"]


def test_the_base_is_shipped_where_no_checkpoint_is_better() -> None:
    for trained in ([BASE], [[1] * 2 + [2] * 198]):
        said = recommend([_series(*trained)])
        assert said.recommended is not None
        assert said.recommended.is_base
        assert said.guarantee is None
        assert said.sentence == "Ship the base, checkpoint-0: no eligible checkpoint has a higher pass@1."


@pytest.mark.parametrize(
    ("series", "why"),
    [
        (_series(RISEN, why="no verdict: five reasons"), "no verdict: five reasons"),
        (_series([4], base=[2]), "fewer than two problems"),
        (_series([4] * 4, base=[2] * 4, cluster_P=np.zeros(4, dtype=int)), "fewer than two clusters of problems"),
        (_series([4] * 9, base=[0] * 9), "the base solved nothing, so no loss can be measured"),
    ],
)
def test_where_nothing_can_be_said_there_is_a_reason(series: JudgedSeries, why: str) -> None:
    said = recommend([series])
    assert said.recommended is None
    assert said.sentence == f"No recommendation: {why}."
    assert [(one.role, one.why) for one in said.steps] == [(None, why)] * 2


def test_those_that_may_have_as_high_a_pass_at_1_are_named_and_others_not() -> None:
    nearly = [3] * 199 + [4]
    said = recommend([_series([2] * 190 + [3] * 10, RISEN, nearly)])
    assert said.recommended is not None
    assert said.recommended.step == 30
    assert [one.step for one in said.alternatives] == [20]


def test_where_nothing_rose_the_first_that_is_as_good_as_the_base_is_named_too() -> None:
    said = recommend([_series(BASE, BASE)])
    assert said.sentence == "Ship the base, checkpoint-0: no eligible checkpoint has a higher pass@1."
    assert alternatives_text(said) == "pass@1 may be as high at checkpoint-10, checkpoint-20"


def test_two_series_are_compared_in_one_band_that_is_wider_than_that_of_one() -> None:
    rng = np.random.default_rng(0)
    trained = [rng.integers(1, 5, 200).tolist() for _ in range(4)]
    alone, other = _series(*trained[:2], name="a"), _series(*trained[2:], name="b")
    (one, both) = recommend([alone]), recommend([alone, other])
    assert both.series == ("a", "b")
    assert [(x.series, x.step) for x in both.steps] == [("a", 0), ("a", 10), ("a", 20), ("b", 10), ("b", 20)]
    assert both.steps[1].first is not None
    assert one.steps[1].first is not None
    assert both.steps[1].first.change == one.steps[1].first.change
    assert both.steps[1].first.low < one.steps[1].first.low
    assert both.recommended == max(both.steps, key=lambda x: x.pass_at_1 or 0)
    assert " of b" in both.sentence or " of a" in both.sentence


def test_copies_of_problems_that_a_cluster_names_make_nothing_surer() -> None:
    late = np.random.default_rng(1).integers(1, 5, 40)
    copies = {"base": [2] * 80, "cluster_P": np.tile(np.arange(40), 2)}
    single = recommend([_series(late.tolist(), base=[2] * 40)]).guarantee
    named = recommend([_series(np.tile(late, 2).tolist(), **copies)]).guarantee
    hidden = recommend([_series(np.tile(late, 2).tolist(), base=[2] * 80)]).guarantee
    assert single is not None
    assert named is not None
    assert hidden is not None
    assert (named.gain, named.loss) == pytest.approx((single.gain, single.loss))
    assert (named.n_units, named.units) == (40, "clusters")
    assert hidden.gain > named.gain


def test_few_problems_are_chosen_by_and_nothing_is_guaranteed() -> None:
    said = recommend([_series([4] * 20, base=[2] * 20)])
    assert _roles(said) == ["candidate", "recommended"]
    assert said.guarantee is None
    assert "There is no guarantee: the base solved fewer than 30 of the problems" in said.sentence


def test_held_out_problems_certify_the_choice_of_the_others_or_veto_it() -> None:
    certifies_P = np.arange(200) >= 100
    good = recommend([_series(RISEN, SHARPENED)], certifying_P=certifies_P)
    # the 60 that die are all among those that choose, so that the others would have shipped it
    assert _roles(good) == ["candidate", "recommended", "out"]
    assert good.guarantee is not None
    assert (good.guarantee.n_units, good.n_choosing) == (100, 100)
    assert (good.steps_of, recommend([_series(RISEN)]).steps_of) == ("the problems that choose", "all problems")
    vetoed = recommend([_series(SHARPENED)], certifying_P=~certifies_P)
    assert vetoed.recommended is not None
    assert vetoed.recommended.is_base
    veto = "the 100 held-out problems veto checkpoint-10 of run, pass@2 fell significantly: −43.3 ["
    assert vetoed.sentence.startswith(f"Ship the base, checkpoint-0: {veto}")
    unchanged = recommend([_series(BASE)], certifying_P=certifies_P)
    assert unchanged.recommended is not None
    assert unchanged.recommended.is_base
    assert _roles(vetoed) == ["recommended", "out"]


def _drawn(correct_P: Sequence[int], *, temperature: float, step: int = 0, n: int = 4) -> ControlCounts:
    return ControlCounts(
        step=step, checkpoint=f"checkpoint-{step}", temperature=temperature, n=n, correct_P=np.array(correct_P)
    )  # fmt: skip


def test_the_base_drawn_colder_is_shipped_where_it_is_better_and_said_where_it_is_as_good() -> None:
    better = recommend([_series(RISEN, controls=(_drawn([4] * 200, temperature=0.5),))])
    assert [(one.step, one.temperature, one.role) for one in better.steps] == [
        (0, None, "candidate"), (0, 0.5, "recommended"), (10, None, "candidate"),
    ]  # fmt: skip
    assert better.sentence.startswith(
        "Ship the base sampled at T = 0.5, without any training: pass@1 50.0 % → 100.0 %;"
    )
    assert (
        "The best eligible checkpoint, checkpoint-10, has no higher expected pass@1 (75.0 %), and is significantly "
        in (better.sentence)
    )
    nearly = _drawn([3] * 199 + [2], temperature=0.5)
    as_good = recommend([_series(RISEN, controls=(nearly,))])
    assert as_good.recommended is not None
    assert as_good.recommended.step == 10
    assert "The base at T = 0.5 may be as good without training: its pass@1 is 74.9 %" in as_good.sentence
    less = recommend([_series(RISEN, controls=(_drawn(BASE, temperature=0.5),))])
    assert "without training" not in less.sentence


def test_a_control_is_not_shrunk_towards_controls_at_other_temperatures() -> None:
    mild, strong = _drawn([3] * 199 + [2], temperature=0.5), _drawn(SHARPENED, temperature=0.1)
    alone = recommend([_series(BASE, controls=(mild,))])
    both = recommend([_series(BASE, controls=(strong, mild))])
    steps = [next(step for step in one.steps if step.temperature == 0.5) for one in (alone, both)]
    assert steps[0].expected_gain == steps[1].expected_gain == pytest.approx(0.25 * 199 / 200)


def test_a_checkpoint_drawn_hotter_is_shipped_by_the_same_rule_and_an_out_control_is_not() -> None:
    hot = _drawn([4] * 200, temperature=1.5, step=10)
    said = recommend([_series(RISEN, controls=(hot, _drawn(SHARPENED, temperature=0.5)))])
    assert said.recommended is not None
    assert (said.recommended.step, said.recommended.temperature) == (10, 1.5)
    assert said.sentence.startswith("Ship checkpoint-10 sampled at T = 1.5: ")
    assert [one.out_by for one in said.steps] == [None, "band", None, None]


def test_a_control_of_few_samples_is_not_shipped_for_what_they_cannot_show() -> None:
    # one sample says nothing of pass@2, which is 5/6 at the base; that it is at least the control's pass@1 is known
    said = recommend([_series(RISEN, controls=(_drawn([1] * 180 + [0] * 20, temperature=0.5, n=1),))])
    assert said.steps[1].out_by is None
    few = recommend([_series(RISEN, controls=(_drawn([1] * 150 + [0] * 50, temperature=0.5, n=1),))])
    assert few.steps[1].out_by == "reach"
    assert few.steps[1].why is not None
    assert "is not excluded: 1 sample gives pass@k up to k = 1 (raise --control-n)" in few.steps[1].why
    assert few.steps[1].worst is not None
    assert few.steps[1].worst.k == 1


def test_a_choice_that_a_temperature_between_the_drawn_ones_gives_is_said_not_to_be_shown_better() -> None:
    cold = [4] * 160 + [0] * 40
    # halfway to the colder base: pass@1 .65, and pass@2 less than two points below the base's
    series = _series([2] * 100 + [4] * 80 + [0] * 20, controls=(_drawn(cold, temperature=0.5),))
    sharper = SharperDraws(
        temperature_S=(1.0, 0.5), n_S=(4, 4), correct_SP=np.array([BASE, cold]), greedy_P=np.array(cold) > 0
    )
    said = recommend([replace(series, counts=replace(series.counts, sharper=sharper))])
    assert said.recommended is not None
    assert said.recommended.step == 10
    assert said.beyond is not None
    assert not said.beyond.is_better
    assert "It is not significantly better than the base at a lower temperature" in said.sentence


def test_the_same_weights_in_two_series_count_once_and_are_lost_if_either_says_so() -> None:
    first = _series(RISEN, weights={10: "same"})
    again = _series(RISEN, name="again", weights={10: "same"}, lost=(10,))
    (alone, both) = recommend([first]), recommend([first, again])
    assert both.steps[1].first is not None
    assert alone.steps[1].first == both.steps[1].first
    assert [(one.series, one.role, one.out_by) for one in both.steps[1:]] == [
        ("run", "out", "verdict"), ("again", None, None),
    ]  # fmt: skip
    assert both.steps[2].why == "the same weights as checkpoint-10 of run, compared once"


def test_where_nothing_could_qualify_the_data_cannot_tell_and_where_a_fall_is_sure_they_can() -> None:
    said = recommend([_series([4] * 11 + [0], base=[2] * 12)])
    assert said.cannot_tell is None  # all rose
    open_one = recommend([_series([0] * 3 + [4] * 9, base=[2] * 12)])
    assert open_one.steps[1].out_by == "estimate"
    assert open_one.cannot_tell is not None
    assert (
        "with 12 problems no fall is significant in the confidence band of all checkpoints and k, which"
        in open_one.sentence
    )
    assert "oversharp plan prints what such audits detect and cost" in open_one.sentence
    assert recommend([_series(SHARPENED)]).cannot_tell is None


def test_the_side_of_a_problem_does_not_depend_on_the_others() -> None:
    names = [f"problem-{i}" for i in range(400)]
    side = certifying(names)
    assert 160 < side.sum() < 240
    assert (certifying(names[::-1]) == side[::-1]).all()
