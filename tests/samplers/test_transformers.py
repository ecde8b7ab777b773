from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

import oversharp.diagnostics.samplers.transformers as sampler_module
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.transformers import TransformersSampler
from oversharp.diagnostics.series import find_series
from tests.samplers.tiny_models import (
    CONTEXT,
    WORDS,
    build_model,
    checkpoint_at,
    load,
    problem,
    write_adapter,
    write_checkpoint,
    write_gpt2,
    write_hybrid,
    write_model,
)

PROMPTS = ("a b c ?", "d ?", "e e e e e ?", "f g ?", "b c a ?")
PROBLEMS = tuple(problem(prompt) for prompt in PROMPTS)


def settings_with(**changes: float | int | bool | str) -> SamplingSettings:
    return SamplingSettings(**({"sampler": "transformers", "max_tokens": 8} | changes))  # type: ignore[arg-type]


def draw(
    checkpoint: Checkpoint,
    requests: Sequence[SampleRequest],
    settings: SamplingSettings,
    *,
    batch_size: int | None = None,
) -> list[Sample]:
    sampler = TransformersSampler(SamplerContext(models=ModelHolder(device="cpu"), batch_size=batch_size))
    return [sample for batch in sampler.sample(checkpoint, requests, settings) for sample in batch]


def by_identity(samples: Sequence[Sample]) -> dict[tuple[str, int, bool], tuple[int, ...]]:
    return {(sample.problem_id, sample.sample_index, sample.greedy): sample.token_ids for sample in samples}


def all_requests(n: int = 12) -> list[SampleRequest]:
    return [SampleRequest(problem=asked, sample_indices=tuple(range(n)), greedy=True) for asked in PROBLEMS]


def first_problem(n: int = 1) -> SampleRequest:
    return SampleRequest(problem=PROBLEMS[0], sample_indices=tuple(range(n)))


# ---------------------------------------------------------------- identity


@pytest.mark.slow
def test_every_requested_response_is_returned_once(tiny_checkpoint: Path) -> None:
    samples = draw(checkpoint_at(tiny_checkpoint), all_requests(5), settings_with(), batch_size=7)
    expected = {(asked.problem_id, index, False) for asked in PROBLEMS for index in range(5)}
    expected |= {(asked.problem_id, 0, True) for asked in PROBLEMS}
    assert set(by_identity(samples)) == expected
    assert len(samples) == len(expected)


def test_no_request_draws_nothing(tiny_checkpoint: Path) -> None:
    assert draw(checkpoint_at(tiny_checkpoint), [], settings_with()) == []
    assert draw(checkpoint_at(tiny_checkpoint), [first_problem(0)], settings_with()) == []


@pytest.mark.slow
def test_a_sample_does_not_depend_on_other_requests(tiny_checkpoint: Path) -> None:
    checkpoint, settings = checkpoint_at(tiny_checkpoint), settings_with(temperature=0.8, top_p=0.95)
    whole = by_identity(draw(checkpoint, all_requests(), settings))
    shuffled = all_requests()
    random.Random(0).shuffle(shuffled)
    assert by_identity(draw(checkpoint, shuffled, settings)) == whole
    assert by_identity(draw(checkpoint, all_requests(), settings, batch_size=5)) == whole
    for asked in PROBLEMS:  # alone, without padding or a shared prompt
        part = by_identity(draw(checkpoint, [SampleRequest(problem=asked, sample_indices=(7,))], settings))
        assert part == {key: whole[key] for key in part}


def test_a_prompt_of_one_token_gives_the_same_samples_in_a_batch_of_longer_prompts(tiny_checkpoint: Path) -> None:
    shortest = SampleRequest(problem=problem("?"), sample_indices=(0, 1, 2, 3), greedy=True)
    alone = by_identity(draw(checkpoint_at(tiny_checkpoint), [shortest], settings_with()))
    together = by_identity(draw(checkpoint_at(tiny_checkpoint), [*all_requests(), shortest], settings_with()))
    assert {key: together[key] for key in alone} == alone


