"""Extensions of vLLM: one model with policy and memory network for DLC, and log-probabilities of sampled tokens.

vLLM is imported inside functions, so that this module can be imported without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from oversharp.diagnostics.samplers.vllm_worker import entropy_nats

ARCHITECTURE = "OversharpPairForCausalLM"
#: Value of vLLM's setting ``logprobs``: number of columns in addition to the sampled token's.
EXTRA_COLUMNS = 2


def register_pair() -> None:
    """Register ``PairForCausalLM`` with vLLM in this process. Repeated calls are allowed."""
    from vllm import ModelRegistry

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, PairForCausalLM)


def pair_overrides(*, policy_architecture: str, memory_path: str) -> dict[str, Any]:
    """Return overrides of the policy's configuration, with which vLLM builds the pair instead of the policy."""
    return {
        "architectures": [ARCHITECTURE],
        "oversharp_policy_architecture": policy_architecture,
        "oversharp_memory_path": memory_path,
    }


class PairForCausalLM(nn.Module):
    """Model with logits f_θ − μ f_φ of a policy and a memory network, which process the same tokens in each step.

    The networks share block tables and scheduler, and have separate KV caches. ``mu`` can be changed at any time,
    because keys and values do not depend on it. ``policy_logits_RV`` are the logits f_θ of the last pass.
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
        # vLLM caches compiled code by tag; with the same tag, the second network would run the code of the first
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
        # vLLM loads these files after the files of the policy
        self.secondary_weights = [DefaultModelLoader.Source(model_or_path=memory_path, revision=None, prefix="memory.")]

    def embed_input_ids(self, input_ids: Int[Tensor, " token"]) -> Float[Tensor, "token hidden"]:
        """Return the policy's embeddings."""
        return self.policy.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: Int[Tensor, " token"],
        positions: Int[Tensor, " token"],
        intermediate_tensors: Any = None,
        inputs_embeds: Any = None,
    ) -> Float[Tensor, "token hidden"]:
        """Return the concatenated hidden states of both networks."""
        return torch.cat((self.policy(input_ids, positions), self.memory(input_ids, positions)), dim=-1)

    def compute_logits(self, hidden_states: Float[Tensor, "row hidden"]) -> Float[Tensor, "row vocabulary"]:
        """Return f_θ − μ f_φ in float32."""
        width = self._policy_width
        policy_RV = self.policy.compute_logits(hidden_states[..., :width].contiguous()).float()
        self.policy_logits_RV = policy_RV
        if self.mu == 0:
            return policy_RV.clone()  # a copy, because vLLM's sampler divides logits in place
        memory_RV = self.memory.compute_logits(hidden_states[..., width:].contiguous()).float()
        return torch.sub(policy_RV, memory_RV, alpha=self.mu)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load weights. Names without the prefix ``policy.`` or ``memory.`` are weights of the policy."""
        from vllm.model_executor.models.utils import AutoWeightsLoader

        loaded: set[str] = AutoWeightsLoader(self).load_weights(_prefix_names(weights))
        return loaded


def _prefix_names(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in weights:
        yield (name if name.startswith(("policy.", "memory.")) else f"policy.{name}"), tensor


class LogpColumns:
    """Replacement for vLLM's ``Sampler.gather_logprobs`` that returns three numbers per sampled token, in nats.

    The columns are the token's log-probability under the sampling distribution, its log-probability under the policy,
    and the negative entropy of the policy. The last two are at temperature 1 over the full vocabulary. (vLLM itself
    returns log-probabilities of the likeliest tokens there.) This replaces an internal method of vLLM's V1 sampler, so
    callers must verify the values. ``temperature`` is that of all running requests; 0 is greedy decoding.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.temperature = 1.0

    def __call__(
        self, logprobs: Float[Tensor, "row vocabulary"], num_logprobs: int, token_ids: Int[Tensor, " row"]
    ) -> Any:
        """Return the columns. ``logprobs`` must be at temperature 1."""
        from vllm.v1.outputs import LogprobsTensors

        token_R1 = token_ids[:, None]
        policy_logits_RV = getattr(self._model, "policy_logits_RV", None)
        policy_RV = logprobs if policy_logits_RV is None else policy_logits_RV.log_softmax(dim=-1)
        if self.temperature == 0:
            behaviour_R1 = torch.zeros_like(logprobs[:, :1])
        elif self.temperature == 1:
            behaviour_R1 = logprobs.gather(-1, token_R1)
        else:
            behaviour_R1 = (logprobs / self.temperature).log_softmax(dim=-1).gather(-1, token_R1)
        entropy_R1 = entropy_nats(policy_RV)[:, None]
        return LogprobsTensors(
            logprob_token_ids=token_R1.expand(-1, 1 + EXTRA_COLUMNS).to(torch.int32).contiguous(),
            logprobs=torch.cat([behaviour_R1, policy_RV.gather(-1, token_R1), -entropy_R1], dim=1),
            selected_token_ranks=torch.zeros_like(token_ids),
        )
