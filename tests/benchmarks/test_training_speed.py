"""What the benchmark of training says of its sides is right, and our side runs on a tiny case."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from benchmarks.speed.training import Case, measure, ratio, speed, step_flops, turn
from benchmarks.speed.training_models import Size, parameters, random_model, toss_problems
from benchmarks.speed.training_toss import NAME, announce, is_even
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verifiers import get_verifier

TINY = Size(
    name="tiny",
    vocabulary=512,
    hidden=16,
    intermediate=32,
    layers=1,
    heads=2,
    key_value_heads=1,
    head=8,
    context=64,
    end_tokens=64,
)
TOLD = {
    "wall_s": [10.0, 12.0, 16.0],
    "cpu_s": [1.0, 2.0, 3.0],
    "samples_per_step": 8,
    "n_tokens": [99, 40, 44],
    "reward_mean": [0.9, 0.0, 1.0],
    "peak_gib": None,
}


def tiny_case(folder: Path) -> Case:
    return Case(
        what="tiny",
        model=str(random_model(TINY, folder)),
        problems=str(toss_problems(TINY, folder / "tiny.jsonl", prompt_tokens=5, n=16)),
        batch_prompts=4,
        group_size=4,
        prompt_tokens=5,
        max_tokens=8,
        learning_rate=1e-4,
        warm_up=1,
        steps=2,
        micro_batch=None,
        peer_micro_batch=16,
    )


def test_rates_are_those_of_the_measured_steps() -> None:
    found = speed(TOLD, warm_up=1)
    assert (found.samples_per_s, found.samples_per_cpu_s) == pytest.approx((16 / 6, 16 / 2))
    assert (found.tokens_per_s, found.tokens_per_step, found.reward_mean) == pytest.approx((84 / 6, 42, 0.5))


def test_a_ratio_is_of_the_medians_and_tells_its_spread() -> None:
    ours = [speed({**TOLD, "samples_per_step": n}, warm_up=1) for n in (8, 16, 24)]
    peer = [speed(TOLD, warm_up=1)] * 3
    assert ratio(ours, peer, "samples_per_s") == {"of_medians": 2.0, "least": 1.0, "greatest": 3.0}


def test_flops_count_prompts_once_when_drawn_and_for_every_sample_when_learned(tmp_path: Path) -> None:
    case = tiny_case(tmp_path)
    assert step_flops(1, 16, case, 100.0) == 2 * (4 * 5 + 100) + 6 * (16 * 5 + 100)


def test_parameters_count_tied_ones_once(tmp_path: Path) -> None:
    path = random_model(TINY, tmp_path)
    attention = 16 * 8 * (2 + 1 + 1) + 2 * 8 * 16 + 2 * 8
    assert parameters(path) == 512 * 16 + attention + 3 * 16 * 32 + 3 * 16


def test_a_model_is_made_once(tmp_path: Path) -> None:
    path = random_model(TINY, tmp_path)
    before = (path / "model.safetensors").stat().st_mtime_ns
    assert (random_model(TINY, tmp_path) / "model.safetensors").stat().st_mtime_ns == before


def test_the_toss_is_found_as_an_outside_verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    [problem, *_] = load_problems(toss_problems(TINY, tmp_path / "tiny.jsonl", prompt_tokens=5), None)
    grades = get_verifier(NAME).grade([(problem, "b"), (problem, "a")])
    assert [grade.correct for grade in grades] == [is_even("b"), is_even("a")] == [True, False]


@pytest.mark.slow
def test_our_side_trains_on_mixed_rewards_and_random_lengths(tmp_path: Path) -> None:
    result = measure(tiny_case(tmp_path), peer_python=None, turns=1)
    assert result["parameters"] == parameters(tmp_path / "tiny")
    ours = result["oversharp"]
    assert ours["samples_per_s"] > 0
    assert 0 < ours["reward_mean"] < 1
    # end tokens are an eighth of the vocabulary: 5.3 tokens in the mean, if 8 are the most
    assert 2 < ours["response_tokens_mean"] < 8


def test_a_side_that_fails_ends_the_benchmark_with_its_last_words(tmp_path: Path) -> None:
    side = tmp_path / "side.py"
    side.write_text("import sys\nopen(sys.argv[1])\n")
    with pytest.raises(SystemExit, match=r"(?s)side\.py failed: .*missing\.json"):
        turn(sys.executable, [str(side)], tmp_path / "missing.json", 1)


def test_random_weights_are_the_same_everywhere(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    first, second = (load_file(random_model(TINY, tmp_path / name) / "model.safetensors") for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)