@pytest.mark.slow
def test_seed_and_weights_change_the_samples(tiny_checkpoint: Path) -> None:
    checkpoint = checkpoint_at(tiny_checkpoint)
    first = by_identity(draw(checkpoint, all_requests(), settings_with(seed=0)))
    assert by_identity(draw(checkpoint, all_requests(), settings_with(seed=1))) != first
    assert by_identity(draw(checkpoint_at(tiny_checkpoint, weights_hash="b"), all_requests(), settings_with())) != first
    assert by_identity(draw(checkpoint, all_requests(), settings_with(seed=0))) == first


@pytest.mark.slow
def test_the_next_checkpoint_replaces_the_previous(tmp_path: Path, tiny_checkpoint: Path) -> None:
    other = write_checkpoint(tmp_path / "checkpoint-1", seed=5)
    sampler = TransformersSampler(SamplerContext(models=ModelHolder(device="cpu")))
    request = [SampleRequest(problem=PROBLEMS[0], sample_indices=(), greedy=True)]
    checkpoints = [checkpoint_at(tiny_checkpoint, weights_hash="a"), checkpoint_at(other, weights_hash="b")]
    in_turn = [
        next(sampler.sample(checkpoint, request, settings_with()))[0].token_ids
        for checkpoint in [*checkpoints, checkpoints[0]]
    ]
    alone = [draw(checkpoint, request, settings_with())[0].token_ids for checkpoint in checkpoints]
    assert in_turn == [alone[0], alone[1], alone[0]]
    assert alone[0] != alone[1]


# ---------------------------------------------------------------- distribution


def exact_distribution(loaded: LoadedModel, asked: Problem, settings: SamplingSettings) -> dict[tuple[int, ...], float]:
    """Return the probability of every response of at most two tokens, by forward passes and textbook truncation."""
    distribution: dict[tuple[int, ...], float] = {}
    prompt = encode_prompt(loaded.tokenizer, asked, settings)
    for first in range(len(WORDS)):
        p_first = truncated(loaded, prompt, settings)[first]
        if first in loaded.end_ids:
            distribution[(first,)] = p_first
        elif p_first > 0:
            p_second = truncated(loaded, [*prompt, first], settings)
            distribution |= {(first, second): p_first * p_second[second] for second in range(len(WORDS))}
    return distribution


def truncated(loaded: LoadedModel, ids: list[int], settings: SamplingSettings) -> list[float]:
    """Return softmax(logits / T) of the top_k likeliest tokens, and of these the fewest whose sum reaches top_p."""
    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids])).logits[0, -1].double()
    p = torch.softmax(logits / settings.temperature, dim=-1).tolist()
    order = sorted(range(len(p)), key=lambda token: -p[token])
    if settings.top_k:
        order = order[: settings.top_k]
    total = sum(p[token] for token in order)
    before = [0.0, *itertools.accumulate(p[token] / total for token in order)]
    kept = {token for token, mass in zip(order, before, strict=False) if mass < settings.top_p}
    total = sum(p[token] for token in kept)
    return [p[token] / total if token in kept else 0.0 for token in range(len(p))]


def check_distribution(samples: Sequence[Sample], distribution: dict[tuple[int, ...], float]) -> None:
    """Test the samples with χ²; all rare responses are one class."""
    counts, n = Counter(sample.token_ids for sample in samples), 4000
    assert len(samples) == n
    assert all(distribution[tokens] > 0 for tokens in counts)
    common = [tokens for tokens, p in distribution.items() if n * p >= 5]
    observed, expected = [counts[tokens] for tokens in common], [n * distribution[tokens] for tokens in common]
    rest = n - sum(expected)
    if rest > 1e-6:
        observed.append(n - sum(observed))
        expected.append(rest)
    assert len(common) >= 4
    assert chisquare(observed, expected, sum_check=False).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{}, {"temperature": 0.6}, {"temperature": 0.9, "top_p": 0.8}, {"top_k": 3}, {"top_k": 5, "top_p": 0.7}]
)
def test_samples_follow_the_exact_distribution(tiny_checkpoint: Path, changes: dict[str, float]) -> None:
    settings, request = settings_with(max_tokens=2, seed=3, **changes), first_problem(4000)
    samples = draw(checkpoint_at(tiny_checkpoint), [request], settings)
    check_distribution(samples, exact_distribution(load(tiny_checkpoint), PROBLEMS[0], settings))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["rotary", "absolute", "hybrid"])
