"""Policy and memory network as one model of vLLM, so that DLC draws at the speed of an engine made for drawing.

Both read the same tokens in the same step and share block tables and scheduler; each keeps keys and values of its own.
vLLM is imported inside the methods: this module may be read where it is absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

ARCHITECTURE = "OversharpPairForCausalLM"


def register_pair() -> None:
    """Make the pair known to vLLM in this process. Registering twice is allowed."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, PairForCausalLM)


def pair_overrides(*, policy_architecture: str, memory_path: str) -> dict[str, Any]:
    """Additions to the policy's configuration, so that vLLM builds the pair where it would build the policy."""
    return {
        "architectures": [ARCHITECTURE],
        "oversharp_policy_architecture": policy_architecture,
        "oversharp_memory_path": memory_path,
    }


class PairForCausalLM(nn.Module):
    """Logits f_θ − μ f_φ. ``mu`` may be set at any time; it changes neither keys nor values.

    ``policy_logits_RV`` are f_θ of the last rows that logits were asked for, before anybody changes them.
    """

    policy: Any
    memory: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        from transformers import AutoConfig
        from vllm.compilation.backends import set_model_tag
        from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
        from vllm.model_executor.models.utils import init_vllm_registered_model, maybe_prefix

        policy_config = vllm_config.model_config.hf_config
        memory_path = policy_config.oversharp_memory_path
        memory_config = AutoConfig.from_pretrained(memory_path)
        self.mu = 0.0
        self.policy_logits_RV: Float[Tensor, "row vocabulary"] | None = None
        # vLLM keeps compiled code by tag: under one tag the second network would run the code of the first
        with set_model_tag("policy"):
            self.policy = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=policy_config,
                architectures=[policy_config.oversharp_policy_architecture],
                prefix=maybe_prefix(prefix, "policy"),
            )
        with set_model_tag("memory"):
            self.memory = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=memory_config,
                architectures=memory_config.architectures,
                prefix=maybe_prefix(prefix, "memory"),
            )
        self._policy_width = policy_config.get_text_config().hidden_size
        # vLLM's loader reads these files behind the policy's
        self.secondary_weights = [DefaultModelLoader.Source(model_or_path=memory_path, revision=None, prefix="memory.")]

    def embed_input_ids(self, input_ids: Int[Tensor, " token"]) -> Float[Tensor, "token hidden"]:
        """The policy's embedding, for whoever asks the model for one."""
        return self.policy.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: Int[Tensor, " token"],
        positions: Int[Tensor, " token"],
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
    ) -> Float[Tensor, "token hidden"]:
        """The hidden states of both, side by side."""
        return torch.cat((self.policy(input_ids, positions), self.memory(input_ids, positions)), dim=-1)

    def compute_logits(self, hidden_states: Float[Tensor, "row hidden"]) -> Float[Tensor, "row vocabulary"]:
        """f_θ − μ f_φ in float32."""
        width = self._policy_width
        policy_RV = self.policy.compute_logits(hidden_states[..., :width].contiguous()).float()
        self.policy_logits_RV = policy_RV
        if self.mu == 0:
            return policy_RV.clone()  # the sampler divides in place
        memory_RV = self.memory.compute_logits(hidden_states[..., width:].contiguous()).float()
        return torch.sub(policy_RV, memory_RV, alpha=self.mu)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Names that begin with neither ``policy.`` nor ``memory.`` are those of the policy's own files."""
        from vllm.model_executor.models.utils import AutoWeightsLoader

        loaded: set[str] = AutoWeightsLoader(self).load_weights(_of_either(weights))
        return loaded


def _of_either(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in weights:
        yield (name if name.startswith(("policy.", "memory.")) else f"policy.{name}"), tensor
