"""Warm-up examples for a pretrained model: worked solutions of word problems, with several methods.

A small pretrained model knows some arithmetic but rarely boxes an answer, so nothing is rewarded and RL cannot start.
A few hundred steps on worked solutions fix that. All methods are equally frequent, so that the base has several.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit, response_ids
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.tasks.word_problems import TASK, drawn_story

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Target value that cross_entropy ignores.
_IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Example:
    """Token ids of a prompt and of the target response, including the end token."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]


class WarmStart:
    """Pool of examples; an index gives the same example in every run with the same seed."""

    def __init__(self, loaded: LoadedModel, *, seed: int) -> None:
        """Use the tokenizer's chat template for prompts if it has one, as in an audit."""
        self._loaded = loaded
        self._seed = seed
        self._settings = SamplingSettings(sampler="none", chat=bool(loaded.tokenizer.chat_template))

    def example(self, index: int) -> Example:
        """Return the example at ``index``. Raise ``SamplerError`` if it does not fit the model."""
        rng = random.Random(f"{self._seed} {index}")
        story = drawn_story(rng, "train")
        problem = Problem(task=TASK, prompt=story.prompt, gold=str(story.answer), verifier="math")
        prompt_ids = encode_prompt(self._loaded.tokenizer, problem, self._settings)
        solution_ids = response_ids(self._loaded.tokenizer, rng.choice(story.solutions))
        require_fit(self._loaded, problem, prompt_ids, n_response=len(solution_ids))
        return Example(prompt_ids=tuple(prompt_ids), response_ids=solution_ids)

    def loss(self, model: PreTrainedModel, indices: Sequence[int]) -> Float[Tensor, ""]:
        """Return the mean negative log-probability of the response tokens of these examples, in nats."""
        examples = [self.example(index) for index in indices]
        width = max(len(example.prompt_ids) + len(example.response_ids) for example in examples)
        ids_BL = torch.full((len(examples), width), self._loaded.pad_id)
        target_BL = torch.full_like(ids_BL, _IGNORED)
        for row, example in enumerate(examples):
            start, end = len(example.prompt_ids), len(example.prompt_ids) + len(example.response_ids)
            ids_BL[row, :end] = torch.tensor([*example.prompt_ids, *example.response_ids])
            target_BL[row, start:end] = ids_BL[row, start:end]
        # right padding needs no mask in a causal model
        anything: Any = model
        kept = width - min(len(example.prompt_ids) for example in examples)  # logits of prompts are most of the memory
        device = self._loaded.device
        logits_BTV = anything(input_ids=ids_BL[:, :-1].to(device), use_cache=False, logits_to_keep=kept).logits
        target_N = target_BL[:, -kept:].flatten().to(device)
        return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_N, ignore_index=_IGNORED)
