import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.tokens.entropy import token_entropy

COLUMNS = "checkpoint_id problem_id sample_index entropy_sum n_tokens"


def entropies(*rows):
    return {
        (f.checkpoint_id, f.scope): f for f in token_entropy(tiny_evidence("sample_entropies", COLUMNS, list(rows)))
    }


def test_responses_count_equally_and_pooled_tokens_count_equally():
    found = entropies(
        ("base", "q1", 0, 1.0, 1), ("base", "q1", 1, 2.0, 10), ("base", "q2", 0, 3.0, 5), ("base", "q2", 1, 0.0, 4)
    )
    assert found["base", "all"].value == pytest.approx((1.0 + 0.2 + 0.6 + 0.0) / 4)
    assert found["base", "token_pooled"].value == pytest.approx(6.0 / 20)
    assert found["base", "all"].n == found["base", "token_pooled"].n == 4


def test_intervals_are_over_problems():
    rows = [("base", f"q{i}", j, float(i), 4) for i in range(4) for j in range(50)]
    found = entropies(*rows)["base", "all"]
    assert found.low == 0.0
    assert found.high > 0.85  # four problems, not two hundred responses: 0.375 + 3.18 · 0.161
