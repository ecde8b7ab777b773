import math
from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.panel.panel_probability_ratio import panel_probability_ratio

COLUMNS = "checkpoint_id problem_id task sample_index correct logp_sum n_tokens"


def found(panel, *, noise=(("late", "q1", 1e-4),), tasks=None):
    """``panel``: problem → [(correct, base log-probability, its change)]. ``noise``: (checkpoint, problem, nats)."""
    rows = [
        (checkpoint, problem, (tasks or {}).get(problem, "sums"), i, correct, base + change * late, 5)
        for late, checkpoint in enumerate(("base", "late"))
        for problem, responses in panel.items()
        for i, (correct, base, change) in enumerate(responses)
    ]
    scores = tiny_evidence("panel_logps", COLUMNS, rows)
    twice = [(checkpoint, problem, "r", -5.0, -5.0 + nats) for checkpoint, problem, nats in noise]
    columns = "checkpoint_id problem_id response_id logp_sum second_logp_sum"
    repeated = tiny_evidence("repeated_logps", columns, twice)
    evidence = replace(scores, frames={**scores.frames, **repeated.frames})
    return {f.scope: f for f in panel_probability_ratio(evidence)}


def test_ratios_not_their_logarithms_are_averaged_within_problems_first():
    panel = {
        "q1": [(True, -9.0, math.log(0.8)), (False, -9.0, 5.0)],
        "q2": [(True, -9.0, math.log(1.0)), (True, -9.0, math.log(1.2))],
    }
    finding = found(panel)["all"]
    assert finding.value == pytest.approx((0.8 + 1.1) / 2)
    assert (finding.unit, finding.n) == ("ratio", 2)


def test_the_mean_is_the_success_probability_now_over_that_of_the_base():
    # Four wordings of one answer, known exactly: mass moves between them, and 10 % of it is lost.
    base, now = np.array([0.3, 0.1, 0.1, 0.1]), np.array([0.18, 0.16, 0.1, 0.1])
    draws = np.random.default_rng(0).choice(4, size=1000, p=base / base.sum())
    panel = {"q1": [(True, math.log(base[i]), math.log(now[i] / base[i])) for i in draws]}
    finding = found(panel)["all"]
    assert finding.value == pytest.approx(0.9, abs=0.03)
    assert np.log(now[draws] / base[draws]).mean() < math.log(0.87)  # Δ⁺ reads the rewording as a loss


def test_a_few_dominating_responses_hide_the_mean_and_are_counted_in_the_reason():
    even = {"q1": [(True, -9.0, 0.0)] * 9 + [(True, -9.0, math.log(2.0))]}
    assert found(even)["all"].value == pytest.approx(1.1)  # 11² / 13 = 9.3 of 10 are effective
    uneven = {"q1": [(True, -9.0, 0.0)] * 9 + [(True, -9.0, math.log(9.0))]}
    finding = found(uneven)["all"]
    assert finding.value is None  # 18² / 90 = 3.6
    assert finding.why == (
        "the ratios are too uneven: the effective sample size is 3.6 of 10 responses (36 %); it must be above 80 %"
    )


def test_each_task_is_judged_by_its_own_responses():
    panel = {"q1": [(True, -9.0, 0.0)] * 4, "q2": [(True, -9.0, 4.0)] + [(True, -9.0, 0.0)] * 3}
    scopes = found(panel, tasks={"q1": "sums", "q2": "logic"})
    assert scopes["task:sums"].value == 1.0
    assert scopes["task:logic"].value is None
    assert scopes["all"].value is None


def test_the_noise_of_scoring_twice_stands_beside_it():
    noise = [("late", "q1", 0.02), ("late", "q1", -0.02), ("late", "q2", 0.0), ("base", "q1", 9.0)]
    finding = found({"q1": [(True, -9.0, 0.0)], "q2": [(True, -9.0, 0.0)]}, noise=noise)["noise"]
    assert finding.value == pytest.approx((math.exp(0.02) + 1.0) / 2)  # differences do not cancel
    assert finding.low >= 1.0
    assert finding.n == 2


def test_without_the_noise_there_is_no_ratio():
    scopes = found({"q1": [(True, -9.0, 0.0)]}, noise=[("base", "q1", 1e-4)])
    assert list(scopes) == ["all"]
    assert scopes["all"].why.startswith("no panel response is scored twice here")


def test_a_change_beyond_a_double_and_a_panel_of_wrong_responses_have_reasons():
    assert found({"q1": [(True, -900.0, 899.0)]})["all"].why == "the change exceeds 700 nats"
    assert found({"q1": [(False, -9.0, 0.0)]})["all"].why.startswith("no panel response is correct")
