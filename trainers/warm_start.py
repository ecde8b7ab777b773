"""Examples that a pretrained model is warmed up with: worked solutions of problems in words, in several ways.

A small pretrained model knows some arithmetic and hardly ever boxes an answer: nothing is rewarded, and RL has nothing
to start from. A few hundred steps on worked solutions change that; as each way is shown as often, the base has several.
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

#: What cross_entropy passes over.
_IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Example:
    """Token ids of a prompt and of the response that is learned, its end token included."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]


class WarmStart:
    """The pool of examples: the one of an index is the same in every run of a seed."""

    def __init__(self, loaded: LoadedModel, *, seed: int) -> None:
        """Prompts are asked in the tokenizer's chat template where it has one, as an audit asks them."""
        self._loaded = loaded
        self._seed = seed
        self._settings = SamplingSettings(sampler="none", chat=bool(loaded.tokenizer.chat_template))

    def example(self, index: int) -> Example:
        """The example at ``index`` of the pool. Raises ``SamplerError`` for a model that cannot read it."""
        rng = random.Random(f"{self._seed} {index}")
        story = drawn_story(rng, "train")
        problem = Problem(task=TASK, prompt=story.prompt, gold=str(story.answer), verifier="math")
        prompt_ids = encode_prompt(self._loaded.tokenizer, problem, self._settings)
        said = response_ids(self._loaded.tokenizer, rng.choice(story.solutions))
        require_fit(self._loaded, problem, prompt_ids, n_response=len(said))
        return Example(prompt_ids=tuple(prompt_ids), response_ids=said)

    def loss(self, model: PreTrainedModel, indices: Sequence[int]) -> Float[Tensor, ""]:
        """Mean negative log-probability of the response tokens of these examples, in nats; prompts are only read."""
        examples = [self.example(index) for index in indices]
        width = max(len(one.prompt_ids) + len(one.response_ids) for one in examples)
        ids_BL = torch.full((len(examples), width), self._loaded.pad_id)
        target_BL = torch.full_like(ids_BL, _IGNORED)
        for row, one in enumerate(examples):
            start, end = len(one.prompt_ids), len(one.prompt_ids) + len(one.response_ids)
            ids_BL[row, :end] = torch.tensor([*one.prompt_ids, *one.response_ids])
            target_BL[row, start:end] = ids_BL[row, start:end]
        # padding comes last, and no token of a causal model sees what comes after it: no mask is needed
        anything: Any = model
        kept = width - min(len(one.prompt_ids) for one in examples)  # logits of prompts are most of the memory
        device = self._loaded.device
        logits_BTV = anything(input_ids=ids_BL[:, :-1].to(device), use_cache=False, logits_to_keep=kept).logits
        target_N = target_BL[:, -kept:].flatten().to(device)
        return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_N, ignore_index=_IGNORED)
