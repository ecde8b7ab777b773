import math

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("pass_at_k_exact_delta").compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def rows(checkpoint_id, *success):
    return [(checkpoint_id, f"q{i:02}", "a", math.log(p)) for i, p in enumerate(success)]


def test_a_planted_loss_is_below_zero_and_the_clean_twin_above():
    base, late, twin = rows("base", *[0.2] * 40), rows("late", *[0.9, 0.001] * 20), rows("twin", *[0.3] * 40)
    findings = compute(tiny_evidence("mode_logps", COLUMNS, base + late + twin, ks=(1, 128)))
    found = {(f.checkpoint_id, f.k): f for f in findings}
    assert found["late", 1].low > 0
    assert found["late", 128].value == pytest.approx((1 + 1 - 0.999**128) / 2 - (1 - 0.8**128))
    assert found["late", 128].high < 0
    assert found["twin", 128].value == pytest.approx(0.0, abs=1e-9)
    assert ("base", 1) not in found


def test_an_unscored_base_is_named_as_the_reason():
    incomplete = [("base", "q", "a", -1.0), ("late", "q", "a", -1.0), ("late", "q", "b", -1.0)]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, incomplete))
    assert finding.why.startswith("base: 1 of 2 modes")
