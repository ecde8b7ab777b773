import math
from dataclasses import replace

import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

own_under_base = get_measure("perplexity_own_under_base")
of_base_samples = get_measure("perplexity_base_samples")
flow = get_measure("perplexity_base_samples_flow")

OWN = "checkpoint_id problem_id sample_index n_tokens base_logp_sum task"
PANEL = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"
COUNTS = "checkpoint_id problem_id n n_correct"


def by_scope(findings):
    return {(f.checkpoint_id, f.scope): f for f in findings}


def own(checkpoint, problem, index, nats_per_token, *, n_tokens=2, task="sums"):
    logp_sum = None if nats_per_token is None else -nats_per_token * n_tokens
    return (checkpoint, problem, index, n_tokens, logp_sum, task)


def found_own(*rows):
    return by_scope(own_under_base(tiny_evidence("own_logps", OWN, list(rows))))


def panel(checkpoint, problem, perplexity, *, index=0, correct=True, n_tokens=2):
    return (checkpoint, problem, index, correct, n_tokens, -n_tokens * math.log(perplexity))


def found_panel(*rows):
    return by_scope(of_base_samples(tiny_evidence("panel_logps", PANEL, list(rows))))


def found_flow(rows, counts, sampled=()):
    """``counts``: (checkpoint, problem, n, n_correct) of as many everywhere; ``sampled``: of all, and planned."""
    frames = tiny_evidence("problem_counts", COUNTS, counts).frames
    frames = {**frames, **tiny_evidence("sampled_counts", f"{COUNTS} n_planned", list(sampled)).frames}
    evidence = tiny_evidence("panel_logps", PANEL, rows)
    return by_scope(flow(replace(evidence, frames={**evidence.frames, **frames})))


def test_responses_count_equally_within_a_problem_whatever_their_length():
    findings = found_own(
        own("base", "q1", 0, math.log(2), n_tokens=1),
        own("base", "q1", 1, math.log(4), n_tokens=30),
        own("base", "q1", 2, math.log(9)),
        *(own("base", "q2", i, math.log(perplexity)) for i, perplexity in enumerate((7, 8, 9))),
    )
    assert findings["base", "all"].value == pytest.approx((5 + 8) / 2)
    assert findings["base", "all"].n == 2


@pytest.mark.slow
def test_the_base_scores_its_own_samples_and_those_of_every_checkpoint(world):
    samples = [
        {"n_tokens": 2, "own_logp_sum": -2 * math.log(6)},  # the base's own score is the one under the base
        {"n_tokens": 2, "checkpoint": "late", "own_logp_sum": -9.0, "base_logp_sum": -2 * math.log(3)},
    ]
    findings = {f.checkpoint_id: f.value for f in own_under_base(world(samples, n=1).evidence())}
    assert findings == {"base": pytest.approx(6.0), "late": pytest.approx(3.0)}


def test_tasks_have_their_own_scopes():
    findings = found_own(own("base", "q1", 0, math.log(2)), own("base", "q2", 0, math.log(6), task="logic"))
    assert {scope: f.value for (_, scope), f in findings.items()} == {
        "all": pytest.approx(4.0),
        "task:logic": pytest.approx(6.0),
        "task:sums": pytest.approx(2.0),
    }


def test_a_mean_of_exponentials_has_no_interval():
    rows = [own("base", f"q{i}", j, math.log(1 + i)) for i in range(3) for j in range(50)]
    finding = found_own(*rows)["base", "all"]
    assert (finding.value, finding.low, finding.high, finding.n) == (pytest.approx(2.0), None, None, 3)


def test_a_checkpoint_that_the_base_scored_in_part_is_unknown_and_the_others_are_not():
    findings = found_own(
        *(own("base", q, i, 1.0) for q in ("q1", "q2") for i in (0, 1)),
        own("late", "q1", 0, 1.0),
        own("late", "q1", 1, 1.0),
        own("late", "q2", 0, 1.0),
        own("late", "q2", 1, None),  # scored by itself alone
        own("none", "q1", 0, None),
    )
    assert findings["base", "all"].value == pytest.approx(math.e)
    assert findings["late", "all"].why.startswith("3 of 4 own samples are scored under the base; run the audit again")
    assert findings["none", "all"].why.startswith("no own sample is scored under the base")


