import math

import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.exact_shares import mode_share_exact

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def shares(*rows):
    findings = mode_share_exact(tiny_evidence("mode_logps", COLUMNS, list(rows)))
    return {(f.checkpoint_id, f.scope): f.value for f in findings}


def test_modes_are_ranked_by_the_base_and_followed_from_there():
    found = shares(
        *[("base", "q", m, math.log(p)) for m, p in zip("abcd", (0.05, 0.2, 0.1, 0.05), strict=True)],
        *[("late", "q", m, math.log(p)) for m, p in zip("abcd", (0.4, 0.1, 0.2, 0.1), strict=True)],
    )
    assert [found["base", s] for s in ("dominant", "second", "other")] == pytest.approx([0.5, 0.25, 0.25])
    assert [found["late", s] for s in ("dominant", "second", "other")] == pytest.approx([0.125, 0.25, 0.625])


def test_a_planted_collapse_drives_the_dominant_share_to_one_and_uniform_scaling_does_not():
    base = [("base", "q", "a", math.log(0.2)), ("base", "q", "b", math.log(0.1))]
    late = [("late", "q", "a", math.log(0.98)), ("late", "q", "b", math.log(0.001))]
    twin = [("twin", "q", "a", math.log(0.4)), ("twin", "q", "b", math.log(0.2))]
    found = shares(*base, *late, *twin)
    assert found["late", "dominant"] > 0.99
    assert found["twin", "dominant"] == pytest.approx(found["base", "dominant"])


def test_ties_go_to_the_first_mode_in_lexical_order():
    found = shares(
        ("base", "q", "b", -1.0), ("base", "q", "a", -1.0), ("late", "q", "b", -9.0), ("late", "q", "a", -1.0)
    )
    assert found["late", "dominant"] == pytest.approx(1 / (1 + math.exp(-8)))


def test_where_every_problem_lists_one_response_there_is_nothing_to_share():
    rows = [("base", "q1", "a", -1.0), ("base", "q2", "b", -2.0)]
    made = mode_share_exact(tiny_evidence("mode_logps", COLUMNS, rows))
    assert {f.why for f in made} == {"every problem lists a single accepted response"}
