import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._kernel_example import gradients
from diagnostics.measures._kernel_pairs import NO_TWO, ONE_GROUP

compute = get_measure("kernel_rho_extremes").compute


def test_the_extremes_of_each_group(coupled, found):
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True), ("q3", "panel", True)]
    kernel = gradients((1, 0), (3, 4), (-2, 0), (0, 5))
    findings = found(compute(coupled({"base": kernel}, rows, groups={"q3": "other"})))
    values = {scope: f.value for (_, scope), f in findings.items()}
    assert values["min within problems"] == values["max within problems"] == pytest.approx(0.6)
    assert (values["min related problems"], values["max related problems"]) == pytest.approx((-1.0, -0.6))
    assert (values["min unrelated problems"], values["max unrelated problems"]) == pytest.approx((0.0, 0.8))
    assert findings["base", "min related problems"].n == 2


def test_no_pair_no_extreme(coupled, found):
    findings = found(compute(coupled({"base": [[1.0]]}, [("q", "panel", True)])))
    assert findings["base", "max unrelated problems"].why == ONE_GROUP
    assert findings["base", "min within problems"].why == NO_TWO
