import math

import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.exact_shares import mode_entropy_exact

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def entropies(*rows):
    return {f.checkpoint_id: f for f in mode_entropy_exact(tiny_evidence("mode_logps", COLUMNS, list(rows)))}


def test_entropy_is_conditional_on_being_correct():
    found = entropies(
        *[("base", "q1", m, math.log(0.01)) for m in "abcd"],  # uniform over 4, however unlikely
        ("base", "q2", "a", math.log(0.6)),
    )
    assert found["base"].value == pytest.approx(math.log(4) / 2)
    assert found["base"].n == 2


def test_a_planted_collapse_falls_to_zero_and_uniform_scaling_keeps_it():
    found = entropies(
        ("base", "q", "a", math.log(0.2)), ("base", "q", "b", math.log(0.1)),
        ("late", "q", "a", math.log(0.9)), ("late", "q", "b", -math.inf),
        ("twin", "q", "a", math.log(0.4)), ("twin", "q", "b", math.log(0.2)),
    )  # fmt: skip
    assert found["late"].value == 0.0
    assert found["twin"].value == pytest.approx(found["base"].value)


def test_impossible_queries_are_left_out_and_said_so_when_nothing_remains():
    found = entropies(
        ("base", "q1", "a", -1.0), ("base", "q1", "b", -1.0), ("base", "q2", "c", -1.0),
        ("late", "q1", "a", -1.0), ("late", "q1", "b", -1.0), ("late", "q2", "c", -math.inf),
        ("none", "q1", "a", -math.inf), ("none", "q1", "b", -math.inf), ("none", "q2", "c", -math.inf),
    )  # fmt: skip
    assert (found["late"].value, found["late"].n) == (pytest.approx(math.log(2)), 1)
    assert found["none"].why == "every mode of every problem has probability 0"


def test_where_every_problem_lists_one_response_there_is_no_entropy_to_speak_of():
    found = entropies(("base", "q1", "a", -1.0), ("base", "q2", "b", -2.0))
    assert found["base"].why == "every problem lists a single accepted response"
