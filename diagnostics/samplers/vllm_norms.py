"""Use vLLM's fused norm kernels in its CPU build, which has them but enables them only on GPUs.

Without a compiler vLLM computes norms on a CPU by its reference, in seven operations or more: for 64 rows of
SmolLM2-135M the two norms took 47 and 68 µs, and take 16 and 13. The kernels round once where the reference rounds
twice; the probe of each engine checks that the samples still fit the model. The fused activation is not used: it takes
one exponential at a time, and 273 µs where the reference takes 95.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_NORMS = ("rms_norm", "fused_add_rms_norm")
#: The kernels process this many numbers at a time, in any precision, and require a multiple of it.
_AT_ONCE = 32


def use_fused_norms() -> bool:
    """Enable the fused norms where sizes allow; returns whether this build of vLLM has them."""
    from vllm import ir

    if not all(hasattr(torch.ops._C, name) for name in _NORMS):
        return False
    import vllm.kernels.vllm_c  # noqa: F401 registers the norms' kernels

    norms = [getattr(ir.ops, name) for name in _NORMS]
    if not all("vllm_c" in norm.impls for norm in norms):
        return False
    for norm in norms:
        norm.impls["vllm_c"].supported = True
        _ask_copy_contiguous(norm.impls["vllm_c"])
        norm.set_default(["vllm_c", "native"])
    return True


def _ask_copy_contiguous(kernel: Any) -> None:
    """Leave to the reference what a norm kernel would misread or reject.

    The kernel assumes contiguous tensors. Queries and keys, which Qwen3 normalises, are slices of their common product
    with the values: with more than one token the kernel would silently normalise other numbers.
    """
    fits = kernel.supports_args

    def fits_copy_contiguous(*args: Any, **kwargs: Any) -> bool:
        tensors = [item for item in (*args, *kwargs.values()) if isinstance(item, Tensor)]
        return all(tensor.is_contiguous() and not tensor.shape[-1] % _AT_ONCE for tensor in tensors) and fits(
            *args, **kwargs
        )

    kernel.supports_args = fits_copy_contiguous
