"""What the benchmark of DLC's cost says of operations is right, and it measures the ways that it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import Qwen3ForCausalLM

from benchmarks.speed.dlc import Case, compared, flops_per_token, measured, quarter_config, qwen3
from oversharp.diagnostics.models.load import load_path
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.rollouts.engine import OwnEngine
from oversharp.trainers.worlds.base import build_model, build_tokenizer


def small() -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(
        qwen3(vocabulary=500, hidden=64, intermediate=96, layers=3, heads=4, kv_heads=2, head_size=32, context=64)
    )


def test_operations_are_two_per_weight_of_the_matrix_products() -> None:
    per_layer = 64 * 128 + 2 * 64 * 64 + 128 * 64 + 3 * 64 * 96
    assert flops_per_token(small()) == 2 * (3 * per_layer + 64 * 500)


def test_a_quarter_is_a_quarter() -> None:
    policy = small()
    quarter = Qwen3ForCausalLM(quarter_config(policy.config, hidden=32, layers=1, heads=1))
    assert flops_per_token(quarter) / flops_per_token(policy) == pytest.approx(0.25, abs=0.005)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    build_model(seed=0).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    prompts = [[9, 10, 11], [20, 30, 40]]
    return Case(name="tiny", policy=tmp_path, memories={"copy": tmp_path}, prompts=prompts, group_size=4, max_tokens=3)


@pytest.mark.slow
def test_every_way_is_measured_over_the_same_number_of_tokens(case: Case) -> None:
    rows = measured(case, 3, "own")
    assert [(row["memory"], row["mu"], row["memory_flops_share"]) for row in rows] == [
        ("copy", 1e-9, 1.0),
        ("copy", 0.5, 1.0),
    ]
    for row in rows:
        assert row["goal_ratio"] == 2.3
        assert row["met"] is (row["ratio"] <= 2.3)
        assert row["tokens_of_both"][0] == row["tokens_of_both"][1]
        assert row["ratio"] == pytest.approx(row["dlc_cpu_s"] / row["plain_cpu_s"], rel=0.01)


def test_all_take_turns(case: Case) -> None:
    policy = load_path(case.policy, device=torch.device("cpu"), dtype="float32")
    order: list[str] = []

    class Noted(OwnEngine):
        name = ""

        def sample(
            self, prompts: Sequence[Sequence[int]], *, group_size: int, max_tokens: int, temperature: float, seed: int
        ) -> RolloutBatch:
            order.append(self.name)
            return super().sample(
                prompts, group_size=group_size, max_tokens=max_tokens, temperature=temperature, seed=seed
            )

    engines = {"a": Noted(policy), "b": Noted(policy)}
    for name, engine in engines.items():
        engine.name = name
    compared(case, engines, 2)
    assert order == ["a", "b", "b", "a", "a", "b"]
