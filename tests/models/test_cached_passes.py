"""Scores of models with different caches equal those of a separate forward pass per response."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

import oversharp.diagnostics.engine.teacher_forcing as scoring
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.models.cached_passes import can_continue, find_reading_rules
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.types import ForcedResponse, SamplingSettings
from tests.samplers.tiny_models import CONTEXT, SIZES, WORDS, build_tokenizer, load, problem, write_model

SETTINGS = SamplingSettings(sampler="transformers")
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
#: Prompts below have up to 15 tokens and responses up to 10: some rows are longer than this, and some shorter.
LONGROPE_LIMIT = 12
LONGROPE = {
    **{"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [8.0] * 4, "rope_theta": 10000.0},
    **{"original_max_position_embeddings": LONGROPE_LIMIT, "factor": 4.0},
}


def model_of(kind: str, **changes: Any) -> Any:
    """Return a model with random weights whose distributions are far from uniform."""
    sizes = {**SIZES, "bos_token_id": 1, "num_key_value_heads": 2, **changes}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model.eval()


def adapted(config: Any) -> Any:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model: Any = get_peft_model(model_of("llama"), config)
        for name, parameter in model.named_parameters():
            if "lora_" in name or "prompt_encoder" in name:
                parameter.normal_(std=0.5)
    return model.eval()


def jamba() -> Any:
    return model_of(
        "jamba", attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, num_experts=2,
        use_mamba_kernels=False, mamba_d_state=4, mamba_dt_rank=2,
    )  # fmt: skip


def hybrid() -> Any:
    heads = {f"linear_{part}": 2 for part in ("num_key_heads", "num_value_heads")}
    sizes = {f"linear_{part}": 8 for part in ("key_head_dim", "value_head_dim")}
    layers = {"layer_types": ["linear_attention", "full_attention"]}
    return model_of("qwen3_next", **heads, **sizes, **layers, **EXPERTS, shared_expert_intermediate_size=16)


def longrope() -> Any:
    given = {"original_max_position_embeddings": LONGROPE_LIMIT, "partial_rotary_factor": 1.0}
    return model_of("phi3", rope_parameters=LONGROPE, **given)


def recurrent_gemma() -> Any:
    return model_of("recurrent_gemma", lru_width=16, attention_window_size=4, block_types=["recurrent", "attention"])


def waiting_adapter() -> Any:
    """Return an adapter that is active after the last two tokens of the prompts."""
    ends = encode_prompt(build_tokenizer(), problem("a b"), SETTINGS)
    return adapted(LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=ends))


def waits(model: Any) -> bool:
    return getattr(model.active_peft_config, "alora_invocation_tokens", None) is not None


def soft_prompt() -> Any:
    return adapted(PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


def prefix() -> Any:
    return adapted(PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


KINDS: dict[str, Callable[[], Any]] = {
    "attention": lambda: model_of("llama"),
    "window": lambda: model_of("gemma2", sliding_window=4, query_pre_attn_scalar=8),
    "mixture": lambda: model_of("qwen3_moe", **EXPERTS),
    "hybrid": hybrid,
    "jamba": jamba,
    "minimax": lambda: model_of(
        "minimax", layer_types=["linear_attention", "full_attention"], num_local_experts=4, block_size=4
    ),
    "recurrent gemma": recurrent_gemma,
    "longrope": longrope,
    "waiting adapter": waiting_adapter,
    "soft prompt": soft_prompt,
    "prefix": prefix,
}


def loaded(model: Any) -> LoadedModel:
    return LoadedModel(
        model=model,
        tokenizer=build_tokenizer(),
        device=torch.device("cpu"),
        end_ids=(1,),
        pad_id=0,
        context_tokens=CONTEXT,
        vocabulary_size=len(WORDS),
    )


def requests() -> list[ForcedRequest]:
    """Return three responses to each of four prompts of 2 to 15 tokens with the same end."""
    rng = random.Random(0)
    prompts = [problem(" ".join([*rng.choices(WORDS[2:], k=n), "a", "b"])) for n in (0, 2, 8, 13)]
    return [
        ForcedRequest(
            problem=prompt,
            response_id=f"{place}-{n}",
            token_ids=(*(rng.randrange(2, len(WORDS)) for _ in range(n)), 1),
        )
        for place, prompt in enumerate(prompts)
        for n in (1, 4, 9)
    ]


@torch.no_grad()
def alone(model: Any, request: ForcedRequest) -> tuple[float, float]:
    """Return log π and entropy from one pass over this row, without padding."""
    prompt = encode_prompt(build_tokenizer(), request.problem, SETTINGS)
    n = len(request.token_ids)
    row = torch.tensor([[*prompt, *request.token_ids]])
    # as in generation, activation tokens are found in the prompt only
    starts = {"alora_offsets": [2 + n]} if getattr(model, "active_peft_config", None) and waits(model) else {}
    logp_TV = model(input_ids=row, use_cache=False, **starts).logits[0, -(n + 1) : -1].log_softmax(dim=-1)
    logp = logp_TV.gather(1, torch.tensor(request.token_ids)[:, None]).sum()
    return logp.item(), -(logp_TV.exp() * logp_TV).sum().item()


@pytest.mark.slow
@pytest.mark.parametrize("positions", [None, 3], ids=["whole", "in chunks"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_scores_equal_those_of_separate_rows(kind: str, positions: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    model = KINDS[kind]()
    if positions is not None:
        monkeypatch.setattr(scoring, "_LOGITS_PER_CHUNK", positions * 12 * len(WORDS))
    scores = score_all(loaded(model))
    for request in requests():
        score = scores[request.response_id]
        assert (score.logp_sum, score.entropy_sum) == pytest.approx(alone(model, request), abs=1e-4)


def score_all(model: LoadedModel) -> dict[str, ForcedResponse]:
    return {score.response_id: score for batch in teacher_force(model, requests(), SETTINGS) for score in batch}


@pytest.mark.slow
def test_a_mixture_that_returns_router_logits_is_scored(tmp_path: Path) -> None:
    model = load(write_model(model_of("qwen3_moe", **EXPERTS, output_router_logits=True), tmp_path))
    scores = score_all(model)
    for request in requests():
        assert scores[request.response_id].logp_sum == pytest.approx(alone(model.model, request)[0], abs=1e-4)


@pytest.mark.slow
def test_the_rules_of_each_kind_of_model() -> None:
    rules = {kind: find_reading_rules(make()) for kind, make in KINDS.items()}
    assert {kind for kind, rule in rules.items() if rule.shares_prompts} == {"attention", "mixture"}
    assert {kind for kind, rule in rules.items() if not rule.continues} == {
        *("longrope", "waiting adapter", "soft prompt", "prefix")
    }
    assert {kind for kind, rule in rules.items() if not rule.pads} == {"recurrent gemma", "soft prompt", "prefix"}
    assert [rule.changes_above for rule in rules.values() if rule.changes_above] == [LONGROPE_LIMIT]


@pytest.mark.parametrize(
    ("kind", "expected"), [("window", True), ("hybrid", True), ("jamba", False), ("minimax", False)]
)
def test_a_trial_shows_whether_a_pass_can_continue_from_a_state(kind: str, expected: bool) -> None:
    model = KINDS[kind]()
    with torch.no_grad():
        cache = model(input_ids=torch.tensor([[2, 3, 4]]), use_cache=True).past_key_values
    assert cache is not None
    assert can_continue(model, cache) is expected


def test_a_configuration_with_unknown_names_shares_no_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")

    def unknown(*_: Any, **__: Any) -> None:
        raise AttributeError("'Config' object has no attribute 'num_hidden_layers'")

    monkeypatch.setattr(DynamicCache, "__init__", unknown)
    assert not find_reading_rules(model).shares_prompts
