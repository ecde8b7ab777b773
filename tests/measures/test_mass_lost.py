import math

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.mass_lost import compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def rows(checkpoint_id, query, *probabilities):
    return [(checkpoint_id, query, f"m{i}", math.log(p) if p else -math.inf) for i, p in enumerate(probabilities)]


def lost(*parts):
    return compute(tiny_evidence("mode_logps", COLUMNS, [row for part in parts for row in part]))[0]


def test_losses_are_weighed_by_base_probability_and_gains_do_not_pay():
    finding = lost(rows("base", "q", 0.4, 0.1), rows("late", "q", 0.9, 0.05))
    assert finding.value == pytest.approx(0.05 / 0.5)


def test_queries_count_equally():
    parts = rows("base", "q1", 0.5), rows("base", "q2", 0.001), rows("late", "q1", 0.5), rows("late", "q2", 0.0)
    finding = lost(*parts)
    assert (finding.value, finding.n) == (pytest.approx(0.5), 2)


def test_moderate_sharpening_loses_nothing():
    assert lost(rows("base", "q", 0.4, 0.1), rows("late", "q", 0.6, 0.1)).value == 0.0


def test_long_responses_do_not_underflow():
    base = [("base", "q", "a", -2000.0), ("base", "q", "b", -2000.0)]
    late = [("late", "q", "a", -1990.0), ("late", "q", "b", -2000.0 - math.log(4))]
    assert lost(base, late).value == pytest.approx(0.5 * 0.75)


def test_queries_impossible_under_the_base_have_no_share():
    finding = lost(rows("base", "q1", 0.5), rows("base", "q2", 0.0), rows("late", "q1", 0.25), rows("late", "q2", 0.2))
    assert (finding.value, finding.n) == (pytest.approx(0.5), 1)
    nothing = lost(rows("base", "q", 0.0), rows("late", "q", 0.2))
    assert nothing.why == "base: every mode of every problem has probability 0"
