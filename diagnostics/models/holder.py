"""Keep one loaded model in memory.

Imports torch and transformers when the first model is loaded.
"""

from __future__ import annotations

import gc
from functools import cached_property
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.types import Checkpoint

if TYPE_CHECKING:
    import torch

    from oversharp.diagnostics.models.load import Dtype, LoadedModel


class ModelHolder:
    """Load checkpoints for sampling and scoring, and keep the last loaded model.

    ``device`` is the user's setting; None means a GPU if there is one, else the CPU. ``trust_remote_code`` and
    ``engine_share`` are passed to ``load_model``.
    """

    def __init__(
        self,
        *,
        device: str | None = None,
        dtype: Dtype = "float32",
        trust_remote_code: bool = False,
        engine_share: float = 0.0,
    ) -> None:
        self.device_name = device
        self.dtype: Dtype = dtype
        self._engine_share = engine_share
        self._trust_remote_code = trust_remote_code
        self._current: tuple[Checkpoint, LoadedModel] | None = None

    @cached_property
    def device(self) -> torch.device:
        """Device of the models. Raises ``ConfigError`` if it does not exist."""
        from oversharp.diagnostics.models.devices import pick_device

        return pick_device(self.device_name)

    def load(self, checkpoint: Checkpoint) -> LoadedModel:
        """Return the model of ``checkpoint``, and release the previous model.

        Raises ``CheckpointError``. If both checkpoints have the same base weights, only the adapter is loaded.
        """
        from oversharp.diagnostics.models.load import load_model, reload_adapter

        if self._current is not None and self._current[0].weights_hash == checkpoint.weights_hash:
            return self._current[1]
        previous, self._current = self._current, None
        loaded = None
        if previous is not None and not self._trust_remote_code:
            loaded = reload_adapter(previous[1], previous[0], checkpoint)
        if loaded is None:
            del previous
            self._empty_cache()
            loaded = load_model(
                checkpoint,
                device=self.device,
                dtype=self.dtype,
                trust_remote_code=self._trust_remote_code,
                engine_share=self._engine_share,
            )
        self._current = (checkpoint, loaded)
        return loaded

    def close(self) -> None:
        """Release the model and its GPU memory. The next ``load`` reads the weights again."""
        if self._current is None:
            return
        self._current = None
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self.device.type == "cuda":
            import torch

            gc.collect()  # a distributed model has reference cycles, which keep its memory allocated
            torch.cuda.empty_cache()
