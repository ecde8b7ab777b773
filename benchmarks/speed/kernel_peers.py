"""Peers of the gradient kernel: one training step, autograd row by row, ``torch.func``, bergson.

Our kernel without its certificate is here too. All get the same rows in one batch that is padded on the right. All but
the step return the inner products of every pair of gradients of log π, summed over the response. bergson hooks linear
layers, optionally the head, but never an embedding or a norm. A head that shares its matrix with the embedding counts
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from oversharp.diagnostics.kernel import certificate, exact, streaming
from oversharp.diagnostics.kernel.contract import KernelRow

#: Columns of the gradient matrix that a reference multiplies at a time, as float64.
CHUNK = 1 << 22
#: bergson's label of a position without a loss.
NO_LABEL = -100


@dataclass(frozen=True, kw_only=True)
class PaddedRows:
    """Prompts and responses as one rectangle, padded on the right.

    ``lengths`` are tokens without padding.
    """

    ids_BL: Int[Tensor, "row token"]
    is_response_BL: Bool[Tensor, "row token"]
    lengths: tuple[int, ...]

    def alone(self, row: int) -> PaddedRows:
        """Return one row without its padding."""
        kept = slice(row, row + 1), slice(0, self.lengths[row])
        return PaddedRows(
            ids_BL=self.ids_BL[kept], is_response_BL=self.is_response_BL[kept], lengths=(self.lengths[row],)
        )


def padded(rows: Sequence[KernelRow], *, pad_id: int, device: torch.device) -> PaddedRows:
    """Pad the rows, in their order."""
    lengths = tuple(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    ids_BL = torch.full((len(rows), max(lengths)), pad_id)
    is_response_BL = torch.zeros_like(ids_BL, dtype=torch.bool)
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        ids_BL[number, :length] = torch.tensor([*row.prompt_ids, *row.token_ids])
        is_response_BL[number, len(row.prompt_ids) : length] = True
    return PaddedRows(ids_BL=ids_BL.to(device), is_response_BL=is_response_BL.to(device), lengths=lengths)


def logp_sums(model: nn.Module, batch: PaddedRows) -> Float[Tensor, " row"]:
    """Return log π of each response in nats, with logits at every position.

    No mask is needed: under causal attention no token attends to the padding after it, and attention is faster without
    a mask.
    """
    logits_BLV = model(input_ids=batch.ids_BL, use_cache=False).logits[:, :-1]
    target_BL = batch.ids_BL[:, 1:]
    logp = -functional.cross_entropy(logits_BLV.flatten(0, 1), target_BL.flatten(), reduction="none")
    return (logp.view_as(target_BL) * batch.is_response_BL[:, 1:]).sum(dim=1)


def forward_backward(model: nn.Module, batch: PaddedRows) -> None:
    """Run one plain step without the optimizer: the gradient of every parameter, summed over the rows."""
    model.zero_grad(set_to_none=True)
    logp_sums(model, batch).sum().backward()


@contextmanager
def certificate_taken_out() -> Iterator[None]:
    """Disable the certificate: no weight gradients by autograd, no weight gradients of the row alone, no check.

    Layer by layer, one row still runs alone once without weight gradients, because the kernel needs that pass.
    """

    @contextmanager
    def ask_for_nothing(_self: certificate.SignedGradients, _trained: Any) -> Iterator[list[Any]]:
        yield []

    def prove_nothing(*_: Any) -> float:
        return math.nan

    def nothing(*_: Any) -> None:
        return None

    with (
        mock.patch.object(certificate.SignedGradients, "collect_pass", ask_for_nothing),
        # created here because creating a mock takes measured time
        mock.patch.object(exact, "check_certificate", prove_nothing),
        mock.patch.object(exact, "require_rows_apart", nothing),
        mock.patch.object(streaming._Streams, "_finish", nothing),
    ):
        yield


def row_by_row(model: nn.Module, batch: PaddedRows) -> Float[Tensor, "row row"]:
    """Run autograd for each row without padding, and multiply all gradients as one matrix."""
    gradient_ND = gradients(model, batch, list(model.parameters()))
    return gradient_ND @ gradient_ND.T


def exact_kernel(model: nn.Module, batch: PaddedRows) -> Float[np.ndarray, "row row"]:
    """Return the reference: autograd of a float64 copy, with float64 products."""
    exact = deepcopy(model).double()
    return _product(gradients(exact, batch, list(exact.parameters())))


def exact_kernel_of_linear_layers(model: nn.Module, batch: PaddedRows) -> Float[np.ndarray, "row row"]:
    """Return the reference for bergson: over the matrices of linear layers, none of them shared."""
    exact = deepcopy(model).double()
    matrices = []
    for module in exact.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().clone())
            matrices.append(module.weight)
    return _product(gradients(exact, batch, matrices))


def gradients(
    model: nn.Module, batch: PaddedRows, parameters: Sequence[nn.Parameter]
) -> Float[Tensor, "row parameter"]:
    """Return ∇ log π of each row over the parameters as float32, with a relative error of at most 6e-8 each."""
    n_parameters = sum(parameter.numel() for parameter in parameters)
    gradient_ND = torch.empty(len(batch.lengths), n_parameters, device=batch.ids_BL.device)
    for row in range(len(batch.lengths)):
        of_row = torch.autograd.grad(logp_sums(model, batch.alone(row)).sum(), parameters)
        gradient_ND[row] = torch.cat([one.reshape(-1) for one in of_row])
    return gradient_ND


def _product(gradient_ND: Float[Tensor, "row parameter"]) -> Float[np.ndarray, "row row"]:
    kernel_NN = gradient_ND.new_zeros(len(gradient_ND), len(gradient_ND), dtype=torch.float64)
    for part_NC in gradient_ND.split(CHUNK, dim=1):
        kernel_NN += part_NC.double() @ part_NC.double().T
    return kernel_NN.cpu().numpy()


def vmapped(model: Any, batch: PaddedRows) -> Float[Tensor, "row row"]:
    """Compute the kernel by ``vmap(grad)``.

    Attention is eager, because fused attention does not support ``vmap``.
    """
    held = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def logp_sum(weights: dict[str, Tensor], ids_L: Tensor, is_response_L: Tensor) -> Tensor:
        called = functional_call(model, weights, (), {"input_ids": ids_L[None], "use_cache": False})
        logp_L = called.logits[0, :-1].log_softmax(dim=-1).gather(1, ids_L[1:, None])[:, 0]
        return (logp_L * is_response_L[1:]).sum()

    with _eager_attention(model):
        of_rows = vmap(grad(logp_sum), in_dims=(None, 0, 0))(held, batch.ids_BL, batch.is_response_BL)
    kernel_NN = torch.zeros(len(batch.lengths), len(batch.lengths), device=batch.ids_BL.device)
    for one in of_rows.values():
        gradient_NM = one.flatten(1)
        kernel_NN += gradient_NM @ gradient_NM.T
    return kernel_NN


class Bergson:
    """bergson without projection on some rows.

    Its data set is built once, before the measurement.
    """

    def __init__(self, model: Any, rows: Sequence[KernelRow], folder: Path) -> None:
        from bergson import IndexConfig
        from datasets import Dataset

        self._model = model
        ids = [[*row.prompt_ids, *row.token_ids] for row in rows]
        labels = [[NO_LABEL] * len(row.prompt_ids) + list(row.token_ids) for row in rows]
        self._data = Dataset.from_dict({"input_ids": ids, "labels": labels})
        self._config = IndexConfig(run_path=str(folder / "index"), projection_dim=0, loss_reduction="sum")
        self._config.partial_run_path.mkdir(parents=True)

    def in_memory(self) -> Float[Tensor, "row row"]:
        """Use its own collector, which keeps the matrix of all gradients in memory, and one product of it."""
        from bergson import InMemoryCollector

        collector = InMemoryCollector(model=self._model, data=self._data, cfg=self._config)
        self._run(collector)
        assert collector.builder is not None
        gradient_ND = torch.from_numpy(collector.builder.grad_buffer).to(self._model.device)
        return gradient_ND @ gradient_ND.T

    def in_hooks(self) -> Float[Tensor, "row row"]:
        """Use its hooks with our collector, which multiplies each layer's gradients at once and keeps none."""
        from bergson.collector.collector import HookCollectorBase

        n_rows, device = len(self._data), self._model.device

        class Products(HookCollectorBase):
            def setup(self) -> None:
                self.kernel_NN = torch.zeros(n_rows, n_rows, device=device)

            def teardown(self) -> None:
                """Do nothing: no gradients are kept."""

            def process_batch(self, indices: list[int], **kwargs: Any) -> None:
                """Do nothing: all rows are one batch, and the hooks have processed it."""

            def backward_hook(self, module: nn.Module, g: Tensor) -> None:
                gradient_NM = self._compute_gradient(module, g)
                self.kernel_NN += gradient_NM @ gradient_NM.T

        collector = Products(model=self._model)
        self._run(collector)
        return collector.kernel_NN

    def _run(self, collector: Any) -> None:
        from bergson import CollectorComputer

        computer = CollectorComputer(
            model=self._model,
            data=self._data,
            collector=collector,
            batches=[list(range(len(self._data)))],
            cfg=self._config,
        )
        with _only_the_embedding_trains(self._model):
            computer.run_with_collector_hooks()


def largest_difference(kernel_NN: Float[np.ndarray, "row row"], exact_NN: Float[np.ndarray, "row row"]) -> float:
    """Return max |ΔK_ij| / √(K_ii·K_jj).

    >>> exact_NN = np.array([[4.0, 0.0], [0.0, 1.0]])
    >>> largest_difference(np.array([[4.0, 0.5], [0.0, 1.0]]), exact_NN)
    0.25
    """
    norm_N = np.sqrt(np.diag(exact_NN))
    return float(np.max(np.abs(kernel_NN - exact_NN) / np.outer(norm_N, norm_N)))


@contextmanager
def _eager_attention(model: Any) -> Iterator[None]:
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _only_the_embedding_trains(model: Any) -> Iterator[None]:
    """Require gradients of the embedding only, as bergson's worker does.

    The gradients of the weights themselves are not computed a second time.
    """
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.requires_grad_(False)
        model.get_input_embeddings().requires_grad_(True)
        yield
    finally:
        for parameter, wants in wanted:
            parameter.requires_grad_(wants)
