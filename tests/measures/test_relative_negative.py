import math

import numpy as np
import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.exact_changes import relative_negative

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def findings(*checkpoints):
    """Each checkpoint: {problem: probabilities of modes a, b, …}; the first is the base."""
    rows = [
        (f"c{step}", problem, "abcdef"[i], math.log(p))
        for step, problems in enumerate(checkpoints)
        for problem, probabilities in problems.items()
        for i, p in enumerate(probabilities)
    ]
    return relative_negative(tiny_evidence("mode_logps", COLUMNS, rows))


def payers(*checkpoints):
    return {(f.checkpoint_id, f.scope): f.value for f in findings(*checkpoints)}


def test_the_greatest_loser_of_each_problem_is_counted():
    base = {"q1": (0.5, 0.1), "q2": (0.5, 0.1), "q3": (0.5, 0.3), "q4": (0.2, 0.2)}
    late = {"q1": (0.7, 0.05), "q2": (0.3, 0.2), "q3": (0.7, 0.1), "q4": (0.6, 0.1)}
    found = payers(base, late)
    # q1: incorrect −0.15, b −0.05. q2: a −0.2 (incorrect gains 0.1). q3: b −0.2. q4: incorrect −0.3, b −0.1.
    assert found["c1", "incorrect"] == 0.5
    assert found["c1", "dominant"] == 0.25
    assert found["c1", "minority"] == 0.25


def test_losses_are_taken_since_the_checkpoint_before_but_the_dominant_mode_is_the_bases():
    # b overtakes a, then loses to a: b is a minority mode all the same.
    found = payers({"q": (0.4, 0.1)}, {"q": (0.1, 0.6)}, {"q": (0.4, 0.3)})
    assert found["c1", "dominant"] == 1.0
    assert found["c2", "minority"] == 1.0


def test_falls_of_minority_modes_add_up_and_gains_among_them_do_not_make_up():
    base = {"q": (0.3, 0.1, 0.1, 0.1)}
    assert payers(base, {"q": (0.5, 0.04, 0.04, 0.12)})["c1", "minority"] == 1.0  # 0.12 against 0.1 of the incorrect
    assert payers(base, {"q": (0.5, 0.07, 0.07, 0.07)})["c1", "incorrect"] == 1.0  # 0.09 against 0.11


def test_equal_modes_under_the_base_give_the_first_the_lead():
    assert payers({"q": (0.2, 0.2)}, {"q": (0.1, 0.3)})["c1", "dominant"] == 1.0
    assert payers({"q": (0.2, 0.2)}, {"q": (0.3, 0.1)})["c1", "minority"] == 1.0


def test_problems_where_only_rounding_moved_anything_are_left_out():
    base = {"q1": (0.5, 0.1), "q2": (0.5, 0.1)}
    rounding = math.exp(0.5e-4)
    moved = findings(base, {"q1": (0.5 / rounding, 0.1 * rounding), "q2": (0.6, 0.1)})
    assert {f.scope: (f.value, f.n) for f in moved}["incorrect"] == (1.0, 1)
    still = findings(base, {"q1": (0.5 / rounding, 0.1), "q2": (0.5 * rounding, 0.1)})
    assert [f.value for f in still] == [None] * 3
    assert still[0].why.startswith("no probability changed since the previous checkpoint")


def test_a_gap_in_the_scores_leaves_the_next_checkpoint_unknown_too():
    rows = [("base", "q", m, -1.0) for m in "ab"] + [("gap", "q", "a", -1.0)]
    rows += [(late, "q", m, logp) for late, logp in (("late", -1.5), ("last", -2.0)) for m in "ab"]
    found = {(f.checkpoint_id, f.scope): f for f in relative_negative(tiny_evidence("mode_logps", COLUMNS, rows))}
    assert found["gap", "dominant"].why.startswith("1 of 2 modes are scored here")
    assert found["late", "dominant"].why.startswith("previous checkpoint: 1 of 2 modes")
    assert found["last", "dominant"].value is not None


def test_shares_sum_to_one_with_intervals_over_problems():
    rng = np.random.default_rng(3)

    def draw():
        return {f"q{i}": tuple(rng.dirichlet(np.ones(4))[:3]) for i in range(40)}

    found = findings(draw(), draw())
    assert sum(f.value for f in found) == pytest.approx(1.0)
    assert all(f.low <= f.value <= f.high and f.n == 40 for f in found)


@pytest.mark.parametrize(("rewards", "dominant_pays_at_last"), [((1.0, 2.0, 0.0), True), ((1.0, 1.0, 0.0), False)])
def test_the_toy_of_two_stages_needs_unequal_rewards(rewards, dominant_pays_at_last):
    # Expected policy gradient on three actions: likely and correct, unlikely and correct, incorrect.
    reward_K = np.array(rewards)
    logit_K = np.log([0.5, 0.05, 0.45])
    checkpoints = []
    for step in range(41):
        policy_K = np.exp(logit_K) / np.exp(logit_K).sum()
        if step % 10 == 0:
            checkpoints.append({"q": tuple(policy_K[:2])})
        logit_K = logit_K + policy_K * (reward_K - policy_K @ reward_K)
    found = payers(*checkpoints)
    payer = [next(scope for (c, scope), share in found.items() if c == f"c{i}" and share == 1.0) for i in range(1, 5)]
    assert payer[0] == "incorrect"
    assert (payer[-1] == "dominant") == dominant_pays_at_last
    assert ("dominant" in payer) == dominant_pays_at_last
