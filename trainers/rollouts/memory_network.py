"""Memory network of the DLC calibration.

It is trained on the policy's samples. Its logits are subtracted from the policy's during sampling.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oversharp.diagnostics.models.load import load_path, model_folder
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.batch import RolloutBatch, distinct_rollouts
from oversharp.trainers.model.forward import ForwardSettings, split_passes, token_logps
from oversharp.trainers.model.network import find_network
from oversharp.trainers.objectives.contract import Decoding

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import LoadedModel

BETAS = (0.9, 0.999)


class MemoryNetwork:
    """Causal language model m_φ with the policy's tokenizer, trained by cross-entropy on the samples of each step.

    ``start`` is the checkpoint to copy for ``memory=copy``. ``learning_rate`` is the policy's, which is used unless
    ``decoding`` has one. For ``recompute`` see ``find_network``. Raises ``TrainingError`` if the model's tokens differ
    from the policy's.

    Source: *When Sharpening Becomes Collapse* (arXiv 2601.15609), section 3.2.
    """

    def __init__(
        self, decoding: Decoding, policy: LoadedModel, *, start: Path, learning_rate: float, recompute: bool = False
    ) -> None:
        source = start if decoding.memory == "copy" else decoding.memory
        self.mu = decoding.mu
        self.warm_start_steps = decoding.warm_start_steps
        self.loaded = load_path(source, device=policy.device, dtype="float32")
        self.path = model_folder(source)
        self.model = self.loaded.model
        self.network = find_network(self.model, recompute=recompute)
        require_same_tokens(policy, self.loaded, source)
        rate = learning_rate if decoding.learning_rate is None else decoding.learning_rate
        parameters = self.model.parameters()
        self._optimizer: torch.optim.Optimizer
        if decoding.optimizer == "sgd":
            self._optimizer = torch.optim.SGD(parameters, lr=rate)
        else:
            self._optimizer = torch.optim.AdamW(parameters, lr=rate, betas=BETAS, weight_decay=0.0, fused=True)

    def learn(self, rollouts: RolloutBatch, settings: ForwardSettings) -> float:
        """Make one optimizer step of cross-entropy on all samples. Return the loss before the step.

        The loss is the mean over the tokens of all samples, in nats, at temperature 1 regardless of ``settings``.
        Copies of a response are computed once. Forward passes are as large as the policy's, to limit memory. If the
        loss is not finite, raises ``TrainingError`` and makes no step.
        """
        every_B = torch.ones_like(rollouts.truncated_B)
        distinct_U, copy_of_B = distinct_rollouts(rollouts, every_B)
        copies_U = torch.bincount(copy_of_B, minlength=len(distinct_U)).float()
        n_tokens = int(rollouts.response_mask_BT.sum())
        settings = replace(settings, temperature=1.0)
        self._optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for position_N, layout in split_passes(self.network, rollouts, distinct_U, settings):
            logp_NT, _ = token_logps(
                self.network, rollouts, distinct_U[position_N], settings, layout=layout, entropies=False
            )
            part = -(logp_NT.sum(dim=1) * copies_U[position_N]).sum() / n_tokens
            part.backward()
            loss += float(part.detach())
        if not torch.isfinite(torch.tensor(loss)):
            raise TrainingError(f"the memory network's loss is {loss}; pass dlc a lower learning_rate")
        self._optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the state of weights and optimizer."""
        return {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state_dict: Any, /) -> None:
        """Restore a state that ``state_dict`` returned."""
        self.model.load_state_dict(state_dict["model"])
        self._optimizer.load_state_dict(state_dict["optimizer"])


def require_same_tokens(policy: LoadedModel, memory_network: LoadedModel, path: str | Path) -> None:
    """Raise ``TrainingError`` unless both models have the same tokens. ``path`` is that of the memory network."""
    if memory_network.tokenizer.get_vocab() != policy.tokenizer.get_vocab():
        raise TrainingError(
            f"{path}: the memory network's tokenizer differs from the policy's; choose a model of the same family"
        )
    if memory_network.vocabulary_size != policy.vocabulary_size:
        raise TrainingError(
            f"{path}: the memory network has logits for {memory_network.vocabulary_size:,} tokens, the policy for "
            f"{policy.vocabulary_size:,}; choose a model with the same number"
        )
