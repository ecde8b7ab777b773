from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.tools.calls import (
    call_sequences,
    calls_per_sample,
    invalid_calls,
    repeated_calls,
    tool_use,
)
from oversharp.diagnostics.measures.tools.turns import pass_at_k_turns, turns_per_sample

COLUMNS = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated tools calls"


def evidence(rows, **more):
    padded = [(*row, *(0,) * (len(COLUMNS.split()) - len(row))) for row in rows]
    return tiny_evidence("agent_samples", COLUMNS, padded, **more)


def by_scope(findings, checkpoint="base"):
    return {(f.scope, f.k): f for f in findings if f.checkpoint_id == checkpoint}


def test_a_sample_beyond_the_limit_counts_as_wrong_and_the_largest_limit_is_pass_at_k():
    rows = [("base", "q", i, i != 3, turns) for i, turns in enumerate((1, 2, 6, 9))]
    found = by_scope(pass_at_k_turns(evidence(rows, ks=(1, 2))))
    values = [found[f"T={t}", 1].value for t in (1, 2, 3, 5, 8, 9)]
    assert values == pytest.approx([0.25, 0.5, 0.5, 0.5, 0.75, 0.75])
    assert found["T=1", 2].value == pytest.approx(1 - 3 / 6)
    assert found["T=9", 2].value == 1.0


def test_all_checkpoints_have_the_same_limits():
    rows = [("base", "q", i, True, 6) for i in range(4)] + [("late", "q", i, True, 1) for i in range(4)]
    findings = pass_at_k_turns(evidence(rows))
    assert by_scope(findings).keys() == by_scope(findings, "late").keys()
    assert {f.value for f in by_scope(findings, "late").values()} == {1.0}


def test_the_estimate_is_unbiased_for_runs_that_are_cut():
    rng = np.random.default_rng(0)
    solved_by_turn = np.array([0.2, 0.15, 0.1])  # a run ends right at a turn, or goes on up to three
    truth = 1 - (1 - solved_by_turn[:2].sum()) ** 2  # pass@2 within two turns
    rows = []
    for problem in range(2000):
        for sample in range(4):
            turn = int(rng.choice(4, p=[*solved_by_turn, 1 - solved_by_turn.sum()]))
            rows.append(("base", f"q{problem}", sample, turn < 3, min(turn + 1, 3)))
    found = by_scope(pass_at_k_turns(evidence(rows, ks=(2,))))["T=2", 2]
    assert found.value == pytest.approx(truth, abs=0.02)
    assert found.low < truth < found.high


def test_means_are_over_samples_then_over_problems_and_grades_without_samples_have_no_scope():
    rows = [("base", "q1", 0, True, 2, 1), ("base", "q1", 1, True, 4, 3), ("base", "q2", 0, True, 1, 0)]
    rows.append(("base", "q2", 1, True, 1, 0))
    turns = by_scope(turns_per_sample(evidence(rows, n=2)))
    assert turns["all", None].value == 2.0
    assert ("not_correct", None) not in turns
    assert by_scope(calls_per_sample(evidence(rows, n=2)))["correct", None].value == 1.0


def test_invalid_calls_are_pooled_and_unknown_without_calls():
    rows = [("base", "q1", i, True, 2, 2, 1) for i in range(2)] + [("late", "q1", i, True, 1, 0, 0) for i in range(2)]
    base, late = invalid_calls(evidence(rows, n=2))
    assert (base.value, base.n) == (0.5, 4)
    assert (late.value, late.why) == (None, "no sample has a tool call here")


def test_a_call_made_three_times_is_repeated():
    rows = [("base", "q", i, True, 3, 3, 0, most) for i, most in enumerate((1, 2, 3, 9))]
    (found,) = repeated_calls(evidence(rows))
    assert (found.value, found.n) == (0.5, 4)


def test_a_tool_counts_once_per_sample_and_as_unused_where_no_sample_calls_it():
    own = evidence([(c, q, i, True) for c in ("base", "late") for q in ("q1", "q2") for i in range(2)], n=2)
    users = pd.DataFrame(
        [("base", "q1", "add", 2, 7), ("base", "q2", "look", 1, 1), ("late", "q2", "add", 1, 1)],
        columns=["checkpoint_id", "problem_id", "tool", "n", "n_calls"],
    )
    findings = tool_use(replace(own, frames={**own.frames, "tool_users": users}))
    assert {(f.checkpoint_id, f.scope): f.value for f in findings} == {
        ("base", "add"): 0.5,
        ("base", "look"): 0.25,
        ("late", "add"): 0.25,
        ("late", "look"): 0.0,
    }


def test_sequences_are_counted_by_problem():
    rows = [
        ("base", problem, i, True, 1, 1, 0, 1, tools, calls)
        for problem, sequences in (("q1", [(1, 1), (1, 2)]), ("q2", [(1, 1), (1, 1)]))
        for i, (tools, calls) in enumerate(sequences)
    ]
    found = by_scope(call_sequences(evidence(rows, n=2)))
    assert (found["tools", None].value, found["calls", None].value) == (1.0, 1.5)
