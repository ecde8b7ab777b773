"""Interface of a built-in world's base model, shared by tokenizer, model and supervised training."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

PAD, END = "<pad>", "<eos>"


@dataclass(frozen=True, kw_only=True)
class World:
    """Words of a built-in world, and the examples that its base is trained on.

    Texts are words separated by whitespace, and a word is a token. All prompts have ``prompt_tokens`` words. A response
    has at most ``response_tokens``, end token included. ``draw_example(rng, wrong_share)`` returns the prompt of a
    training problem and a response, which is wrong with probability ``wrong_share``.
    """

    name: str
    words: tuple[str, ...]
    prompt_tokens: int
    response_tokens: int
    draw_example: Callable[[random.Random, float], tuple[str, str]]

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Tokens in the order of their ids: padding, end, and the words."""
        return (PAD, END, *self.words)

    def sample_examples(self, n: int, *, wrong_share: float, seed: int) -> list[list[int]]:
        """Sample the token ids of ``n`` examples: prompt, response and end token, padded on the right to equal length.

        >>> from oversharp.trainers.worlds import get_world
        >>> world = get_world("countdown")
        >>> " ".join(world.vocabulary[token] for token in world.sample_examples(1, wrong_share=0.0, seed=0)[0])
        '2 5 6 = 9 : 6 + 5 - 2 <eos>'
        """
        rng = random.Random(seed)
        id_of = {token: index for index, token in enumerate(self.vocabulary)}
        width = self.prompt_tokens + self.response_tokens
        rows = []
        for _ in range(n):
            prompt, response = self.draw_example(rng, wrong_share)
            words = f"{prompt} {response} {END}".split()
            rows.append([id_of[word] for word in words] + [id_of[PAD]] * (width - len(words)))
        return rows
