import itertools

import pandas as pd
import pytest

from oversharp.diagnostics.measures.coverage.sharpening.control_pass_at_k import control_pass_at_k
from oversharp.diagnostics.measures.coverage.sharpening.controls import load_controls
from oversharp.diagnostics.measures.coverage.sharpening.frontier import frontier_gain
from oversharp.diagnostics.measures.examples import tiny_evidence

COUNTS = "checkpoint_id problem_id n n_correct"


def evidence_of(base, late, *, n=8, **views):
    rows = [(c, f"q{i:02}", n, hits[i % len(hits)]) for c, hits in (("base", base), ("late", late)) for i in range(40)]
    evidence = tiny_evidence("sampled_counts", COUNTS, rows, n=n)
    for view, (columns, made) in views.items():
        evidence.frames[view] = tiny_evidence(view, columns, made, n=n).frames[view]
    return evidence


def colder(temperature, *hits, n=8):
    return [("base", f"q{i:02}", temperature, 1.0, n, hits[i % len(hits)]) for i in range(40)]


DRAWN = "checkpoint_id problem_id temperature own_temperature n n_correct"


def found(evidence, scope):
    [one] = [finding for finding in frontier_gain(evidence) if finding.scope == scope]
    return one


def test_a_run_with_the_counts_of_a_colder_base_has_no_gain_and_one_with_its_coverage_and_more_has():
    drawn = {"control_counts": (DRAWN, colder(0.5, 7, 1))}
    on = found(evidence_of((3, 2), (7, 1), **drawn), "temperature")
    assert on.value == pytest.approx(0, abs=2e-3)
    assert (on.k, on.n, on.why) == (4, 40, None)
    above = found(evidence_of((3, 2), (8, 2), **drawn), "temperature")
    assert above.low > 0.05


def test_without_colder_draws_and_with_incomplete_ones_it_is_unknown_and_says_so():
    none = found(evidence_of((3, 2), (6, 1)), "temperature")
    assert (none.value, none.why) == (
        None,
        "the base was not sampled at a lower temperature; run the audit with --controls",
    )
    part = {"control_counts": (DRAWN, colder(0.5, 7, 1)[1:])}
    assert (
        found(evidence_of((3, 2), (6, 1), **part), "temperature").why
        == "the base's samples at lower temperatures are incomplete"
    )


def responses(*rows):
    columns = "checkpoint_id problem_id response_id correct logp_sum_raw own_law n"
    made = [("base", f"q{i:02}", text, right, logp, True, 1) for i in range(40) for text, right, logp in rows]
    return {"base_responses": (columns, made)}


def test_the_power_distribution_reweights_different_responses_by_their_probability():
    # p² : .6² correct against .3² wrong
    evidence = evidence_of((3, 2), (6, 1), **responses(("a", True, -0.5108256), ("b", False, -1.2039728)))
    power = {one.name: one for one in load_controls(evidence)}["power"].points
    assert power.x_SP[2] == pytest.approx([0.36 / 0.45] * 40, abs=1e-6)
    assert power.y_SP[2] == pytest.approx([1 - (0.09 / 0.45) ** 4] * 40, abs=1e-6)
    assert power.x_SP[0] == pytest.approx([3 / 8, 2 / 8] * 20)  # the base as it was counted, not its listed responses
    assert power.limit_P.tolist() == [1.0] * 40


def test_the_points_of_the_power_stand_beside_those_of_the_temperatures_at_the_base():
    views = {"control_counts": (DRAWN + " n_planned", [(*one, 8) for one in colder(0.5, 7, 1)])}
    views |= responses(("a", True, -0.5108256), ("b", False, -1.2039728))
    evidence = evidence_of((3, 2), (6, 1), **views)
    made = {(one.checkpoint_id, one.scope, one.k): one for one in control_pass_at_k(evidence)}
    assert made["base", "power=2", 1].value == pytest.approx(0.8)
    assert made["base", "power=2", 4].value == pytest.approx(1 - 0.2**4)
    assert ("base", "power=1", 1) not in made
    assert ("base", "power=2", 8) not in made, "beyond the comparison"


def test_without_nine_tenths_of_the_probability_the_power_distribution_is_unknown():
    few = found(evidence_of((3, 2), (6, 1), **responses(("a", True, -1.0), ("b", False, -2.0))), "power")
    assert few.why == "the base's distinct samples cover 50 % of its probability; 90 % are needed"


def test_a_base_that_was_not_drawn_from_its_own_law_has_no_power_distribution():
    columns, rows = responses(("a", True, -0.5), ("b", False, -1.0))["base_responses"]
    at_half = {"base_responses": (columns, [(*one[:5], False, *one[6:]) for one in rows])}
    assert found(evidence_of((3, 2), (6, 1), **at_half), "power").why == (
        "the base was not sampled at temperature 1 without truncation"
    )


def answered(*rows):
    made = [("base", f"q{i:02}", a, right, n) for i, (a, right, n) in itertools.product(range(40), rows)]
    return {"answer_counts": ("checkpoint_id problem_id answer correct n", made)}


def test_points_of_answers_leave_out_each_sample_once_and_missing_ones_never_agree():
    # two that agree: 20·19 for 42 against 12·11 for 41, less what leaving out one of 20, 12 and 32 samples changes
    whole, without = 380 / 512, (20 * 342 / 474 + 12 * 380 / 490 + 32 * 380 / 512) / 64
    rows = (("42", True, 20), ("41", False, 12), ("NA", False, 32))
    evidence = evidence_of((20,), (40,), n=64, **answered(*rows))
    answers = {one.name: one for one in load_controls(evidence)}["answers"]
    assert answers.points.x_SP[1] == pytest.approx([64 * whole - 63 * without] * 40)
    assert answers.rate_SP[0] == pytest.approx([whole] * 40)
    assert answers.k == 4  # a sixteenth of 64
    assert answers.points.limit_P.tolist() == [1.0] * 40


@pytest.mark.parametrize(("n", "draws"), [(32, 2), (63, 2), (64, 3), (128, 4), (256, 8)])
def test_more_draws_agree_only_where_so_many_samples_tell_it_within_half_a_point(n, draws):
    rows = (("42", True, n // 2), ("41", False, n - n // 2))
    answers = {one.name: one for one in load_controls(evidence_of((20,), (30,), n=n, **answered(*rows)))}["answers"]
    assert answers.points.sharpness_S[-1] == pytest.approx(1 - 1 / draws)


def test_a_correct_sample_without_an_answer_leaves_answers_unknown():
    evidence = evidence_of((3, 2), (6, 1), **answered(("NA", True, 4), ("41", False, 4)))
    assert found(evidence, "answers").why == "the answers of the base's samples are unknown"


def test_a_base_without_controls_at_all_gives_no_finding_of_its_own():
    assert {one.checkpoint_id for one in frontier_gain(evidence_of((3, 2), (6, 1)))} == {"late"}


@pytest.mark.parametrize("view", ["control_counts", "base_responses", "answer_counts"])
def test_an_empty_view_is_none(view):
    evidence = evidence_of((3, 2), (6, 1))
    evidence.frames[view] = pd.DataFrame()
    assert all(one.value is None for one in frontier_gain(evidence))


def test_with_too_few_samples_for_a_pass_at_k_nothing_is_compared():
    evidence = evidence_of((3, 2), (6, 1), **answered(("42", True, 4), ("41", False, 4)))
    assert found(evidence, "answers").why == "too few samples for a pass@k beyond pass@1"
