"""Catches what modules give to per-row gradients while a part of a model runs, and multiplies what is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from oversharp.diagnostics.kernel.parameters import Slice, Trained
from oversharp.diagnostics.kernel.pieces import Direct, LayerCall, Outer, Piece, kind_of, norm, rows_are_unclear
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import KernelBatch


@dataclass
class _Open:
    """A slice that is being collected: its pieces, and how many calls of the running batch have still to give one."""

    slice: Slice
    pieces: list[Piece] = field(default_factory=list)
    awaited: int = 0


class Capture:
    """Collects the slices of one group over all batches and adds their products to ``kernel``.

    In the last batch each slice is multiplied and dropped as soon as backpropagation has given all of it, so with one
    batch hardly more than one is there at a time. ``left_out`` are the parameters that came in a form that is not
    known here, or not at all: nothing of them was added.
    """

    def __init__(self, group: Sequence[Slice], kernel: KernelSum, *, workspace_bytes: int) -> None:
        self._open = {one.trained.parameter: _Open(one) for one in group}
        self._held: dict[nn.Module, list[tuple[str, _Open]]] = {}
        for one in self._open.values():
            for module, attribute in one.slice.trained.uses:
                self._held.setdefault(module, []).append((attribute, one))
        self._kinds = {module: kind_of(module) for module in self._held}
        self._offsets: dict[type[nn.Module], float | None] = {}
        self._kernel = kernel
        self._workspace_bytes = workspace_bytes
        self._batch: KernelBatch | None = None
        self._last = False
        self._done: set[nn.Parameter] = set()
        self._unknown: set[nn.Parameter] = set()

    @contextmanager
    def of_batch(self, batch: KernelBatch, *, last: bool) -> Iterator[None]:
        """Catch what runs inside the block, which computes on ``batch``."""
        self._batch, self._last = batch, last
        hooks = [module.register_forward_hook(self._at_forward, with_kwargs=True) for module in self._held]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for one in self._open.values():
                one.awaited = 0
        if last:
            for parameter in self._open:
                self._finish(parameter)

    def left_out(self) -> list[Trained]:
        """Parameters of which nothing was added; after the last batch."""
        return [one.slice.trained for parameter, one in self._open.items() if parameter not in self._done]

    def _at_forward(self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        held = self._held[module]
        if not isinstance(output, Tensor) or not inputs:
            self._unknown.update(one.slice.trained.parameter for _, one in held)
        elif output.requires_grad:
            for _, one in held:
                one.awaited += 1
            output.register_hook(self._at_backward(module, _detached(inputs), keywords, output))

    def _at_backward(
        self, module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
    ) -> Callable[[Tensor], None]:
        kind, version = self._kinds[module], output._version
        kept = output.detach() if kind is norm else None  # shares the count of writes

        def take(gradient: Tensor) -> None:
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
            pieces = None if kind is None or rows_are_unclear(gradient, self._batch) else kind(call)
            for attribute, one in self._held[module]:
                if pieces is None or attribute not in pieces:
                    self._unknown.add(one.slice.trained.parameter)
                    continue
                one.pieces.append(self._kept(pieces[attribute], one.slice))
                one.awaited -= 1
                if self._last and one.awaited == 0:
                    self._finish(one.slice.trained.parameter)

        return take

    def _kept(self, piece: Piece, of: Slice) -> Piece:
        if self._last or (of.whole and not of.dense):
            return piece if of.whole else piece.part(of.first, of.last, own_memory=False)
        if not isinstance(piece, Outer) or not of.dense:
            return piece.part(of.first, of.last, own_memory=True)
        return _formed(piece, of)

    def _finish(self, parameter: nn.Parameter) -> None:
        one = self._open[parameter]
        pieces, one.pieces = one.pieces, []
        if parameter in self._done or parameter in self._unknown or not pieces:
            return
        self._kernel.add(one.slice.trained.name, pieces, one.slice.shape, workspace_bytes=self._workspace_bytes)
        self._done.add(parameter)


def _formed(piece: Outer, of: Slice) -> Direct:
    """The gradients that an outer product stands for."""
    members = tuple(range(len(piece.members)))
    gradient_BOI = torch.empty(len(members), *of.shape, device=piece.rights[0].device)
    Outer(members, piece.lefts, piece.rights).add_to(gradient_BOI, of.first, of.last, set())
    return Direct(piece.members, gradient_BOI)


def _detached(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one.detach() if isinstance(one, Tensor) else one for one in inputs)
