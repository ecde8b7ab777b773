from math import log

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence
from diagnostics.measures._z_prime import NONE_MIXED

compute = get_measure("delta_pi").compute

COLUMNS = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"


def test_the_least_correct_against_the_most_wrong_averaged_over_problems():
    rows = [
        ("base", problem, i, f"{problem}{i}", correct, log(pi))
        for problem, samples in {
            "q1": [(True, 0.5), (True, 0.2), (False, 0.1), (False, 0.05)],
            "q2": [(True, 0.01), (False, 0.4), (True, 0.3), (False, 0.1)],
            "q3": [(True, 0.2)] * 4,
        }.items()
        for i, (correct, pi) in enumerate(samples)
    ]
    (finding,) = compute(tiny_evidence("own_logps", COLUMNS, rows))
    assert finding.value == pytest.approx((0.1 - 0.39) / 2)
    assert finding.n == 2


def test_without_both_kinds_there_is_no_gap():
    rows = [("base", "q", i, f"r{i}", False, -1.0) for i in range(2)]
    (finding,) = compute(tiny_evidence("own_logps", COLUMNS, rows))
    assert finding.why == NONE_MIXED
