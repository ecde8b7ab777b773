import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from oversharp.diagnostics.measures.kernel.gradients.pairs import NO_PAIR, NO_RELATED, ONE_GROUP, jackknife
from oversharp.diagnostics.statistics.intervals import mean_interval
from tests.measures.kernels import at_base

WITHIN, RELATED, UNRELATED = "within problems", "related problems", "unrelated problems"


def test_every_pair_is_in_one_group():
    # cosines: a·b = 0.6, a·c = 0, b·c = 0.8, for any lengths of the gradients
    kernel = gradients((1, 0), (30, 40), (0, 7))
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "mode", True)]
    related = at_base("kernel_rho", kernel, rows)
    assert related[WITHIN].value == pytest.approx(0.6)
    assert related[RELATED].value == pytest.approx(0.4)
    assert related[UNRELATED].why == ONE_GROUP
    apart = at_base("kernel_rho", kernel, rows, related={"q2": "other"})
    assert apart[UNRELATED].value == pytest.approx(0.4)
    assert apart[RELATED].why == NO_RELATED


def test_problems_weigh_the_same_whatever_their_number_of_pairs():
    # q1 has three pairs at 1, q2 one at 0
    kernel = gradients((1, 0), (1, 0), (1, 0), (1, 0), (0, 1))
    rows = [("q1", "panel", True)] * 3 + [("q2", "panel", True)] * 2
    finding = at_base("kernel_rho", kernel, rows)[WITHIN]
    assert (finding.value, finding.n) == (0.5, 2)
    assert (finding.low, finding.high) == (-1.0, 1.0)  # two problems say little


def test_the_interval_within_problems_is_that_of_problem_means():
    angles = [1.1, 1.5, 1.9, 1.7]
    kernel = gradients(*[row for a in angles for row in ((1, 0), (np.cos(a), np.sin(a)))])
    rows = [(f"q{i // 2}", "panel", True) for i in range(8)]
    finding = at_base("kernel_rho", kernel, rows)[WITHIN]
    expected = mean_interval(np.cos(angles))
    assert (finding.low, finding.high) == pytest.approx((expected.low, expected.high))


def test_between_problems_the_problem_is_the_resampling_unit():
    gradient = np.random.default_rng(0).normal(size=(5, 3))
    rows = [(f"q{i}", "panel", True) for i in range(5)]
    finding = at_base("kernel_rho", gradients(*gradient), rows)[RELATED]
    unit = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    cosine = unit @ unit.T

    def mean_without(left_out):
        kept = [i for i in range(5) if i != left_out]
        return np.mean([cosine[i, j] for i in kept for j in kept if i < j])

    expected = jackknife(mean_without(None), [mean_without(i) for i in range(5)])
    assert finding.value == pytest.approx(expected.mean)
    assert (finding.low, finding.high, finding.n) == (pytest.approx(expected.low), pytest.approx(expected.high), 5)


def test_a_response_without_gradient_is_left_out():
    rows = [("q", "panel", True), ("q", "panel", True), ("q", "panel", True)]
    kernel = gradients((1, 0), (1, 0), (0, 0))
    assert at_base("kernel_rho", kernel, rows)[WITHIN].value == 1.0
    nothing = at_base("kernel_rho", np.zeros((3, 3)), rows)[WITHIN]
    assert nothing.why.startswith("the gradient of every response in the kernel is 0")


def test_a_panel_of_one_pair_has_a_value_without_interval():
    findings = at_base("kernel_rho", gradients((1, 0), (-1, 0)), [("q", "panel", True), ("q", "panel", False)])
    assert (findings[WITHIN].value, findings[WITHIN].low) == (-1.0, None)
    alone = at_base("kernel_rho", [[1.0]], [("q", "panel", True)])
    assert alone[WITHIN].why == NO_PAIR


def test_a_missing_kind_of_pair_names_the_mend():
    assert 'field "group" in --problems' in ONE_GROUP
    assert "--kernel-problems" in NO_RELATED
    assert "--panel" in NO_PAIR


def test_only_correct_pairs_of_one_problem_count():
    kernel = gradients((1, 0), (3, 4), (-1, 0), (1, 0), (0, 1))
    rows = [("q1", "mode", True), ("q1", "panel", True), ("q1", "panel", False), ("q2", "mode", True)]
    finding = at_base("kernel_rho_correct", kernel, [*rows, ("q2", "own", True)])["all"]
    assert (finding.value, finding.n) == (pytest.approx(0.6), 1)
    lone = at_base("kernel_rho_correct", gradients((1, 0), (1, 1)), rows[1:3])["all"]
    assert "no problem has two correct responses" in lone.why


def test_each_group_of_pairs_has_its_extremes():
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True), ("q3", "panel", True)]
    kernel = gradients((1, 0), (3, 4), (-2, 0), (0, 5))
    findings = at_base("kernel_rho_extremes", kernel, rows, related={"q3": "other"})
    expected = {WITHIN: (0.6, 0.6), RELATED: (-1.0, -0.6), UNRELATED: (0.0, 0.8)}
    for group, extremes in expected.items():
        assert (findings[f"min {group}"].value, findings[f"max {group}"].value) == pytest.approx(extremes)
    assert findings[f"min {RELATED}"].n == 2
    lone = at_base("kernel_rho_extremes", [[1.0]], rows[:1])
    assert (lone[f"max {UNRELATED}"].why, lone[f"min {WITHIN}"].why) == (ONE_GROUP, NO_PAIR)
