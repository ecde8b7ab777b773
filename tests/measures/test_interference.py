from dataclasses import replace

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

compute = get_measure("interference")

COLUMNS = "checkpoint_id problem_id task sample_index correct logp_sum n_tokens"
# problem → (task, panel responses: correct, log-probability under the base and later)
PANEL = {
    "q1": ("sums", [(True, -8.0, -9.0), (False, -7.0, -1.0)]),
    "q2": ("sums", [(True, -5.0, -5.5), (True, -4.0, -7.5)]),
    "q3": ("logic", [(True, -3.0, -1.0), (True, -3.0, -1.0)]),
}
SOLVED = {"q1": 0, "q2": 1, "q3": 10}  # of 10 base samples


def evidence_of(panel=PANEL, solved=SOLVED, n=10):
    rows = [
        (checkpoint, problem, task, index, correct, logps[column], 5)
        for column, checkpoint in enumerate(("base", "late"))
        for problem, (task, responses) in panel.items()
        for index, (correct, *logps) in enumerate(responses)
    ]
    counts = [(c, problem, n, k) for c in ("base", "late") for problem, k in solved.items()]
    scores = tiny_evidence("panel_logps", COLUMNS, rows)
    samples = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", counts, n=10)
    return replace(scores, frames={**scores.frames, **samples.frames})


def values(evidence):
    return {f.scope: f.value for f in compute(evidence) if f.scope != "median"}


def test_problems_count_equally_and_tasks_and_base_success_rates_are_scopes():
    found = values(evidence_of())
    # q1: −1 (its wrong response rose by 6); q2: (−0.5 − 3.5) / 2; q3: +2
    assert found.pop("all") == pytest.approx((-1.0 - 2.0 + 2.0) / 3)
    expected = {"task:logic": 2.0, "task:sums": -1.5, "base 0": -1.0, "base 0-10%": -2.0, "base 90-100%": 2.0}
    assert found == pytest.approx(expected)


def test_a_rate_on_a_bound_belongs_to_the_bin_below():
    # the bins hold their upper bound: 3 of 10 is at most 30 %
    scopes = set(values(evidence_of(solved={"q1": 3, "q2": 4, "q3": 7})))
    assert {"base 20-30%", "base 30-40%", "base 60-70%"} < scopes


def test_the_median_problem_has_an_interval_and_the_mean_which_one_problem_may_carry_has_none():
    # 100 equal responses of a problem are one problem
    falls = dict(enumerate((0.5, 1.0, 1.5, 2.0, 2.5, 60.0)))
    panel = {f"q{i}": ("sums", [(True, -5.0, -5.0 - fall)] * 100) for i, fall in falls.items()}
    found = {f.scope: f for f in compute(evidence_of(panel, {f"q{i}": 5 for i in falls}))}
    whole, middle = found["all"], found["median"]
    assert (whole.value, whole.low, whole.high, whole.n) == (-11.25, None, None, 6)
    assert (middle.value, middle.low, middle.high, middle.n) == (-1.75, -60.0, -0.5, 6)


def test_a_problem_without_a_correct_response_is_left_out():
    panel = PANEL | {"q4": ("sums", [(False, -1.0, -99.0), (False, -1.0, -99.0)])}
    found = values(evidence_of(panel, SOLVED | {"q4": 2}))
    assert found["all"] == pytest.approx(-1 / 3)
    assert "base 10-20%" not in found


def test_without_a_correct_response_there_is_a_reason():
    panel = {"q1": ("sums", [(False, -1.0, -2.0)])}
    (finding,) = compute(evidence_of(panel, {"q1": 0}))
    assert finding.value is None
    assert finding.why == "no panel response is correct; run the audit with a larger --panel"


def test_a_panel_that_was_never_completed_is_unknown_everywhere():
    evidence = evidence_of()
    frame = evidence.frames["panel_logps"]
    short = frame[(frame["problem_id"] != "q2") | (frame["sample_index"] == 0)]
    (finding,) = compute(replace(evidence, frames={**evidence.frames, "panel_logps": short}))
    assert finding.why.startswith("base: 5 of 6 panel responses are scored here")


def test_an_impossible_response_is_a_reason_and_not_an_infinite_value():
    panel = {"q1": ("sums", [(True, -5.0, -float("inf"))])}
    (finding,) = compute(evidence_of(panel, {"q1": 5}))
    assert finding.why.startswith("1 of 1 panel responses have probability 0 here")


