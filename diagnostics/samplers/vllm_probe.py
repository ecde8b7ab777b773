"""Verify with a few greedy tokens that the engine computes the same model as transformers.

A weight swap can fail silently. For example, the engine may keep an outdated packed copy of the head or a prefix cache
of the old weights, or a tensor may be missing in all files. So after every start and swap the engine generates a few
tokens, and transformers scores the same tokens.
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

from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.models.devices import in_float32, suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.memory import free_bytes
from oversharp.diagnostics.samplers.vllm_messages import DrawnRow

PROBE_TOKENS = 8
#: Number of prompts from the engine's first call that are used as probes. A long prompt is added to them.
PROBE_PROMPTS = 3
#: Length of the long probe prompt. A prefix cache stores whole blocks of at most 128 tokens, so it fills two blocks.
LONG_PROBE_TOKENS = 288
#: Largest accepted difference of a token's log-probability between vLLM and transformers, in nats. In float32, two
#: correct computations of a model differ only by rounding; the largest measured difference was 2e-5. Faults of a swap
#: change log-probabilities by 0.1 or more. Rounding steps of float16 and bfloat16 are 2^13 and 2^16 times as large, so
#: there the difference reveals only large faults. Outdated weights are then detected by an unchanged answer.
LOGP_TOLERANCE_NATS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
#: The tolerance is this multiple of the rounding error of transformers, but at least the value for the dtype.
NOISE_MULTIPLE, LEAST_TOLERANCE_NATS = 8, {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
#: Largest accepted difference of the entropy of a next-token distribution, in nats.
ENTROPY_TOLERANCE_NATS = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
#: Largest share of the free memory for the float32 copy of the weights that measures the rounding error.
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Largest differences between vLLM and transformers over all probed tokens, in nats.

    Attributes:
        logp: difference of log-probabilities, infinite if one of them is not finite.
        entropy: difference of entropies, None if the engine returned none.
        model_is_finite: whether the numbers of transformers are finite.
        noise: rounding error of transformers: the difference between its log-probabilities and those of the same
            weights in float32.
    """

    logp: float
    entropy: float | None
    model_is_finite: bool
    noise: float = 0.0


def tolerance_nats(result: ProbeResult, dtype: str) -> float:
    """Return the largest difference in log-probability that rounding can explain.

    >>> noisy = ProbeResult(logp=0.1, entropy=None, model_is_finite=True, noise=0.03)
    >>> tolerance_nats(noisy, "bfloat16"), tolerance_nats(noisy, "float32")
    (0.24, 0.001)
    """
    return min(max(LEAST_TOLERANCE_NATS[dtype], NOISE_MULTIPLE * result.noise), LOGP_TOLERANCE_NATS[dtype])


def probe_prompts(prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the shortest, the median and the longest prompt, without repeats.

    >>> probe_prompts([(1, 2, 3), (1,), (1, 2), (4,), (1, 2)])
    [(1,), (1, 2), (1, 2, 3)]
    """
    ordered = sorted(set(prompts), key=lambda ids: (len(ids), ids))
    picked = [ordered[0], ordered[len(ordered) // 2], ordered[-1]][:PROBE_PROMPTS]
    return list(dict.fromkeys(picked))


def long_prompt(prompt: tuple[int, ...], *, max_model_len: int) -> tuple[int, ...]:
    """Repeat ``prompt`` up to ``LONG_PROBE_TOKENS`` tokens.

    The result has at most ``max_model_len`` − 1 tokens.
    """
    length = min(LONG_PROBE_TOKENS, max_model_len - 1)
    return (prompt * (length // len(prompt) + 1))[:length]


def compare(loaded: LoadedModel, prompts: Sequence[tuple[int, ...]], rows: Sequence[DrawnRow]) -> ProbeResult:
    """Compare the engine's log-probabilities of ``rows`` with those of transformers.

    ``prompts`` are the prompts of the rows.
    """
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
    """Return the largest difference of log-probabilities from float32.

    It is infinite if memory is too small to compute it.
    """
    parameters = list(loaded.model.parameters())
    if all(parameter.dtype is torch.float32 for parameter in parameters):
        return 0.0
    if loaded.room is not None:
        return float("inf")
    more_bytes = sum((4 - parameter.element_size()) * parameter.numel() for parameter in parameters)
    on_gpu = loaded.device.type == "cuda"
    if more_bytes > _MEMORY_SHARE * (torch.cuda.mem_get_info(loaded.device)[0] if on_gpu else free_bytes()):
        return float("inf")
    differences = [0.0]
    with in_float32(loaded.model):
        for prompt_ids, row, own in zip(prompts, rows, own_T, strict=True):
            logp_TV = next_token_logp(loaded, prompt_ids, row.token_ids)
            differences.append(_largest(logp_TV.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0].numpy() - own))
    return max(differences)


@torch.inference_mode()
def next_token_logp(
    loaded: LoadedModel, prompt_ids: Sequence[int], token_ids: Sequence[int]
) -> Float[Tensor, "token vocabulary"]:
    """Return the log-probabilities of all tokens at each response position.

    They are in nats, as float32 on the CPU.
    """
    model: Any = loaded.model
    ids_1L = torch.tensor([[*prompt_ids, *token_ids[:-1]]], device=loaded.device)
    parameters = inspect.signature(innermost(model).forward).parameters
    arguments = {"logits_to_keep": len(token_ids)} if "logits_to_keep" in parameters else {}
    with suitable_threads(loaded.model):
        logits_TV = model(input_ids=ids_1L, **arguments).logits[0, -len(token_ids) :]
        logp_TV: Tensor = logits_TV.float().log_softmax(dim=-1)
        return logp_TV.cpu()


def _largest(difference_T: Float[np.ndarray, " token"]) -> float:
    largest = float(np.abs(difference_T).max())
    return largest if np.isfinite(largest) else float("inf")
