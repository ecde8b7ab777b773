"""Variants of templates are found; problems that share nothing but how they are asked are not."""

from __future__ import annotations

import random
import time

import pytest

from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.near_duplicates import near_duplicates

INSTRUCTION = "Solve the following problem step by step and put nothing but the final answer into a box at the end. "
WORDS = [f"{a}{b}" for a in ("ba", "ke", "li", "mo", "su", "ti", "vo") for b in ("ran", "sel", "tik", "dol", "gem")]
TEMPLATE = "{} packs {} crates with {} jars each, drops {} of them and sells the rest. How many jars are sold in all?"


def _prompt(rng: random.Random, n_words: int = 30) -> str:
    return " ".join(rng.choice(WORDS) + rng.choice(WORDS) for _ in range(n_words))


def _variants(rng: random.Random, n: int) -> list[str]:
    return [TEMPLATE.format(rng.choice(("Ann", "Bob", "Cleo")), *(rng.randint(2, 99) for _ in "abc")) for _ in range(n)]


def _flagged(prompts: list[str], tasks: list[str] | None = None) -> list[int]:
    return near_duplicates(prompts, tasks or ["t"] * len(prompts)).nonzero()[0].tolist()


def test_variants_of_a_template_and_questions_on_one_text_are_found() -> None:
    rng = random.Random(0)
    text = _prompt(rng, 60)
    others = [_prompt(rng) for _ in range(20)]
    related = [*_variants(rng, 3), f"{text} Who came first?", f"{text} And why did nobody stay?"]
    assert _flagged([*related, *others]) == [0, 1, 2, 3, 4]
    assert _flagged([*(INSTRUCTION + one for one in related), *(INSTRUCTION + one for one in others)]) == [
        0,
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize(
    "prompts",
    [
        [problem.prompt for problem in load_problems(None, "countdown", limit=100)],
        [f"What is {i} + {i + 3}?" for i in range(100)],
        _variants(random.Random(1), 100),
        [INSTRUCTION + _prompt(random.Random(seed)) for seed in range(100)],
        ["the same"] * 2,
        [],
    ],
    ids=["countdown", "sums", "one template", "one instruction", "two", "none"],
)
def test_sets_whose_form_alone_is_the_same_are_left_alone(prompts: list[str]) -> None:
    assert _flagged(prompts) == []


def test_each_task_is_compared_within_itself() -> None:
    rng = random.Random(2)
    others = [_prompt(rng) for _ in range(8)]
    twice = [*_variants(rng, 2), *others]
    assert _flagged(twice, ["a", "b", *"abababab"]) == []
    assert _flagged(twice, ["a", "a", *"abababab"]) == [0, 1]


def test_ten_thousand_prompts_take_seconds() -> None:
    rng = random.Random(3)
    templates = [_prompt(rng, 60) for _ in range(200)]
    prompts = [f"{templates[i % 200]} {rng.randint(1, 99)}" for i in range(5000)]
    prompts += [(INSTRUCTION if rng.random() < 0.4 else "") + _prompt(rng, 60) for _ in range(5000)]
    start = time.perf_counter()
    assert _flagged(prompts) == list(range(5000))
    assert time.perf_counter() - start < 30  # of 1.5 s on one core
