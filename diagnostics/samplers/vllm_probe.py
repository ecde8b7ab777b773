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

from oversharp.diagnostics.models.devices import in_float32, suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.memory import free_bytes
from oversharp.diagnostics.samplers.vllm_messages import DrawnRow

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
#: Allowed is this many times what rounding moves transformers, but no less than the second and no more than above.
NOISE_MULTIPLE, LEAST_TOLERANCE_NATS = 8, {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
#: Of the free memory, so much is taken to see how far rounding moves a model.
_SPARE_SHARE = 0.5
#: The same for the entropy of one next-token distribution.
ENTROPY_TOLERANCE_NATS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Largest differences in nats over all probed tokens; infinite where one side is not a finite number.

    ``entropy`` is None if the engine shipped none. ``noise`` is how far transformers' log-probabilities lie from
    those of the same weights in float32.
    """

    logp: float
    entropy: float | None
    model_is_finite: bool
    noise: float = 0.0


def tolerance_nats(result: ProbeResult, dtype: str) -> float:
    """The largest difference in log-probability that rounding explains.

    >>> noisy = ProbeResult(logp=0.1, entropy=None, model_is_finite=True, noise=0.03)
    >>> tolerance_nats(noisy, "bfloat16"), tolerance_nats(noisy, "float32")
    (0.24, 0.001)
    """
    return min(max(LEAST_TOLERANCE_NATS[dtype], NOISE_MULTIPLE * result.noise), LOGP_TOLERANCE_NATS[dtype])


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
    own_T: list[Float[np.ndarray, " token"]] = []
    with_entropy = all(row.entropy_T is not None for row in rows)
    for prompt_ids, row in zip(prompts, rows, strict=True):
        logp_TV = next_token_logp(loaded, prompt_ids, row.token_ids)
        own_logp_T = logp_TV.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0].numpy()
        own_entropy_T = torch.special.entr(logp_TV.exp()).sum(dim=-1).numpy()
        finite = finite and bool(np.isfinite(own_logp_T).all() and np.isfinite(own_entropy_T).all())
        logp.append(_largest(row.logp_T - own_logp_T))
        own_T.append(own_logp_T)
        if row.entropy_T is not None:
            entropy.append(_largest(row.entropy_T - own_entropy_T))
    return ProbeResult(
        logp=max(logp),
        entropy=max(entropy) if with_entropy else None,
        model_is_finite=finite,
        noise=_rounding(loaded, prompts, rows, own_T) if finite else 0.0,
    )


def _rounding(
    loaded: LoadedModel,
    prompts: Sequence[tuple[int, ...]],
    rows: Sequence[DrawnRow],
    own_T: Sequence[Float[np.ndarray, " token"]],
) -> float:
    """How far the model's log-probabilities lie from its own in float32; infinite where memory is too short to see."""
    parameters = list(loaded.model.parameters())
    if all(one.dtype is torch.float32 for one in parameters):
        return 0.0
    if loaded.room is not None:
        return float("inf")
    more_bytes = sum((4 - one.element_size()) * one.numel() for one in parameters)
    on_gpu = loaded.device.type == "cuda"
    if more_bytes > _SPARE_SHARE * (torch.cuda.mem_get_info(loaded.device)[0] if on_gpu else free_bytes()):
        return float("inf")
    off = [0.0]
    with in_float32(loaded.model):
        for prompt_ids, row, own in zip(prompts, rows, own_T, strict=True):
            logp_TV = next_token_logp(loaded, prompt_ids, row.token_ids)
            off.append(_largest(logp_TV.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0].numpy() - own))
    return max(off)


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
