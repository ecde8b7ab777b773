"""Checks on a few tokens that vLLM holds the weights that are trained: drawn by the engine, read by the networks.

A sync can fail without a word: a packed copy of the head that stays the old one, a prefix cache of the old weights, a
tensor that no name fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.samplers.vllm_probe import long_prompt, next_token_logp, probe_prompts
from oversharp.trainers.model.plain_weights import plain_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBE_TOKENS = 4
#: So far may the networks' law move, in nats, while an engine of this precision rightly answers bit for bit as before:
#: half precision rounds away what steps at a small learning rate do. With bfloat16 random moves of 3e-6 were hidden
#: and such of 1e-5 never, but weights in the middle between two roundings may move together; by less than the rounding
#: itself, which is 0.01 and more.
HIDDEN_NATS = {"float32": 0.0, "float16": 0.002, "bfloat16": 0.01}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Per probed token the three columns of ``LawColumns``, as the engine ships them and as the networks have them."""

    engine_N3: Float[np.ndarray, "token column"]
    own_N3: Float[np.ndarray, "token column"]

    @property
    def gap_nats(self) -> float:
        """Largest difference; infinite where either is not a finite number."""
        largest = float(np.abs(self.engine_N3 - self.own_N3).max())
        return largest if np.isfinite(largest) else float("inf")

    def is_repeated(self, before: Fingerprint) -> bool:
        """The engine answers as it did then, to the last bit."""
        return np.array_equal(before.engine_N3, self.engine_N3)

    def is_stale_after(self, before: Fingerprint, *, hidden_nats: float) -> bool:
        """The engine has not moved, to the last bit, and the networks have by more than can be hidden.

        A step at a small learning rate leaves a gap that half precision cannot tell from rounding.
        """
        moved_nats = np.abs(before.own_N3 - self.own_N3).max()
        return self.is_repeated(before) and bool(moved_nats > hidden_nats)


def chosen_prompts(prompts: Sequence[Sequence[int]], *, max_model_len: int) -> list[tuple[int, ...]]:
    """The longest of the prompts, and one that fills whole blocks of the prefix cache where there is room."""
    longest = probe_prompts([tuple(prompt) for prompt in prompts])[-1]
    return [longest, long_prompt(longest, max_model_len=max_model_len - PROBE_TOKENS + 1)]


def own_columns(
    policy: LoadedModel,
    memory_network: LoadedModel | None,
    mu: float,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
) -> Float[np.ndarray, "token column"]:
    """The columns at temperature 1, from the networks themselves."""
    policy_TV = next_token_logp(policy, prompt_ids, token_ids)
    law_TV = policy_TV
    if memory_network is not None and mu:
        law_TV = (policy_TV - mu * next_token_logp(memory_network, prompt_ids, token_ids)).log_softmax(dim=-1)
    token_T1 = torch.tensor(list(token_ids))[:, None]
    columns = (
        law_TV.gather(1, token_T1)[:, 0],
        policy_TV.gather(1, token_T1)[:, 0],
        -torch.special.entr(policy_TV.exp()).sum(dim=-1),
    )
    return torch.stack(columns, dim=1).double().numpy()


@contextmanager
def rounded_to(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Inside the block weights and products are of ``dtype``; after it the weights are the very ones they were.

    Adapters are merged before they are rounded, as the engine has them: what rounding leaves of a small change depends
    on the weight that it changes. Over 34 updates of an adapter on SmolLM2-135M vLLM in bfloat16 lay at most .26 nats
    (median .12) from such networks, .54 (.31) from the exact ones, .85 (.48) from adapters rounded by themselves.
    """
    inner: Any = model
    if hasattr(inner, "get_base_model"):
        inner = inner.get_base_model()
    weights = [(parameter, parameter.data) for parameter in model.parameters()]
    rounded = {name: weight.to(dtype) for name, weight in plain_weights(model)}
    try:
        for name, parameter in inner.named_parameters():
            merged = rounded.get(name.replace(".base_layer.", "."))
            parameter.data = torch.zeros_like(parameter.data, dtype=dtype) if merged is None else merged
        yield
    finally:
        for parameter, exact in weights:
            parameter.data = exact
