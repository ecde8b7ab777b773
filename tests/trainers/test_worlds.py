"""Bases of the built-in worlds: words, examples and models."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import oversharp
from oversharp.diagnostics.samplers.vllm_support import CPU_HEAD_SIZES
from oversharp.diagnostics.tasks import countdown, programs
from oversharp.diagnostics.tasks.countdown import Query
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base
from oversharp.trainers.worlds import countdown as countdown_base
from oversharp.trainers.worlds import get_world
from oversharp.trainers.worlds import programs as programs_base
from oversharp.trainers.worlds.base import build_model, build_tokenizer
from tests.trainers.runs import rollouts

#: Settings of the smallest audit.
SMALL = {"limit": 3, "n": 4, "panel": 0, "kernel_problems": 0, "k": (1, 4), "sampler": "transformers", "device": "cpu"}

every_world = pytest.mark.parametrize("name", WORLDS)


@pytest.mark.parametrize(("name", "size"), [("countdown", 107), ("programs", 111)])
def test_the_vocabulary_has_a_fixed_order(name: str, size: int) -> None:
    world = get_world(name)
    tokenizer = build_tokenizer(world)
    assert len(tokenizer) == len(world.vocabulary) == size
    assert [tokenizer.convert_tokens_to_ids(token) for token in world.vocabulary] == list(range(size))
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)


@every_world
def test_the_tokenizer_round_trips_every_prompt_and_mode(name: str) -> None:
    world = get_world(name)
    tokenizer = build_tokenizer(world)
    for problem in WORLDS[name].problems():
        assert len(problem.prompt.split()) == world.prompt_tokens
        for text in (problem.prompt, *problem.modes):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert len(ids) == len(text.split())


@every_world
def test_examples_are_training_prompts_with_a_response_an_end_and_padding(name: str) -> None:
    world = get_world(name)
    rows = world.sample_examples(50, wrong_share=0.5, seed=3)
    assert world.sample_examples(50, wrong_share=0.5, seed=3) == rows
    assert world.sample_examples(50, wrong_share=0.5, seed=4) != rows
    modes = {problem.prompt: problem.modes for problem in WORLDS[name].problems("train")}
    right = 0
    for row in rows:
        words = [world.vocabulary[token] for token in row]
        assert len(words) == world.prompt_tokens + world.response_tokens
        response = words[world.prompt_tokens : words.index("<eos>")]
        assert set(words[words.index("<eos>") + 1 :]) <= {"<pad>"}
        right += " ".join(response) in modes[" ".join(words[: world.prompt_tokens])]
    assert 10 < right < 40  # 25 expected, 4 standard errors are 14


@every_world
def test_a_base_without_wrong_examples_only_sees_modes(name: str) -> None:
    modes = {problem.prompt: problem.modes for problem in WORLDS[name].problems("train")}
    rng = random.Random(0)
    examples = [get_world(name).draw_example(rng, 0.0) for _ in range(50)]
    assert all(response in modes[prompt] for prompt, response in examples)
    wrong = [get_world(name).draw_example(rng, 1.0) for _ in range(50)]
    assert not any(response in modes[prompt] for prompt, response in wrong)


@pytest.mark.parametrize(("name", "size"), [("countdown", 333_696), ("programs", 334_080)])
def test_the_model_has_the_documented_size(name: str, size: int) -> None:
    model = build_model(0, get_world(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == size
    assert model.config.head_dim in CPU_HEAD_SIZES
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight


def test_the_initial_weights_depend_on_the_seed_and_not_on_global_random_state() -> None:
    before = torch.random.get_rng_state()
    first, again, other = build_model(seed=0), build_model(seed=0), build_model(seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    weights = [model.get_input_embeddings().weight for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_saved_base_loads_with_its_tokenizer_and_samples_without_truncation(model_path: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(model_path), AutoTokenizer.from_pretrained(model_path)
    assert tokenizer.padding_side == "left"
    assert tokenizer("6 7 12 = 54 :")["input_ids"] == build_tokenizer()("6 7 12 = 54 :")["input_ids"]
    assert (model.generation_config.top_k, model.generation_config.top_p) == (0, 1.0)
    assert model.generation_config.max_new_tokens == 6


def test_weights_of_countdowns_modes_by_hand() -> None:
    # "12 + 7 * 6": + 1, * .35, largest first x3; "6 * 7 + 12" the same without the factor
    query = Query((6, 7, 12), 54)
    weight = dict(zip(countdown.modes(query), countdown_base.mode_weights(query), strict=True))
    assert weight["12 + 7 * 6"] == pytest.approx(1.05)
    assert weight["6 * 7 + 12"] == pytest.approx(0.35)


def test_weights_of_programs_by_hand() -> None:
    # "a * 2 + b": * .35, + 1, a parameter first x3; "2 * a + b" the same without the factor
    results = tuple(2 * a + b for a, b in programs.CASES)
    weight = dict(zip(programs.modes(results), programs_base.mode_weights(results), strict=True))
    assert weight["a * 2 + b"] == pytest.approx(1.05)
    assert weight["2 * a + b"] == pytest.approx(0.35)
    assert weight["a + a + b"] == pytest.approx(3.0)


@pytest.mark.slow
def test_a_run_on_programs_is_rewarded_by_execution_and_audited_with_exact_values(tmp_path: Path) -> None:
    base = train_base(
        SftConfig(task="programs", output_dir=tmp_path / "base", max_steps=60, n_examples=4000, device="cpu")
    )
    config = TrainConfig(
        task="programs",
        model=str(base),
        output_dir=tmp_path / "run",
        max_steps=2,
        batch_prompts=16,
        group_size=8,
        save_every=2,
        device="cpu",
    )
    run = train(config)
    rewards = {(row["problem_id"], row["response"]): row["reward"] for row in rollouts(run)}
    modes = {problem.problem_id: problem.modes for problem in programs.problems("train")}
    assert len(rewards) > 50
    assert all(reward == float(text in modes[problem_id]) for (problem_id, text), reward in rewards.items())

    result = oversharp.audit(run, task="programs", out=tmp_path / "audit", **SMALL)
    with oversharp.open_store(result.store_path) as store:
        found = store.frame("SELECT value FROM findings WHERE measure = 'pass_at_k_exact'")["value"]
    assert len(found) > 0
    assert found.between(0, 1).all()


def test_responses_follow_the_mixture() -> None:
    query, rng, n = Query((6, 7, 12), 54), random.Random(0), 20_000
    count = Counter(countdown_base.draw_response(query, rng, wrong_share=0.3) for _ in range(n))
    share_wrong = 1 - sum(count[mode] for mode in countdown.modes(query)) / n
    assert share_wrong == pytest.approx(0.3, abs=0.015)  # 4.6 standard errors
    assert count["12 + 7 * 6"] / count["6 * 7 + 12"] == pytest.approx(3.0, rel=0.12)
