from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

compute = get_measure("interference_correlation")
p_value = get_measure("interference_correlation_p")

NAMES = [f"{20 * t:03}" for t in range(8)]


def evidence_of(logp_TP, correct_TP, *, n=8, ks=(1,), tasks=None, right=None):
    """Log-probability of one panel response and number of correct samples, by checkpoint and problem."""
    n_problems = len(logp_TP[0])
    tasks = tasks or ["sums"] * n_problems
    right = right or [True] * n_problems
    panel = [
        (NAMES[t], f"q{i:02}", tasks[i], 0, right[i], float(logp), 5)
        for t, row in enumerate(logp_TP)
        for i, logp in enumerate(row)
    ]
    counts = [
        (NAMES[t], f"q{i:02}", tasks[i], n, int(c)) for t, row in enumerate(correct_TP) for i, c in enumerate(row)
    ]
    scores = tiny_evidence("panel_logps", "checkpoint_id problem_id task sample_index correct logp_sum n_tokens", panel)
    samples = tiny_evidence("sampled_counts", "checkpoint_id problem_id task n n_correct", counts, n=n)
    return replace(scores, frames={**scores.frames, **samples.frames}, n=n, ks=ks)


def test_r_is_that_of_all_pairs_of_checkpoints():
    logp, correct = np.array([-9.0, -8.0, -6.5, -7.0]), np.array([4, 6, 3, 2])
    (finding,) = compute(evidence_of(logp[:, None], correct[:, None]))
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    x, y = ([v[late] - v[early] for early, late in pairs] for v in (logp, correct / 8))
    assert finding.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert (finding.checkpoint_id, finding.n, finding.low, finding.high) == ("060", 6, None, None)


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


@pytest.mark.parametrize("measure", [compute, p_value], ids=["r", "p"])
def test_two_checkpoints_have_no_correlation(measure):
    (finding,) = measure(evidence_of([[-1], [-2]], [[4], [3]]))
    assert finding.value is None
    assert finding.why == "needs 3 complete checkpoints; there are 2"


def test_a_curve_that_does_not_move_has_no_correlation():
    for logps, correct in (([[-1], [-1], [-1]], [[4], [3], [2]]), ([[-1], [-2], [-3]], [[4], [4], [4]])):
        (finding,) = compute(evidence_of(logps, correct))
        assert finding.why == "Δ⁺ or pass@1 is the same at every checkpoint, so they have no correlation"


def test_an_incomplete_checkpoint_is_left_out():
    full = evidence_of([[-1, -1], [-2, -1], [-2, -2], [-4, -2]], [[2, 8], [3, 8], [1, 6], [1, 5]])
    panel = full.frames["panel_logps"]
    cut = panel[(panel["checkpoint_id"] != "040") | (panel["problem_id"] != "q01")]
    (finding,) = compute(replace(full, frames={**full.frames, "panel_logps": cut}))
    (without,) = compute(evidence_of([[-1, -1], [-2, -1], [-4, -2]], [[2, 8], [3, 8], [1, 5]]))
    assert (finding.value, finding.n, finding.checkpoint_id) == (pytest.approx(without.value), 3, "060")
    cut_twice = cut[(cut["checkpoint_id"] != "020") | (cut["problem_id"] != "q01")]
    (finding,) = compute(replace(full, frames={**full.frames, "panel_logps": cut_twice}))
    assert finding.why.startswith("needs 3 complete checkpoints; there are 2 (1 of 2 panel responses")


def test_a_panel_without_a_correct_response_has_a_reason():
    (finding,) = compute(evidence_of([[-1], [-2], [-3]], [[4], [3], [2]], right=(False,)))
    assert finding.why.startswith("no panel response is correct")


def trending(seed, *, n_problems=20, n=64):
    """Log-probability and successes that both fall, problem by problem at unrelated speeds."""
    rng = np.random.default_rng(seed)
    t = np.arange(8)[:, None]
    logp_TP = -20 - t * rng.uniform(0.5, 1.5, n_problems) + rng.normal(0, 0.2, (8, n_problems))
    correct_TP = rng.binomial(n, np.clip(0.7 - t * rng.uniform(0.02, 0.08, n_problems), 0, 1))
    return logp_TP, correct_TP


def test_curves_that_both_trend_are_correlated_but_not_linked():
    logp_TP, correct_TP = trending(0)
    evidence = evidence_of(logp_TP, correct_TP, n=64)
    (r,), (p,) = compute(evidence), p_value(evidence)
    assert r.value > 0.95
    assert p.value > 0.1
    assert (p.n, p.checkpoint_id, p.low) == (20, "140", None)


def test_problems_that_lose_both_are_linked():
    logp_TP, correct_TP = trending(0)
    linked_TP = logp_TP + 10 * correct_TP / 64
    (p,) = p_value(evidence_of(linked_TP, correct_TP, n=64))
    assert p.value == 1 / 2000  # the least that 1999 permutations can give; never 0


def test_a_task_that_falls_faster_in_both_is_no_link_between_problems():
    rng = np.random.default_rng(1)
    t, hard = np.arange(8)[:, None], np.arange(20) < 10
    logp_TP = -20 - 2.0 * t * hard + rng.normal(0, 0.2, (8, 20))
    correct_TP = rng.binomial(64, 0.8 - 0.08 * t * hard)
    tasks = ["logic" if is_hard else "sums" for is_hard in hard]
    (pooled,) = p_value(evidence_of(logp_TP, correct_TP, n=64))
    (by_task,) = p_value(evidence_of(logp_TP, correct_TP, n=64, tasks=tasks))
    assert pooled.value < 0.01
    assert by_task.value > 0.1


def test_only_problems_with_a_correct_panel_response_are_tested():
    logp_TP, correct_TP = trending(2)
    right = [i % 2 == 0 for i in range(20)]
    (some,) = p_value(evidence_of(logp_TP, correct_TP, n=64, right=right))
    (alone,) = p_value(evidence_of(logp_TP[:, ::2], correct_TP[:, ::2], n=64))
    assert (some.value, some.n) == (alone.value, 10)


def test_what_cannot_be_tested_has_a_reason():
    logp_TP, correct_TP = trending(4)
    (still,) = p_value(evidence_of(logp_TP, np.full_like(correct_TP, 64), n=64))
    assert still.why == "Δ⁺ or pass@1: one of the two does not vary between problems"
    (one_problem,) = p_value(evidence_of(logp_TP[:, :1], correct_TP[:, :1], n=64))
    assert one_problem.why == still.why
    (too_large,) = p_value(evidence_of(logp_TP, correct_TP, n=64, ks=(128,)))
    assert "needs at least 128" in too_large.why
