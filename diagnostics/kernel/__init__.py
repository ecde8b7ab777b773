"""Compute the exact gradient kernel of a causal language model.

Importing this package imports torch.
"""

from oversharp.diagnostics.kernel.contract import GradientKernel, KernelRow
from oversharp.diagnostics.kernel.exact import cross_kernel, gradient_kernel

__all__ = ["GradientKernel", "KernelRow", "cross_kernel", "gradient_kernel"]
