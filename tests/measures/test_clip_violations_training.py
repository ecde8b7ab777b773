import math

import pytest

from diagnostics.measures import get_measure

MEASURE = get_measure("clip_violations_training")

BASE = math.log(0.4)


def response(checkpoint, prompt, ratios, text="t"):
    """A training response whose token probabilities rose from 0.4 by ``ratios`` between the two checkpoints."""
    now = [BASE + math.log(ratio) for ratio in ratios]
    return (checkpoint, prompt, text, True, now, [BASE] * len(ratios))


def rows_of(store):
    return {row["checkpoint_id"]: row for row in store.sql_rows(MEASURE)}


def test_tokens_outside_the_trust_region_count_on_both_sides(world):
    training = [response("late", "t1", [0.79, 0.81, 1.0, 1.19, 1.21])]
    rows = rows_of(world([{}], n=1, training=training))
    assert list(rows) == ["late"]
    assert (rows["late"]["value"], rows["late"]["n"]) == (pytest.approx(2 / 5), 1)


def test_prompts_count_equally_and_tokens_within_a_prompt(world):
    training = [
        response("late", "t1", [2, 1], text="a"),
        response("late", "t1", [1] * 6, text="b"),
        response("late", "t2", [0.5] * 30),
    ]
    rows = rows_of(world([{}], n=1, training=training))
    assert rows["late"]["value"] == pytest.approx((1 / 8 + 1) / 2)


def test_every_step_has_its_own_responses(world):
    training = [response("c1", "t1", [2, 2]), response("c2", "t1", [1, 1]), response("c3", "t1", [1, 2])]
    rows = rows_of(world([{}], n=1, training=training))
    assert {c: row["value"] for c, row in rows.items()} == {"c1": 1.0, "c2": 0.0, "c3": 0.5}


def test_a_step_without_rollouts_has_no_row_and_the_reason_names_the_files(world):
    rows = rows_of(world([{}, {"checkpoint": "c2"}], n=1, training=[response("c1", "t1", [1])]))
    assert list(rows) == ["c1"]
    assert "the run directory holds no rollouts (rollouts/step_*.parquet)" in MEASURE.missing


def test_the_panel_does_not_count(world):
    samples = [{"panel": True, "text": "p"}]
    scores = [("base", "q1", "p", [BASE], [0.0]), ("late", "q1", "p", [2 * BASE], [0.0])]
    assert rows_of(world(samples, n=1, panel=1, panel_logps=scores)) == {}


def test_the_interval_needs_thirty_prompts_and_is_the_floored_one(world):
    def row(n_prompts):
        training = [response("late", f"t{i:02}", [1.5 if i % 2 else 1, 1]) for i in range(n_prompts)]
        return rows_of(world([{}], n=1, training=training))["late"]

    assert row(29)["high"] is None
    variance = 0.0625 * 30 / 29  # half of the prompts at 0, half at 1/2
    half_width = 1.959964 * (29 * variance + 1) ** 0.5 / 30
    found = row(30)
    assert (found["value"], found["n"]) == (0.25, 30)
    assert found["low"] == pytest.approx(0.25 - half_width)
    assert found["high"] == pytest.approx(0.25 + half_width)
