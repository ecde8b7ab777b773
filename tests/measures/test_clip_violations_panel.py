import math

import pytest

from diagnostics.measures import get_measure

MEASURE = get_measure("clip_violations_panel")

BASE = math.log(0.4)


def panel(*problems, per_problem=1):
    return [
        {"problem": q, "panel": True, "text": f"p{i}", "sample_index": i} for q in problems for i in range(per_problem)
    ]


def scored(checkpoint, problem, ratios, text="p0"):
    """Token probabilities ``ratios`` times those of 0.4."""
    return (checkpoint, problem, text, [BASE + math.log(ratio) for ratio in ratios], [0.0] * len(ratios))


def rows_of(store):
    return {row["checkpoint_id"]: row for row in store.sql_rows(MEASURE)}


def test_tokens_outside_the_trust_region_count_on_both_sides(world):
    scores = [scored("base", "q1", [1] * 5), scored("late", "q1", [0.79, 0.81, 1.0, 1.19, 1.21])]
    rows = rows_of(world(panel("q1"), n=1, panel=1, panel_logps=scores))
    assert list(rows) == ["late"]
    assert (rows["late"]["value"], rows["late"]["n"]) == (pytest.approx(2 / 5), 1)


def test_each_checkpoint_is_compared_with_the_one_before_not_with_the_base(world):
    ratios = {"base": 1.0, "c1": 1.5, "c2": 1.6, "c3": 1.0}
    scores = [scored(c, "q1", [ratio] * 3) for c, ratio in ratios.items()]
    rows = rows_of(world(panel("q1"), n=1, panel=1, panel_logps=scores))
    assert {c: row["value"] for c, row in rows.items()} == {"c1": 1.0, "c2": 0.0, "c3": 1.0}


def test_problems_count_equally_and_tokens_within_a_problem(world):
    scores = [
        *(scored("base", "q1", [1] * 2, text=text) for text in ("p0", "p1")),
        *(scored("base", "q2", [1] * 40, text=text) for text in ("p0", "p1")),
        scored("late", "q1", [2, 1], text="p0"),
        scored("late", "q1", [2, 1], text="p1"),
        scored("late", "q2", [1] * 40, text="p0"),
        scored("late", "q2", [1] * 30 + [0.5] * 10, text="p1"),
    ]
    rows = rows_of(world(panel("q1", "q2", per_problem=2), n=1, panel=2, panel_logps=scores))
    assert rows["late"]["value"] == pytest.approx((1 / 2 + 10 / 80) / 2)


def test_a_panel_scored_in_part_gives_no_value_to_the_step_there_and_the_next(world):
    scores = [scored(c, q, [1, 1]) for c in ("base", "c2", "c3") for q in ("q1", "q2")] + [scored("c1", "q1", [1, 1])]
    rows = rows_of(world(panel("q1", "q2"), n=1, panel=1, panel_logps=scores))
    values = {c: (row["value"], row["low"], row["high"], row["n"]) for c, row in rows.items()}
    assert values == {"c1": (None,) * 4, "c2": (None,) * 4, "c3": (0.0, None, None, 2)}


def test_a_checkpoint_that_was_left_out_is_passed_over(world):
    scores = [scored("base", "q1", [1, 1]), scored("late", "q1", [1, 1.5])]
    left_out = [{"checkpoint": "failed"}]  # between the two, and without a score
    store = world([*panel("q1"), *left_out], n=1, panel=1, panel_logps=scores)
    assert {c: row["value"] for c, row in rows_of(store).items()} == {"late": 0.5}


def test_equal_responses_of_one_problem_count_as_often_as_they_were_drawn(world):
    samples = [{"panel": True, "text": "p0", "sample_index": i} for i in range(3)] + [
        {"panel": True, "text": "p1", "sample_index": 3}
    ]
    scores = [
        *(scored("base", "q1", [1], text=text) for text in ("p0", "p1")),
        scored("late", "q1", [2], text="p0"),
        scored("late", "q1", [1], text="p1"),
    ]
    store = world(samples[:1] + samples[3:], n=1, panel=4, panel_logps=scores)
    assert rows_of(store)["late"]["value"] == 0.5
    # the fixture grades per sample; equal texts share one grade and one score
    store.db.execute("INSERT INTO samples SELECT * REPLACE (1 AS sample_index) FROM samples WHERE text = 'p0'")
    store.db.execute("INSERT INTO samples SELECT * REPLACE (2 AS sample_index) FROM samples WHERE sample_index = 1")
    assert rows_of(store)["late"]["value"] == 0.75


def test_the_interval_needs_thirty_problems_and_is_the_floored_one(world):
    def rows(n_problems):
        names = [f"q{i:02}" for i in range(n_problems)]
        scores = [scored("base", q, [1, 1]) for q in names]
        scores += [scored("late", q, [1.5 if i % 2 else 1, 1]) for i, q in enumerate(names)]
        return rows_of(world(panel(*names), n=1, panel=1, panel_logps=scores))["late"]

    assert rows(29)["low"] is None
    variance = 0.0625 * 30 / 29  # half of the problems at 0, half at 1/2
    half_width = 1.959964 * (29 * variance + 1) ** 0.5 / 30
    found = rows(30)
    assert (found["value"], found["n"]) == (0.25, 30)
    assert found["low"] == pytest.approx(0.25 - half_width)
    assert found["high"] == pytest.approx(0.25 + half_width)


def test_another_series_in_the_store_does_not_mix_in(world):
    scores = [scored("base", "q1", [1, 1]), scored("late", "q1", [1, 1])]
    store = world(panel("q1"), n=1, panel=1, panel_logps=scores)
    store.db.execute("UPDATE series_checkpoints SET series = 'other'")
    store.db.execute("UPDATE audits SET series = 'other'")
    assert rows_of(store) == {}
