"""What is said of the checkpoint to ship: the published shares hold, and the truth that they are held to is right."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration import shipping
from benchmarks.calibration.shipping import (
    BEFORE,
    BOUND,
    BY_EXPECTATION,
    CERTIFIED,
    CHOICES,
    PRICED,
    RULES,
    Cell,
    Truth,
    draw,
    simulate,
    truth_of,
)
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.verdict.shipping.choice import recommend


def published(name="shipping"):
    return json.loads((RESULTS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "least"), [("shipping", 2000), ("shipping_controls", 200), ("shipping_until_solved", 800)]
)
def test_what_is_said_to_be_sure_is_true_as_often_as_it_says(name, least):
    told = published(name)["guarantee"]
    assert set(told) == set(CERTIFIED)
    for one in told.values():
        assert one["given"] > least
        assert one["true"] / one["given"] >= BOUND
        assert one["least"] is None or one["least"] >= BOUND  # None: few series in each cell


def test_regret_is_below_that_of_common_habits_and_near_that_of_the_best_rule():
    regret = published()["regret"]
    assert set(regret) == set(RULES)
    for name in ("out only what surely fell", "kept by the verdict", "the best pass@1", "the last", "the base"):
        assert regret["ship"]["worst"] < regret[name]["worst"] / 2
        assert regret["ship"]["mean"] < regret[name]["mean"] / 2
    # rules without a toss-up ship more gains, and more losses
    assert regret["ship"]["mean"] <= min(one["mean"] for one in regret.values()) + 0.05


def test_wrong_choices_are_halved_and_true_gains_are_still_shipped():
    rows = {row["cell"]["course"]: row for row in published("shipping_choices")["rows"]}
    assert list(rows) == [*CHOICES, *PRICED]
    for course in ("40 checkpoints, each 0.8 points worse", "the tail is halved, the others rise"):
        wrong = rows[course]["wrong"]
        assert wrong["ship"] <= wrong[BEFORE] / 2
        assert wrong[BEFORE] > 0.35 * rows[course]["series"]
        regret = rows[course]["mean_regret"]
        assert regret["ship"] <= regret[BEFORE] / 2
    trained = rows["each 3 points better"]["trained"]
    assert trained["ship"] >= 0.97 * trained[BEFORE]


def test_a_choice_is_wrong_if_pass_at_1_or_pass_at_k_truly_fell():
    truth = Truth(pass_at_TK=np.array([[0.3, 0.5], [0.31, 0.49], [0.29, 0.5], [0.6, 0.45]]))
    assert [truth.is_wrong(chosen) for chosen in range(4)] == [False, False, True, True]


def test_a_choice_that_lost_more_than_two_points_costs_the_excess_and_another_what_it_lacks():
    # pass@1 and pass@2 of the base, of a checkpoint that lost 1 point at k = 2, and of one that lost 5
    truth = Truth(pass_at_TK=np.array([[0.3, 0.5], [0.4, 0.49], [0.6, 0.45]]))
    assert [truth.regret(chosen) for chosen in (0, 1, 2)] == pytest.approx([0.1, 0.0, 0.03])


def test_a_guarantee_that_promises_too_much_is_found():
    cell = Cell(course="all problems rise", n=64, checkpoints=6)
    truth = truth_of(cell)
    said = recommend([draw(cell, np.random.default_rng(0))])
    assert said.recommended is not None
    assert said.guarantee is not None
    assert truth.holds(said, said.recommended.step)
    greedy = replace(said, guarantee=replace(said.guarantee, gain=0.5))
    assert not truth.holds(greedy, said.recommended.step)


def test_what_controls_draw_is_an_answer_of_the_simulation_with_a_truth_of_its_own():
    cell = Cell(course="nothing changes", n=64, checkpoints=6, controls=True)
    truth = truth_of(cell)
    assert len(truth.pass_at_TK) == 1 + 6 + 5
    said = recommend([draw(cell, np.random.default_rng(0))])
    chosen = max((one for one in said.steps if one.temperature == 0.6), key=lambda one: one.pass_at_1)
    assert truth.pass_at_TK[cell.row(chosen), 0] > truth.pass_at_TK[0, 0]
    assert sum(row["other_temperature"]["ship"] for row in published("shipping_controls")["rows"]) > 200


def test_the_rule_is_asked_as_it_ships(monkeypatch):
    monkeypatch.setattr(shipping, "POPULATION", 2000)
    row = simulate(Cell(course="sharpened from the start (GRPO)", n=64, checkpoints=6), series=2, seed=[0])
    assert set(row.mean_regret) == {*RULES, BEFORE, BY_EXPECTATION}
    assert row.mean_regret["ship"] < row.mean_regret["the last"]


@pytest.mark.parametrize("table", ["checkpoints", "allowed", "controls"])
def test_on_runs_whose_truth_is_known_it_is_as_true_and_no_other_rule_is_better_in_the_worst_run(table):
    told = published("shipping_exact")[table]
    assert told["guarantee"]["given"] > 200
    assert told["guarantee"]["true"] / told["guarantee"]["given"] >= BOUND
    assert min(told["regret"], key=lambda name: told["regret"][name]["worst"]) == "ship"
