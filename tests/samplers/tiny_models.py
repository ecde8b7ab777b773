"""Tiny real checkpoints: a Qwen3 of a few thousand weights and a whitespace tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.records.types import Checkpoint, Problem

WORDS = ("<pad>", "<eos>", "a", "b", "c", "d", "e", "f", "g", "?")
CONTEXT = 64
SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def build_tokenizer(words: tuple[str, ...] = WORDS, *, chat_template: str | None = None) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = chat_template
    return fast


def build_model(seed: int, *, spread: float = 3.0, **changes: Any) -> Qwen3ForCausalLM:
    """Return a model with random weights; ``spread`` scales the head so that distributions are far from uniform."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**(SIZES | {"tie_word_embeddings": False} | changes)))
        with torch.no_grad():
            model.lm_head.weight.normal_(std=spread / 4)
            model.model.embed_tokens.weight.normal_()
    model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0)
    return model


def write_gpt2(folder: Path, seed: int) -> Path:
    """Write a model with learned absolute positions, which unlike rotary ones show wrong offsets by padding."""
    sizes = {"vocab_size": len(WORDS), "n_positions": CONTEXT, "n_embd": 16, "n_layer": 2, "n_head": 2}
    config = GPT2Config(**sizes, initializer_range=0.7, bos_token_id=1, eos_token_id=1)
    return _write_random(GPT2LMHeadModel, config, folder, seed)


def write_hybrid(folder: Path, seed: int) -> Path:
    """Write a model with a recurrent layer, whose state cannot be repeated for several responses as a cache can."""
    recurrent = {f"linear_{part}": 2 for part in ("num_key_heads", "num_value_heads")}
    recurrent |= {f"linear_{part}": 8 for part in ("key_head_dim", "value_head_dim")}
    layers = {"layer_types": ["linear_attention", "full_attention"], "initializer_range": 0.5}
    config = Qwen3_5TextConfig(**SIZES, **recurrent, **layers)
    return _write_random(Qwen3_5ForCausalLM, config, folder, seed)


def _write_random(kind: Any, config: Any, folder: Path, seed: int) -> Path:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return write_model(kind(config), folder)


def write_model(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def build_tied_model(seed: int, *, context: int = 1024) -> Qwen3ForCausalLM:
    """Return a model with tied embeddings, a head size of vLLM's CPU kernels, and room for several cache blocks."""
    model = build_model(
        seed, head_dim=32, max_position_embeddings=context, tie_word_embeddings=True, initializer_range=0.5
    )
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(0.3)  # else nearly all probability is on one token
    return model


def write_tied(folder: Path, seed: int, *, context: int = 1024) -> Path:
    return write_model(build_tied_model(seed, context=context), folder)


def write_checkpoint(folder: Path, seed: int, **changes: Any) -> Path:
    return write_model(build_model(seed, **changes), folder)


def write_adapter(folder: Path, base: Path, seed: int, *, use_dora: bool = False) -> Path:
    """Write a LoRA adapter with random weights for the model in ``base``."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", use_dora=use_dora)
    adapted = get_peft_model(model, config)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    adapted.save_pretrained(folder)
    return folder


def checkpoint_at(path: Path, *, weights_hash: str = "weights", base_path: Path | None = None) -> Checkpoint:
    return Checkpoint(
        step=0,
        label=path.name,
        path=path,
        kind="full" if base_path is None else "lora",
        weights_hash=weights_hash,
        base_path=base_path,
    )


def load(path: Path) -> LoadedModel:
    return load_model(checkpoint_at(path), device=torch.device("cpu"), dtype="float32")


def problem(prompt: str) -> Problem:
    return Problem(task="tiny", prompt=prompt, gold="a", verifier="exact")
