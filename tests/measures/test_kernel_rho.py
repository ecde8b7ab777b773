import numpy as np
import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._kernel_example import gradients
from diagnostics.measures._kernel_pairs import NO_RELATED, NO_TWO, ONE_GROUP, jackknife
from diagnostics.statistics.intervals import mean_interval

compute = get_measure("kernel_rho").compute

WITHIN, RELATED, UNRELATED = "within problems", "related problems", "unrelated problems"


def test_every_pair_is_in_one_group(coupled, found):
    # cosines: a·b = 0.6, a·c = 0, b·c = 0.8, whatever the lengths of the gradients
    kernel = gradients((1, 0), (30, 40), (0, 7))
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "mode", True)]
    related = found(compute(coupled({"base": kernel}, rows)))
    assert related["base", WITHIN].value == pytest.approx(0.6)
    assert related["base", RELATED].value == pytest.approx(0.4)
    assert related["base", UNRELATED].why == ONE_GROUP
    apart = found(compute(coupled({"base": kernel}, rows, groups={"q2": "other"})))
    assert apart["base", UNRELATED].value == pytest.approx(0.4)
    assert apart["base", RELATED].why == NO_RELATED


def test_problems_weigh_the_same_whatever_their_number_of_pairs(coupled, found):
    # q1 has three pairs at 1, q2 one at 0
    kernel = gradients((1, 0), (1, 0), (1, 0), (1, 0), (0, 1))
    rows = [("q1", "panel", True)] * 3 + [("q2", "panel", True)] * 2
    finding = found(compute(coupled({"base": kernel}, rows)))["base", WITHIN]
    assert (finding.value, finding.n) == (0.5, 2)
    assert (finding.low, finding.high) == (-1.0, 1.0)  # two problems say little


def test_the_interval_within_problems_is_that_of_problem_means(coupled, found):
    angles = [1.1, 1.5, 1.9, 1.7]
    kernel = gradients(*[row for a in angles for row in ((1, 0), (np.cos(a), np.sin(a)))])
    rows = [(f"q{i // 2}", "panel", True) for i in range(8)]
    finding = found(compute(coupled({"base": kernel}, rows)))["base", WITHIN]
    expected = mean_interval(np.cos(angles))
    assert (finding.low, finding.high) == pytest.approx((expected.low, expected.high))


def test_between_problems_the_problem_is_the_resampling_unit(coupled, found):
    gradient = np.random.default_rng(0).normal(size=(5, 3))
    rows = [(f"q{i}", "panel", True) for i in range(5)]
    finding = found(compute(coupled({"base": gradients(*gradient)}, rows)))["base", RELATED]
    unit = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    cosine = unit @ unit.T

    def mean_without(left_out):
        kept = [i for i in range(5) if i != left_out]
        return np.mean([cosine[i, j] for i in kept for j in kept if i < j])

    expected = jackknife(mean_without(None), [mean_without(i) for i in range(5)])
    assert finding.value == pytest.approx(expected.mean)
    assert (finding.low, finding.high, finding.n) == (pytest.approx(expected.low), pytest.approx(expected.high), 5)


def test_a_response_without_gradient_is_left_out(coupled, found):
    rows = [("q", "panel", True), ("q", "panel", True), ("q", "panel", True)]
    kernel = gradients((1, 0), (1, 0), (0, 0))
    assert found(compute(coupled({"base": kernel}, rows)))["base", WITHIN].value == 1.0
    nothing = found(compute(coupled({"base": np.zeros((3, 3))}, rows)))["base", WITHIN]
    assert nothing.why.startswith("the gradient of every response in the kernel is 0")


def test_a_panel_of_one_pair_has_a_value_without_interval(coupled, found):
    findings = found(
        compute(coupled({"base": gradients((1, 0), (-1, 0))}, [("q", "panel", True), ("q", "panel", False)]))
    )
    assert (findings["base", WITHIN].value, findings["base", WITHIN].low) == (-1.0, None)
    alone = found(compute(coupled({"base": [[1.0]]}, [("q", "panel", True)])))
    assert alone["base", WITHIN].why == NO_TWO


def test_a_missing_kind_of_pair_names_the_mend():
    assert 'field "group" in --problems' in ONE_GROUP
    assert "--kernel-problems" in NO_RELATED
    assert "--panel" in NO_TWO
