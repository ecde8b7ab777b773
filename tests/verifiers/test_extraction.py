"""Finding the final answer in a response."""

import time
from collections.abc import Callable

import pytest

from oversharp.diagnostics.verifiers.exact import exact_answer
from oversharp.diagnostics.verifiers.extraction import hash_answer, last_boxed, tagged_answer, unwrap
from oversharp.diagnostics.verifiers.reading.labels import labelled
from oversharp.diagnostics.verifiers.reading.responses import answer_text
from oversharp.diagnostics.verifiers.reading.stated import Stated, read


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


def stated_answer(text: str) -> Stated:
    return read(answer_text(text))


LOOPS = [
    "\\boxed{", "\\boxed 7 ", "\\fbox{", "<answer>", "#### ", "the answer is ", "answer:\n", "## Answer\n", "{",
    "**a", "**a** ", "*a ", "_a ", "`a", "<think>", "</think>", "</s>", "<|a|>", "答案是", "\\text{", "$", "(",
    "> ", "- ", "2**(", "sqrt(", "answer (", "is ", "a is $1$ ",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rule", [last_boxed, tagged_answer, hash_answer, unwrap, exact_answer, stated_answer])
def test_a_response_stuck_in_a_loop_costs_no_more_than_its_length(rule: Callable[[str], object]) -> None:
    slow = []
    for loop in LOOPS:
        text = loop * 20_000
        start = time.perf_counter()
        rule(text)
        rule(f"{text}\nThe answer is 42.")
        rule(f"The answer is 42 {text}")
        if time.perf_counter() - start >= 2.0:
            slow.append(loop)
    assert slow == []


def test_the_last_answer_tag_counts() -> None:
    assert tagged_answer("<answer>1</answer> no <answer> 2 </answer> <answer>cut") == "2"


def test_an_announced_formula_on_its_own_lines_is_taken_whole() -> None:
    found = labelled("The answer is:\n\\[\nx = 5\n\\]\nDone.")
    assert found is not None
    assert found.line == "\\[\nx = 5\n\\]"


def test_wrappers_come_off_layer_by_layer() -> None:
    assert unwrap(r"**\($5$\)**.") == "5"
    assert unwrap("$1$ and $2$") == "$1$ and $2$"
