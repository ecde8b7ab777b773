from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import oversharp.diagnostics.engine.teacher_forcing as scoring
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.models.cached_passes import ReadingRules, find_reading_rules
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.models.tokens import encode_prompt, response_ids
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import ForcedResponse, Problem, SamplingSettings
from tests.samplers.tiny_models import (
    CONTEXT,
    WORDS,
    build_model,
    build_tokenizer,
    checkpoint_at,
    load,
    problem,
    write_adapter,
    write_checkpoint,
    write_gpt2,
    write_hybrid,
    write_model,
)

SETTINGS = SamplingSettings(sampler="transformers", temperature=0.6, top_p=0.9)  # both must have no effect
PROBLEMS = tuple(problem(prompt) for prompt in ("a b c ?", "d ?", "e e e e e ?", "?"))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(write_checkpoint(tmp_path_factory.mktemp("scoring") / "checkpoint-0", seed=0))


def requests(n: int = 40) -> list[ForcedRequest]:
    """Return responses of 1 to 12 tokens in random order, the shortest only the end token."""
    rng = random.Random(0)
    texts = ["", *(" ".join(rng.choices(WORDS[2:], k=rng.randint(1, 11))) for _ in range(n - 1))]
    return [
        ForcedRequest(
            problem=PROBLEMS[index % 4], response_id=str(index), token_ids=response_ids(build_tokenizer(), text)
        )
        for index, text in enumerate(texts)
    ]


def reference(loaded: LoadedModel, asked: Problem, token_ids: tuple[int, ...]) -> tuple[float, float]:
    """Return log-probability and entropy, computed token by token without cache or padding."""
    prefix = encode_prompt(loaded.tokenizer, asked, SETTINGS)
    logp_sum = entropy_sum = 0.0
    for token in token_ids:
        with torch.no_grad():
            logp_V = loaded.model(torch.tensor([prefix])).logits[0, -1].log_softmax(dim=-1)
        logp_sum += logp_V[token].item()
        entropy_sum += -sum(logp.exp().item() * logp.item() for logp in logp_V)
        prefix = [*prefix, token]
    return logp_sum, entropy_sum


def scored(loaded: LoadedModel, token_budget: int = scoring.TOKEN_BUDGET) -> dict[str, ForcedResponse]:
    batches = teacher_force(loaded, requests(), SETTINGS, token_budget=token_budget)
    return {score.response_id: score for batch in batches for score in batch}


def check_against_reference(loaded: LoadedModel, scores: dict[str, ForcedResponse]) -> None:
    assert len(scores) == 40
    for request in requests():
        score = scores[request.response_id]
        logp_sum, entropy_sum = reference(loaded, request.problem, request.token_ids)
        assert score.logp_sum == pytest.approx(logp_sum, abs=1e-5)
        assert score.entropy_sum == pytest.approx(entropy_sum, abs=1e-5)
        assert (score.problem_id, score.n_tokens) == (request.problem.problem_id, len(request.token_ids))


@pytest.mark.slow
@pytest.mark.parametrize("token_budget", [1, 50, 10_000])
def test_scores_equal_those_computed_token_by_token(loaded: LoadedModel, token_budget: int) -> None:
    check_against_reference(loaded, scored(loaded, token_budget))


@pytest.mark.slow
@pytest.mark.parametrize("logits", [1, 10, 30, 200])
def test_scores_do_not_depend_on_the_chunk_of_logits(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, logits: int
) -> None:
    monkeypatch.setattr(scoring, "_LOGITS_PER_CHUNK", logits)  # down to one position of one row at a time
    check_against_reference(loaded, scored(loaded))


@pytest.mark.slow
def test_a_model_with_absolute_positions_ignores_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpt2 = load(write_gpt2(tmp_path / "gpt2", seed=0))
    check_against_reference(gpt2, scored(gpt2))
    monkeypatch.setattr(scoring, "_LOGITS_PER_CHUNK", 200)
    check_against_reference(gpt2, scored(gpt2))


