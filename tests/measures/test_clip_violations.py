import math

import pytest

from oversharp.diagnostics.measures import get_measure

BASE = math.log(0.4)


def panel(*problems, per_problem=1):
    return [
        {"problem": q, "panel": True, "text": f"p{i}", "sample_index": i} for q in problems for i in range(per_problem)
    ]


def times(ratios):
    """Log-probabilities of tokens ``ratios`` times as likely as 0.4."""
    return [BASE + math.log(ratio) for ratio in ratios]


def scored(checkpoint, problem, ratios, text="p0"):
    return (checkpoint, problem, text, times(ratios), [0.0] * len(ratios))


def rows_of(name, store):
    return {row["checkpoint_id"]: row for row in store.sql_rows(get_measure(name))}


def on_panel(world, scores, *problems, per_problem=1):
    samples = panel(*problems, per_problem=per_problem)
    return rows_of("clip_violations_panel", world(samples, n=1, panel=per_problem, panel_logps=scores))


def in_training(world, *responses, checkpoints=()):
    """``responses``: (checkpoint, prompt, text, ratios by which its tokens became likelier since the last)."""
    training = [(c, prompt, text, True, times(ratios), [BASE] * len(ratios)) for c, prompt, text, ratios in responses]
    samples = [{"checkpoint": checkpoint} for checkpoint in ("base", *checkpoints)]
    return rows_of("clip_violations_training", world(samples, n=1, training=training))


def risen(world, name, ratios_of_problems):
    """The row of ``late``, of one response per problem."""
    names = [f"q{i:02}" for i in range(len(ratios_of_problems))]
    risen_by = list(zip(names, ratios_of_problems, strict=True))
    if name == "clip_violations_training":
        rows = in_training(world, *(("late", q, "t", ratios) for q, ratios in risen_by))
    else:
        scores = [scored("base", q, [1] * len(ratios)) for q, ratios in risen_by]
        rows = on_panel(world, scores + [scored("late", q, ratios) for q, ratios in risen_by], *names)
    assert list(rows) == ["late"]
    return rows["late"]


both = pytest.mark.parametrize("name", ["clip_violations_panel", "clip_violations_training"])


@both
def test_tokens_outside_the_trust_region_count_on_both_sides(world, name):
    row = risen(world, name, [[0.79, 0.81, 1.0, 1.19, 1.21]])
    assert (row["value"], row["n"]) == (pytest.approx(2 / 5), 1)


@both
def test_the_ends_of_the_range_are_violations(world, name):
    assert risen(world, name, [[0.8, 1.2, 0.8001, 1.1999]])["value"] == pytest.approx(1 / 2)


@pytest.mark.slow
@both
def test_the_interval_needs_thirty_problems_and_is_the_floored_one(world, name):
    half = [[1.5 if i % 2 else 1, 1] for i in range(30)]
    few, found = risen(world, name, half[:29]), risen(world, name, half)
    assert (few["low"], few["high"]) == (None, None)
    variance = 0.0625 * 30 / 29  # half of the problems at 0, half at 1/2
    half_width = 1.959964 * (29 * variance + 1) ** 0.5 / 30
    assert (found["value"], found["n"]) == (0.25, 30)
    assert (found["low"], found["high"]) == pytest.approx((0.25 - half_width, 0.25 + half_width))


@pytest.mark.slow
def test_each_checkpoint_is_compared_with_the_one_before_not_with_the_base(world):
    ratios = {"base": 1.0, "c1": 1.5, "c2": 1.6, "c3": 1.0}
    scores = [scored(c, "q1", [ratio] * 3) for c, ratio in ratios.items()]
    rows = on_panel(world, scores, "q1")
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
    rows = on_panel(world, scores, "q1", "q2", per_problem=2)
    assert rows["late"]["value"] == pytest.approx((1 / 2 + 10 / 80) / 2)


def test_a_panel_scored_in_part_gives_no_value_to_the_step_there_and_the_next(world):
    scores = [scored(c, q, [1, 1]) for c in ("base", "c2", "c3") for q in ("q1", "q2")] + [scored("c1", "q1", [1, 1])]
    rows = on_panel(world, scores, "q1", "q2")
    values = {c: (row["value"], row["low"], row["high"], row["n"]) for c, row in rows.items()}
    assert values == {"c1": (None,) * 4, "c2": (None,) * 4, "c3": (0.0, None, None, 2)}


def test_a_checkpoint_that_was_left_out_is_passed_over(world):
    scores = [scored("base", "q1", [1, 1]), scored("late", "q1", [1, 1.5])]
    left_out = [{"checkpoint": "failed"}]  # between the two, and without a score
    store = world([*panel("q1"), *left_out], n=1, panel=1, panel_logps=scores)
    assert {c: row["value"] for c, row in rows_of("clip_violations_panel", store).items()} == {"late": 0.5}


def test_equal_responses_of_one_problem_count_as_often_as_they_were_drawn(world):
    samples = [{"panel": True, "text": text, "sample_index": i} for text, i in (("p0", 0), ("p1", 3))]
    scores = [
        *(scored("base", "q1", [1], text=text) for text in ("p0", "p1")),
        scored("late", "q1", [2], text="p0"),
        scored("late", "q1", [1], text="p1"),
    ]
    store = world(samples, n=1, panel=4, panel_logps=scores)
    assert rows_of("clip_violations_panel", store)["late"]["value"] == 0.5
    # the fixture grades per sample; equal texts share one grade and one score
    store.db.execute("INSERT INTO samples SELECT * REPLACE (1 AS sample_index) FROM samples WHERE text = 'p0'")
    store.db.execute("INSERT INTO samples SELECT * REPLACE (2 AS sample_index) FROM samples WHERE sample_index = 1")
    assert rows_of("clip_violations_panel", store)["late"]["value"] == 0.75


def test_another_series_in_the_store_does_not_mix_in(world):
    scores = [scored("base", "q1", [1, 1]), scored("late", "q1", [1, 1])]
    store = world(panel("q1"), n=1, panel=1, panel_logps=scores)
    store.db.execute("UPDATE series_checkpoints SET series = 'other'")
    store.db.execute("UPDATE audits SET series = 'other'")
    assert rows_of("clip_violations_panel", store) == {}


def test_prompts_count_equally_and_tokens_within_a_prompt(world):
    rows = in_training(
        world, ("late", "t1", "a", [2, 1]), ("late", "t1", "b", [1] * 6), ("late", "t2", "t", [0.5] * 30)
    )
    assert rows["late"]["value"] == pytest.approx((1 / 8 + 1) / 2)


def test_every_step_has_its_own_responses(world):
    rows = in_training(world, ("c1", "t1", "t", [2, 2]), ("c2", "t1", "t", [1, 1]), ("c3", "t1", "t", [1, 2]))
    assert {c: row["value"] for c, row in rows.items()} == {"c1": 1.0, "c2": 0.0, "c3": 0.5}


def test_a_step_without_rollouts_has_no_row_and_the_reason_names_the_files(world):
    assert list(in_training(world, ("c1", "t1", "t", [1]), checkpoints=["c2"])) == ["c1"]
    missing = get_measure("clip_violations_training").missing
    assert "the run directory contains no rollouts (rollouts/step_*.parquet)" in missing


def test_the_panel_is_no_training_response(world):
    scores = [scored("base", "q1", [1]), scored("late", "q1", [2])]
    assert rows_of("clip_violations_training", world(panel("q1"), n=1, panel=1, panel_logps=scores)) == {}
