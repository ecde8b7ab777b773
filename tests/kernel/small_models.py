"""Small models of several architectures, rows for them, and their kernel by float64 autograd."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oversharp.diagnostics.kernel import KernelRow
from oversharp.diagnostics.models.load import LoadedModel
from tests.samplers.tiny_models import build_tokenizer

VOCABULARY = 40
CONTEXT = 64
MEMORY_BYTES = 1 << 28

ARCHITECTURES = (
    "qwen3_tied",
    "qwen3_untied_biases",
    "llama_biases",
    "gpt2",
    "lora",
    "lora_embeddings_and_head",
    "hybrid",
    "gemma2",
)


def build(name: str) -> Any:
    """Return a model with random parameters; none is 0 or 1, which could hide a fault."""
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 24,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if name == "gpt2":
            config = GPT2Config(
                vocab_size=VOCABULARY,
                n_positions=CONTEXT,
                n_embd=24,
                n_layer=3,
                n_head=4,
                bos_token_id=1,
                eos_token_id=1,
            )
            model: Any = GPT2LMHeadModel(config)
        elif name == "llama_biases":
            model = LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True, mlp_bias=True))
        elif name == "gemma2":
            model = Gemma2ForCausalLM(Gemma2Config(**sizes))
        elif name == "hybrid":
            recurrent = {f"linear_{part}": 2 for part in ("num_key_heads", "num_value_heads")}
            recurrent |= {f"linear_{part}": 8 for part in ("key_head_dim", "value_head_dim")}
            sizes["num_hidden_layers"] = 2
            layer_types = ["linear_attention", "full_attention"]
            model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**sizes, **recurrent, layer_types=layer_types))
        else:
            tied = name in ("qwen3_tied", "lora")
            model = Qwen3ForCausalLM(Qwen3Config(**sizes, tie_word_embeddings=tied, attention_bias=not tied))
        if name.startswith("lora"):
            targets = ["q_proj", "v_proj", *(["lm_head", "embed_tokens"] if name != "lora" else [])]
            model = get_peft_model(model, LoraConfig(r=2, target_modules=targets, task_type="CAUSAL_LM"))
        with torch.no_grad():
            for parameter in model.parameters():
                spread = 0.2 if parameter.ndim == 1 else float(1.5 * parameter.std()) or 0.2
                parameter.add_(spread * torch.randn_like(parameter))
    return model.eval()


def as_loaded(model: PreTrainedModel) -> LoadedModel:
    return LoadedModel(
        model=model,
        tokenizer=build_tokenizer(),
        device=torch.device("cpu"),
        end_ids=(1,),
        pad_id=0,
        context_tokens=CONTEXT,
        vocabulary_size=VOCABULARY,
    )


def draw_rows(n_rows: int, seed: int = 0) -> list[KernelRow]:
    """Return prompts of 1 to 8 tokens and responses of 1 to 20, in which the padding token 0 occurs too."""
    rng = np.random.default_rng(seed)

    def draw(most: int) -> tuple[int, ...]:
        return tuple(rng.integers(VOCABULARY, size=rng.integers(1, most + 1)).tolist())

    return [KernelRow(prompt_ids=draw(8), token_ids=draw(20)) for _ in range(n_rows)]


def logp_sum(model: Any, row: KernelRow) -> torch.Tensor:
    ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
    logp_TV = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(dim=-1)
    return logp_TV.gather(1, ids[0, len(row.prompt_ids) :, None]).sum()


def reference(model: Any, rows: list[KernelRow], trained: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """Kernel and log π by float64 autograd, one row after the other, without padding."""
    twin = copy.deepcopy(model).double()
    parameters = [parameter for name, parameter in twin.named_parameters() if name in trained]
    for parameter in twin.parameters():
        parameter.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    gradients, logps = [], []
    for row in rows:
        logp = logp_sum(twin, row)
        row_gradients = torch.autograd.grad(logp, parameters, allow_unused=True, materialize_grads=True)
        gradients.append(torch.cat([gradient.reshape(-1) for gradient in row_gradients]))
        logps.append(float(logp.detach()))
    gradient_ND = torch.stack(gradients)
    return (gradient_ND @ gradient_ND.T).numpy(), np.array(logps)


def trained_names(model: Any) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}
