from __future__ import annotations

import pytest

from oversharp.diagnostics.trajectories.equality import call_key
from oversharp.diagnostics.trajectories.record import Call

CALL = Call("add", '{"a": 1, "b": {"x": 1, "y": [1, 2]}}')


@pytest.mark.parametrize("arguments", ['{"b": {"y": [1, 2], "x": 1}, "a": 1}', '{"a":1,"b":{"x":1,"y":[1,2]}}'])
def test_order_of_fields_white_space_id_and_result_do_not_matter(arguments: str) -> None:
    assert call_key(Call("add", arguments, id="c9", result=3)) == call_key(CALL)


@pytest.mark.parametrize(
    "other",
    [
        Call("sub", CALL.arguments),
        Call("add", '{"a": "1", "b": {"x": 1, "y": [1, 2]}}'),
        Call("add", '{"a": 1, "b": {"x": 1, "y": [2, 1]}}'),
        Call("add", '{"a": 1'),
        Call("add", "[" * 100_000),
        Call("ad", f"d{CALL.arguments}"),
    ],
)
def test_another_name_or_other_arguments_are_another_call(other: Call) -> None:
    assert call_key(other) != call_key(CALL)
