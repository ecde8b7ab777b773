from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from oversharp.diagnostics.samplers.vllm_support import CPU_HEAD_SIZES
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.countdown import Query
from oversharp.trainers.countdown_base import (
    PROMPT_TOKENS,
    VOCABULARY,
    build_model,
    build_tokenizer,
    draw_response,
    mode_weights,
    sample_examples,
)


def test_the_vocabulary_has_107_tokens_in_a_fixed_order() -> None:
    tokenizer = build_tokenizer()
    assert len(tokenizer) == len(VOCABULARY) == 107
    assert [tokenizer.convert_tokens_to_ids(token) for token in VOCABULARY] == list(range(107))
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1)


def test_the_tokenizer_round_trips_every_prompt_and_mode() -> None:
    tokenizer = build_tokenizer()
    for problem in countdown.problems():
        for text in (problem.prompt, *problem.modes):
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert len(ids) == len(text.split())


def test_the_model_has_the_documented_size() -> None:
    model = build_model(seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == 333_696
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


def test_weights_of_modes_by_hand() -> None:
    # "12 + 7 * 6": + 1, * .35, largest first x3; "6 * 7 + 12" the same without the factor
    query = Query((6, 7, 12), 54)
    weight = dict(zip(countdown.modes(query), mode_weights(query), strict=True))
    assert weight["12 + 7 * 6"] == pytest.approx(1.05)
    assert weight["6 * 7 + 12"] == pytest.approx(0.35)


def test_responses_follow_the_mixture() -> None:
    query, rng, n = Query((6, 7, 12), 54), random.Random(0), 20_000
    count = Counter(draw_response(query, rng, wrong_share=0.3) for _ in range(n))
    share_wrong = 1 - sum(count[mode] for mode in countdown.modes(query)) / n
    assert share_wrong == pytest.approx(0.3, abs=0.015)  # 4.6 standard errors
    assert count["12 + 7 * 6"] / count["6 * 7 + 12"] == pytest.approx(3.0, rel=0.12)


def test_examples_are_prompt_response_and_end() -> None:
    train, _ = countdown.split_queries()
    rows = sample_examples(train, 50, wrong_share=0.5, seed=3)
    assert sample_examples(train, 50, wrong_share=0.5, seed=3) == rows
    assert sample_examples(train, 50, wrong_share=0.5, seed=4) != rows
    for row in rows:
        words = [VOCABULARY[token] for token in row]
        assert len(words) == PROMPT_TOKENS + countdown.RESPONSE_TOKENS
        assert (words[3], words[5], words[-1]) == ("=", ":", "<eos>")
        assert sorted(words[6:11:2], key=int) == words[:3]
