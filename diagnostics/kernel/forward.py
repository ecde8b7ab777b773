"""Runs the model for the kernel: log π at response positions, weights held still, float32 that is float32."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.records.errors import KernelError


def response_logps(model: nn.Module, batch: KernelBatch) -> Float[Tensor, " response_token"]:
    """log π of every response token of the batch, row after row, in nats.

    The head gets the hidden states of these positions alone, as one row of tokens: logits of prompts and padding,
    which nobody needs, are most of the cost under a large vocabulary. There is no mask, as attention is faster without:
    padding comes last, and no token of a causal model sees what comes after it.
    """
    inner = innermost(model)
    accepted = inspect.signature(inner.forward).parameters
    arguments: dict[str, Any] = {
        "input_ids": batch.ids_BL,
        "use_cache": False,
    }
    if "position_ids" in accepted:
        # one row of positions for all would give the position embedding one gradient for all
        width = batch.ids_BL.shape[1]
        arguments["position_ids"] = torch.arange(width, device=batch.ids_BL.device).expand_as(batch.ids_BL)
    member_T, position_T = batch.member_T, batch.position_T

    def only_responses(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][member_T, position_T][None], *inputs[1:])

    with ExitStack() as hooks:
        head = inner.get_output_embeddings()
        if head is not None:
            hooks.callback(head.register_forward_pre_hook(only_responses).remove)
        logits = model(**arguments).logits
    if logits.shape[:2] == batch.ids_BL.shape:  # a head that is no module of its own
        logits = logits[member_T, position_T]
    target_T = batch.ids_BL[member_T, position_T + 1]
    return -functional.cross_entropy(logits.reshape(len(target_T), -1), target_T, reduction="none")


def logp_sums(logp_T: Float[Tensor, " response_token"], batch: KernelBatch) -> Float[Tensor, " row"]:
    """log π of each row, summed in float64. Raises ``KernelError`` if one is not finite."""
    logp_sum_B = torch.zeros(len(batch.rows), dtype=torch.float64, device=logp_T.device)
    logp_sum_B.index_add_(0, batch.member_T, logp_T.detach().double())
    refuse_broken(logp_sum_B)
    return logp_sum_B


def refuse_broken(numbers: Tensor) -> None:
    """Raise ``KernelError`` if one of the numbers is NaN or infinite."""
    if not bool(numbers.isfinite().all()):
        raise KernelError(
            "the gradient kernel: the model gives NaN or infinite log-probabilities or gradients in float32; "
            "leave this checkpoint out"
        )


@contextmanager
def held_still(model: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """These parameters collect no gradient inside the block; gradients still flow down to the embeddings.

    They are all that want one.
    """
    wanted = [parameter.requires_grad for parameter in parameters]
    embeddings = {module for module in model.modules() if isinstance(module, nn.Embedding)}
    embeddings.add(innermost(model).get_input_embeddings())

    def as_root(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or output.requires_grad:
            return output
        return output.detach().requires_grad_().clone()  # a leaf must not be written to, and models do

    hooks = [module.register_forward_hook(as_root) for module in embeddings]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, wants in zip(parameters, wanted, strict=True):
            parameter.requires_grad_(wants)


@contextmanager
def full_float32() -> Iterator[None]:
    """No TensorFloat32 inside the block: it keeps 10 bits of the 23."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
