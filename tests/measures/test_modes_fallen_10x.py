import math

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.modes_fallen_10x import compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def test_more_than_tenfold_is_counted_and_ninefold_is_not():
    base = [("base", "q1", m, -3.0) for m in "abcd"]
    late = [("late", "q1", m, -3.0 - math.log(f)) for m, f in zip("abcd", (9.9, 10.1, 1.0, 0.2), strict=True)]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, base + late))
    assert (finding.value, finding.n) == (0.25, 4)


def test_a_mode_that_vanished_fell_more_than_tenfold():
    rows = [("base", "q", "a", -3.0), ("late", "q", "a", -math.inf)]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, rows))
    assert finding.value == 1.0


def test_queries_with_many_modes_do_not_pretend_to_be_many_queries():
    # 2 queries × 50 modes that move together: the interval must stay wide.
    base = [("base", q, f"m{i:02}", -3.0) for q in ("q1", "q2") for i in range(50)]
    late = [("late", q, f"m{i:02}", -3.0 - fall) for q, fall in (("q1", 5.0), ("q2", 0.0)) for i in range(50)]
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, base + late))
    assert finding.value == pytest.approx(0.5)
    assert (finding.low, finding.high) == (0.0, 1.0)
