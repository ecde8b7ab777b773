"""Verify that vLLM has the trained weights, by comparing its log-probabilities of a few tokens with the networks'.

A sync of weights can fail silently. For example, a packed copy of the head may keep old weights, the prefix cache may
contain old keys and values, or a tensor's name may match no parameter.
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
from oversharp.trainers.model.policy import plain_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROBE_TOKENS = 4
#: Precision of the engine → maximum change of the networks' log-probabilities, in nats, at which unchanged values of
#: the engine are no error, because half precision rounds away the updates of a small learning rate. In bfloat16, random
#: weight changes of 3e-6 were rounded away, and changes of 1e-5 never were. Correlated changes near a rounding boundary
#: may be larger, but they are below the rounding error, which is at least 0.01 nats.
HIDDEN_NATS = {"float32": 0.0, "float16": 0.002, "bfloat16": 0.01}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Values of ``LogpColumns`` (three per token) for each probed token, from the engine and from the networks."""

    engine_N3: Float[np.ndarray, "token column"]
    own_N3: Float[np.ndarray, "token column"]

    @property
    def gap_nats(self) -> float:
        """Largest difference between engine and networks. It is infinite if a value is not finite."""
        largest = float(np.abs(self.engine_N3 - self.own_N3).max())
        return largest if np.isfinite(largest) else float("inf")

    def is_repeated(self, before: Fingerprint) -> bool:
        """Return whether the engine's values are bit-identical to its values in ``before``."""
        return np.array_equal(before.engine_N3, self.engine_N3)

    def is_stale_after(self, before: Fingerprint, *, hidden_nats: float) -> bool:
        """Return whether the engine has old weights.

        That is, its values are those of ``before``, but the networks' values changed by more than ``hidden_nats``. In
        half precision, rounding can hide smaller changes.
        """
        change_nats = np.abs(before.own_N3 - self.own_N3).max()
        return self.is_repeated(before) and bool(change_nats > hidden_nats)


def choose_prompts(prompts: Sequence[Sequence[int]], *, max_model_len: int) -> list[tuple[int, ...]]:
    """Return prompts to verify the engine with: the longest, and one that fills blocks of the prefix cache.

    The latter is omitted if the context is too short.
    """
    longest = probe_prompts([tuple(prompt) for prompt in prompts])[-1]
    return [longest, long_prompt(longest, max_model_len=max_model_len - PROBE_TOKENS + 1)]


def network_columns(
    policy: LoadedModel,
    memory_network: LoadedModel | None,
    mu: float,
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
) -> Float[np.ndarray, "token column"]:
    """Return the columns of ``LogpColumns`` at temperature 1, computed by the networks."""
    policy_TV = next_token_logp(policy, prompt_ids, token_ids)
    behaviour_TV = policy_TV
    if memory_network is not None and mu:
        behaviour_TV = (policy_TV - mu * next_token_logp(memory_network, prompt_ids, token_ids)).log_softmax(dim=-1)
    token_T1 = torch.tensor(list(token_ids))[:, None]
    columns = (
        behaviour_TV.gather(1, token_T1)[:, 0],
        policy_TV.gather(1, token_T1)[:, 0],
        -torch.special.entr(policy_TV.exp()).sum(dim=-1),
    )
    return torch.stack(columns, dim=1).double().numpy()


@contextmanager
def round_weights(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Round the weights to ``dtype`` inside the block, and restore the exact weights after it.

    Adapters are merged before rounding, as in the engine, because the rounding of a small change depends on the weight
    that it is added to. In 34 updates of an adapter on SmolLM2-135M, the difference between vLLM in bfloat16 and such
    networks was at most .26 nats (median .12). It was .54 (.31) for exact networks, and .85 (.48) for networks whose
    adapters were rounded separately.
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
