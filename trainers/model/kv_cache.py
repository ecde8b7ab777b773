"""KV caches whose buffers are allocated once and filled in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache

from oversharp.diagnostics.models.cached_passes import is_plain

if TYPE_CHECKING:
    from transformers import PreTrainedModel

States = Float[Tensor, "row head token size"]


class GrowingLayer(CacheLayerMixin):
    """Cache layer with buffers for ``capacity`` tokens. Attention uses only the filled part.

    The cache layer of transformers, in contrast, copies all keys and values for every added token.
    """

    keys: States  # type: ignore[assignment]
    values: States  # type: ignore[assignment]
    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._length = 0

    def lazy_initialization(self, key_states: States, value_states: States) -> None:
        """Allocate the buffers, with the shape and precision of the first keys and values."""
        self.keys, self.values = (_allocate(states, self._capacity) for states in (key_states, value_states))
        self.is_initialized = True

    def update(self, key_states: States, value_states: States, *args: Any, **kwargs: Any) -> tuple[States, States]:
        """Append tokens and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, self._length = self._length, self._length + key_states.shape[2]
        self.keys[:, :, first : self._length] = key_states
        self.values[:, :, first : self._length] = value_states
        return self.keys[:, :, : self._length], self.values[:, :, : self._length]

    def batch_select_indices(self, indices: Int[Tensor, " kept"]) -> None:
        """Keep these rows, in this order. A repeated index duplicates the row."""
        self.keys = self._select_rows(self.keys, indices)
        self.values = self._select_rows(self.values, indices)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys that the next ``query_length`` tokens attend to, and the first key's offset."""
        return self._length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the number of cached tokens."""
        return self._length

    def get_max_length(self) -> int:
        """Return the capacity in tokens."""
        return self._capacity

    def _select_rows(self, states: States, indices: Int[Tensor, " kept"]) -> States:
        cached = states[:, :, : self._length].index_select(0, indices)
        buffer = _allocate(cached, self._capacity)
        buffer[:, :, : self._length] = cached
        return buffer


class FixedLayer(CacheLayerMixin):
    """Cache layer with the same buffers and shapes at every token, as CUDA graphs need. Attention uses all positions.

    ``place_1`` is the position of the next token. A mask must hide the positions after it.
    """

    keys: States  # type: ignore[assignment]
    values: States  # type: ignore[assignment]
    is_sliding = False
    is_compileable = True

    def __init__(self, keys: States, values: States, place_1: Int[Tensor, " one"]) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self._place_1 = place_1
        self.is_initialized = True

    def lazy_initialization(self, key_states: States, value_states: States) -> None:
        """Do nothing, because the buffers exist already."""

    def update(self, key_states: States, value_states: States, *args: Any, **kwargs: Any) -> tuple[States, States]:
        """Write the keys and values of one token per row, and return the whole buffers."""
        self.keys.index_copy_(2, self._place_1, key_states)
        self.values.index_copy_(2, self._place_1, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the capacity in tokens, and offset 0."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        """Return 0. The length is only known on the device, so callers must pass positions and mask."""
        return 0

    def get_max_length(self) -> int:
        """Return the capacity in tokens."""
        return int(self.keys.shape[2])


def new_cache(model: PreTrainedModel, capacity: int) -> Cache:
    """Return an empty KV cache for ``capacity`` tokens.

    It is the cache of transformers if a layer does not have plain full attention.
    """
    cache = DynamicCache(config=model.config)
    return Cache(layers=[GrowingLayer(capacity) for _ in cache.layers]) if is_plain(cache) else cache


def supports_fixed_cache(model: PreTrainedModel) -> bool:
    """Return whether the model works with ``FixedLayer``.

    It must have full attention in every layer, and no control flow that depends on values of tensors.
    """
    return bool(getattr(model, "_can_compile_fullgraph", False)) and is_plain(DynamicCache(config=model.config))


def _allocate(states: States, capacity: int) -> States:
    rows, heads, _, size = states.shape
    return states.new_empty(rows, heads, capacity, size)
