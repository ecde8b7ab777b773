"""Compute a gradient kernel: validate the rows, sum over parameters, verify."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from jaxtyping import Float

from oversharp.diagnostics.kernel.certificate import (
    SignedGradients,
    check_certificate,
    draw_signs,
    gradients_set_aside,
    require_rows_apart,
)
from oversharp.diagnostics.kernel.contract import GradientKernel, KernelRow
from oversharp.diagnostics.kernel.forward import full_float32
from oversharp.diagnostics.kernel.parameters import find_trained
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import Pairs, pair_rows, require_computable
from oversharp.diagnostics.kernel.streaming import add_all
from oversharp.diagnostics.models.devices import in_float32, suitable_threads
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import KernelError, first_line
from oversharp.diagnostics.records.memory import trim_heap


def gradient_kernel(
    loaded: LoadedModel,
    rows: Sequence[KernelRow],
    *,
    memory_bytes: int | None = None,
    seed: int = 0,
    note: Callable[[str], None] = lambda line: None,
) -> GradientKernel:
    """Return K_ij = ⟨∇ log π(y_i|x_i), ∇ log π(y_j|x_j)⟩ over the trained parameters.

    Trained parameters are those that require a gradient. If none does, because an adapter was loaded for inference, the
    kernel covers the active adapter's parameters. The model computes in float32 for any dtype, and the weights are
    restored afterwards. Sums over chunks of parameters are float64. log π is in nats and is summed over the response.
    Gradients flow through the prompt. Repeated rows are computed once.

    Args:
        memory_bytes: limit of the memory for stored gradients. The activations of one batch need about as much again,
            at most 1 GiB, but at least the memory for one row. None means 1 GiB, or more if more is free and saves
            time. The limit changes the result only by rounding.
        seed: seed of the certificate's random signs.
        note: called with a line of text if the computation will take long.

    Raises:
        KernelError: fewer than two rows, an empty prompt or response, a token outside the embedding, a row that exceeds
            the context, NaN or infinite numbers, or a certificate above 1e-6.
        KernelTooLargeError: more rows than fit in the budget.

    Source: *When Sharpening Becomes Collapse* (arXiv 2601.15609) section 2.3; *The Reasoning Boundary Paradox*, section
    3.1.
    """
    if len(rows) < 2:
        raise KernelError(f"the gradient kernel: needs at least two rows; got {plural(len(rows), 'row')}")
    require_computable(loaded, rows)
    pairs = pair_rows(rows, rows)
    kernel_NN, logp_sum_N, certificate = _compute(loaded, pairs, memory_bytes=memory_bytes, seed=seed, note=note)
    place = {row: number for number, row in enumerate(pairs.rows)}
    number_N = np.array([place[row] for row in rows])
    kernel_NN = kernel_NN[np.ix_(number_N, number_N)]
    return GradientKernel(
        kernel_NN=(kernel_NN + kernel_NN.T) / 2,  # float32 products of a block and its transpose round differently
        logp_sum_N=logp_sum_N[number_N],
        certificate=certificate,
    )


def cross_kernel(
    loaded: LoadedModel,
    rows: Sequence[KernelRow],
    columns: Sequence[KernelRow],
    *,
    memory_bytes: int,
    seed: int = 0,
) -> Float[np.ndarray, "row column"]:
    """Return ⟨∇ log π(row), ∇ log π(column)⟩.

    It is the influence of training on the columns (a batch) on the rows (a panel). To first order, a step of plain SGD
    with learning rate η on Σ_j A_j log π_j changes log π_i by η·Σ_j K_ij A_j. Parameters, precision, memory,
    certificate and errors are as in ``gradient_kernel``, except that one row and one column are enough.

    Source: *The Reasoning Boundary Paradox*, Proposition 3.1.
    """
    for side, given in (("row", rows), ("column", columns)):
        if not given:
            raise KernelError(f"the gradient kernel: no {side}s; pass at least one")
        require_computable(loaded, given, side=side)
    pairs = pair_rows(rows, columns)
    kernel_RC, _, _ = _compute(loaded, pairs, memory_bytes=memory_bytes, seed=seed, note=lambda line: None)
    place = {row: number for number, row in enumerate(pairs.rows)}
    number_R = np.array([place[row] for row in rows])
    number_C = np.array([place[column] for column in columns]) - pairs.column_start
    return kernel_RC[np.ix_(number_R, number_C)]


def _compute(
    loaded: LoadedModel, pairs: Pairs, *, memory_bytes: int | None, seed: int, note: Callable[[str], None]
) -> tuple[Float[np.ndarray, "row column"], Float[np.ndarray, " row"], float]:
    """Return the kernel of the distinct rows, each row's log π, and the certificate."""
    if loaded.room is not None:
        raise KernelError(
            "the gradient kernel: the model does not fit one GPU, and gradients need the whole model on one GPU; "
            "pass --kernel-problems 0"
        )
    sign_N = torch.tensor(draw_signs(len(pairs.rows), rng=np.random.default_rng(seed)), device=loaded.device)
    with _kernel_settings(loaded):
        trained = find_trained(loaded.model)
        kernel, gradients = KernelSum(pairs, loaded.device), SignedGradients()
        try:
            logp_sum_N, row_alone = add_all(
                loaded, pairs, sign_N, trained, kernel, gradients, memory_bytes=memory_bytes, note=note
            )
            certificate = check_certificate(kernel, trained, gradients)
            require_rows_apart(kernel, row_alone, gradients)
        except (RuntimeError, TypeError, MemoryError) as error:  # out of memory, or an unsupported kind of model
            raise KernelError(
                f"the gradient kernel: running the model failed ({first_line(error)}); lower --kernel-problems or "
                "--kernel-responses, or pass --kernel-problems 0"
            ) from error
    trim_heap()  # otherwise the C library keeps the float32 weights' memory
    kernel_RC = kernel.kernel_RC * sign_N[: pairs.row_end, None] * sign_N[pairs.column_start :]
    return kernel_RC.cpu().numpy(), logp_sum_N.cpu().numpy(), certificate


@contextmanager
def _kernel_settings(loaded: LoadedModel) -> Iterator[None]:
    parameters = list(loaded.model.parameters())
    is_float32 = all(parameter.dtype is torch.float32 for parameter in parameters)
    with (
        gradients_set_aside(parameters),  # before in_float32: a float32 weight accepts no gradient of another dtype
        nullcontext() if is_float32 else in_float32(loaded.model),
        full_float32(),
        suitable_threads(loaded.model),
        torch.enable_grad(),
    ):
        yield