def test_the_raw_log_probability_is_at_temperature_one_for_any_sampling(
    tmp_path: Path, tiny_checkpoint: Path, architecture: str
) -> None:
    writers = {"absolute": write_gpt2, "hybrid": write_hybrid}
    path = writers[architecture](tmp_path / "checkpoint-0", 0) if architecture in writers else tiny_checkpoint
    settings = settings_with(temperature=0.6, top_p=0.9)
    samples = draw(checkpoint_at(path), all_requests(), settings)
    problems = {asked.problem_id: asked for asked in PROBLEMS}
    requests = [
        ForcedRequest(problem=problems[sample.problem_id], response_id=str(index), token_ids=sample.token_ids)
        for index, sample in enumerate(samples)
    ]
    scores = {score.response_id: score for batch in teacher_force(load(path), requests, settings) for score in batch}
    for index, sample in enumerate(samples):
        assert scores[str(index)].logp_sum == pytest.approx(sample.logp_sum_raw, abs=1e-4)
        assert scores[str(index)].n_tokens == sample.n_tokens


@pytest.mark.slow
def test_greedy_responses_equal_those_of_generate(tiny_checkpoint: Path) -> None:
    loaded, settings = load(tiny_checkpoint), settings_with(temperature=0.7)
    requests = [SampleRequest(problem=asked, sample_indices=(0, 1), greedy=True) for asked in PROBLEMS]
    greedy = {s.problem_id: s for s in draw(checkpoint_at(tiny_checkpoint), requests, settings) if s.greedy}
    model = AutoModelForCausalLM.from_pretrained(tiny_checkpoint)
    for asked in PROBLEMS:
        prompt = torch.tensor([encode_prompt(loaded.tokenizer, asked, settings)])
        reference = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=settings.max_tokens
        )
        assert greedy[asked.problem_id].token_ids == tuple(reference[0, prompt.shape[1] :].tolist())


# ---------------------------------------------------------------- responses


def test_the_end_token_is_counted_but_not_part_of_the_text(tiny_checkpoint: Path) -> None:
    samples = draw(checkpoint_at(tiny_checkpoint), all_requests(50), settings_with())
    stopped = [sample for sample in samples if sample.finish_reason == "stop"]
    truncated_samples = [sample for sample in samples if sample.finish_reason == "length"]
    assert stopped
    assert truncated_samples
    for sample in stopped:
        assert sample.token_ids[-1] == WORDS.index("<eos>")
        assert sample.token_ids.count(WORDS.index("<eos>")) == 1
    for sample in truncated_samples:
        assert WORDS.index("<eos>") not in sample.token_ids
        assert sample.n_tokens == 8
    for sample in samples:
        words = [WORDS[token] for token in sample.token_ids]
        assert sample.text == " ".join(word for word in words if word not in ("<pad>", "<eos>"))


def test_an_end_at_the_last_token_is_a_stop(tiny_checkpoint: Path) -> None:
    samples = draw(checkpoint_at(tiny_checkpoint), all_requests(50), settings_with(max_tokens=1))
    assert {(s.token_ids[0] == WORDS.index("<eos>"), s.finish_reason) for s in samples} == {
        (True, "stop"),
        (False, "length"),
    }


