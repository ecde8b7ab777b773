"""Models for the speed of vLLM and of scoring, written once to ``runs/speed``.

One is a series of nine checkpoints on Countdown-mini, of a model with more heads and a longer context than the demo's.
It is trained in the same way for fewer steps, and GRPO makes the series, which takes a minute. The other has a
vocabulary of 32,768 and random weights, because a tiny vocabulary hides the cost of operations over the whole
vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oversharp.diagnostics.models.devices import cpu_threads
from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.run import checkpointing
from oversharp.trainers.sft import BETAS, batch_table, learning_rate, response_loss
from oversharp.trainers.worlds.base import build_tokenizer
from oversharp.trainers.worlds.contract import END, PAD
from oversharp.trainers.worlds.countdown import WORLD

SFT_STEPS = 500
GRPO_STEPS, SAVE_EVERY = 32, 4
STEPS = tuple(range(0, GRPO_STEPS + 1, SAVE_EVERY))
SEED = 0
WIDE_VOCABULARY = 32_768


def make_series(folder: Path) -> Path:
    """Return the run directory in ``folder``. Train it unless it is complete."""
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
    rows = WORLD.sample_examples(config.n_examples, wrong_share=config.wrong_share, seed=SEED + 1)
    example_NT = torch.tensor(rows)
    model = _countdown_model().train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=config.weight_decay, fused=True
    )
    with cpu_threads(1):
        for step, batch_B in enumerate(batch_table(config), start=1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            optimizer.zero_grad(set_to_none=True)
            response_loss(model, example_NT[batch_B], WORLD.prompt_tokens).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            optimizer.step()
    _save(model, build_tokenizer(), folder)


def make_untrained_model(folder: Path) -> Path:
    """Write the model of the series with random weights."""
    _save(_countdown_model(), build_tokenizer(), folder)
    return folder


def make_wide_model(folder: Path) -> Path:
    """Write a checkpoint with random weights: 12 million parameters, 8 million in the tied embedding.

    Its tokens are the words ``w2`` to ``w32767``, a padding and an end token.
    """
    path = folder / "wide"
    if not path.is_dir():
        words = [PAD, END, *(f"w{number}" for number in range(2, WIDE_VOCABULARY))]
        tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        config = Qwen3Config(
            vocab_size=WIDE_VOCABULARY,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=words.index(END),
            pad_token_id=words.index(PAD),
        )
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END)
        _save(_initialised(config), fast, path)
    return path


def _countdown_model() -> Qwen3ForCausalLM:
    """Build the demo's Qwen3 with more heads, and a context for the longest probe of the vLLM sampler."""
    config = Qwen3Config(
        vocab_size=len(WORLD.vocabulary),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=WORLD.vocabulary.index(END),
        pad_token_id=WORLD.vocabulary.index(PAD),
    )
    return _initialised(config)


def _initialised(config: Qwen3Config) -> Qwen3ForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(config)
    # explicit, because the library's default truncates sampling to the 50 most probable tokens
    model.generation_config = GenerationConfig(
        do_sample=True, top_k=0, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    return model


def _save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    with checkpointing.atomic_folder(folder) as temporary, quiet_transformers():
        model.eval().save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
