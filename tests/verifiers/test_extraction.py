"""Finding the final answer in a response."""

import time

import pytest

from diagnostics.verifiers.extraction import announced_answer, hash_answer, last_boxed, tagged_answer, unwrap


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{3} then \boxed{4}", "4"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed {5}", "5"),
        (r"stray } and { but \boxed{7}", "7"),
        (r"first \boxed{1}, then cut short: \boxed{\frac{2}", "1"),
        ("no box", None),
        (r"\boxed{", None),
    ],
)
def test_the_last_balanced_box_counts(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize("loop", ["\\boxed{", "<answer>", "#### ", "the answer is ", "{", "**a"])
def test_a_response_stuck_in_a_loop_costs_no_more_than_its_length(loop: str) -> None:
    text = loop * 20_000
    start = time.perf_counter()
    for rule in (last_boxed, tagged_answer, hash_answer, announced_answer, unwrap):
        rule(text)
    assert time.perf_counter() - start < 2.0


def test_the_last_answer_tag_counts() -> None:
    assert tagged_answer("<answer>1</answer> no <answer> 2 </answer> <answer>cut") == "2"


def test_an_announced_formula_on_its_own_lines_is_taken_whole() -> None:
    assert announced_answer("The answer is:\n\\[\nx = 5\n\\]\nDone.") == "\\[\nx = 5\n\\]"


def test_wrappers_come_off_layer_by_layer() -> None:
    assert unwrap(r"**\($5$\)**.") == "5"
    assert unwrap("$1$ and $2$") == "$1$ and $2$"
