import math

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("perplexity_own_under_base").compute

COLUMNS = "checkpoint_id problem_id sample_index n_tokens base_logp_sum task"


def row(checkpoint, problem, index, nats_per_token, *, n_tokens=2, task="sums"):
    logp_sum = None if nats_per_token is None else -nats_per_token * n_tokens
    return (checkpoint, problem, index, n_tokens, logp_sum, task)


def found(*rows):
    return {(f.checkpoint_id, f.scope): f for f in compute(tiny_evidence("own_logps", COLUMNS, list(rows)))}


def test_responses_count_equally_within_a_problem_whatever_their_length():
    findings = found(
        row("base", "q1", 0, math.log(2), n_tokens=1),
        row("base", "q1", 1, math.log(4), n_tokens=30),
        row("base", "q2", 0, math.log(7)),
        row("base", "q2", 1, math.log(9)),
    )
    assert findings["base", "all"].value == pytest.approx((3 + 8) / 2)
    assert findings["base", "all"].n == 2


def test_it_is_the_mean_of_exponentials_not_the_exponential_of_the_mean():
    findings = found(row("base", "q1", 0, 0.0), row("base", "q1", 1, 2.0))
    assert findings["base", "all"].value == pytest.approx((1 + math.exp(2)) / 2)


def test_the_base_scores_its_own_samples_and_those_of_every_checkpoint(world):
    samples = [
        {"n_tokens": 2, "own_logp_sum": -2 * math.log(6)},  # the base's own score is the one under the base
        {"n_tokens": 2, "checkpoint": "late", "own_logp_sum": -9.0, "base_logp_sum": -2 * math.log(3)},
    ]
    findings = {f.checkpoint_id: f.value for f in compute(world(samples, n=1).evidence())}
    assert findings == {"base": pytest.approx(6.0), "late": pytest.approx(3.0)}


def test_tasks_have_their_own_scopes():
    findings = found(row("base", "q1", 0, math.log(2)), row("base", "q2", 0, math.log(6), task="logic"))
    assert {scope: f.value for (_, scope), f in findings.items()} == {
        "all": pytest.approx(4.0),
        "task:logic": pytest.approx(6.0),
        "task:sums": pytest.approx(2.0),
    }


def test_the_interval_is_over_problems_and_never_below_one():
    rows = [row("base", f"q{i}", j, math.log(1 + i)) for i in range(3) for j in range(50)]
    finding = found(*rows)["base", "all"]
    assert finding.value == pytest.approx(2.0)
    assert finding.low == 1.0  # 2 − 4.303 / √3 is below
    assert finding.high == pytest.approx(2 + 4.302653 / math.sqrt(3), rel=1e-6)


def test_a_checkpoint_that_the_base_scored_in_part_is_unknown_and_the_others_are_not():
    findings = found(
        *(row("base", q, i, 1.0) for q in ("q1", "q2") for i in (0, 1)),
        row("late", "q1", 0, 1.0),
        row("late", "q1", 1, 1.0),
        row("late", "q2", 0, 1.0),
        row("late", "q2", 1, None),  # scored by itself alone
        row("none", "q1", 0, None),
    )
    assert findings["base", "all"].value == pytest.approx(math.e)
    assert findings["late", "all"].why.startswith("3 of 4 own samples are scored under the base; run the audit again")
    assert findings["none", "all"].why.startswith("no own sample is scored under the base")


def test_more_own_samples_of_the_base_do_not_make_the_others_incomplete():
    findings = found(*(row("base", "q1", i, 1.0) for i in range(4)), *(row("late", "q1", i, 2.0) for i in range(2)))
    assert findings["late", "all"].value == pytest.approx(math.exp(2))


def test_broken_weights_are_a_reason_not_an_overflow():
    findings = found(row("base", "q1", 0, 1.0), row("late", "q1", 0, 4000.0), row("lost", "q1", 0, math.inf))
    assert findings["base", "all"].value == pytest.approx(math.e)
    assert "4000 nats per token" in findings["late", "all"].why
    assert "inf nats per token" in findings["lost", "all"].why
