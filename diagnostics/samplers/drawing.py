"""Sample tokens so that a sample depends only on its identity, not on the rest of the batch.

Random numbers come from a function, not a stream: token ``t`` of a row uses number ``t`` of the row's key
(``contract.row_key``), so neither the size of the batch nor its order matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from oversharp.diagnostics.records.types import SamplingSettings

#: Rows per chunk of the float64 work are chosen to keep a tensor at 128 MiB.
_ELEMENTS_PER_CHUNK = 1 << 24

# Constants of splitmix64 (Steele, Lea, Flood 2014: Fast splittable pseudorandom number generators, fig. 15–17),
# written as signed numbers: torch has no unsigned 64-bit arithmetic, and two's complement wraps alike.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def uniform(key_B: Int[Tensor, " row"], position: int) -> Float[Tensor, " row"]:
    """Return number ``position`` of each key, uniform on [0, 1) with 52 bits.

    Splitmix64 of its counter.

    >>> uniform(torch.tensor([0]), 0)  # splitmix64 seeded with 0 gives 0xE220A8397B1DCDAF first
    tensor([0.8833], dtype=torch.float64)
    """
    step = (_STEP * (position + 1) + (1 << 63)) % (1 << 64) - (1 << 63)
    bits_B = key_B + step
    bits_B = (bits_B ^ _shift_right(bits_B, 30)) * _MIX_1
    bits_B = (bits_B ^ _shift_right(bits_B, 27)) * _MIX_2
    bits_B = bits_B ^ _shift_right(bits_B, 31)
    # 52 bits: with 53 the product of u and a total just below 1 can round up to the total itself
    return _shift_right(bits_B, 12).double() * 2.0**-52


def _shift_right(bits_B: Int[Tensor, " row"], n: int) -> Int[Tensor, " row"]:
    return (bits_B >> n) & ((1 << (64 - n)) - 1)


def draw_tokens(logits_BV: Float[Tensor, "row vocabulary"], uniform_B: Float[Tensor, " row"]) -> Int[Tensor, " row"]:
    """Return one token per row from softmax(logits), by inverting the cumulative distribution in float64.

    In float32 the rounding error of the sum over a large vocabulary exceeds the probability of rare tokens. A token of
    probability 0 is never drawn.

    >>> logits = torch.tensor([[0.0, -torch.inf, 0.0], [0.0, -torch.inf, 0.0]])
    >>> draw_tokens(logits, torch.tensor([0.2, 0.5], dtype=torch.float64)).tolist()
    [0, 2]
    """
    cumulative_BV = logits_BV.double().softmax(dim=-1).cumsum(dim=-1)
    threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0]
    return token_B.clamp(max=logits_BV.shape[1] - 1)  # NaN logits sort anywhere; the caller detects them by their logp


class SeededDraw(LogitsProcessor):
    """Choose the next token and mask all others, so that greedy ``generate`` takes it.

    ``logp_steps`` collects, per step, the log-probability in nats of the chosen token at temperature 1 over the whole
    vocabulary, in float32.
    """

    def __init__(
        self,
        *,
        keys: Sequence[int],
        greedy: Sequence[bool],
        prompt_width: int,
        settings: SamplingSettings,
        device: torch.device,
    ) -> None:
        self.logp_steps: list[Float[Tensor, " row"]] = []
        self._key_B = torch.tensor(keys, dtype=torch.int64, device=device)
        self._greedy_B: Bool[Tensor, " row"] = torch.tensor(greedy, device=device)
        self._prompt_width = prompt_width
        self._warpers = _warpers(settings)

    def __call__(self, input_ids: Int[Tensor, "row token"], scores: Float[Tensor, "row vocabulary"]) -> Tensor:
        logits_BV = scores  # transformers passes it by keyword
        uniform_B = uniform(self._key_B, input_ids.shape[1] - self._prompt_width)
        rows_per_chunk = max(1, _ELEMENTS_PER_CHUNK // logits_BV.shape[1])
        token_B = torch.cat(
            [
                torch.where(greedy, logits.argmax(dim=-1), draw_tokens(self._warpers(ids, logits), u))
                for ids, logits, u, greedy in zip(
                    input_ids.split(rows_per_chunk),
                    logits_BV.split(rows_per_chunk),
                    uniform_B.split(rows_per_chunk),
                    self._greedy_B.split(rows_per_chunk),
                    strict=True,
                )
            ]
        )
        token_B1 = token_B[:, None]
        self.logp_steps.append(logits_BV.gather(1, token_B1)[:, 0] - logits_BV.logsumexp(dim=-1))
        return torch.full_like(logits_BV, -torch.inf).scatter_(1, token_B1, 0.0)


def _warpers(settings: SamplingSettings) -> LogitsProcessorList:
    """Return temperature, then top-k, then top-p: the order of transformers and vLLM."""
    warpers = LogitsProcessorList()
    if settings.temperature != 1.0:
        warpers.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k > 0:
        warpers.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1.0:
        warpers.append(TopPLogitsWarper(settings.top_p))
    return warpers
