"""One small model and four tasks with listed responses: addition, subtraction, multiplication, palindromes.

An arithmetic problem may be answered in four ways (``17 + 25 = 42``, ``25 + 17 = 42``, ``42 = 17 + 25``, …), a
subtraction also by the addition that proves it. A palindrome problem gives three letters, and six palindromes are
right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations, product
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.calibration.small_bases import train_by_examples
from oversharp.diagnostics.records.types import Problem

TASKS = ("addition", "subtraction", "multiplication", "palindrome")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST = 99
WORDS = ("<pad>", "<eos>", "add", "sub", "mul", "pal", ":", "=", "+", "-", "*", *map(str, range(MOST + 1)), *LETTERS)
#: Tokens of the longest response, the end token included.
RESPONSE_TOKENS = 7
#: Frequencies of the base's four ways, the most frequent first.
ARITHMETIC_HABIT = (0.5, 0.25, 0.15, 0.1)
WRONG_SHARE = 0.6
N_AUDITED, SPLIT_SEED = 60, 0


def addition(a: int, b: int) -> Problem:
    """Return a problem with two different numbers to add.

    >>> addition(17, 25).modes
    ('17 + 25 = 42', '25 + 17 = 42', '42 = 17 + 25', '42 = 25 + 17')
    """
    total = a + b
    ways = (f"{a} + {b} = {total}", f"{b} + {a} = {total}", f"{total} = {a} + {b}", f"{total} = {b} + {a}")
    return _problem("addition", f"add {a} {b} :", str(total), ways)


def subtraction(whole: int, part: int) -> Problem:
    """Return a problem that subtracts the part from the whole, which is not twice the part.

    >>> subtraction(42, 17).modes
    ('42 - 17 = 25', '25 = 42 - 17', '17 + 25 = 42', '25 + 17 = 42')
    """
    rest = whole - part
    ways = (f"{whole} - {part} = {rest}", f"{rest} = {whole} - {part}")
    ways += (f"{part} + {rest} = {whole}", f"{rest} + {part} = {whole}")
    return _problem("subtraction", f"sub {whole} {part} :", str(rest), ways)


def multiplication(a: int, b: int) -> Problem:
    """Return a problem with two different numbers to multiply.

    >>> multiplication(6, 7).modes[0]
    '6 * 7 = 42'
    """
    result = a * b
    ways = (f"{a} * {b} = {result}", f"{b} * {a} = {result}", f"{result} = {a} * {b}", f"{result} = {b} * {a}")
    return _problem("multiplication", f"mul {a} {b} :", str(result), ways)


def palindrome(letters: Sequence[str]) -> Problem:
    """Return a problem with three letters, each to be used twice.

    The first way has the letters in alphabetical order from outside to inside.

    >>> palindrome(["c", "a", "b"]).modes[:2]
    ('a b c c b a', 'a c b b c a')
    """
    ways = tuple(" ".join([*half, *half[::-1]]) for half in permutations(sorted(letters)))
    return _problem("palindrome", f"pal {' '.join(letters)} :", ways[0], ways)


def _problem(task: str, prompt: str, gold: str, ways: tuple[str, ...]) -> Problem:
    return Problem(task=task, prompt=prompt, gold=gold, verifier="modes", modes=ways)


def all_problems(task: str) -> list[Problem]:
    """Return every problem of a task, shuffled with a fixed seed.

    The first ``N_AUDITED`` are audited and never trained on.
    """
    rng = random.Random(SPLIT_SEED)
    if task == "palindrome":
        found = [palindrome(rng.sample(LETTERS, 3)) for _ in range(2000)]
        found = list({one.prompt: one for one in found}.values())
    elif task == "multiplication":
        found = [multiplication(a, b) for a, b in product(range(2, 13), range(2, 13)) if a != b and a * b <= MOST]
    elif task == "addition":
        found = [addition(a, b) for a, b in product(range(1, MOST), repeat=2) if a != b and a + b <= MOST]
    else:
        found = [subtraction(a, b) for a, b in product(range(2, MOST + 1), range(1, MOST)) if a > b and a != 2 * b]
    rng.shuffle(found)
    return found


def audited(task: str) -> list[Problem]:
    """Return the audited problems."""
    return all_problems(task)[:N_AUDITED]


def example(problem: Problem, rng: random.Random) -> str:
    """Draw a training response of the base: one of the ways, the first most often, or one with a slip."""
    habit = ARITHMETIC_HABIT if problem.task != "palindrome" else tuple(1 / (place + 1) for place in range(6))
    words = rng.choices(problem.modes, habit)[0].split()
    if rng.random() < WRONG_SHARE:
        place = rng.choice([at for at, word in enumerate(words) if word.isalnum()])
        words[place] = rng.choice(LETTERS) if words[place].isalpha() else _other_number(int(words[place]), rng)
    return " ".join(words)


def _other_number(number: int, rng: random.Random) -> str:
    near = [other for step in (1, 2, 10) for other in (number - step, number + step) if 0 <= other <= MOST]
    return str(rng.choice(near))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token for every word, number up to 99 and letter."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def train_base(path: Path, *, steps: int = 2000, batch: int = 128, learning_rate: float = 3e-3) -> Path:
    """Train the base on all four tasks in equal parts, once, and return the checkpoint's folder."""
    if (path / "config.json").is_file():
        return path
    torch.manual_seed(0)
    rng = random.Random(0)
    problems = {task: all_problems(task) for task in TASKS}
    tokenizer = build_tokenizer()
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(WORDS),
            hidden_size=96,
            intermediate_size=288,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )

    def batch_rows() -> list[tuple[str, str]]:
        chosen = [rng.choice(problems[TASKS[place % len(TASKS)]]) for place in range(batch)]
        return [(one.prompt, example(one, rng)) for one in chosen]

    return train_by_examples(path, model, tokenizer, batch_rows, steps=steps, learning_rate=learning_rate)
