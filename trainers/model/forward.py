"""Compute log-probabilities and entropies of response tokens under the policy, with gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.model.head import chunked_logps
from oversharp.trainers.model.layouts import Layout, PassInput, hidden_states, pass_input, rows_input
from oversharp.trainers.model.network import Network
from oversharp.trainers.model.passes import Lengths, plan_passes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class ForwardSettings:
    """Settings of forward and backward passes; they change the loss only by rounding.

    ``temperature`` divides the logits, as in sampling. ``micro_batch`` is the number of responses per pass, None for
    all. ``autocast`` is the type of matrix products, None for that of the weights.
    """

    temperature: float
    micro_batch: int | None = None
    autocast: torch.dtype | None = None


def as_network(model: Network | PreTrainedModel) -> Network:
    """Wrap a plain model, which is evaluated with padded rows and full logits."""
    return model if isinstance(model, Network) else Network(model=model)


def passes(
    network: Network, rollouts: RolloutBatch, row_U: Int[Tensor, " used"], settings: ForwardSettings
) -> Iterator[tuple[Int[Tensor, " position"], Layout]]:
    """Yield the passes for the rows ``row_U``: positions in ``row_U``, and the layout."""
    if len(row_U) == 0:
        return
    prompt_U = row_U // rollouts.group_size
    n_tokens_U = rollouts.n_tokens_B[row_U]
    n_prompt_U = rollouts.prompt_mask_PL.sum(dim=1)[prompt_U]
    # one synchronization instead of four
    known = torch.stack([n_tokens_U, _count_unshared(rollouts, row_U), n_prompt_U, prompt_U]).tolist()
    lengths = Lengths(
        response=known[0],
        unshared=known[1],
        prompt=known[2],
        prompt_index=known[3],
        width=network.config.hidden_size,
    )
    device = row_U.device
    for planned_pass in plan_passes(
        lengths,
        most_rows=settings.micro_batch,
        layouts=network.layouts,
        device="cuda" if device.type == "cuda" else "cpu",
    ):
        yield torch.tensor(planned_pass.rows, device=device), planned_pass.layout


def _count_unshared(rollouts: RolloutBatch, row_U: Int[Tensor, " used"]) -> Int[Tensor, " used"]:
    """Return the number of input tokens of each response without those of the prefix shared with the previous row."""
    response_UT = rollouts.response_ids_BT[row_U]
    is_read_UT = rollouts.response_mask_BT[row_U] & rollouts.response_mask_BT[row_U].roll(-1, dims=1)
    is_read_UT[:, -1] = False
    same_UT = (response_UT == response_UT.roll(1, dims=0)) & is_read_UT & is_read_UT.roll(1, dims=0)
    prompt_U = row_U // rollouts.group_size
    same_UT &= (prompt_U == prompt_U.roll(1))[:, None]
    same_UT[0] = False
    return is_read_UT.sum(dim=1) - same_UT.long().cumprod(dim=1).sum(dim=1)


def token_logps(
    model: Network | PreTrainedModel,
    rollouts: RolloutBatch,
    row_R: Int[Tensor, " used"],
    settings: ForwardSettings,
    *,
    layout: Layout = "rows",
    entropies: bool = True,
) -> tuple[Float[Tensor, "used token"], Float[Tensor, "used token"] | None]:
    """Return the log-probability of each response token of the rows ``row_R``, and the entropy of its distribution.

    In nats, float32, as wide as the batch, 0 after the response, under softmax(logits / temperature). Both carry
    gradient if autograd is enabled. Entropies cost a pass over the vocabulary; without ``entropies`` they are None.
    """
    network = as_network(model)
    given = pass_input(rollouts, row_R)
    target_N = given.response_RT[given.mask_RT]
    with network.running(), autocast(target_N.device, settings.autocast):
        if network.head is None or network.trunk is None:
            logit_NV = _plain_logits(network.model, given).float() / settings.temperature
            logp_NV = logit_NV.log_softmax(dim=-1)
            logp_N = logp_NV.gather(1, target_N[:, None])[:, 0]
            entropy_N = -(logp_NV.exp() * logp_NV).sum(dim=-1) if entropies else None
        else:
            hidden_ND = hidden_states(network.trunk, network.config, given, layout)
            logp_N, entropy_N = chunked_logps(
                network.head,
                hidden_ND,
                target_N,
                temperature=settings.temperature,
                products=settings.autocast,
                entropies=entropies,
            )
    full_RT = logp_N.new_zeros(len(row_R), rollouts.response_mask_BT.shape[1])
    mask_RT = rollouts.response_mask_BT[row_R]
    entropy_RT = None if entropy_N is None else full_RT.masked_scatter(mask_RT, entropy_N)
    return full_RT.masked_scatter(mask_RT, logp_N), entropy_RT


def _plain_logits(model: Any, given: PassInput) -> Float[Tensor, "position vocabulary"]:
    """Return the logits of the response positions from the plain model."""
    width = given.response_RT.shape[1]
    arguments = rows_input(given)
    accepted = signature(innermost(model).forward).parameters
    if "logits_to_keep" in accepted:
        arguments["logits_to_keep"] = width
    if "position_ids" not in accepted:
        arguments.pop("position_ids", None)
    return cast("Tensor", model(**arguments).logits[:, -width:][given.mask_RT])


def autocast(device: torch.device, dtype: torch.dtype | None) -> AbstractContextManager[object]:
    """Return a context in which matrix products use ``dtype``; None changes nothing."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)
