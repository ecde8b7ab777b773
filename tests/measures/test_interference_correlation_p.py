from dataclasses import replace

import numpy as np

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("interference_correlation_p").compute


correlation = get_measure("interference_correlation").compute

NAMES = [f"{20 * t:03}" for t in range(8)]


def evidence_of(logp_TP, correct_TP, *, n, ks=(1,), tasks=None, right=None):
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
    (r,), (p,) = correlation(evidence), compute(evidence)
    assert r.value > 0.95
    assert p.value > 0.1
    assert (p.n, p.checkpoint_id, p.low) == (20, "140", None)


def test_problems_that_lose_both_are_linked():
    logp_TP, correct_TP = trending(0)
    linked_TP = logp_TP + 10 * correct_TP / 64
    (p,) = compute(evidence_of(linked_TP, correct_TP, n=64))
    assert p.value == 1 / 2000  # the least that 1999 permutations can give; never 0


def test_a_task_that_falls_faster_in_both_is_no_link_between_problems():
    rng = np.random.default_rng(1)
    t, hard = np.arange(8)[:, None], np.arange(20) < 10
    logp_TP = -20 - 2.0 * t * hard + rng.normal(0, 0.2, (8, 20))
    correct_TP = rng.binomial(64, 0.8 - 0.08 * t * hard)
    tasks = ["logic" if is_hard else "sums" for is_hard in hard]
    (pooled,) = compute(evidence_of(logp_TP, correct_TP, n=64))
    (by_task,) = compute(evidence_of(logp_TP, correct_TP, n=64, tasks=tasks))
    assert pooled.value < 0.01
    assert by_task.value > 0.1


def test_only_problems_with_a_correct_panel_response_are_tested():
    logp_TP, correct_TP = trending(2)
    right = [i % 2 == 0 for i in range(20)]
    (some,) = compute(evidence_of(logp_TP, correct_TP, n=64, right=right))
    (alone,) = compute(evidence_of(logp_TP[:, ::2], correct_TP[:, ::2], n=64))
    assert (some.value, some.n) == (alone.value, 10)


def test_the_same_evidence_has_the_same_p_value():
    evidence = evidence_of(*trending(3), n=64, ks=(1, 4))
    assert [f.value for f in compute(evidence)] == [f.value for f in compute(evidence)]


def test_what_cannot_be_tested_has_a_reason():
    logp_TP, correct_TP = trending(4)
    (two,) = compute(evidence_of(logp_TP[:2], correct_TP[:2], n=64))
    assert two.why == "needs 3 complete checkpoints; there are 2"
    (still,) = compute(evidence_of(logp_TP, np.full_like(correct_TP, 64), n=64))
    assert still.why == "Δ⁺ or pass@1: one of the two does not vary between problems"
    (one_problem,) = compute(evidence_of(logp_TP[:, :1], correct_TP[:, :1], n=64))
    assert one_problem.why == still.why
    (too_large,) = compute(evidence_of(logp_TP, correct_TP, n=64, ks=(128,)))
    assert "needs at least 128" in too_large.why
