import math

import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = {
    "sampler_scorer_gap": ("own_logps", "checkpoint_id problem_id sample_index n_tokens sampler_logp_sum own_logp_sum"),
    "scoring_noise": ("repeated_logps", "checkpoint_id problem_id response_id n_tokens logp_sum second_logp_sum"),
}


def found(name, *rows):
    """``rows``: (checkpoint, problem, index, tokens, one log-probability, the other)."""
    view, columns = COLUMNS[name]
    return {(f.checkpoint_id, f.scope): f for f in get_measure(name)(tiny_evidence(view, columns, list(rows)))}


def in_store(name, store):
    return {(f.checkpoint_id, f.scope): f for f in get_measure(name)(store.evidence())}


@pytest.mark.parametrize("name", COLUMNS)
def test_gaps_in_either_direction_add_up_and_problems_count_equally(name):
    findings = found(
        name,
        ("base", "q1", 0, 2, -3.0, -5.0),  # 1 per token
        ("base", "q1", 1, 4, -5.0, -3.0),  # 1/2, the other way
        ("base", "q2", 0, 10, -7.0, -7.0),
        ("base", "q2", 1, 10, -7.0, -8.0),  # 1/10
    )
    assert findings["base", "all"].value == pytest.approx((0.75 + 0.05) / 2)
    assert (findings["base", "all"].low, findings["base", "all"].n) == (0.0, 2)
    largest = findings["base", "max"]
    assert (largest.value, largest.low, largest.high, largest.n) == (1.0, None, None, 4)


def test_stale_weights_in_the_sampler_stand_out(world):
    samples = [
        {"checkpoint": c, "problem": q, "n_tokens": 10, "logp_sum": -8.0, "own_logp_sum": own, "base_logp_sum": -8.0}
        for q in ("q1", "q2", "q3")
        for c, own in (("base", -8.00001), ("c1", -8.00002), ("c2", -5.0))  # c2 was sampled with the base's weights
    ]
    findings = in_store("sampler_scorer_gap", world(samples, n=1))
    assert findings["base", "max"].value < findings["c1", "max"].value < 1e-5
    assert findings["c2", "all"].value == pytest.approx(0.3)


def test_a_checkpoint_scored_in_part_is_unknown():
    findings = found(
        "sampler_scorer_gap",
        ("base", "q1", 0, 2, -3.0, -3.0),
        ("base", "q2", 0, 2, -3.0, -3.0),
        ("late", "q1", 0, 2, -3.0, -3.0),
        ("late", "q2", 0, 2, -3.0, None),
        ("none", "q1", 0, 2, -3.0, None),
    )
    assert findings["base", "all"].value == 0.0
    assert findings["late", "all"].why.startswith("1 of 2 own samples are scored by the checkpoint itself")
    assert findings["late", "max"].why == findings["late", "all"].why
    assert findings["none", "max"].why.startswith("no own sample is scored by the checkpoint itself")


@pytest.mark.parametrize("own", [-3.0, -math.inf])
def test_an_impossible_response_is_a_reason_not_a_number(own):
    rows = [("base", "q1", 0, 2, -math.inf, own), ("base", "q2", 0, 2, -3.0, -3.0)]
    findings = found("sampler_scorer_gap", *rows)
    assert findings["base", "all"].why.startswith("one of the two scores of 1 of 2 responses is a probability of 0")
    assert findings["base", "max"].value is None


def test_both_scores_are_read_from_the_store_and_a_checkpoint_without_a_second_one_says_so(world):
    scores = [(c, "q1", "p", [-1.0, -1.0], [0.0, 0.0]) for c in ("base", "late", "once")]
    second = [("base", "q1", "p", -2.0), ("late", "q1", "p", -2.5)]
    store = world([{"panel": True, "text": "p"}], n=1, panel=1, panel_logps=scores, second_logps=second)
    findings = in_store("scoring_noise", store)
    values = {checkpoint: f.value for (checkpoint, scope), f in findings.items() if scope == "all"}
    assert values == {"base": 0.0, "late": 0.25, "once": None}
    assert findings["late", "max"].value == 0.25
    assert findings["once", "max"].why.startswith("no panel response is scored twice here")
