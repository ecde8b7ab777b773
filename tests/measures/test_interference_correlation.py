from dataclasses import replace

import numpy as np
import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("interference_correlation").compute

NAMES = ("base", "20", "40", "60")


def evidence_of(logps_TP, correct_TP, *, n=8, ks=(1,), right=None):
    """Log-probability of one panel response and number of correct samples, by checkpoint and problem."""
    panel = [
        (NAMES[t], f"q{i}", 0, right is None or right[i], float(logp), 5)
        for t, row in enumerate(logps_TP)
        for i, logp in enumerate(row)
    ]
    counts = [(NAMES[t], f"q{i}", n, int(c)) for t, row in enumerate(correct_TP) for i, c in enumerate(row)]
    scores = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", panel)
    samples = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", counts, n=n)
    return replace(scores, frames={**scores.frames, **samples.frames}, n=n, ks=ks)


def test_r_is_that_of_all_pairs_of_checkpoints():
    logp, correct = np.array([-9.0, -8.0, -6.5, -7.0]), np.array([4, 6, 3, 2])
    (finding,) = compute(evidence_of(logp[:, None], correct[:, None]))
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    x, y = ([v[late] - v[early] for early, late in pairs] for v in (logp, correct / 8))
    assert finding.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert (finding.checkpoint_id, finding.n, finding.low, finding.high) == ("60", 6, None, None)


def test_curves_that_move_together_or_apart_are_told_apart():
    falls, rises = [[7], [5], [4], [1]], [[1], [3], [4], [7]]
    (together,) = compute(evidence_of([[-1], [-2], [-2.5], [-4]], falls))
    (apart,) = compute(evidence_of([[-1], [-2], [-2.5], [-4]], rises))
    assert together.value == pytest.approx(1.0)
    assert apart.value == pytest.approx(-1.0)


def test_pass_at_k_is_over_all_problems_and_interference_over_correct_responses():
    # q1 has no correct panel response: its log-probability is no interference, its samples are coverage
    logps = [[-1.0, -1.0], [-2.0, -50.0], [-4.0, -1.0]]
    (finding,) = compute(evidence_of(logps, [[4, 4], [4, 2], [4, 0]], right=(True, False)))
    x, y = [-1.0, -3.0, -2.0], [-1 / 8, -1 / 4, -1 / 8]
    assert finding.value == pytest.approx(np.corrcoef(x, y)[0, 1])


def test_each_k_has_its_own_r_and_k_beyond_the_samples_has_none():
    found = {
        f.k: f for f in compute(evidence_of([[-1, -1], [-2, -1], [-2, -2]], [[2, 8], [3, 8], [1, 6]], ks=(1, 4, 9)))
    }
    assert found[1].value != found[4].value
    assert "needs at least 9" in found[9].why


def test_two_checkpoints_have_no_correlation():
    (finding,) = compute(evidence_of([[-1], [-2]], [[4], [3]]))
    assert finding.value is None
    assert finding.why == "needs 3 complete checkpoints; there are 2"


def test_a_curve_that_does_not_move_has_no_correlation():
    for logps, correct in (([[-1], [-1], [-1]], [[4], [3], [2]]), ([[-1], [-2], [-3]], [[4], [4], [4]])):
        (finding,) = compute(evidence_of(logps, correct))
        assert finding.why == "Δ⁺ or pass@1 is the same at every checkpoint, so they have no correlation"


def test_an_incomplete_checkpoint_is_left_out():
    full = evidence_of([[-1, -1], [-2, -1], [-2, -2], [-4, -2]], [[2, 8], [3, 8], [1, 6], [1, 5]])
    panel = full.frames["panel_logps"]
    cut = panel[(panel["checkpoint_id"] != "40") | (panel["problem_id"] != "q1")]
    (finding,) = compute(replace(full, frames={**full.frames, "panel_logps": cut}))
    (without,) = compute(evidence_of([[-1, -1], [-2, -1], [-4, -2]], [[2, 8], [3, 8], [1, 5]]))
    assert (finding.value, finding.n, finding.checkpoint_id) == (pytest.approx(without.value), 3, "60")
    cut_twice = cut[(cut["checkpoint_id"] != "20") | (cut["problem_id"] != "q1")]
    (finding,) = compute(replace(full, frames={**full.frames, "panel_logps": cut_twice}))
    assert finding.why.startswith("needs 3 complete checkpoints; there are 2 (1 of 2 panel responses")


def test_a_panel_without_a_correct_response_has_a_reason():
    (finding,) = compute(evidence_of([[-1], [-2], [-3]], [[4], [3], [2]], right=(False,)))
    assert finding.why.startswith("no panel response is correct")
