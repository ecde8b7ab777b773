from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.trainers.model.forward import BUSY_NUMBERS, Lengths, cost_tokens, plan_passes
from oversharp.trainers.model.layouts import Layout

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
def test_every_response_is_in_one_pass_of_at_most_most_rows(
    responses: list[int], most_rows: int | None, prompt: int
) -> None:
    plan = plan_passes(lengths(responses, prompt=prompt), most_rows=most_rows, layouts=EVERY)
    assert sorted(row for planned_pass in plan for row in planned_pass.rows) == list(range(len(responses)))
    assert all(len(planned_pass.rows) <= (most_rows or len(responses)) for planned_pass in plan)


@pytest.mark.parametrize(
    ("prompt", "tokens", "layout"),
    # seconds on a CPU: 0.060 tree, 0.098 rows; and 12.2 rows, 19.5 tree
    [(6, 6, "tree"), (64, 256, "rows")],
)
def test_the_layout_is_the_fastest_measured_one(prompt: int, tokens: int, layout: Layout) -> None:
    width = 96 if tokens == 6 else 384
    plan = plan_passes(lengths([tokens] * 32, prompt=prompt, group=8, width=width), most_rows=None, layouts=EVERY)
    assert {planned_pass.layout for planned_pass in plan} == {layout}


def test_a_cpu_pass_fits_the_cache_and_has_whole_prompts() -> None:
    plan = plan_passes(lengths([48] * 32, prompt=24, group=8, width=384), most_rows=None, layouts=EVERY)
    assert [sorted({row // 8 for row in planned_pass.rows}) for planned_pass in plan] == [[0, 1], [2, 3]]
    small = plan_passes(lengths([6] * 256, prompt=6, group=8, width=96), most_rows=None, layouts=EVERY)
    assert len(small) == 1


def test_responses_much_shorter_than_others_do_not_pad_them() -> None:
    long, short = BUSY_NUMBERS["cpu"] // 96 // 2 - 100, 10
    plan = plan_passes(lengths([long, short, long, short], group=2), most_rows=2, layouts=("rows",))
    assert [sorted(planned_pass.rows) for planned_pass in plan] == [[0, 2], [1, 3]]


def test_few_tokens_share_a_pass_regardless_of_their_lengths() -> None:
    assert len(plan_passes(lengths([50, 2, 40, 3]), most_rows=None, layouts=EVERY)) == 1


def test_responses_of_a_prompt_stay_together_where_padding_is_equal() -> None:
    plan = plan_passes(lengths([6] * 8, prompt=100), most_rows=4, layouts=EVERY)
    assert [sorted(planned_pass.rows) for planned_pass in plan] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_shared_prefixes_make_a_tree_cheaper() -> None:
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


def test_a_short_and_a_long_prompt_are_packed_instead_of_padded() -> None:
    unlike = Lengths(response=[5, 5], unshared=[4, 4], prompt=[400, 10], prompt_index=[0, 1], width=96)
    (plan,) = plan_passes(unlike, most_rows=None, layouts=EVERY)
    assert plan.layout == "packed"
    # 405 + 15 tokens end to end; padded two rows of 404, the tree two of 404
    assert plan.cost == 256 + 420 + 420**2 / (4 * 96)
    assert cost_tokens((0, 1), unlike, "rows") == 256 + 808 + 2 * 404**2 / (4 * 96)
