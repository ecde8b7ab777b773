"""Capture per-row gradients with module hooks, and add their products to the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from oversharp.diagnostics.kernel.parameters import Slice, Trained
from oversharp.diagnostics.kernel.pieces import Direct, LayerCall, Outer, Piece, find_rule, norm, rows_are_unclear
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import KernelBatch


@dataclass
class _OpenSlice:
    """A slice, its pieces so far, and the number of pieces still expected from this batch."""

    slice: Slice
    pieces: list[Piece] = field(default_factory=list)
    n_pending: int = 0


class Capture:
    """Collect one group's gradient slices over all batches, and add their products.

    In the last batch, the products of a slice are added, and the slice is dropped, as soon as backpropagation has
    completed it. With a single batch, only about one slice is in memory at a time.
    """

    def __init__(self, group: Sequence[Slice], kernel: KernelSum, *, workspace_bytes: int) -> None:
        self._open = {part.trained.tensor: _OpenSlice(part) for part in group}
        self._uses: dict[nn.Module, list[tuple[str, _OpenSlice]]] = {}
        for open_slice in self._open.values():
            for module, attribute in open_slice.slice.trained.uses:
                self._uses.setdefault(module, []).append((attribute, open_slice))
        self._rules = {module: find_rule(module) for module in self._uses}
        self._offsets: dict[type[nn.Module], float | None] = {}
        self._kernel = kernel
        self._workspace_bytes = workspace_bytes
        self._batch: KernelBatch | None = None
        self._is_last = False
        self._done: set[nn.Parameter] = set()
        self._unknown: set[nn.Parameter] = set()

    @contextmanager
    def capture_batch(self, batch: KernelBatch, *, is_last: bool) -> Iterator[None]:
        """Capture the gradients of the passes inside the block, which must run on ``batch``."""
        self._batch, self._is_last = batch, is_last
        hooks = [module.register_forward_hook(self._at_forward, with_kwargs=True) for module in self._uses]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for open_slice in self._open.values():
                open_slice.n_pending = 0
        if is_last:
            for parameter in self._open:
                self._finish(parameter)

    def find_missing(self) -> list[Trained]:
        """Return the parameters whose gradients could not be captured. Call after the last batch."""
        return [open_slice.slice.trained for parameter, open_slice in self._open.items() if parameter not in self._done]

    def _at_forward(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        uses = self._uses[module]
        if not isinstance(output, Tensor) or not inputs:
            self._unknown.update(open_slice.slice.trained.tensor for _, open_slice in uses)
        elif output.requires_grad:
            for _, open_slice in uses:
                open_slice.n_pending += 1
            detached = tuple(given.detach() if isinstance(given, Tensor) else given for given in inputs)
            output.register_hook(self._at_backward(module, detached, keywords, output))

    def _at_backward(
        self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
    ) -> Callable[[Tensor], None]:
        rule, version = self._rules[module], output._version
        kept = output.detach() if rule is norm else None  # shares output's version counter, to detect in-place writes

        def collect(gradient: Tensor) -> None:
            assert self._batch is not None
            call = LayerCall(
                module=module,
                inputs=inputs,
                keywords=keywords,
                output=None if kept is None or kept._version != version else kept,
                gradient=gradient,
                batch=self._batch,
                offsets=self._offsets,
            )
            pieces = None if rule is None or rows_are_unclear(gradient, self._batch) else rule(call)
            for attribute, open_slice in self._uses[module]:
                if pieces is None or attribute not in pieces:
                    self._unknown.add(open_slice.slice.trained.tensor)
                    continue
                open_slice.pieces.append(self._cut(pieces[attribute], open_slice.slice))
                open_slice.n_pending -= 1
                if self._is_last and open_slice.n_pending == 0:
                    self._finish(open_slice.slice.trained.tensor)

        return collect

    def _cut(self, piece: Piece, wanted: Slice) -> Piece:
        """Return the part of ``piece`` in the slice.

        It is a copy if it must be kept for later batches.
        """
        if self._is_last or (wanted.is_whole and not wanted.dense):
            return piece if wanted.is_whole else piece.part(wanted.first, wanted.last, own_memory=False)
        if not isinstance(piece, Outer) or not wanted.dense:
            return piece.part(wanted.first, wanted.last, own_memory=True)
        members = tuple(range(len(piece.members)))
        gradient_BOI = torch.empty(len(members), *wanted.shape, device=piece.rights[0].device)
        Outer(members, piece.lefts, piece.rights).add_to(gradient_BOI, wanted.first, wanted.last, set())
        return Direct(piece.members, gradient_BOI)

    def _finish(self, parameter: nn.Parameter) -> None:
        open_slice = self._open[parameter]
        pieces, open_slice.pieces = open_slice.pieces, []
        if parameter in self._done or parameter in self._unknown or not pieces:
            return
        part = open_slice.slice
        self._kernel.add(part.trained.name, pieces, part.shape, workspace_bytes=self._workspace_bytes)
        self._done.add(parameter)
