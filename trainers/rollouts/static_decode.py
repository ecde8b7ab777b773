"""Decoding in memory of fixed place and shape, so that a token can be replayed as one recorded CUDA graph.

A small model on a GPU spends most of a token on launching kernels one by one; a graph launches them together. On a CPU
the same code runs without graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import Cache

from oversharp.trainers.batch import positions
from oversharp.trainers.model.kv_cache import FixedLayer, GrowingLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Room in tokens is a multiple of this: longer prompts seldom need other buffers and graphs.
_CAPACITY_STEP = 64


class FixedReader:
    """Reads into buffers that stay where they are from one batch to the next, and with them the graphs.

    Weights may change in place between batches. Each row has a slot of its own: see ``Reader`` of ``decode``.
    """

    shares_prefixes = False

    def __init__(self, model: PreTrainedModel, *, graphs: bool) -> None:
        self._model = model
        self._graphs: dict[int, torch.cuda.CUDAGraph] | None = {} if graphs else None
        self._logits_of: dict[int, Float[Tensor, "slot vocabulary"]] = {}
        self._rows = self._capacity = 0

    def read(
        self,
        prompt_ids_PL: Int[Tensor, "prompt length"],
        prompt_mask_PL: Bool[Tensor, "prompt length"],
        *,
        rows: int,
        max_tokens: int,
    ) -> Float[Tensor, "prompt vocabulary"]:
        """See ``Reader.read``."""
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
        """See ``Reader.select``."""
        self._width = len(parent_S)
        kept = slice(0, self._width)
        for buffer in (buffer for pair in self._buffers for buffer in pair):
            buffer[kept, :, : self._length] = buffer[parent_S, :, : self._length]
        self._mask_SL[kept] = self._mask_SL[parent_S]
        self._position_S[kept] = self._position_S[parent_S]

    def step(self, token_S: Int[Tensor, " slot"]) -> Float[Tensor, "slot vocabulary"]:
        """See ``Reader.step``."""
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
        """Buffers for ``rows`` slots of ``capacity`` tokens; graphs of the old ones are void."""
        self._rows = rows
        self._capacity = -(-capacity // _CAPACITY_STEP) * _CAPACITY_STEP
        self._buffers = [
            tuple(
                states.new_zeros(rows, states.shape[1], self._capacity, states.shape[3])
                for states in (layer.keys, layer.values)
            )
            for layer in like
        ]
        some = self._buffers[0][0]
        self._mask_SL = some.new_zeros(rows, self._capacity)
        self._token_S = torch.zeros(rows, dtype=torch.long, device=some.device)
        self._position_S = torch.zeros_like(self._token_S)
        self._place_1 = torch.zeros(1, dtype=torch.long, device=some.device)
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
        # libraries set themselves up in the first pass, which must not be recorded; it writes what the next one writes
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self._forward(width)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._logits_of[width] = self._forward(width)
        return graph
