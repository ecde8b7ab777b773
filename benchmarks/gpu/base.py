"""Train the base of ``make gpu``: a Countdown model of 32 million parameters, from random weights.

    python -m benchmarks.gpu.base FOLDER --device cuda --size full

The demo's model is trained in the same way and has a hundredth of the weights. If the command is killed, it starts
again. ``smallest`` is the demo's model after 150 steps: some of its answers are right, and a training step changes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import GenerationConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.trainers.config import SftConfig
from oversharp.trainers.run import checkpointing
from oversharp.trainers.sft import BETAS, batch_table, learning_rate, response_loss
from oversharp.trainers.worlds import countdown
from oversharp.trainers.worlds.base import build_model, build_tokenizer

SEED = 0


@dataclass(frozen=True, kw_only=True)
class BaseSize:
    """Training steps, batch size, learning rate, and changes to the demo's configuration."""

    steps: int
    batch: int
    rate: float
    changes: Mapping[str, int]


SIZES: Mapping[str, BaseSize] = {
    "full": BaseSize(
        steps=1200,
        batch=256,
        rate=5e-4,
        changes={
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": 10,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 64,
        },
    ),
    "smallest": BaseSize(steps=150, batch=64, rate=3e-3, changes={}),
}


def build(size: BaseSize) -> PreTrainedModel:
    """Build the demo's model at this size, with random weights."""
    plain = build_model(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(Qwen3Config(**{**plain.config.to_dict(), "layer_types": None, **size.changes}))
    model.generation_config = GenerationConfig(**plain.generation_config.to_dict())
    return model


def train_base(folder: Path, device: torch.device, size: BaseSize) -> None:
    """Train the model on worked examples and write the checkpoint."""
    config = SftConfig(
        output_dir=folder, max_steps=size.steps, batch_size=size.batch, learning_rate=size.rate, seed=SEED
    )
    n_examples = min(config.n_examples, size.steps * size.batch)
    rows = countdown.WORLD.sample_examples(n_examples, wrong_share=config.wrong_share, seed=SEED + 1)
    example_NT = torch.tensor(rows, device=device)
    model = build(size).to(device).train()  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate, betas=BETAS, fused=True)
    for step, batch_B in enumerate(batch_table(config), start=1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        optimizer.zero_grad(set_to_none=True)
        loss = response_loss(model, example_NT[batch_B.to(device) % n_examples], countdown.WORLD.prompt_tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step} of {size.steps}: loss {loss.item():.3f}", flush=True)
    with checkpointing.atomic_folder(folder) as temporary, quiet_transformers():
        model.eval().cpu().save_pretrained(temporary)
        build_tokenizer().save_pretrained(temporary)


def main() -> None:
    """Train the base unless it exists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    asked = parser.parse_args()
    if not (asked.folder / "model.safetensors").is_file():
        train_base(asked.folder, torch.device(asked.device), SIZES[asked.size])


if __name__ == "__main__":
    main()