def test_an_incomplete_base_leaves_the_whole_but_no_bins():
    evidence = evidence_of()
    counts = evidence.frames["sampled_counts"]
    cut_short = counts.assign(n=counts["n"].where(counts["checkpoint_id"] != "base", 7))
    found = {f.scope: f for f in compute(replace(evidence, frames={**evidence.frames, "sampled_counts": cut_short}))}
    assert set(found) == {"all", "median", "task:logic", "task:sums", "base success"}
    assert found["all"].value == pytest.approx(-1 / 3)
    assert found["base success"].why.startswith("base: 0 of 3 problems have exactly 10 graded samples")


def test_a_problem_of_the_panel_without_samples_is_named():
    found = {f.scope: f for f in compute(evidence_of(solved={"q1": 0, "q2": 1}))}
    assert found["base success"].why.startswith("1 of 3 problems of the panel have no graded samples")


def test_the_audits_own_samples_are_not_in_the_panel(world):
    samples = [{"problem": "q1", "panel": True, "sample_index": i, "text": t} for i, t in enumerate("ab")]
    samples += [
        {"checkpoint": c, "problem": "q1", "sample_index": i, "own_logp_sum": -99.0, "base_logp_sum": -1.0}
        for c in ("base", "late")
        for i in range(2)
    ]
    scores = [
        (checkpoint, "q1", text, [logp], [0.0])
        for checkpoint, logps in {"base": (-1.0, -2.0), "late": (-4.0, -2.0)}.items()
        for text, logp in zip("ab", logps, strict=True)
    ]
    evidence = world(samples, n=2, panel=2, panel_logps=scores).evidence()
    assert values(evidence) == {"all": -1.5, "base 90-100%": -1.5}


def magnitude(*changes_of_problems, correct=(True, False)):
    rows = [
        (checkpoint, f"q{i}", "sums", j, correct[j], -9.0 + change * (checkpoint == "late"), 5)
        for checkpoint in ("base", "late")
        for i, changes in enumerate(changes_of_problems)
        for j, change in enumerate(changes)
    ]
    whole, _ = get_measure("interference_magnitude")(tiny_evidence("panel_logps", COLUMNS, rows))
    return whole


def test_squares_of_right_and_wrong_responses_are_averaged_without_a_root():
    one = magnitude((2.0, -4.0), (1.0, 1.0))
    assert one.value == pytest.approx(((4 + 16) / 2 + 1) / 2)
    assert (one.unit, one.n) == ("nats²", 2)


@pytest.mark.parametrize(
    ("changes", "correct", "expected"),
    [((3.0, -3.0), (True, False), 9.0), ((0.0, 0.0), (True, False), 0.0), ((1.0, 2.0), (False, False), 2.5)],
    ids=["opposite", "none", "of wrong responses alone"],
)
def test_changes_have_a_magnitude_that_does_not_cancel(changes, correct, expected):
    assert magnitude(changes, correct=correct).value == expected


def steps(name, tasks=("sums", "sums")):
    """q1 has a correct and a wrong response; q2 has two correct ones with equal changes."""
    logps = {"base": (-8.0, -3.0, -5.0), "20": (-6.0, -1.0, -4.0), "40": (-7.0, -9.0, -7.0)}
    rows = [
        (checkpoint, problem, task, index, index == 0 or problem == "q2", logp, 5)
        for checkpoint, (right, wrong, other) in logps.items()
        for problem, task, pair in (("q1", tasks[0], (right, wrong)), ("q2", tasks[1], (other, other)))
        for index, logp in enumerate(pair)
    ]
    findings = get_measure(name)(tiny_evidence("panel_logps", COLUMNS, rows))
    return [f for f in findings if f.scope != "median"]


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        # q1 +2, then −1; q2 +1, then −3; the wrong response of q1 counts in neither
        ("interference_step", 1.5, -2.0),
        # q1 (2² + 2²) / 2, then (1² + 8²) / 2; q2 1², then 3²
        ("interference_magnitude_step", (4 + 1) / 2, (32.5 + 9) / 2),
    ],
)
def test_each_checkpoint_is_compared_with_the_one_before(name, first, second):
    assert [(f.checkpoint_id, f.value, f.n) for f in steps(name)] == [("20", first, 2), ("40", second, 2)]


def test_tasks_of_a_step_are_scopes_where_there_are_several():
    found = {(f.checkpoint_id, f.scope): f.value for f in steps("interference_step", tasks=("sums", "logic"))}
    assert (found["40", "task:sums"], found["40", "task:logic"]) == (-1.0, -3.0)
