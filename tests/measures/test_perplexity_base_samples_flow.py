import math
from dataclasses import replace

import numpy as np
import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("perplexity_base_samples_flow").compute

PANEL = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"
COUNTS = "checkpoint_id problem_id n n_correct"


def row(checkpoint, problem, perplexity, *, index=0, correct=True):
    return (checkpoint, problem, index, correct, 2, -2 * math.log(perplexity))


def found(panel, counts, n=4):
    evidence = tiny_evidence("panel_logps", PANEL, panel)
    frames = tiny_evidence("problem_counts", COUNTS, counts, n=n).frames
    evidence = replace(evidence, frames={**evidence.frames, **frames})
    return {(f.checkpoint_id, f.scope): f for f in compute(evidence)}


def test_problems_are_split_by_the_last_checkpoint_and_unchanged_ones_are_in_neither():
    perplexity = {"up1": 2, "up2": 4, "down": 9, "same": 50}
    panel = [
        row(c, q, p * factor) for c, factor in (("base", 1), ("mid", 2), ("late", 3)) for q, p in perplexity.items()
    ]
    solved = {"up1": (1, 0, 2), "up2": (0, 4, 1), "down": (3, 4, 2), "same": (2, 0, 2)}
    counts = [(c, q, 4, solved[q][i]) for i, c in enumerate(("base", "mid", "late")) for q in perplexity]
    findings = found(panel, counts)
    assert {key: f.value for key, f in findings.items()} == {
        ("base", "improved"): pytest.approx(3.0),
        ("base", "declined"): pytest.approx(9.0),
        ("mid", "improved"): pytest.approx(6.0),  # up1 fell to 0 here, but the split is that of the end
        ("mid", "declined"): pytest.approx(18.0),
        ("late", "improved"): pytest.approx(9.0),
        ("late", "declined"): pytest.approx(27.0),
    }
    assert (findings["base", "improved"].n, findings["base", "declined"].n) == (2, 1)
    assert findings["base", "improved"].low == 1.0


def test_only_correct_responses_count_and_a_problem_without_one_is_left_out():
    panel = [
        row(c, q, p, index=i, correct=ok)
        for c in ("base", "late")
        for q, i, p, ok in (("q1", 0, 3, True), ("q1", 1, 90, False), ("q2", 0, 90, False), ("q2", 1, 90, False))
    ]
    counts = [(c, q, 4, correct) for c, correct in (("base", 1), ("late", 3)) for q in ("q1", "q2")]
    finding = found(panel, counts)["base", "improved"]
    assert (finding.value, finding.n) == (pytest.approx(3.0), 1)


def test_a_side_without_a_problem_says_so():
    panel = [row(c, "q", 2) for c in ("base", "late")]
    findings = found(panel, [("base", "q", 4, 1), ("late", "q", 4, 2)])
    assert findings["late", "improved"].value == pytest.approx(2.0)
    assert findings["late", "declined"].why.startswith("no problem that declined between the base and the last")


def test_without_the_counts_of_both_ends_there_is_no_split():
    panel = [row(c, q, 2) for c in ("base", "late") for q in ("q1", "q2")]
    counts = [(c, q, 4, 2) for c, q in (("base", "q1"), ("base", "q2"), ("late", "q1"))]
    findings = found(panel, counts)
    assert findings["base", "improved"].why.startswith("last checkpoint: 1 of 2 problems have exactly 4 graded samples")
    assert all(f.value is None for f in findings.values())
    alone = found([row("base", "q", 2)], [("base", "q", 4, 2)])
    assert alone["base", "declined"].why == "the series has no checkpoint after the base"
    none_correct = [row(c, "q", 2, correct=False) for c in ("base", "late")]
    findings = found(none_correct, [("base", "q", 4, 0), ("late", "q", 4, 1)])
    assert findings["base", "improved"].why.startswith("no panel response is correct")


def test_problems_of_the_panel_without_samples_are_named():
    panel = [row(c, q, 2) for c in ("base", "late") for q in ("q1", "q2")]
    findings = found(panel, [("base", "q1", 4, 1), ("late", "q1", 4, 2)])
    assert findings["base", "improved"].why == "1 of 2 problems of the panel have no graded samples"


def test_a_checkpoint_with_half_a_panel_is_unknown_and_the_others_keep_their_split():
    panel = [row(c, q, 2) for c in ("base", "late") for q in ("q1", "q2")] + [row("mid", "q1", 2)]
    order = {"base": 0, "mid": 1, "late": 2}
    panel.sort(key=lambda one: order[one[0]])
    counts = [(c, q, 4, 1 + order[c]) for c in ("base", "mid", "late") for q in ("q1", "q2")]
    findings = found(panel, counts)
    assert findings["mid", "improved"].why.startswith("1 of 2 panel responses are scored here")
    assert findings["late", "improved"].value == pytest.approx(2.0)


def test_the_base_has_more_samples_and_no_change_still_shows_no_change():
    # Hard problems are the surprising ones. With all eight samples of the base they would be declines: 8 chances of a
    # success against 4, so that rare luck of the base is not matched by the checkpoint.
    rng = np.random.default_rng(5)
    panel, counts, all_counts = [], [], []
    for q in range(4000):
        problem, hard = f"q{q:04}", bool(q % 2)
        base = rng.random(8) < (0.08 if hard else 0.5)
        late = rng.random(4) < (0.08 if hard else 0.5)
        panel += [row(c, problem, 20 if hard else 3) for c in ("base", "late")]
        counts += [("base", problem, 4, int(base[:4].sum())), ("late", problem, 4, int(late.sum()))]
        all_counts += [("base", problem, 8, int(base.sum()), 8), ("late", problem, 4, int(late.sum()), 4)]
    evidence = tiny_evidence("panel_logps", PANEL, sorted(panel))
    common = tiny_evidence("problem_counts", COUNTS, counts).frames
    sampled = tiny_evidence("sampled_counts", f"{COUNTS} n_planned", all_counts).frames
    evidence = replace(evidence, frames={**evidence.frames, **common, **sampled})
    findings = {(f.checkpoint_id, f.scope): f for f in compute(evidence)}
    improved, declined = findings["base", "improved"], findings["base", "declined"]
    assert improved.low < declined.value < improved.high
    assert improved.n == pytest.approx(declined.n, rel=0.1)
