import pytest

from oversharp.diagnostics.measures import get_measure
from tests.measures.samples import drawn


@pytest.mark.parametrize(
    ("name", "field", "bad", "good"),
    [
        ("parse_failure_rate", "state", "parse_fail", "timeout"),
        ("ambiguous_rate", "state", "ambiguous", "parse_fail"),
        ("several_boxes_rate", "n_boxed", 2, 1),
        ("timeout_rate", "state", "timeout", "parse_fail"),
        ("truncation_rate", "finish_reason", "length", "stop"),
    ],
)
class TestRateOfOneMark:
    def test_the_share_of_samples_without_the_greedy_one(self, world, name, field, bad, good):
        marks = {"base": [bad, good, good, good], "late": [bad, bad, bad, good], "twin": [good] * 4}
        samples = [row for c, marked in marks.items() for row in drawn(c, correct=[False] * 4, **{field: marked})]
        samples.append({"checkpoint": "base", "greedy": True, "correct": False, field: bad})
        rows = world(samples, n=4).sql_rows(get_measure(name))
        found = [(row["checkpoint_id"], row["value"], row["n"]) for row in rows if row["scope"] == "all"]
        assert found == [("base", 0.25, 4), ("late", 0.75, 4), ("twin", 0.0, 4)]

    def test_samples_beyond_the_audits_n_do_not_count(self, world, name, field, bad, good):
        samples = [{"sample_index": i, "correct": False, field: bad if i >= 2 else good} for i in range(4)]
        assert world(samples, n=2).values(get_measure(name))["base", "all"] == 0.0


@pytest.mark.slow
def test_timeouts_and_verifier_errors_are_told_apart(world):
    states = {"base": ["ok", "timeout", "parse_fail", "ok"], "late": ["error", "timeout", "timeout", "ok"]}
    samples = [row for c, state in states.items() for row in drawn(c, correct=[False] * 4, state=state)]
    assert world(samples, n=4).values(get_measure("timeout_rate")) == {
        ("base", "all"): 0.25,
        ("base", "error"): 0.0,
        ("late", "all"): 0.5,
        ("late", "error"): 0.25,
    }


def test_samples_that_do_not_tell_why_they_ended_do_not_count(world):
    samples = drawn("base", finish_reason=["length", "stop", None, None]) + drawn("late", finish_reason=[None] * 4)
    rows = world(samples, n=4).sql_rows(get_measure("truncation_rate"))
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [("base", 0.5, 2), ("late", None, 0)]


def test_samples_whose_boxes_nobody_counted_do_not_count(world):
    samples = drawn("base", n_boxed=[2, 0, None, None]) + drawn("late", n_boxed=[None] * 4)
    rows = world(samples, n=4).sql_rows(get_measure("several_boxes_rate"))
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [("base", 0.5, 2), ("late", None, 0)]


def test_both_ways_of_disagreeing_are_told_apart(world):
    samples = drawn("base", correct=[True, False, True, False], own_correct=[True, False, False, True])
    samples += drawn("late", correct=[True] * 4, own_correct=[False, False, True, False])
    samples.append({"greedy": True, "correct": True, "own_correct": False})
    made = world(samples, n=4)
    assert made.values(get_measure("verifier_disagreement")) == {
        ("base", "all"): 0.5,
        ("base", "only here"): 0.25,
        ("base", "only own"): 0.25,
        ("late", "all"): 0.75,
        ("late", "only here"): 0.75,
        ("late", "only own"): 0.0,
    }
    assert {row["n"] for row in made.sql_rows(get_measure("verifier_disagreement"))} == {4}


@pytest.mark.slow
def test_samples_that_one_verifier_graded_alone_say_nothing(world):
    measure = get_measure("verifier_disagreement")
    assert world([{"sample_index": i} for i in range(4)], n=4).sql_rows(measure) == []
    half = drawn("base", own_correct=[False, False, None, None])
    assert {row["n"] for row in world(half, n=4).sql_rows(measure)} == {2}


LOOP = "so we add them again. "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "looped"),
    [
        ("We begin, and " + 9 * LOOP, True),
        ("We begin, and " + 9 * LOOP + "so we ad", True),
        ("0" * 60, True),
        ("0" * 59, False),
        ("a price of 1,000,000", False),
        (2 * LOOP, False),
        (9 * LOOP + "Therefore the sum of both is forty-two.", False),
        (4 * "".join(f"line {i}; " for i in range(40)), False),  # a passage of more than 200 characters
        ("", False),
    ],
)
def test_only_what_ends_in_one_passage_again_and_again_is_a_loop(world, text, looped):
    samples = drawn("base", text=[text, text, "fine"], finish_reason=["length", "stop", None])
    (row,) = world(samples, n=3).sql_rows(get_measure("looped_rate"))
    assert (row["value"], row["n"]) == (0.5 if looped else 0.0, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reconsiders"),
    [
        ("Wait, that is 12.", True),
        ("Hold on. 3 + 4", True),
        ("so 12. Let me double-check this", True),
        ("But that's wrong, so", True),
        ("He waits. They awaited 3 guests; the waiter left.", False),
        ("Check: 3 + 4 = 7", False),
        ("the wrong answer would be 12", False),
    ],
)
def test_words_that_take_something_back_are_counted(world, text, reconsiders):
    samples = drawn("base", text=[text, "7", "8"], correct=[True, True, False])
    values = world(samples, n=3).values(get_measure("self_correction"))
    assert values["base", "all"] == pytest.approx(1 / 3 if reconsiders else 0)
    assert values["base", "correct with"] == (1.0 if reconsiders else None)
    assert values["base", "correct without"] == pytest.approx(0.5 if reconsiders else 2 / 3)


def test_of_many_samples_of_a_problem_the_first_32_are_read_for_words(world):
    samples = drawn("base", text=["Wait, no"] * 16 + ["7"] * 16 + ["Wait, no"] * 8, correct=[True] * 40)
    rows = {row["scope"]: row for row in world(samples, n=40).sql_rows(get_measure("self_correction"))}
    assert (rows["all"]["value"], rows["all"]["n"]) == (0.5, 32)
    assert rows["correct with"]["n"] == rows["correct without"]["n"] == 16


def test_the_styles_of_answers_are_counted_apart_and_grades_without_one_do_not_count(world):
    samples = drawn("base", answer_style=["boxed", "boxed", "labelled", None])
    samples += drawn("late", answer_style=["labelled"] * 3 + ["none"])
    values = world(samples, n=4).values(get_measure("answer_style"))
    assert values["base", "boxed"] == pytest.approx(2 / 3)
    assert (values["late", "boxed"], values["late", "labelled"], values["late", "none"]) == (0.0, 0.75, 0.25)


def test_the_lenient_gap_counts_what_the_verifier_alone_refuses(world):
    correct, lenient = [True, False, False, False], [True, True, False, None]
    samples = drawn("base", correct=correct, lenient=lenient) + drawn("late", correct=correct, lenient=[None] * 4)
    rows = world(samples, n=4).sql_rows(get_measure("lenient_gap"))
    assert [(row["checkpoint_id"], row["value"], row["n"]) for row in rows] == [
        ("base", pytest.approx(1 / 3), 3),
        ("late", None, 0),
    ]
