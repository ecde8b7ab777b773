"""Arithmetic word problems of one or two steps, with worked solutions, for small pretrained models.

A problem has a person, things and numbers up to 20, and asks for a whole number in ``\\boxed{}``. A hash of its text
determines its split, so ``word_problems`` and ``word_problems:train`` have no common problem. Worked solutions come in
several ways (in words, as equations, in another order). The warm-up of a base determines how many ways the base uses,
and so how many training can lose.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem, content_hash

Split = Literal["train", "held_out"]

TASK = "word_problems"
MOST = 20
#: There are slightly more, but random draws rarely find the last ones.
MOST_PROBLEMS = 100_000
#: One in this number of problems is held out.
HELD_OUT_OF = 4
#: Token limit of a response. Solutions take 15 to 60 tokens.
RESPONSE_TOKENS = 96
ASKS = "Answer with a whole number in \\boxed{}."

_NAMES = ("Anna", "Ben", "Clara", "David", "Ella", "Finn", "Grace", "Hugo", "Ida", "Jack", "Kate", "Leo", "Mia", "Noah")
_THINGS = ("apples", "books", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers", "stones")
_BOXES = ("bags", "baskets", "boxes", "drawers", "jars")


@dataclass(frozen=True, kw_only=True)
class Story:
    """A word problem and several ways to solve it: worked solutions without the boxed answer."""

    text: str
    answer: int
    ways: tuple[str, ...]

    @property
    def prompt(self) -> str:
        """The question."""
        return f"{self.text} {ASKS}"

    @property
    def solutions(self) -> tuple[str, ...]:
        """The worked solutions, with the boxed answer at the end."""
        return tuple(f"{way} The answer is \\boxed{{{self.answer}}}." for way in self.ways)


def problems(argument: str, *, limit: int, seed: int) -> tuple[Problem, ...]:
    """Return ``limit`` distinct problems: held out, or of the training split if ``argument`` is ``train``.

    Raises ``ProblemError`` for another argument, or too many problems.

    >>> print(problems("", limit=1, seed=0)[0].prompt)
    Clara fills 4 boxes with 2 stickers each and keeps 11 more. How many stickers are there? Answer with ...
    """
    if argument not in ("", "train"):
        raise ProblemError(f"task '{TASK}:{argument}' is unknown; use {TASK} or {TASK}:train")
    if limit > MOST_PROBLEMS:
        raise ProblemError(f"task {TASK!r}: has at most {MOST_PROBLEMS:,} distinct problems; lower --limit")
    split: Split = "train" if argument else "held_out"
    return tuple(
        Problem(task=TASK, prompt=story.prompt, gold=str(story.answer), verifier="math")
        for story in draw_stories(split, limit, seed=seed)
    )


def draw_stories(split: Split, n: int, *, seed: int) -> list[Story]:
    """Return ``n`` distinct stories of one split. They depend only on the seed."""
    rng, drawn = random.Random(f"{TASK} {split} {seed}"), dict[str, Story]()
    while len(drawn) < n:
        story = draw_story(rng, split)
        drawn.setdefault(story.text, story)
    return list(drawn.values())


def draw_story(rng: random.Random, split: Split) -> Story:
    """Generate a random story of one split. All kinds of stories are equally likely."""
    while True:
        name, thing, box = rng.choice(_NAMES), rng.choice(_THINGS), rng.choice(_BOXES)
        story = rng.choice(_KINDS)(rng, name, thing, box)
        if is_held_out(story.text) == (split == "held_out"):
            return story


def is_held_out(text: str) -> bool:
    """Return whether a story is held out. This does not depend on the seed."""
    return int(content_hash(TASK, text), 16) % HELD_OUT_OF == 0


def _more(rng: random.Random, name: str, thing: str, _box: str) -> Story:
    a, b = _numbers(rng, 2, most=MOST)
    return Story(
        text=f"{name} has {a} {thing} and finds {b} more. How many {thing} are there now?",
        answer=a + b,
        ways=(f"{a} + {b} = {a + b}.", f"{b} + {a} = {a + b}.", f"{name} adds {b} to {a}, which makes {a + b}."),
    )


def _fewer(rng: random.Random, name: str, thing: str, _box: str) -> Story:
    b, a = sorted(_numbers(rng, 2, most=MOST))
    left = a - b
    return Story(
        text=f"{name} has {a} {thing} and gives {b} away. How many {thing} are left?",
        answer=left,
        ways=(
            f"{a} - {b} = {left}.",
            f"{b} + {left} = {a}, so {left} are left.",
            f"{name} takes {b} from {a}, which leaves {left}.",
        ),
    )


def _boxes(rng: random.Random, name: str, thing: str, box: str) -> Story:
    a, b = _numbers(rng, 2, most=10)
    return Story(
        text=f"{name} has {a} {box} with {b} {thing} in each. How many {thing} are there?",
        answer=a * b,
        ways=(
            f"{a} * {b} = {a * b}.",
            f"{b} * {a} = {a * b}.",
            f"{name} has {a} times {b}, which makes {a * b}.",
        ),
    )


def _boxes_and_more(rng: random.Random, name: str, thing: str, box: str) -> Story:
    a, b, c = (*_numbers(rng, 2, most=6), *_numbers(rng, 1, most=MOST))
    total = a * b + c
    return Story(
        text=f"{name} fills {a} {box} with {b} {thing} each and keeps {c} more. How many {thing} are there?",
        answer=total,
        ways=(
            f"{a} * {b} = {a * b}. {a * b} + {c} = {total}.",
            f"{a} * {b} + {c} = {total}.",
            f"{c} + {a} * {b} = {c} + {a * b} = {total}.",
            f"First {a} times {b} makes {a * b}. Then {c} more makes {total}.",
        ),
    )


def _more_and_fewer(rng: random.Random, name: str, thing: str, _box: str) -> Story:
    a, b = _numbers(rng, 2, most=MOST)
    c = rng.randint(2, a - 1) if a > 2 else 1
    total = a + b - c
    return Story(
        text=f"{name} has {a} {thing}, buys {b} and then loses {c}. How many {thing} are left?",
        answer=total,
        ways=(
            f"{a} + {b} = {a + b}. {a + b} - {c} = {total}.",
            f"{a} + {b} - {c} = {total}.",
            f"{a} - {c} = {a - c}. {a - c} + {b} = {total}.",
            f"First {a} and {b} makes {a + b}. Then {c} less leaves {total}.",
        ),
    )


def _shared(rng: random.Random, name: str, thing: str, _box: str) -> Story:
    a, b, friends = (*_numbers(rng, 2, most=8), rng.randint(2, 5))
    total = (a + b) * friends
    return Story(
        text=f"{name} gives each of {friends} friends {a} red and {b} blue {thing}. How many {thing} are given away?",
        answer=total,
        ways=(
            f"{a} + {b} = {a + b}. {friends} * {a + b} = {total}.",
            f"{friends} * {a} + {friends} * {b} = {friends * a} + {friends * b} = {total}.",
            f"{friends} * ({a} + {b}) = {total}.",
            f"Each friend gets {a + b}, and {friends} times {a + b} makes {total}.",
        ),
    )


_KINDS = (_more, _fewer, _boxes, _boxes_and_more, _more_and_fewer, _shared)


def _numbers(rng: random.Random, n: int, *, most: int) -> Sequence[int]:
    """Return distinct numbers of at least 2, so that no step is trivial."""
    return rng.sample(range(2, most + 1), n)
