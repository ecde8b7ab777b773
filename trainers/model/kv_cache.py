"""Keys and values of what has been read: buffers that are allocated once and filled in place."""

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
    """Room for ``capacity`` tokens from the start, of which those read so far are shown to attention.

    The library's own layer copies all keys and values for every token that it adds.
    """

    keys: States  # type: ignore[assignment]
    values: States  # type: ignore[assignment]
    is_sliding = False

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._length = 0

    def lazy_initialization(self, key_states: States, value_states: States) -> None:
        """Allocate the buffers in the shape and precision of what comes first."""
        self.keys, self.values = (_room(states, self._capacity) for states in (key_states, value_states))
        self.is_initialized = True

    def update(self, key_states: States, value_states: States, *args: Any, **kwargs: Any) -> tuple[States, States]:
        """Write tokens behind the last; everything read so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, self._length = self._length, self._length + key_states.shape[2]
        self.keys[:, :, first : self._length] = key_states
        self.values[:, :, first : self._length] = value_states
        return self.keys[:, :, : self._length], self.values[:, :, : self._length]

    def batch_select_indices(self, indices: Int[Tensor, " kept"]) -> None:
        """Keep these rows, in this order; a row that is named twice becomes two."""
        self.keys = self._select_rows(self.keys, indices)
        self.values = self._select_rows(self.values, indices)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys that ``query_length`` further tokens will see, and the place of the first."""
        return self._length + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens read so far."""
        return self._length

    def get_max_length(self) -> int:
        """Tokens there is room for."""
        return self._capacity

    def _select_rows(self, states: States, indices: Int[Tensor, " kept"]) -> States:
        read = states[:, :, : self._length].index_select(0, indices)
        room = _room(read, self._capacity)
        room[:, :, : self._length] = read
        return room


class FixedLayer(CacheLayerMixin):
    """The same memory and shapes at every token, as a recorded CUDA graph needs: attention sees all of the buffer.

    ``place_1`` is where the next token goes; a mask must hide what lies behind it.
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
        """Nothing to do: the buffers are given."""

    def update(self, key_states: States, value_states: States, *args: Any, **kwargs: Any) -> tuple[States, States]:
        """Write one token per row; the whole buffers."""
        self.keys.index_copy_(2, self._place_1, key_states)
        self.values.index_copy_(2, self._place_1, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """All keys there is room for."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        """Not known without asking the device; positions and mask are always given beside this cache."""
        return 0

    def get_max_length(self) -> int:
        """Tokens there is room for."""
        return int(self.keys.shape[2])


def new_cache(model: PreTrainedModel, capacity: int) -> Cache:
    """An empty cache for ``capacity`` tokens; the library's own where a layer is not plain attention to all tokens."""
    cache = DynamicCache(config=model.config)
    return Cache(layers=[GrowingLayer(capacity) for _ in cache.layers]) if is_plain(cache) else cache


def takes_fixed_cache(model: PreTrainedModel) -> bool:
    """Whether the model can be read through ``FixedLayer``: it attends to all tokens and branches on no number."""
    return bool(getattr(model, "_can_compile_fullgraph", False)) and is_plain(DynamicCache(config=model.config))


def _room(states: States, capacity: int) -> States:
    rows, heads, _, size = states.shape
    return states.new_empty(rows, heads, capacity, size)
