import math

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence


def found(name, *rows, ks=(1,)):
    """``rows``: (checkpoint, problem, log-probabilities of its modes)."""
    modes = [(c, problem, f"m{i}", logp) for c, problem, *logps in rows for i, logp in enumerate(logps)]
    findings = get_measure(name)(tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", modes, ks=ks))
    return {(f.checkpoint_id, f.k): f for f in findings}


def test_modes_add_up_and_k_is_not_bound_by_samples():
    rows = [("base", "q1", math.log(0.1), math.log(0.1)), ("base", "q2", math.log(0.5))]
    values = found("pass_at_k_exact", *rows, ks=(1, 3, 4096))
    assert values["base", 1].value == pytest.approx(0.35)
    assert values["base", 3].value == pytest.approx((1 - 0.8**3 + 1 - 0.5**3) / 2)
    assert values["base", 4096].value == pytest.approx(1.0)
    assert values["base", 1].n == 2


@pytest.mark.parametrize(
    ("logps", "k", "expected"),
    [
        ([math.log(1e-18)], 128, pytest.approx(128e-18, rel=1e-9)),
        ([math.log(0.6), math.log(0.4) + 1e-7], 1, 1.0),
        ([math.log(0.6), math.log(0.4) + 1e-7], 8, 1.0),
        ([-math.inf], 64, 0.0),
    ],
    ids=["no cancelling", "rounding above one", "rounding above one, k = 8", "impossible"],
)
def test_probabilities_at_the_ends_of_the_scale_stay_exact(logps, k, expected):
    assert found("pass_at_k_exact", ("base", "q", *logps), ks=(k,))["base", k].value == expected


def test_a_planted_loss_is_below_zero_and_the_clean_twin_above():
    chances = {"base": [0.2] * 40, "late": [0.9, 0.001] * 20, "twin": [0.3] * 40}
    rows = [(c, f"q{i:02}", math.log(p)) for c, p_P in chances.items() for i, p in enumerate(p_P)]
    changes = found("pass_at_k_exact_delta", *rows, ks=(1, 128))
    assert changes["late", 1].low > 0
    assert changes["late", 128].value == pytest.approx((1 + 1 - 0.999**128) / 2 - (1 - 0.8**128))
    assert changes["late", 128].high < 0
    assert changes["twin", 128].value == pytest.approx(0.0, abs=1e-9)
