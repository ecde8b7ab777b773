"""Puts the gradient kernel together: rows, streams, certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from diagnostics.errors import KernelError
from diagnostics.kernel.certificate import draw_signs, residual, signed_gradient
from diagnostics.kernel.contract import GradientKernel, KernelRow
from diagnostics.kernel.forward import full_float32
from diagnostics.kernel.parameters import trained_parameters
from diagnostics.kernel.products import KernelSum
from diagnostics.kernel.rows import Pairs, pairs_of, require_computable
from diagnostics.kernel.streaming import add_all, cut_in_batches
from diagnostics.models import LoadedModel, in_float32, suitable_threads


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The kernel of distinct rows, their log π, and the certificate."""

    kernel_RC: Float[np.ndarray, "row column"]
    logp_sum_N: Float[np.ndarray, " row"]
    certificate: float


def square_kernel(loaded: LoadedModel, rows: Sequence[KernelRow], *, memory_bytes: int, seed: int) -> GradientKernel:
    """See ``diagnostics.kernel.gradient_kernel``."""
    if len(rows) < 2:
        raise KernelError(f"the gradient kernel: {len(rows)} rows make no pair; give at least two")
    require_computable(loaded, rows)
    pairs = pairs_of(rows, rows)
    block = _computed(loaded, pairs, memory_bytes=memory_bytes, seed=seed)
    place = {row: number for number, row in enumerate(pairs.rows)}
    number_N = np.array([place[row] for row in rows])
    kernel_NN = block.kernel_RC[np.ix_(number_N, number_N)]
    return GradientKernel(
        kernel_NN=(kernel_NN + kernel_NN.T) / 2,  # float32 products of a block and its mirror image round apart
        logp_sum_N=block.logp_sum_N[number_N],
        certificate=block.certificate,
    )


def rectangular_kernel(
    loaded: LoadedModel, rows: Sequence[KernelRow], columns: Sequence[KernelRow], *, memory_bytes: int, seed: int
) -> Float[np.ndarray, "row column"]:
    """See ``diagnostics.kernel.cross_kernel``."""
    for side, given in (("row", rows), ("column", columns)):
        if not given:
            raise KernelError(f"the gradient kernel: no {side}s; give at least one")
        require_computable(loaded, given, side=side)
    pairs = pairs_of(rows, columns)
    block = _computed(loaded, pairs, memory_bytes=memory_bytes, seed=seed)
    place = {row: number for number, row in enumerate(pairs.rows)}
    number_R = np.array([place[row] for row in rows])
    number_C = np.array([place[column] for column in columns]) - pairs.column_start
    return block.kernel_RC[np.ix_(number_R, number_C)]


def _computed(loaded: LoadedModel, pairs: Pairs, *, memory_bytes: int, seed: int) -> _Block:
    rng = np.random.default_rng(seed)
    n_rows = len(pairs.rows)
    sign_N = torch.tensor(draw_signs(0, pairs.row_end, n_rows, rng=rng), device=loaded.device)
    other_sign_N = sign_N
    if not pairs.square:
        other_sign_N = torch.tensor(draw_signs(pairs.column_start, n_rows, n_rows, rng=rng), device=loaded.device)
    certified = (sign_N.abs() + other_sign_N.abs()).nonzero()[:, 0].tolist()
    with _settings(loaded):
        trained = trained_parameters(loaded.model)
        kernel = KernelSum(pairs, sign_N, other_sign_N)
        cut = cut_in_batches(loaded, pairs, certified, memory_bytes)
        logp_sum_N = add_all(loaded, pairs, trained, kernel, cut, memory_bytes=memory_bytes)
        signs = (sign_N,) if pairs.square else (sign_N, other_sign_N)
        gradients = [signed_gradient(loaded.model, cut.certified, one_sign_N, trained) for one_sign_N in signs]
        # the mean of a product of norms over random signs
        scale = ((kernel.square_N @ sign_N.abs()) * (kernel.square_N @ other_sign_N.abs())).sqrt()
        certificate = residual(kernel, trained, gradients[0], gradients[-1], scale=float(scale))
    return _Block(
        kernel_RC=kernel.kernel_RC.cpu().numpy(), logp_sum_N=logp_sum_N.cpu().numpy(), certificate=certificate
    )


@contextmanager
def _settings(loaded: LoadedModel) -> Iterator[None]:
    with in_float32(loaded.model), full_float32(), suitable_threads(loaded.model), torch.enable_grad():
        yield
