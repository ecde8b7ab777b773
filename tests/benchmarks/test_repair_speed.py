"""The models that repair is measured with are what they claim, and what was committed reaches the goals."""

from __future__ import annotations

import json
from math import prod

from repair import GOAL_GIB, GOAL_WALL_S, LARGE, SMALL
from results import RESULTS


def test_the_shapes_are_those_of_the_models_that_they_are_named_after() -> None:
    assert sum(map(prod, SMALL.tensors().values())) == 134_515_008  # as SmolLM2-135M counts itself
    assert max(LARGE.tensors().values(), key=prod) == (152_064, 3584)


def test_the_committed_result_reaches_the_goals() -> None:
    result = json.loads((RESULTS / "repair.json").read_text())
    assert result["135m"]["points"] == 5
    assert result["135m"]["ours"]["wall_s"] <= GOAL_WALL_S == 60
    assert 3 <= result["7b_with_3_layers"]["gb_of_a_checkpoint"] <= 4
    assert result["7b_with_3_layers"]["ours"]["peak_gib"] <= GOAL_GIB == 4
    assert result["met"]