def test_more_own_samples_of_the_base_do_not_make_the_others_incomplete():
    findings = found_own(*(own("base", "q1", i, 1.0) for i in range(4)), *(own("late", "q1", i, 2.0) for i in range(2)))
    assert findings["late", "all"].value == pytest.approx(math.exp(2))


def test_broken_weights_are_a_reason_not_an_overflow():
    findings = found_own(own("base", "q1", 0, 1.0), own("late", "q1", 0, 4000.0), own("lost", "q1", 0, math.inf))
    assert findings["base", "all"].value == pytest.approx(math.e)
    assert "4000 nats per token" in findings["late", "all"].why
    assert "inf nats per token" in findings["lost", "all"].why


def test_the_mean_is_within_a_problem_first_and_correct_responses_stand_apart():
    findings = found_panel(
        panel("base", "q1", 2, n_tokens=1),
        panel("base", "q1", 3, index=1, n_tokens=9),
        panel("base", "q1", 7, index=2, correct=False),
        panel("base", "q2", 10),
        panel("base", "q2", 20, index=1, correct=False),
        panel("base", "q2", 30, index=2, correct=False),
    )
    assert findings["base", "all"].value == pytest.approx((4 + 20) / 2)
    assert findings["base", "correct"].value == pytest.approx((2.5 + 10) / 2)


@pytest.mark.slow
def test_a_checkpoint_that_moves_away_from_base_samples_has_a_higher_perplexity(world):
    samples = [{"panel": True, "text": "a"}, {"panel": True, "text": "b", "sample_index": 1, "correct": False}]
    scores = [
        ("base", "q1", "a", [-1.0, -1.0], [0.0, 0.0]),
        ("base", "q1", "b", [-2.0, -2.0], [0.0, 0.0]),
        ("late", "q1", "a", [-1.0, -4.0], [0.0, 0.0]),
        ("late", "q1", "b", [-2.0, -2.0], [0.0, 0.0]),
    ]
    store = world(samples, n=1, panel=2, panel_logps=scores)
    findings = {(f.checkpoint_id, f.scope): f.value for f in of_base_samples(store.evidence())}
    assert findings == {
        ("base", "all"): pytest.approx((math.e + math.exp(2)) / 2),
        ("base", "correct"): pytest.approx(math.e),
        ("late", "all"): pytest.approx((math.exp(2.5) + math.exp(2)) / 2),
        ("late", "correct"): pytest.approx(math.exp(2.5)),
    }


def test_a_problem_without_a_correct_response_is_in_all_alone():
    findings = found_panel(panel("base", "q1", 2), panel("base", "q2", 8, correct=False))
    assert (findings["base", "all"].value, findings["base", "all"].n) == (pytest.approx(5.0), 2)
    assert (findings["base", "correct"].value, findings["base", "correct"].n) == (pytest.approx(2.0), 1)


def test_without_a_correct_response_correct_says_why():
    findings = found_panel(panel("base", "q1", 2, correct=False))
    assert findings["base", "all"].value == pytest.approx(2.0)
    assert findings["base", "correct"].why == "no panel response is correct; run the audit with a larger --panel"


def test_problems_are_split_by_the_last_checkpoint_and_unchanged_ones_are_in_neither():
    perplexity = {"up1": 2, "up2": 4, "down": 9, "same": 50}
    rows = [
        panel(c, q, p * factor) for c, factor in (("base", 1), ("mid", 2), ("late", 3)) for q, p in perplexity.items()
    ]
    solved = {"up1": (1, 0, 2), "up2": (0, 4, 1), "down": (3, 4, 2), "same": (2, 0, 2)}
    counts = [(c, q, 4, solved[q][i]) for i, c in enumerate(("base", "mid", "late")) for q in perplexity]
    findings = found_flow(rows, counts)
    assert {key: f.value for key, f in findings.items()} == {
        ("base", "improved"): pytest.approx(3.0),
        ("base", "declined"): pytest.approx(9.0),
        ("mid", "improved"): pytest.approx(6.0),  # up1 fell to 0 here, but the split is that of the end
        ("mid", "declined"): pytest.approx(18.0),
        ("late", "improved"): pytest.approx(9.0),
        ("late", "declined"): pytest.approx(27.0),
    }
    assert (findings["base", "improved"].n, findings["base", "declined"].n) == (2, 1)


