"""Does the engine compute the model that transformers computes? A few greedy tokens tell.

A swap of weights can fail without a word: a packed copy of the head that stays the old one, a prefix cache of the old
weights, a tensor that no file holds. So after every start and swap the engine draws a few tokens, and transformers
reads the same tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from diagnostics.models.devices import suitable_threads
from diagnostics.models.load import LoadedModel
from diagnostics.samplers.vllm_messages import DrawnRow

PROBE_TOKENS = 8
#: Prompts of the engine's first call that are probed, besides a long one.
PROBE_PROMPTS = 3
#: Length of the long prompt. A prefix cache holds whole blocks of at most 128 tokens, so this fills two.
LONG_PROBE_TOKENS = 288
#: Largest difference of a token's log-probability between vLLM and transformers, in nats. Two correct float32
#: computations of one model differ by rounding, 2e-5 and less where it was measured; the faults that are looked for
#: change the law by 0.1 and more. The steps of half precision are 2^13 and 2^16 times as wide: there the differences
#: show gross faults alone, and stale weights by an answer that did not change at all.
LOGP_TOLERANCE_NATS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
#: The same for the entropy of one next-token distribution.
ENTROPY_TOLERANCE_NATS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Largest differences in nats over all probed tokens; infinite where one side is not a finite number.

    ``entropy`` is None if the engine shipped none.
    """

    logp: float
    entropy: float | None
    model_is_finite: bool


def probe_prompts(prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shortest, the middle and the longest of the prompts, each once.

    >>> probe_prompts([(1, 2, 3), (1,), (1, 2), (4,), (1, 2)])
    [(1,), (1, 2), (1, 2, 3)]
    """
    ordered = sorted(set(prompts), key=lambda ids: (len(ids), ids))
    picked = [ordered[0], ordered[len(ordered) // 2], ordered[-1]][:PROBE_PROMPTS]
    return list(dict.fromkeys(picked))


def long_prompt(prompt: tuple[int, ...], *, max_model_len: int) -> tuple[int, ...]:
    """``prompt`` repeated to ``LONG_PROBE_TOKENS``, or to what leaves room for one token."""
    length = min(LONG_PROBE_TOKENS, max_model_len - 1)
    return (prompt * (length // len(prompt) + 1))[:length]


def compare(loaded: LoadedModel, prompts: Sequence[tuple[int, ...]], rows: Sequence[DrawnRow]) -> ProbeResult:
    """What the engine says of ``rows``, drawn after ``prompts``, against what the model says of them."""
    logp, entropy, finite = [0.0], [0.0], True
    with_entropy = all(row.entropy_T is not None for row in rows)
    for prompt_ids, row in zip(prompts, rows, strict=True):
        logp_TV = next_token_logp(loaded, prompt_ids, row.token_ids)
        own_logp_T = logp_TV.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0].numpy()
        own_entropy_T = torch.special.entr(logp_TV.exp()).sum(dim=-1).numpy()
        finite = finite and bool(np.isfinite(own_logp_T).all() and np.isfinite(own_entropy_T).all())
        logp.append(_largest(row.logp_T - own_logp_T))
        if row.entropy_T is not None:
            entropy.append(_largest(row.entropy_T - own_entropy_T))
    return ProbeResult(logp=max(logp), entropy=max(entropy) if with_entropy else None, model_is_finite=finite)


@torch.inference_mode()
def next_token_logp(
    loaded: LoadedModel, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> Float[Tensor, "token vocabulary"]:
    """The law of each token of a response given what comes before it, in nats, float32, on the CPU."""
    model: Any = loaded.model
    ids_1L = torch.tensor([[*prompt_ids, *token_ids[:-1]]], device=loaded.device)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    takes_fewer = "logits_to_keep" in inspect.signature(inner.forward).parameters
    arguments = {"logits_to_keep": len(token_ids)} if takes_fewer else {}
    with suitable_threads(loaded.model):
        logits_TV = model(input_ids=ids_1L, **arguments).logits[0, -len(token_ids) :]
        logp_TV: Tensor = logits_TV.float().log_softmax(dim=-1)
        return logp_TV.cpu()


def _largest(difference_T: Float[np.ndarray, " token"]) -> float:
    largest = float(np.abs(difference_T).max())
    return largest if np.isfinite(largest) else float("inf")
