"""Log-probabilities and entropies of the tokens that vLLM draws, computed where the logits are.

vLLM ships the log-probability of the drawn token and of the likeliest ones. The columns of the likeliest carry other
numbers here. The hook sits on one sampler of the V1 model runner, and whoever uses it checks the numbers that come.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from oversharp.diagnostics.samplers.vllm_worker import entropy_nats

#: Asked for as ``logprobs``: columns besides that of the drawn token.
EXTRA_COLUMNS = 2


class LawColumns:
    """Three columns per drawn token, in nats.

    Its log-probability under the law it was drawn from, its log-probability under the policy, and minus the policy's
    entropy; the latter two at temperature 1 and over the full vocabulary.

    ``temperature`` is that of all requests in flight; 0 is greedy, whose law is certain.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.temperature = 1.0

    def __call__(
        self, logprobs: Float[Tensor, "row vocabulary"], num_logprobs: int, token_ids: Int[Tensor, " row"]
    ) -> Any:
        """In the place of ``Sampler.gather_logprobs``: ``logprobs`` are raw, before the temperature."""
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
