"""What we add to vLLM's worker: called by name through ``collective_rpc``, in the process that holds the model.

vLLM mixes ``WorkerExtension`` into its own worker class. It is imported inside the functions, so that this module
stays light for whoever only reads it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

#: The entropy of a step is computed on as many rows at a time as stay in a CPU's cache.
_ELEMENTS_PER_CHUNK = 1 << 18
#: exp of it is 0 in every precision.
_LEAST_LOGP = -1e4


class WorkerExtension:
    """Methods that vLLM's worker lacks."""

    model_runner: Any

    def oversharp_repack_tied_heads(self) -> int:
        """Pack the output head anew on a CPU; how many heads that were.

        The CPU build computes logits from a packed copy of the head. A reload packs the tensors that it finds in the
        files, and a tied head is in none of them: the copy would silently stay the old one.
        """
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.platforms import current_platform

        if not current_platform.is_cpu():
            return 0
        heads = [module for module in self.model_runner.get_model().modules() if isinstance(module, ParallelLMHead)]
        for head in heads:
            head.quant_method.process_weights_after_loading(head)
        return len(heads)

    def oversharp_replace_adapter_products(self) -> None:
        """Multiply with an adapter once a step on a CPU, not once a token."""
        from diagnostics.samplers.vllm_adapters import replace_adapter_products

        replace_adapter_products()

    def oversharp_hook_entropy(self) -> None:
        """From now on a request with ``logprobs=1`` gets minus the entropy where the likeliest token's place was.

        vLLM has no such quantity to ask for. The hook belongs to the V1 model runner, and whoever calls it must check
        the numbers that come.
        """
        from vllm.v1.sample.sampler import Sampler

        plain = Sampler.gather_logprobs

        def gather_with_entropy(
            logprobs: Float[Tensor, "row vocabulary"], num_logprobs: int, token_ids: Int[Tensor, " row"]
        ) -> Any:
            if num_logprobs != 1:
                return plain(logprobs, num_logprobs, token_ids)
            return _with_entropy(logprobs, token_ids)

        Sampler.gather_logprobs = staticmethod(gather_with_entropy)  # type: ignore[method-assign]


def entropy_nats(logp_BV: Float[Tensor, "row vocabulary"]) -> Float[Tensor, " row"]:
    """Entropy of each row of log-probabilities; an impossible token adds nothing.

    >>> entropy_nats(torch.tensor([[0.5, 0.5, 0.0]]).log())
    tensor([0.6931])
    """
    rows_per_chunk = max(1, _ELEMENTS_PER_CHUNK // logp_BV.shape[1])
    # p·log p, where 0·−∞ must be 0; torch.special.entr says the same and is three times as slow on a CPU
    return torch.cat(
        [-chunk.exp().mul_(chunk.clamp(min=_LEAST_LOGP)).sum(-1) for chunk in logp_BV.split(rows_per_chunk)]
    )


def _with_entropy(logp_BV: Float[Tensor, "row vocabulary"], token_B: Int[Tensor, " row"]) -> Any:
    """The sampled token's column as vLLM gathers it, and the entropy's; neither top tokens nor ranks are wanted."""
    from vllm.v1.outputs import LogprobsTensors

    token_B1 = token_B[:, None]
    logp_B1 = logp_BV.gather(-1, token_B1)
    return LogprobsTensors(
        logprob_token_ids=token_B1.expand(-1, 2).to(torch.int32).contiguous(),
        logprobs=torch.cat([logp_B1, -entropy_nats(logp_BV)[:, None]], dim=1),
        selected_token_ranks=torch.zeros_like(token_B),
    )
