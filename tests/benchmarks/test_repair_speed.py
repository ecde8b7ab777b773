"""The models that repair is measured with are what they claim, and what was committed reaches the goals."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

from safetensors.torch import load_file

from benchmarks.speed.repair import FULL, GOAL_GIB, GOAL_WALL_S, LARGE, SMALL, write_model
from benchmarks.speed.results import RESULTS


def test_the_shapes_are_those_of_the_models_that_they_are_named_after() -> None:
    assert sum(map(prod, SMALL.tensors().values())) == 134_515_008  # as SmolLM2-135M counts itself
    assert max(LARGE.tensors().values(), key=prod) == (152_064, 3584)
    assert sum(map(prod, FULL.tensors().values())) == 7_615_487_488  # Qwen2.5-7B's 7,615,616,512 less its biases


def test_a_base_of_holes_has_the_tensors_of_the_other_and_only_zeros(tmp_path: Path) -> None:
    shapes = replace(SMALL, vocabulary=300, hidden=32, intermediate=48, key_values=16, layers=2, shards=2)
    n_bytes = [write_model(tmp_path / name, shapes, moved=0.1, zeros=name == "zeros") for name in ("zeros", "numbers")]
    zeros, numbers = (
        {name: one for file in (tmp_path / folder).glob("*.safetensors") for name, one in load_file(file).items()}
        for folder in ("zeros", "numbers")
    )
    assert {name: one.shape for name, one in zeros.items()} == {name: one.shape for name, one in numbers.items()}
    indices = [
        json.loads((tmp_path / one / "model.safetensors.index.json").read_text()) for one in ("zeros", "numbers")
    ]
    assert indices[0] == indices[1]
    assert n_bytes[0] == n_bytes[1] == sum(one.nbytes for one in zeros.values())
    assert not any(one.any() for one in zeros.values())
    assert all(one.any() for one in numbers.values())


def test_the_committed_result_reaches_the_goals() -> None:
    result = json.loads((RESULTS / "repair.json").read_text())
    assert result["135m"]["points"] == 5
    assert result["135m"]["ours"]["wall_s"] <= GOAL_WALL_S == 60
    assert 3 <= result["7b_with_3_layers"]["gb_of_a_checkpoint"] <= 4
    assert result["7b_with_3_layers"]["ours"]["peak_gib"] <= GOAL_GIB == 4
    assert 15 <= result["7b"]["gb_of_a_checkpoint"] <= 16
    assert result["7b"]["ours"]["peak_gib"] <= GOAL_GIB
    assert result["met"]
