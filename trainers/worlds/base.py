"""Tokenizer and untrained model of a built-in world's base: a tiny Qwen3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oversharp.trainers.worlds import countdown
from oversharp.trainers.worlds.contract import END, PAD, World

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def build_tokenizer(world: World = countdown.WORLD) -> PreTrainedTokenizerBase:
    """Build a WordLevel tokenizer that splits at spaces, with 107 tokens for Countdown.

    Unknown words, such as numbers above 99, raise an error.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(world.vocabulary)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )


def build_model(seed: int, world: World = countdown.WORLD) -> PreTrainedModel:
    """Build a randomly initialised Qwen3, with 333,696 parameters for Countdown.

    It has hidden size 96, 3 layers, 3 attention heads of size 32, 1 key-value head, and tied embeddings. vLLM's CPU
    kernels support no smaller heads.
    """
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    end_id, pad_id = world.vocabulary.index(END), world.vocabulary.index(PAD)
    config = Qwen3Config(
        vocab_size=len(world.vocabulary),
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    # set explicitly, because the default of transformers is top_k=50
    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=world.response_tokens,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    return model