@pytest.mark.slow
def test_an_adapter_is_scored(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    adapted = load_model(checkpoint_at(adapter, base_path=base), device=torch.device("cpu"), dtype="float32")
    check_against_reference(adapted, scored(adapted))


def test_a_uniform_model_has_the_entropy_of_its_vocabulary(tmp_path: Path) -> None:
    model = build_model(0)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    for score in scored(load(write_model(model, tmp_path))).values():
        assert score.entropy_sum == pytest.approx(score.n_tokens * math.log(len(WORDS)), rel=1e-6)
        assert score.logp_sum == pytest.approx(-score.n_tokens * math.log(len(WORDS)), rel=1e-6)


def test_the_probabilities_of_all_next_tokens_sum_to_one(loaded: LoadedModel) -> None:
    every = [
        ForcedRequest(problem=PROBLEMS[0], response_id=word, token_ids=(token,)) for token, word in enumerate(WORDS)
    ]
    scores = [score for batch in teacher_force(loaded, every, SETTINGS) for score in batch]
    assert sum(math.exp(score.logp_sum) for score in scores) == pytest.approx(1, abs=1e-6)
    assert len({score.entropy_sum for score in scores}) == 1


def test_batches_keep_within_the_budget(loaded: LoadedModel) -> None:
    rows = scoring.encode_rows(loaded, requests(), SETTINGS)
    batches = scoring._plan_batches(rows, loaded, 60)
    assert sorted(row.response_id for batch in batches for row in batch) == sorted(row.response_id for row in rows)
    assert len(batches) > 5
    for batch in batches:
        width = max(len(row.prompt_ids) for row in batch) + max(len(row.token_ids) for row in batch)
        assert len(batch) * width <= 60


def answers(prompts: Sequence[str], lengths: Sequence[int]) -> list[ForcedRequest]:
    """Return responses of these lengths to each prompt, end token included."""
    return [
        ForcedRequest(problem=problem(prompt), response_id=f"{prompt} {length}", token_ids=(2,) * (length - 1) + (1,))
        for length in lengths
        for prompt in prompts
    ]


def count_tokens(loaded: LoadedModel, asked: Sequence[ForcedRequest], token_budget: int = scoring.TOKEN_BUDGET) -> int:
    """Return the tokens, padding included, that the model processes for these scores."""
    counts: list[int] = []
    embedding: Any = loaded.model.get_input_embeddings()
    hook = embedding.register_forward_pre_hook(lambda _, inputs: counts.append(inputs[0].numel()))
    try:
        list(teacher_force(loaded, asked, SETTINGS, token_budget=token_budget))
    finally:
        hook.remove()
    return sum(counts)


LONG = ("a " * 20 + "?").strip()
OTHER = ("b " * 20 + "?").strip()


def test_a_prompt_of_several_responses_is_computed_once(loaded: LoadedModel) -> None:
    n_prompt = len(encode_prompt(loaded.tokenizer, problem(LONG), SETTINGS))
    # the last token of a prompt is computed with its response; the end token predicts no token
    once = n_prompt - 1
    assert count_tokens(loaded, answers([LONG], [4] * 5)) == once + 5 * 4
    assert count_tokens(loaded, answers([LONG, OTHER], [4] * 5)) == 2 * once + 10 * 4
    # three rows per batch: each batch has one prompt, although the responses alternate
    assert count_tokens(loaded, answers([LONG, OTHER], [4] * 3), 3 * (n_prompt + 4)) == 2 * once + 6 * 4


def test_responses_to_different_prompts_are_computed_in_one_pass(loaded: LoadedModel) -> None:
    n_prompt = len(encode_prompt(loaded.tokenizer, problem(LONG), SETTINGS))
    assert count_tokens(loaded, answers([LONG, OTHER], [4])) == 2 * (n_prompt + 3)


def test_batches_are_sorted_by_length_if_padding_would_cost_more_than_prompts(loaded: LoadedModel) -> None:
    asked = answers(["a ?", "b ?"], [2, 40])
    rows = scoring.encode_rows(loaded, asked, SETTINGS)
    batches = scoring._plan_batches(rows, loaded, 2 * 44)
    assert [{len(row.token_ids) for row in batch} for batch in batches] == [{2}, {40}]
    rows = scoring.encode_rows(loaded, answers([LONG, OTHER], [2, 3]), SETTINGS)
    batches = scoring._plan_batches(rows, loaded, 2 * 30)
    assert [len({row.prompt_ids for row in batch}) for batch in batches] == [1, 1]


@pytest.mark.slow
def test_a_model_with_an_attention_window_computes_every_prompt_for_every_response(tmp_path: Path) -> None:
    windowed = load(write_windowed(tmp_path / "windowed"))
    n_prompt = len(encode_prompt(windowed.tokenizer, problem(LONG), SETTINGS))
    assert not find_reading_rules(windowed.model).shares_prompts
    assert count_tokens(windowed, answers([LONG], [4] * 5)) == 5 * (n_prompt + 3)
    check_against_reference(windowed, scored(windowed))
    recurrent = load(write_hybrid(tmp_path / "hybrid", seed=0))
    assert not find_reading_rules(recurrent.model).shares_prompts


def write_windowed(folder: Path) -> Path:
    return write_model(build_model(0, use_sliding_window=True, sliding_window=3, max_window_layers=0), folder)


@pytest.mark.slow
def test_a_model_with_an_unexpected_cache_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = load(write_windowed(tmp_path / "windowed"))
    monkeypatch.setattr(
        scoring,
        "find_reading_rules",
        lambda model: ReadingRules(shares_prompts=True, continues=True, pads=True, changes_above=None),
    )
    check_against_reference(windowed, scored(windowed))
    n_prompt = len(encode_prompt(windowed.tokenizer, problem(LONG), SETTINGS))
    # once for the unusable cache, and again with every response
    assert count_tokens(windowed, answers([LONG], [4] * 5)) == n_prompt - 1 + 5 * (n_prompt + 3)


@pytest.mark.parametrize(("hidden_size", "tokens"), [(32, scoring.TOKEN_BUDGET), (576, 3640)])
def test_on_a_cpu_wide_models_are_scored_in_smaller_batches(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch, hidden_size: int, tokens: int
) -> None:
    monkeypatch.setattr(loaded.model.config, "hidden_size", hidden_size)
    assert scoring.budget_for(loaded) == tokens  # 2,097,152 numbers over the width


def limit_memory(most_rows: int, tried: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise an error for batches of more rows from now on, as on a GPU with too little memory."""
    score_batch = scoring._score_batch

    def score(loaded: LoadedModel, rows: Sequence[Any]) -> list[ForcedResponse]:
        tried.append(len(rows))
        if len(rows) > most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return score_batch(loaded, rows)

    monkeypatch.setattr(scoring, "_score_batch", score)


@pytest.mark.slow
def test_a_batch_that_does_not_fit_the_memory_is_halved_and_so_are_those_after_it(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    limit_memory(6, tried, monkeypatch)
    batches = list(teacher_force(loaded, requests(), SETTINGS, token_budget=20 * 19))
    n_rows = [len(batch) for batch in batches]
    assert sum(n_rows) == 40
    assert len(n_rows) > 1
    assert tried[0] == n_rows[0] > 12
    assert tried[1] == tried[0] // 2
    assert max(tried[3:]) <= 6  # the limit is kept for later batches
    check_against_reference(loaded, {score.response_id: score for batch in batches for score in batch})


def test_a_single_response_that_does_not_fit_the_memory_is_an_error_in_one_line(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    limit_memory(0, tried, monkeypatch)
    with pytest.raises(SamplerError, match=r"^problem \w+, response \d+: a single response does not fit.*--dtype"):
        list(teacher_force(loaded, requests(8), SETTINGS))
    assert tried == [8, 4, 2, 1]


def test_scores_are_equal_to_the_last_bit_for_any_chunk_of_log_probabilities(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = scored(loaded)
    for chunk in (1, 35, 300):  # one position, a few positions of a row, a few rows
        monkeypatch.setattr(scoring, "_LOGPS_PER_CHUNK", chunk)
        assert scored(loaded) == together


def test_the_head_gets_contiguous_memory_under_an_adapter(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapter = write_adapter(tmp_path / "adapter", base, seed=1)
    holder = ModelHolder(device="cpu")
    contiguous: list[bool] = []
    for checkpoint in (
        checkpoint_at(adapter, weights_hash="adapter", base_path=base),
        checkpoint_at(base, weights_hash="base"),  # on the loaded base weights
    ):
        adapted = holder.load(checkpoint)
        head: Any = adapted.model.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda _, inputs: contiguous.append(inputs[0].is_contiguous()))
        scored(adapted)
        hook.remove()
    assert len(contiguous) >= 2
    assert all(contiguous)


def test_no_requests_give_no_scores(loaded: LoadedModel) -> None:
    assert list(teacher_force(loaded, [], SETTINGS)) == []


def test_the_error_for_an_invalid_response_has_its_ids(loaded: LoadedModel) -> None:
    for token_ids, message in (
        ((), rf"problem {PROBLEMS[1].problem_id}, response r: no tokens"),
        ((2, 10), "response r: token 10 is outside the model's vocabulary of 10"),
        ((2,) * (CONTEXT - 1), r"2 prompt tokens and 63 response tokens exceed the model's context of 64"),
    ):
        request = ForcedRequest(problem=PROBLEMS[1], response_id="r", token_ids=token_ids)
        with pytest.raises(SamplerError, match=message):
            list(teacher_force(loaded, [request], SETTINGS))


def test_a_model_that_overflows_is_an_error(tmp_path: Path) -> None:
    model = build_model(seed=0)
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)
    with pytest.raises(SamplerError, match="the model returns NaN or infinite log-probabilities"):
        scored(load(write_model(model, tmp_path)))