def test_only_correct_responses_count_and_a_problem_without_one_is_left_out():
    rows = [
        panel(c, q, p, index=i, correct=ok)
        for c in ("base", "late")
        for q, i, p, ok in (("q1", 0, 3, True), ("q1", 1, 90, False), ("q2", 0, 90, False), ("q2", 1, 90, False))
    ]
    counts = [(c, q, 4, correct) for c, correct in (("base", 1), ("late", 3)) for q in ("q1", "q2")]
    finding = found_flow(rows, counts)["base", "improved"]
    assert (finding.value, finding.n) == (pytest.approx(3.0), 1)


def test_a_side_without_a_problem_says_so():
    rows = [panel(c, "q", 2) for c in ("base", "late")]
    findings = found_flow(rows, [("base", "q", 4, 1), ("late", "q", 4, 2)])
    assert findings["late", "improved"].value == pytest.approx(2.0)
    assert findings["late", "declined"].why.startswith("no problem that declined between the base and the last")


def test_without_the_counts_of_both_ends_there_is_no_split():
    rows = [panel(c, q, 2) for c in ("base", "late") for q in ("q1", "q2")]
    counts = [(c, q, 4, 2) for c, q in (("base", "q1"), ("base", "q2"), ("late", "q1"))]
    findings = found_flow(rows, counts)
    assert findings["base", "improved"].why.startswith("last checkpoint: 1 of 2 problems have exactly 4 graded samples")
    assert all(f.value is None for f in findings.values())
    alone = found_flow([panel("base", "q", 2)], [("base", "q", 4, 2)])
    assert alone["base", "declined"].why == "the series has no checkpoint after the base"
    none_correct = [panel(c, "q", 2, correct=False) for c in ("base", "late")]
    findings = found_flow(none_correct, [("base", "q", 4, 0), ("late", "q", 4, 1)])
    assert findings["base", "improved"].why.startswith("no panel response is correct")


def test_problems_of_the_panel_without_samples_are_named():
    rows = [panel(c, q, 2) for c in ("base", "late") for q in ("q1", "q2")]
    findings = found_flow(rows, [("base", "q1", 4, 1), ("late", "q1", 4, 2)])
    assert findings["base", "improved"].why == "1 of 2 problems of the panel have no graded samples"


@pytest.mark.slow
def test_the_base_has_more_samples_and_no_change_still_shows_no_change():
    # Hard problems are the surprising ones. With all eight samples of the base they would be declines: 8 chances of a
    # success against 4, so that rare luck of the base is not matched by the checkpoint.
    rng = np.random.default_rng(5)
    rows, counts, all_counts = [], [], []
    for q in range(4000):
        problem, hard = f"q{q:04}", bool(q % 2)
        base = rng.random(8) < (0.08 if hard else 0.5)
        late = rng.random(4) < (0.08 if hard else 0.5)
        rows += [panel(c, problem, 20 if hard else 3) for c in ("base", "late")]
        counts += [("base", problem, 4, int(base[:4].sum())), ("late", problem, 4, int(late.sum()))]
        all_counts += [("base", problem, 8, int(base.sum()), 8), ("late", problem, 4, int(late.sum()), 4)]
    findings = found_flow(sorted(rows), counts, all_counts)
    improved, declined = findings["base", "improved"], findings["base", "declined"]
    # perplexities are 3 and 20: half of the width of a t interval over some 2,000 problems is 0.4
    assert declined.value == pytest.approx(improved.value, abs=0.6)
    assert improved.n == pytest.approx(declined.n, rel=0.1)
