"""Base model of the built-in task Countdown: tokenizer, a tiny Qwen3, and training examples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING

import torch

from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.countdown import Query

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PAD, END = "<pad>", "<eos>"
VOCABULARY = (PAD, END, "=", ":", *countdown.OPERATORS, *(str(number) for number in range(countdown.MAX_TARGET + 1)))
#: Number of tokens of a prompt: three numbers, ``=``, the target, and ``:``.
PROMPT_TOKENS = countdown.NUMBERS_PER_QUERY + 3
#: Weights of the modes in the training examples, which become the base's preferences. A mode's weight is the product of
#: the weights of its operators, times LARGEST_FIRST_WEIGHT if it starts with the largest number.
OPERATOR_WEIGHT = {"+": 1.0, "-": 0.5, "*": 0.35}
LARGEST_FIRST_WEIGHT = 3.0


def build_tokenizer() -> PreTrainedTokenizerBase:
    """Build a WordLevel tokenizer with 107 tokens that splits at spaces.

    Unknown words, such as numbers above 99, raise an error.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({token: index for index, token in enumerate(VOCABULARY)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )


def build_model(seed: int) -> PreTrainedModel:
    """Build a randomly initialised Qwen3 with 333,696 parameters.

    It has hidden size 96, 3 layers, 3 attention heads of size 32, 1 key-value head, and tied embeddings. vLLM's CPU
    kernels support no smaller heads.
    """
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    end_id, pad_id = VOCABULARY.index(END), VOCABULARY.index(PAD)
    config = Qwen3Config(
        vocab_size=len(VOCABULARY),
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
        max_new_tokens=countdown.RESPONSE_TOKENS,
        eos_token_id=end_id,
        pad_token_id=pad_id,
    )
    return model


@cache
def mode_weights(query: Query) -> tuple[float, ...]:
    """Return the weight of each mode of the query in the training examples, not normalised.

    >>> query = Query((1, 2, 12), 15)
    >>> dict(zip(countdown.modes(query), mode_weights(query), strict=True))["12 + 1 + 2"]
    3.0
    """
    weights = []
    for mode in countdown.modes(query):
        words = mode.split()
        style = LARGEST_FIRST_WEIGHT if int(words[0]) == max(query.numbers) else 1.0
        weights.append(style * prod(OPERATOR_WEIGHT[operator] for operator in words[1::2]))
    return tuple(weights)


def draw_response(query: Query, rng: random.Random, wrong_share: float) -> str:
    """Sample a training response: a wrong expression with probability ``wrong_share``, else a mode by its weight."""
    if rng.random() < wrong_share:
        return rng.choice(rng.choice(countdown.wrong_expressions(query)))
    return rng.choices(countdown.modes(query), mode_weights(query))[0]


def sample_examples(queries: Sequence[Query], n: int, *, wrong_share: float, seed: int) -> list[list[int]]:
    """Sample the token ids of ``n`` examples. Each has a prompt, a response and an end token; all have equal length.

    >>> example = sample_examples([Query((6, 7, 12), 54)], 1, wrong_share=0.0, seed=0)[0]
    >>> " ".join(VOCABULARY[token] for token in example)
    '6 7 12 = 54 : 12 + 7 * 6 <eos>'
    """
    rng = random.Random(seed)
    id_of = {token: index for index, token in enumerate(VOCABULARY)}
    rows = []
    for _ in range(n):
        query = queries[rng.randrange(len(queries))]
        text = f"{query.prompt} {draw_response(query, rng, wrong_share)} {END}"
        rows.append([id_of[word] for word in text.split()])
    return rows
