"""Keep one loaded model at a time. Imports torch and transformers with the first model."""

from __future__ import annotations

import gc
from functools import cached_property
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.types import Checkpoint

if TYPE_CHECKING:
    import torch

    from oversharp.diagnostics.models.load import Dtype, LoadedModel


class ModelHolder:
    """Load checkpoints for sampling and scoring, and keep the last one.

    ``device_name`` is as given by the user; None means a GPU if there is one. ``trust_remote_code`` and
    ``engine_share`` are as in ``load_model``.
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
        self._held: tuple[Checkpoint, LoadedModel] | None = None

    @cached_property
    def device(self) -> torch.device:
        """Device of the models. Raises ``ConfigError`` for a missing one."""
        from oversharp.diagnostics.models.devices import pick_device

        return pick_device(self.device_name)

    def load(self, checkpoint: Checkpoint) -> LoadedModel:
        """Return the model of ``checkpoint`` and release the previous one.

        Raises ``CheckpointError``.

        If the kept weights are the same up to an adapter, only the adapter is read.
        """
        from oversharp.diagnostics.models.load import load_model, load_on_held_weights

        if self._held is not None and self._held[0].weights_hash == checkpoint.weights_hash:
            return self._held[1]
        held, self._held = self._held, None
        loaded = None
        if held is not None and not self._trust_remote_code:
            loaded = load_on_held_weights(held[1], held[0], checkpoint)
        if loaded is None:
            del held
            self._empty_cache()
            loaded = load_model(
                checkpoint,
                device=self.device,
                dtype=self.dtype,
                trust_remote_code=self._trust_remote_code,
                engine_share=self._engine_share,
            )
        self._held = (checkpoint, loaded)
        return loaded

    def close(self) -> None:
        """Release the model and its GPU memory; the next ``load`` reads one again."""
        if self._held is None:
            return
        self._held = None
        self._empty_cache()

    def _empty_cache(self) -> None:
        if self.device.type == "cuda":
            import torch

            gc.collect()  # a distributed model has reference cycles
            torch.cuda.empty_cache()
