"""Puts the gradient kernel together: rows, streams, certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from oversharp.diagnostics.kernel.certificate import (
    SignedGradients,
    draw_signs,
    gradients_put_aside,
    product_with_columns,
    require_rows_apart,
    residual,
)
from oversharp.diagnostics.kernel.contract import GradientKernel, KernelRow
from oversharp.diagnostics.kernel.forward import full_float32, response_logps
from oversharp.diagnostics.kernel.parameters import trained_parameters
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import Pairs, make_batch, pairs_of, require_computable
from oversharp.diagnostics.kernel.streaming import add_all
from oversharp.diagnostics.models.devices import in_float32, suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import KernelError, first_line


@dataclass(frozen=True, kw_only=True)
class _Block:
    """The kernel of distinct rows, their log π, and the certificate."""

    kernel_RC: Float[np.ndarray, "row column"]
    logp_sum_N: Float[np.ndarray, " row"]
    certificate: float


def square_kernel(
    loaded: LoadedModel,
    rows: Sequence[KernelRow],
    *,
    memory_bytes: int | None,
    seed: int,
    note: Callable[[str], None],
) -> GradientKernel:
    """See ``oversharp.diagnostics.kernel.gradient_kernel``."""
    if len(rows) < 2:
        raise KernelError(f"the gradient kernel: {plural(len(rows), 'row')} cannot make a pair; give at least two")
    require_computable(loaded, rows)
    pairs = pairs_of(rows, rows)
    block = _computed(loaded, pairs, memory_bytes=memory_bytes, seed=seed, note=note)
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
    """See ``oversharp.diagnostics.kernel.cross_kernel``."""
    for side, given in (("row", rows), ("column", columns)):
        if not given:
            raise KernelError(f"the gradient kernel: no {side}s; give at least one")
        require_computable(loaded, given, side=side)
    pairs = pairs_of(rows, columns)
    block = _computed(loaded, pairs, memory_bytes=memory_bytes, seed=seed, note=lambda line: None)
    place = {row: number for number, row in enumerate(pairs.rows)}
    number_R = np.array([place[row] for row in rows])
    number_C = np.array([place[column] for column in columns]) - pairs.column_start
    return block.kernel_RC[np.ix_(number_R, number_C)]


def _computed(
    loaded: LoadedModel, pairs: Pairs, *, memory_bytes: int | None, seed: int, note: Callable[[str], None]
) -> _Block:
    if loaded.room is not None:
        raise KernelError(
            "the gradient kernel: the model does not fit one GPU, and gradients are taken on one alone; leave the "
            "kernel out with --kernel-problems 0"
        )
    sign_N = torch.tensor(draw_signs(len(pairs.rows), rng=np.random.default_rng(seed)), device=loaded.device)
    with _settings(loaded):
        trained = trained_parameters(loaded.model)
        kernel, gradients = KernelSum(pairs, loaded.device), SignedGradients()
        try:
            logp_sum_N = add_all(
                loaded, pairs, sign_N, trained, kernel, gradients, memory_bytes=memory_bytes, note=note
            )
            certificate = residual(kernel, trained, gradients)
            row = kernel.largest_row()
            if row is not None:
                alone = make_batch(loaded, pairs, sign_N, [row])
                with product_with_columns(trained, gradients) as products:
                    response_logps(loaded.model, alone).backward(alone.sign_T)
                require_rows_apart(kernel, row, products)
        except (RuntimeError, TypeError, MemoryError) as error:  # out of memory, or a model unlike those we know
            raise KernelError(
                f"the gradient kernel: the model cannot be run for it ({first_line(error)}); lower --kernel-problems "
                "or --kernel-responses, or leave the kernel out with --kernel-problems 0"
            ) from error
    kernel_RC = kernel.kernel_RC * sign_N[: pairs.row_end, None] * sign_N[pairs.column_start :]
    return _Block(kernel_RC=kernel_RC.cpu().numpy(), logp_sum_N=logp_sum_N.cpu().numpy(), certificate=certificate)


@contextmanager
def _settings(loaded: LoadedModel) -> Iterator[None]:
    parameters = list(loaded.model.parameters())
    is_float32 = all(parameter.dtype is torch.float32 for parameter in parameters)
    with (
        gradients_put_aside(parameters),  # first: a weight in float32 takes no gradient of another type
        nullcontext() if is_float32 else in_float32(loaded.model),
        full_float32(),
        suitable_threads(loaded.model),
        torch.enable_grad(),
    ):
        yield
