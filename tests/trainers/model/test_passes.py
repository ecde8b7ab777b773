from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.trainers.model.layouts import Layout
from oversharp.trainers.model.passes import BUSY_NUMBERS, Lengths, cost_tokens, plan_passes

EVERY: tuple[Layout, ...] = ("rows", "tree", "packed")


def lengths(responses: list[int], *, prompt: int = 6, group: int = 4, width: int = 96) -> Lengths:
    return Lengths(
        response=responses,
        unshared=[tokens - 1 for tokens in responses],
        prompt=[prompt] * len(responses),
        prompt_index=[row // group for row in range(len(responses))],
        width=width,
    )


@given(
    responses=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    most_rows=st.none() | st.integers(1, 9),
    prompt=st.integers(1, 500),
)
def test_every_response_goes_through_once_and_never_too_many_together(
    responses: list[int], most_rows: int | None, prompt: int
) -> None:
    plan = plan_passes(lengths(responses, prompt=prompt), most_rows=most_rows, layouts=EVERY)
    assert sorted(row for one in plan for row in one.rows) == list(range(len(responses)))
    assert all(len(one.rows) <= (most_rows or len(responses)) for one in plan)


@pytest.mark.parametrize(
    ("prompt", "tokens", "layout"),
    # seconds on a CPU: 0.060 tree, 0.098 rows; and 12.2 rows, 19.5 tree
    [(6, 6, "tree"), (64, 256, "rows")],
)
def test_the_layout_is_the_one_that_was_measured_to_be_fastest(prompt: int, tokens: int, layout: Layout) -> None:
    width = 96 if tokens == 6 else 384
    plan = plan_passes(lengths([tokens] * 32, prompt=prompt, group=8, width=width), most_rows=None, layouts=EVERY)
    assert {one.layout for one in plan} == {layout}


def test_a_pass_on_a_cpu_holds_what_its_cache_does_and_whole_prompts() -> None:
    plan = plan_passes(lengths([48] * 32, prompt=24, group=8, width=384), most_rows=None, layouts=EVERY)
    assert [sorted({row // 8 for row in one.rows}) for one in plan] == [[0, 1], [2, 3]]
    small = plan_passes(lengths([6] * 256, prompt=6, group=8, width=96), most_rows=None, layouts=EVERY)
    assert len(small) == 1


def test_responses_much_shorter_than_others_do_not_pad_them() -> None:
    long, short = BUSY_NUMBERS["cpu"] // 96 // 2 - 100, 10
    plan = plan_passes(lengths([long, short, long, short], group=2), most_rows=2, layouts=("rows",))
    assert [sorted(one.rows) for one in plan] == [[0, 2], [1, 3]]


def test_few_tokens_stay_together_whatever_their_lengths() -> None:
    assert len(plan_passes(lengths([50, 2, 40, 3]), most_rows=None, layouts=EVERY)) == 1


def test_responses_of_a_prompt_stay_together_where_padding_is_equal() -> None:
    plan = plan_passes(lengths([6] * 8, prompt=100), most_rows=4, layouts=EVERY)
    assert [sorted(one.rows) for one in plan] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_responses_share_makes_a_tree_cheaper() -> None:
    apart = lengths([6] * 8)
    alike = Lengths(
        response=apart.response,
        unshared=[5, 1, 1, 1] * 2,
        prompt=apart.prompt,
        prompt_index=apart.prompt_index,
        width=96,
    )
    assert cost_tokens(range(8), alike, "tree") < cost_tokens(range(8), apart, "tree")
    assert cost_tokens(range(8), alike, "rows") == cost_tokens(range(8), apart, "rows")


def test_a_short_prompt_beside_a_long_one_is_packed_and_not_padded() -> None:
    unlike = Lengths(response=[5, 5], unshared=[4, 4], prompt=[400, 10], prompt_index=[0, 1], width=96)
    (plan,) = plan_passes(unlike, most_rows=None, layouts=EVERY)
    assert plan.layout == "packed"
    # 405 + 15 tokens end to end; padded two rows of 404, the tree two of 404
    assert plan.cost == 256 + 420 + 420**2 / (4 * 96)
    assert cost_tokens((0, 1), unlike, "rows") == 256 + 808 + 2 * 404**2 / (4 * 96)
