"""A series of nine checkpoints that vLLM takes on a CPU: Countdown-mini with attention heads of size 32.

The demo's model has heads of size 24, which vLLM's CPU kernels refuse. This one is trained in the same way, on the
same problems, for fewer steps; then GRPO makes the series. ``runs/speed`` keeps it, so it is made once (a minute).
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from diagnostics.models import cpu_threads
from diagnostics.tasks import countdown
from trainers import checkpointing, countdown_base
from trainers.config import SftConfig, TrainConfig
from trainers.loop import train
from trainers.sft import BETAS, batch_table, learning_rate, response_loss

SFT_STEPS = 500
GRPO_STEPS, SAVE_EVERY = 32, 4
STEPS = tuple(range(0, GRPO_STEPS + 1, SAVE_EVERY))
SEED = 0


def make_series(folder: Path) -> Path:
    """The run directory in ``folder``, trained unless it is complete."""
    base, run = folder / "base", folder / "grpo"
    if not all(checkpointing.checkpoint_path(run, step).is_dir() for step in STEPS):
        if not base.is_dir():
            _train_base(base)
        config = TrainConfig(
            model=str(base),
            task=countdown.TASK,
            output_dir=run,
            max_steps=GRPO_STEPS,
            save_every=SAVE_EVERY,
            device="cpu",
            resume=True,
        )
        train(config)
    return run


def _train_base(folder: Path) -> None:
    config = SftConfig(output_dir=folder, max_steps=SFT_STEPS, seed=SEED)
    train_queries, _ = countdown.split_queries()
    rows = countdown_base.examples(train_queries, config.n_examples, wrong_share=config.wrong_share, seed=SEED + 1)
    example_NT = torch.tensor(rows)
    model = build_model(SEED).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=config.weight_decay, fused=True
    )
    with cpu_threads(1):
        for step, batch_B in enumerate(batch_table(config), start=1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            optimizer.zero_grad(set_to_none=True)
            response_loss(model, example_NT[batch_B]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            optimizer.step()
    with checkpointing.atomic_folder(folder) as temporary:
        model.eval().save_pretrained(temporary)
        countdown_base.build_tokenizer().save_pretrained(temporary)


def build_model(seed: int) -> Qwen3ForCausalLM:
    """The demo's Qwen3 with larger heads, and a context that holds the longest probe of the vLLM sampler."""
    end_id, pad_id = (countdown_base.VOCABULARY.index(token) for token in (countdown_base.END, countdown_base.PAD))
    config = Qwen3Config(
        vocab_size=len(countdown_base.VOCABULARY),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, top_k=0, eos_token_id=end_id, pad_token_id=pad_id)
    return model
