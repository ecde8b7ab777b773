"""Norms and activations of vLLM's CPU build by its own fused kernels, which it has and takes on GPUs alone.

Without a compiler vLLM computes them on a CPU as its reference does, seven and three operations for each: with
SmolLM2-135M that was some 7 % of a step. The kernels round once where the reference rounds
twice; whether what is drawn then still fits the model is probed of every engine.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_NORMS = ("rms_norm", "fused_add_rms_norm")
#: The kernels take this many numbers at a time, in any precision, and refuse a size that is no multiple.
_AT_ONCE = 32


def use_fused_layers(model: nn.Module) -> bool:
    """From now on, where sizes allow it; whether this build of vLLM does. Else everything stays as it was."""
    from vllm import ir
    from vllm.model_executor.layers.activation import SiluAndMul

    kernels = torch.ops._C
    if not all(hasattr(kernels, name) for name in (*_NORMS, "silu_and_mul")):
        return False
    import vllm.kernels.vllm_c  # noqa: F401 makes the norms' kernels known

    norms = [getattr(ir.ops, name) for name in _NORMS]
    if not all("vllm_c" in norm.impls for norm in norms):
        return False
    for norm in norms:
        norm.impls["vllm_c"].supported = True
        _ask_in_one_piece(norm.impls["vllm_c"])
        norm.set_default(["vllm_c", "native"])
    for layer in model.modules():
        if isinstance(layer, SiluAndMul):
            layer._forward_method = silu_and_mul
    return True


def _ask_in_one_piece(kernel: Any) -> None:
    """Leave to the reference what a norm's kernel would misread, or refuse.

    It reads tensors as if they lay in one piece. Queries and keys, which Qwen3 norms, are slices of their common
    product with the values: of more than one token the kernel would silently norm other numbers.
    """
    fits = kernel.supports_args

    def fits_in_one_piece(*args: Any, **kwargs: Any) -> bool:
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        return all(one.is_contiguous() and not one.shape[-1] % _AT_ONCE for one in tensors) and fits(*args, **kwargs)

    kernel.supports_args = fits_in_one_piece


def silu_and_mul(x: Tensor) -> Tensor:
    """SiLU of the first half of the last axis, times the second half."""
    half = x.shape[-1] // 2
    if half % _AT_ONCE:
        return functional.silu(x[..., :half]) * x[..., half:]
    out = torch.empty((*x.shape[:-1], half), dtype=x.dtype)
    torch.ops._C.silu_and_mul(out, x.contiguous())
    return out