def test_the_error_for_a_prompt_beyond_the_context_has_its_problem(tiny_checkpoint: Path) -> None:
    long = problem("a " * (CONTEXT - 7))
    with pytest.raises(
        SamplerError, match=rf"57 prompt tokens and 8 response tokens exceed .* of 64.*{long.problem_id}"
    ):
        draw(checkpoint_at(tiny_checkpoint), [SampleRequest(problem=long, sample_indices=(0,))], settings_with())
    fits = problem("a " * (CONTEXT - 8))
    assert draw(checkpoint_at(tiny_checkpoint), [SampleRequest(problem=fits, sample_indices=(0,))], settings_with())


def test_a_model_that_overflows_is_an_error(tmp_path: Path) -> None:
    model = build_model(seed=0)
    with torch.no_grad():
        model.model.norm.weight.fill_(3e38)  # finite, but not times the head
    checkpoint = checkpoint_at(write_model(model, tmp_path))
    with pytest.raises(SamplerError, match=rf"problem {PROBLEMS[0].problem_id}: the model returns NaN or infinite"):
        draw(checkpoint, [first_problem()], settings_with())


# ---------------------------------------------------------------- adapters, memory, choice


@pytest.mark.slow
def test_an_adapter_series_is_sampled_with_its_adapters(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    for step in (10, 20):
        write_adapter(tmp_path / "run" / f"checkpoint-{step}", base, seed=step)
    series = find_series([tmp_path / "run"])
    assert [checkpoint.kind for checkpoint in series.checkpoints] == ["full", "lora", "lora"]
    from peft import PeftModel

    for checkpoint in series.checkpoints[1:]:
        (sample,) = draw(checkpoint, [first_problem()], settings_with())
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), checkpoint.path)
        merged = model.merge_and_unload()  # another way to the same weights
        prompt = encode_prompt(load(base).tokenizer, PROBLEMS[0], settings_with())
        with torch.no_grad():
            logp_TV = merged(torch.tensor([[*prompt, *sample.token_ids]])).logits[0].log_softmax(dim=-1)
        expected = sum(logp_TV[len(prompt) - 1 + t, token].item() for t, token in enumerate(sample.token_ids))
        assert sample.logp_sum_raw == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_halved(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = sampler_module._generate

    def generate_few(loaded: LoadedModel, rows: Sequence, settings: SamplingSettings) -> list[Sample]:
        tried.append(len(rows))
        if len(rows) > 6:
            raise torch.OutOfMemoryError
        return real(loaded, rows, settings)

    expected = by_identity(draw(checkpoint_at(tiny_checkpoint), all_requests(3), settings_with()))
    monkeypatch.setattr(sampler_module, "_generate", generate_few)
    samples = draw(checkpoint_at(tiny_checkpoint), all_requests(3), settings_with(), batch_size=16)
    assert by_identity(samples) == expected
    assert tried == [16, 8, *[4] * 5]


def test_the_error_for_a_response_that_does_not_fit_has_a_hint(
    tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate_none(loaded: LoadedModel, rows: Sequence, settings: SamplingSettings) -> list[Sample]:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(sampler_module, "_generate", generate_none)
    with pytest.raises(SamplerError, match="a single response does not fit in the memory of cpu; lower --max-tokens"):
        draw(checkpoint_at(tiny_checkpoint), all_requests(3), settings_with())


def test_rows_per_batch_shrink_with_the_length_of_responses(tiny_checkpoint: Path) -> None:
    loaded = load(tiny_checkpoint)
    rows = [sampler_module._rows_that_fit(loaded, n_tokens) for n_tokens in (16, 1 << 14, 1 << 24)]
    assert rows[0] == sampler_module.MAX_ROWS
    # 2 (key, value) × 2 layers × 1 head × 8 numbers × 4 bytes × 16,384 tokens = 2 MiB a row: 511 fit, 256 are used
    assert rows[1] == 256
    assert rows[2] == 1
