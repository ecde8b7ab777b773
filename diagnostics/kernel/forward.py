"""Forward pass of the kernel: log π of response tokens in full float32."""

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
    """Return log π of every response token of the batch, row after row, in nats.

    The head is applied only to the hidden states that predict response tokens, as one row of tokens. With a large
    vocabulary, the logits of prompts and padding would be most of the cost. No attention mask is passed, because
    attention is faster without. None is needed: padding comes last, and tokens of a causal model do not attend to later
    tokens.
    """
    inner = innermost(model)
    accepted = inspect.signature(inner.forward).parameters
    arguments: dict[str, Any] = {"input_ids": batch.ids_BL, "use_cache": False}
    if "position_ids" in accepted:
        # one row of positions per row of tokens: a shared row would give the position embedding one gradient for all
        width = batch.ids_BL.shape[1]
        arguments["position_ids"] = torch.arange(width, device=batch.ids_BL.device).expand_as(batch.ids_BL)
    member_T, position_T = batch.member_T, batch.position_T

    def select_responses(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0][member_T, position_T][None], *inputs[1:])

    with ExitStack() as hooks:
        head = inner.get_output_embeddings()
        if head is not None:
            hooks.callback(head.register_forward_pre_hook(select_responses).remove)
        logits = model(**arguments).logits
    if logits.shape[:2] == batch.ids_BL.shape:  # the head is not a separate module
        logits = logits[member_T, position_T]
    target_T = batch.ids_BL[member_T, position_T + 1]
    return -functional.cross_entropy(logits.reshape(len(target_T), -1), target_T, reduction="none")


def sum_logps(logp_T: Float[Tensor, " response_token"], batch: KernelBatch) -> Float[Tensor, " row"]:
    """Return log π of each row, summed in float64.

    Raises ``KernelError`` if a sum is not finite.
    """
    logp_sum_B = torch.zeros(len(batch.rows), dtype=torch.float64, device=logp_T.device)
    logp_sum_B.index_add_(0, batch.member_T, logp_T.detach().double())
    refuse_broken(logp_sum_B)
    return logp_sum_B


def refuse_broken(numbers: Tensor) -> None:
    """Raise ``KernelError`` if a number is NaN or infinite."""
    if not bool(numbers.isfinite().all()):
        raise KernelError(
            "the gradient kernel: the model returns NaN or infinite log-probabilities or gradients in float32; "
            "leave this checkpoint out"
        )


@contextmanager
def frozen_parameters(model: nn.Module, parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Freeze ``parameters`` inside the block; gradients still flow back to the embeddings."""
    before = [parameter.requires_grad for parameter in parameters]
    embeddings = {module for module in model.modules() if isinstance(module, nn.Embedding)}
    embeddings.add(innermost(model).get_input_embeddings())

    def require_grad(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or output.requires_grad:
            return output
        return output.detach().requires_grad_().clone()  # models write to it in place, which a leaf tensor forbids

    hooks = [module.register_forward_hook(require_grad) for module in embeddings]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for parameter, required in zip(parameters, before, strict=True):
            parameter.requires_grad_(required)


@contextmanager
def full_float32() -> Iterator[None]:
    """Disable TensorFloat32 inside the block, because it keeps only 10 of the 23 mantissa bits."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
