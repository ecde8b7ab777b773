from __future__ import annotations

import numpy as np
import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.tokens.sampled_entropy import sampled_token_entropy

COLUMNS = "checkpoint_id problem_id n_first_round n logp_sum n_tokens"


def test_the_expected_value_is_the_pooled_entropy_also_of_truncated_responses():
    rng = np.random.default_rng(0)
    steps_VV = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])  # token 2 ends a response
    entropy_V = -(steps_VV * np.log(steps_VV)).sum(axis=1)
    most, n = 6, 4000
    rows, entropy, n_all = [], 0.0, 0
    for problem in range(5):
        logp_sum, n_tokens = 0.0, 0
        for _ in range(n):
            token = problem % 2
            for _ in range(most):
                entropy += entropy_V[token]
                following = int(rng.choice(3, p=steps_VV[token]))
                logp_sum += np.log(steps_VV[token, following])
                n_tokens += 1
                token = following
                if token == 2:
                    break
        rows.append(("base", f"q{problem}", n, n, logp_sum, n_tokens))
        n_all += n_tokens
    (found,) = sampled_token_entropy(tiny_evidence("sampled_logps", COLUMNS, rows))
    assert found.value == pytest.approx(entropy / n_all, rel=0.01)
    assert found.n == 5 * n


def test_a_checkpoint_that_lacks_log_probabilities_is_unknown_and_the_other_is_known():
    rows = [("base", "q1", 2, 2, -3.0, 4), ("base", "q2", 2, 2, -1.0, 4), ("late", "q1", 2, 1, -1.0, 4)]
    base, late = sampled_token_entropy(tiny_evidence("sampled_logps", COLUMNS, rows))
    assert base.value == 0.5
    assert late.value is None
    assert late.why == "2 of 2 problems lack log-probabilities of some samples here"
