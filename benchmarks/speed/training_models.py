"""Models and problems for the speed of training, written once to ``runs/speed``.

Besides the demo's model there are two with random weights and a word-level tokenizer: 20 million parameters for a CPU,
500 million for a GPU. ``training_toss`` rewards their answers at random. Models with random weights end a response with
the probability of end tokens in the vocabulary, so their share determines response lengths.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed.training_toss import NAME
from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.tasks import countdown, load_problems
from oversharp.trainers.run import checkpointing

SEED = 0
PAD, END = "<pad>", "<eos>"


@dataclass(frozen=True, kw_only=True)
class Size:
    """Sizes of a Qwen3.

    ``end_tokens`` of the vocabulary end a response.
    """

    name: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    context: int
    end_tokens: int


#: Responses have 64 tokens on average, if nothing truncates them.
SMALL = Size(
    name="20m",
    vocabulary=8192,
    hidden=384,
    intermediate=1152,
    layers=9,
    heads=6,
    key_value_heads=2,
    head=64,
    context=512,
    end_tokens=128,
)
#: The sizes of Qwen2.5-0.5B. With one end token in 151,936 every response has full length.
HALF_BILLION = Size(
    name="500m",
    vocabulary=151_936,
    hidden=896,
    intermediate=4864,
    layers=24,
    heads=14,
    key_value_heads=2,
    head=64,
    context=2048,
    end_tokens=1,
)


def random_model(size: Size, folder: Path) -> Path:
    """Return a checkpoint of this size in ``folder``, and write it if it is missing.

    Its words are ``w<number>``.
    """
    path = folder / size.name
    if path.is_dir():
        return path
    words = [PAD, END, *(f"w{number}" for number in range(2, size.vocabulary))]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=words.index(END),
        pad_token_id=words.index(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(config)
    ends = list(range(1, 1 + size.end_tokens))
    # explicit, because the library's default truncates sampling to the 50 most probable tokens
    model.generation_config = GenerationConfig(do_sample=True, top_k=0, eos_token_id=ends, pad_token_id=0)
    with checkpointing.atomic_folder(path) as temporary, quiet_transformers():
        model.eval().save_pretrained(temporary)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PAD, eos_token=END).save_pretrained(temporary)
    return path


def parameters(model: Path) -> int:
    """Count the parameters of a checkpoint, tied ones once."""
    from safetensors import safe_open

    with safe_open(model / "model.safetensors", framework="pt") as tensors:
        shapes: list[Sequence[int]] = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
    return sum(int(torch.Size(shape).numel()) for shape in shapes)


def toss_problems(size: Size, path: Path, *, prompt_tokens: int, n: int = 256) -> Path:
    """Write problems of random words, all of one length, with the toss as reward."""
    rng = random.Random(SEED)
    prompts = (" ".join(f"w{rng.randrange(200, size.vocabulary)}" for _ in range(prompt_tokens)) for _ in range(n))
    rows = [{"prompt": prompt, "answer": "toss", "verifier": NAME} for prompt in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def countdown_problems(path: Path) -> Path:
    """Write the training problems of the demo, with every correct answer listed."""
    rows = [
        {"prompt": problem.prompt, "answer": problem.gold, "modes": list(problem.modes or ()), "verifier": "modes"}
        for problem in countdown.problems(split="train")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def chat_problems(model: Path, path: Path, n: int = 256) -> tuple[Path, int]:
    """Write arithmetic problems in words in the chat template, with the toss as reward.

    Returns the length of the longest.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    asked = [one.prompt for one in load_problems(None, "word_problems:train", limit=n, seed=SEED)]
    prompts = [tokenizer.apply_chat_template(
        one if isinstance(one, list) else [{"role": "user", "content": one}], tokenize=False, add_generation_prompt=True
    ) for one in asked]  # fmt: skip
    path.write_text("".join(json.dumps({"prompt": one, "answer": "toss", "verifier": NAME}) + "\n" for one in prompts))
    return path, max(len(tokenizer(one)["input_ids"]) for one in prompts)
