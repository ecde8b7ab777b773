"""Sample responses token by token from any causal language model of transformers.

The random numbers of a rollout are generated before decoding, one uniform number per row and token, so that a row does
not depend on the other rows of its batch. Rows with equal prefixes share one slot of the KV cache, so each prefix is
computed once. This saves much time: all rows of a prompt start in one slot, and a sharpened policy repeats responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from oversharp.trainers.batch import RolloutBatch, positions
from oversharp.trainers.model.kv_cache import FixedLayer, GrowingLayer, new_cache

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Unused slots are removed from the KV cache if at most this share of the slots is used. Copying the cache for fewer
#: unused slots costs more time than it saves.
COMPACT_BELOW = 0.9
#: Minimum logit relative to the largest logit. The probability of this logit is 0 in every precision.
_LEAST = -1e4
#: The capacity of the buffers, in tokens, is a multiple of this. So longer prompts rarely need new buffers and graphs.
_CAPACITY_STEP = 64


@dataclass(frozen=True, kw_only=True)
class TokenDistribution:
    """Distribution of the next token: softmax((f_θ − μ f_φ) / T), with the logits f_φ of the memory network.

    T = 0 is greedy decoding. μ = 0 is sampling without the memory network. Source: arXiv 2601.15609, section 3.2.
    """

    temperature: float
    mu: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TokenDraw:
    """One sampled token per row, with log-probabilities and entropies in nats.

    ``behaviour_logp_R`` is the log-probability under the sampling distribution. ``logp_R`` and ``entropy_R`` are those
    of the policy.
    """

    token_R: Int[Tensor, " row"]
    behaviour_logp_R: Float[Tensor, " row"]
    logp_R: Float[Tensor, " row"]
    entropy_R: Float[Tensor, " row"]


class Decoder(Protocol):
    """A network with a KV cache, which has one slot per prefix.

    ``shares_prefixes`` is whether rows with equal prefixes share a slot. Otherwise each row has a separate slot.
    """

    shares_prefixes: bool

    def prefill(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """Process the prompts and return the logits after them.

        The KV cache must fit ``rows`` slots and ``max_tokens`` further tokens.
        """

    def select(self, parent_S: Int[Tensor, " slot"]) -> None:
        """Keep these slots, in this order. A repeated index duplicates the slot."""

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """Append one token to every slot. Return the next logits, which are valid until the next step."""


class GrowingDecoder:
    """Decoder with a KV cache that grows by one token per step."""

    shares_prefixes = True

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def prefill(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """See ``Decoder.prefill``."""
        # without padding, the model's default mask and positions are correct and cost less
        self._padded = not bool(prompt_mask_PL.all())
        self._length = prompt_ids_PL.shape[1]
        self._cache = new_cache(self._model, self._length + max_tokens)
        self._mask_SL = torch.nn.functional.pad(prompt_mask_PL, (0, max_tokens), value=True)
        position_PL = positions(prompt_mask_PL)
        self._position_S1 = position_PL[:, -1:]
        return self._logits(prompt_ids_PL, position_PL)

    def select(self, parent_S: Int[Tensor, " slot"]) -> None:
        """See ``Decoder.select``."""
        self._cache.batch_select_indices(parent_S)
        if self._padded:
            self._mask_SL, self._position_S1 = self._mask_SL[parent_S], self._position_S1[parent_S]

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """See ``Decoder.step``."""
        self._length += 1
        self._position_S1 = self._position_S1 + 1
        return self._logits(token_S[:, None], self._position_S1)

    def _logits(
        self, ids_SN: Int[Tensor, "slot new"], position_SN: Int[Tensor, "slot new"]
    ) -> Float[Tensor, "slot vocabulary"]:
        output = self._model(
            input_ids=ids_SN,
            attention_mask=self._mask_SL[:, : self._length].long() if self._padded else None,
            position_ids=position_SN if self._padded else None,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()


class FixedDecoder:
    """Decoder with buffers of fixed address and shape, so that a step can be replayed as one CUDA graph.

    On a GPU, a small model spends most of its time on launching single kernels. A graph launches them together. Buffers
    and graphs are reused for the next batch. Weights may change in place between batches. On a CPU, the same code runs
    without graphs.
    """

    shares_prefixes = False

    def __init__(self, model: PreTrainedModel, *, graphs: bool) -> None:
        self._model = model
        self._graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if graphs else None
        self._logits_of: dict[int, Float[Tensor, "slot vocabulary"]] = {}
        self._rows = self._capacity = 0

    def prefill(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """See ``Decoder.prefill``."""
        n_prompts, length = prompt_ids_PL.shape
        n_layers = self._model.config.get_text_config().num_hidden_layers
        layers = [GrowingLayer(length) for _ in range(n_layers)]
        output = self._model(
            input_ids=prompt_ids_PL,
            attention_mask=prompt_mask_PL.long(),
            position_ids=positions(prompt_mask_PL),
            past_key_values=Cache(layers=[*layers]),
            use_cache=True,
            logits_to_keep=1,
        )
        if rows > self._rows or length + max_tokens > self._capacity:
            self._allocate(layers, max(rows, self._rows), length + max_tokens)
        for (keys, values), layer in zip(self._buffers, layers, strict=True):
            keys[:n_prompts, :, :length] = layer.keys
            values[:n_prompts, :, :length] = layer.values
        self._mask_SL.fill_(torch.finfo(self._mask_SL.dtype).min)
        self._mask_SL[:n_prompts, :length].masked_fill_(prompt_mask_PL, 0.0)
        self._position_S[:n_prompts] = positions(prompt_mask_PL)[:, -1]
        self._place_1.fill_(length)
        self._length, self._width = length, n_prompts
        return output.logits[:, -1].float()

    def select(self, parent_S: Int[Tensor, " slot"]) -> None:
        """See ``Decoder.select``."""
        self._width = len(parent_S)
        kept = slice(0, self._width)
        for buffer in (buffer for pair in self._buffers for buffer in pair):
            buffer[kept, :, : self._length] = buffer[parent_S, :, : self._length]
        self._mask_SL[kept] = self._mask_SL[parent_S]
        self._position_S[kept] = self._position_S[parent_S]

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """See ``Decoder.step``."""
        self._token_S[: self._width] = token_S
        self._position_S += 1
        self._mask_SL[:, self._length] = 0.0
        self._place_1.fill_(self._length)
        self._length += 1
        if self._graphs is None:
            return self._forward(self._width)
        if self._width not in self._graphs:
            self._graphs[self._width] = self._record(self._width)
        self._graphs[self._width].replay()
        return self._logits_of[self._width]

    def _allocate(self, like: Sequence[GrowingLayer], rows: int, capacity: int) -> None:
        """Allocate buffers for ``rows`` slots of ``capacity`` tokens, and discard the graphs of previous buffers."""
        self._rows = rows
        self._capacity = -(-capacity // _CAPACITY_STEP) * _CAPACITY_STEP
        self._buffers = [
            tuple(
                states.new_zeros(rows, states.shape[1], self._capacity, states.shape[3])
                for states in (layer.keys, layer.values)
            )
            for layer in like
        ]
        keys = self._buffers[0][0]
        self._mask_SL = keys.new_zeros(rows, self._capacity)
        self._token_S = torch.zeros(rows, dtype=torch.long, device=keys.device)
        self._position_S = torch.zeros_like(self._token_S)
        self._place_1 = torch.zeros(1, dtype=torch.long, device=keys.device)
        self._logits_of = {}
        if self._graphs is not None:
            self._graphs = {}

    def _forward(self, width: int) -> Float[Tensor, "slot vocabulary"]:
        layers = [FixedLayer(keys[:width], values[:width], self._place_1) for keys, values in self._buffers]
        output = self._model(
            input_ids=self._token_S[:width, None],
            attention_mask=self._mask_SL[:width, None, None],
            position_ids=self._position_S[:width, None],
            past_key_values=Cache(layers=[*layers]),
            use_cache=True,
        )
        return output.logits[:, -1].float()

    def _record(self, width: int) -> torch.cuda.CUDAGraph:
        # do not record the first pass, in which libraries initialize; the next pass repeats its writes
        warm_up = torch.cuda.Stream()
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            self._forward(width)
        torch.cuda.current_stream().wait_stream(warm_up)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._logits_of[width] = self._forward(width)
        return graph


def uniform_noise(seed: int, *, rows: int, max_tokens: int) -> Float[Tensor, "row token"]:
    """Return uniform random numbers in [0, 1). They are generated on the CPU, so they do not depend on the device."""
    return torch.rand(rows, max_tokens, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def generate(
    decoders: Sequence[Decoder],
    prompt_ids_PL: Int[Tensor, "prompt length"],
    prompt_mask_PL: Bool[Tensor, "prompt length"],
    uniform_BT: Float[Tensor, "row token"],
    *,
    distribution: TokenDistribution,
    end_ids: Sequence[int],
    pad_id: int,
) -> RolloutBatch:
    """Sample ``rows / prompts`` responses per prompt. A response has at most ``uniform_BT.shape[1]`` tokens.

    ``decoders`` are the decoder of the policy and, if μ is not 0, that of the memory network. They must be on the
    device of the prompts.
    """
    device = prompt_ids_PL.device
    uniform_BT = uniform_BT.to(device)
    n_rows, max_tokens = uniform_BT.shape
    n_prompts = len(prompt_ids_PL)
    response_ids_BT = torch.full((n_rows, max_tokens), pad_id, device=device)
    behaviour_logp_BT, logp_BT, entropy_BT = torch.zeros((3, n_rows, max_tokens), device=device).unbind()
    length_B = torch.full((n_rows,), max_tokens, device=device)
    truncated_B = torch.ones(n_rows, dtype=torch.bool, device=device)

    logits = [
        decoder.prefill(prompt_ids_PL, prompt_mask_PL, rows=n_rows, max_tokens=max_tokens) for decoder in decoders
    ]
    ends_V = torch.zeros(logits[0].shape[1], dtype=torch.bool, device=device)
    ends_V[list(end_ids)] = True
    slots = Slots(n_rows=n_rows, n_vocabulary=logits[0].shape[1], shared=decoders[0].shares_prefixes)
    row_R = torch.arange(n_rows, device=device)  # row_R: unfinished rows; slot_R: slot of each of these
    slot_R = torch.arange(n_prompts, device=device).repeat_interleave(n_rows // n_prompts)
    for t in range(max_tokens):
        draw = draw_tokens(logits, distribution, uniform_BT[row_R, t], slot_R)
        response_ids_BT[row_R, t] = draw.token_R
        behaviour_logp_BT[row_R, t] = draw.behaviour_logp_R
        logp_BT[row_R, t] = draw.logp_R
        entropy_BT[row_R, t] = draw.entropy_R

        ended_R = ends_V[draw.token_R]
        length_B[row_R[ended_R]] = t + 1
        truncated_B[row_R[ended_R]] = False
        row_R, slot_R, token_R = row_R[~ended_R], slot_R[~ended_R], draw.token_R[~ended_R]
        if len(row_R) == 0 or t + 1 == max_tokens:
            break
        parent_S, slot_R, token_S = slots.arrange(slot_R, token_R)
        if parent_S is not None:
            for decoder in decoders:
                decoder.select(parent_S)
        logits = [decoder.step(token_S) for decoder in decoders]

    return RolloutBatch(
        group_size=n_rows // n_prompts,
        prompt_ids_PL=prompt_ids_PL,
        prompt_mask_PL=prompt_mask_PL,
        response_ids_BT=response_ids_BT,
        response_mask_BT=torch.arange(max_tokens, device=device) < length_B[:, None],
        behaviour_logp_BT=behaviour_logp_BT,
        logp_sum_B=logp_BT.sum(dim=1),
        entropy_sum_B=entropy_BT.sum(dim=1),
        truncated_B=truncated_B,
    )


def draw_tokens(
    logits: Sequence[Float[Tensor, "slot vocabulary"]],
    distribution: TokenDistribution,
    uniform_R: Float[Tensor, " row"],
    slot_R: Int[Tensor, " row"],
) -> TokenDraw:
    """Sample one token per row from the logits of its slot, by inverting the cumulative distribution.

    ``logits`` are those of the policy and, if μ is not 0, those of the memory network.

    >>> logits, uniform_R = torch.tensor([[0.25, 0.75]]).log(), torch.tensor([0.2, 0.3])
    >>> draw_tokens([logits], TokenDistribution(temperature=1.0), uniform_R, torch.tensor([0, 0])).token_R.tolist()
    [0, 1]
    """
    own_SV = _shift_logits(logits[0])
    own_odds_SV = own_SV.exp()
    own_total_S = own_odds_SV.sum(dim=1)
    # entropy = log Z − E[logit], without the log-probabilities of all tokens
    entropy_S = own_total_S.log() - (own_odds_SV * own_SV).sum(dim=1) / own_total_S
    if distribution.temperature == 0:
        scores_SV = logits[0] if distribution.mu == 0 else logits[0] - distribution.mu * logits[1]
        token_R = scores_SV.argmax(dim=1)[slot_R]
        behaviour_logp_R = torch.zeros_like(uniform_R)  # greedy decoding is deterministic: probability 1
    elif distribution.temperature == 1 and distribution.mu == 0:
        token_R = _sample_tokens(own_odds_SV, uniform_R, slot_R)
        behaviour_logp_R = own_SV[slot_R, token_R] - own_total_S.log()[slot_R]
    else:
        scores_SV = logits[0] if distribution.mu == 0 else logits[0] - distribution.mu * logits[1]
        scores_SV = _shift_logits(scores_SV / distribution.temperature)
        odds_SV = scores_SV.exp()
        token_R = _sample_tokens(odds_SV, uniform_R, slot_R)
        behaviour_logp_R = scores_SV[slot_R, token_R] - odds_SV.sum(dim=1).log()[slot_R]
    return TokenDraw(
        token_R=token_R,
        behaviour_logp_R=behaviour_logp_R,
        logp_R=own_SV[slot_R, token_R] - own_total_S.log()[slot_R],
        entropy_R=entropy_S[slot_R],
    )


class Slots:
    """Assigns prefixes to slots of the KV cache, so that equal prefixes are computed once and few slots are unused."""

    def __init__(self, *, n_rows: int, n_vocabulary: int, shared: bool) -> None:
        self._n_rows = n_rows
        self._n_vocabulary = n_vocabulary
        self._shared = shared
        self._width = 0

    def arrange(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        """Assign slots to rows that append the tokens ``token_R`` to the prefixes in the slots ``slot_R``.

        Returns the slots to select (None if they do not change), the new slot of each row, and the next token of each
        slot. The token of an unused slot is 0.
        """
        return self._arrange_shared(slot_R, token_R) if self._shared else self._arrange_own(slot_R, token_R)

    def _arrange_shared(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        distinct_S, place_R = (slot_R * self._n_vocabulary + token_R).unique(return_inverse=True)
        parent_S, token_S = distinct_S // self._n_vocabulary, distinct_S % self._n_vocabulary
        branched = bool((parent_S.diff() == 0).any())
        if not branched and len(parent_S) > COMPACT_BELOW * self._width and self._width:
            return None, slot_R, self._scatter(parent_S, token_S)
        self._width = len(parent_S)
        return parent_S, place_R, token_S

    def _arrange_own(
        self, slot_R: Int[Tensor, " row"], token_R: Int[Tensor, " row"]
    ) -> tuple[Int[Tensor, " slot"] | None, Int[Tensor, " row"], Int[Tensor, " slot"]]:
        # halve the number of slots instead of reducing it by one, so that few different shapes occur
        width = self._n_rows
        while width // 2 >= len(slot_R):
            width //= 2
        if width == self._width:
            return None, slot_R, self._scatter(slot_R, token_R)
        self._width = width
        fill = torch.zeros(width - len(slot_R), dtype=slot_R.dtype, device=slot_R.device)
        row_R = torch.arange(len(slot_R), device=slot_R.device)
        return torch.cat([slot_R, fill]), row_R, torch.cat([token_R, fill])

    def _scatter(self, slot_R: Int[Tensor, " used"], token_R: Int[Tensor, " used"]) -> Int[Tensor, " slot"]:
        token_S = torch.zeros(self._width, dtype=token_R.dtype, device=token_R.device)
        token_S[slot_R] = token_R
        return token_S


def _shift_logits(logits_SV: Float[Tensor, "slot vocabulary"]) -> Float[Tensor, "slot vocabulary"]:
    return (logits_SV - logits_SV.amax(dim=1, keepdim=True)).clamp_(min=_LEAST)


def _sample_tokens(
    odds_SV: Float[Tensor, "slot vocabulary"], uniform_R: Float[Tensor, " row"], slot_R: Int[Tensor, " row"]
) -> Int[Tensor, " row"]:
    cumulative_RV = odds_SV.cumsum(dim=1)[slot_R]
    threshold_R1 = uniform_R[:, None] * cumulative_RV[:, -1:]
    token_R = torch.searchsorted(cumulative_RV, threshold_R1, right=True)[:, 0]
    return token_R.clamp(max=odds_SV.shape[1] - 1)
