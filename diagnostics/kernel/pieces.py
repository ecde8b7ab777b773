"""What one call of a module gives to the gradients of its parameters, row by row: a small function per module kind.

A parameter's gradient is laid out as its first axis (``O``) by all the others (``I``). A module that is not known
here gives nothing: its parameters take the path of ``single_rows``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from diagnostics.kernel.rows import Batch


@dataclass(frozen=True, eq=False)
class Outer:
    """Gradients that are sums over tokens of outer products: Σ_t left_t ⊗ right_t for each row.

    ``lefts`` has a tensor of tokens × O for each row; token numbers stand for the unit vectors of an embedding.
    """

    members: tuple[int, ...]
    lefts: tuple[Tensor, ...]
    rights: tuple[Tensor, ...]

    @property
    def one_hot(self) -> bool:
        """Whether the lefts are token numbers."""
        return not self.lefts[0].is_floating_point()

    def part(self, first: int, last: int, *, own_memory: bool) -> Outer:
        """The rows ``first`` to ``last`` of the gradient; with ``own_memory`` it keeps nothing else alive."""
        if self.one_hot:
            kept = [(left >= first) & (left < last) for left in self.lefts]
            lefts = tuple(left[keep] - first for left, keep in zip(self.lefts, kept, strict=True))
            return Outer(self.members, lefts, tuple(right[keep] for right, keep in zip(self.rights, kept, strict=True)))
        whole = first == 0 and last == self.lefts[0].shape[1]
        lefts = self.lefts if whole else tuple(left[:, first:last] for left in self.lefts)
        return Outer(
            self.members, tuple(left.clone() for left in lefts) if own_memory and not whole else lefts, self.rights
        )

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add the rows ``first`` to ``last`` of the gradient; what is not in ``written`` holds nothing yet."""
        part = self.part(first, last, own_memory=False)
        for member, left, right in zip(part.members, part.lefts, part.rights, strict=True):
            if part.one_hot:
                if member not in written:
                    gradient_NOI[member].zero_()
                gradient_NOI[member].index_add_(0, left, right)
            else:
                gradient_NOI[member].addmm_(left.T, right, beta=int(member in written))
            written.add(member)


@dataclass(frozen=True, eq=False)
class Direct:
    """Gradients themselves, one for each row."""

    members: tuple[int, ...]
    gradient_BOI: Float[Tensor, "row out in"]

    def part(self, first: int, last: int, *, own_memory: bool) -> Direct:
        """The rows ``first`` to ``last`` of the gradient; with ``own_memory`` it keeps nothing else alive."""
        gradient_BOI = self.gradient_BOI[:, first:last]
        return Direct(self.members, gradient_BOI.clone() if own_memory else gradient_BOI)

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add the rows ``first`` to ``last`` of the gradient; what is not in ``written`` holds nothing yet."""
        for member, gradient_OI in zip(self.members, self.gradient_BOI[:, first:last], strict=True):
            if member in written:
                gradient_NOI[member] += gradient_OI
            else:
                gradient_NOI[member] = gradient_OI
            written.add(member)


Piece = Outer | Direct
#: (module, inputs, keyword inputs, gradient at the output, batch) → a piece for each parameter; None: not known here.
Kind = Callable[[Any, tuple[Any, ...], dict[str, Any], Tensor, Batch], dict[str, Piece] | None]


def kind_of(module: nn.Module) -> Kind | None:
    """How the module's parameters come by their gradients, None if it is not of a known kind.

    By type, not by ``isinstance``: a subclass may compute something else.
    """
    if type(module) is nn.Linear:
        return _linear
    if type(module) is Conv1D:
        return _conv1d
    if type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
        return _embedding
    if type(module).__name__.endswith(("RMSNorm", "LayerNorm")):
        named = dict(module.named_parameters())
        if "weight" in named and set(named) <= {"weight", "bias"} and all(one.ndim == 1 for one in named.values()):
            return _norm
    return None


def is_outer(module: nn.Module, attribute: str) -> bool:
    """Whether the parameter's piece is an ``Outer``."""
    return attribute == "weight" and kind_of(module) in (_linear, _conv1d, _embedding)


def by_row(tokens: Tensor, batch: Batch) -> tuple[Tensor, ...] | None:
    """A tensor that ends in a feature axis as one of tokens × features for each row, None if its rows cannot be told.

    Known are (row, token, …), (row, head, token, …), rows one after the other, and the head's responses.
    """
    n_rows, width = batch.ids_BL.shape
    if tokens.ndim >= 3 and tokens.shape[0] == n_rows:
        if tokens.ndim == 3 and tokens.shape[1] == width:
            return tuple(one[:length] for one, length in zip(tokens, batch.lengths, strict=True))
        return tuple(tokens.reshape(n_rows, -1, tokens.shape[-1]))  # padding has no gradient: it may stay
    if tokens.ndim == 2 and tokens.shape[0] == n_rows * width:
        return by_row(tokens.view(n_rows, width, -1), batch)
    if tokens.ndim == 3 and tokens.shape[:2] == (1, sum(batch.response_lengths)):
        return tokens[0].split(batch.response_lengths)
    return None


def _linear(
    module: nn.Linear, inputs: tuple[Any, ...], _keywords: dict[str, Any], gradient: Tensor, batch: Batch
) -> dict[str, Piece] | None:
    given, returned = by_row(inputs[0], batch), by_row(gradient, batch)
    if given is None or returned is None:
        return None
    pieces: dict[str, Piece] = {"weight": Outer(batch.members, returned, given)}
    return pieces | _bias(module, gradient, batch)


def _conv1d(
    module: Conv1D, inputs: tuple[Any, ...], _keywords: dict[str, Any], gradient: Tensor, batch: Batch
) -> dict[str, Piece] | None:
    given, returned = by_row(inputs[0], batch), by_row(gradient, batch)
    if given is None or returned is None:
        return None
    pieces: dict[str, Piece] = {"weight": Outer(batch.members, given, returned)}
    return pieces | _bias(module, gradient, batch)


def _embedding(
    module: nn.Embedding, inputs: tuple[Any, ...], _keywords: dict[str, Any], gradient: Tensor, batch: Batch
) -> dict[str, Piece] | None:
    ids_BL = inputs[0]
    if ids_BL.shape != batch.ids_BL.shape:
        return None
    lefts = tuple(ids[:length] for ids, length in zip(ids_BL, batch.lengths, strict=True))
    rights = tuple(one[:length] for one, length in zip(gradient, batch.lengths, strict=True))
    if module.padding_idx is not None:  # autograd gives the padding's row no gradient, also where it ends a response
        kept = [ids != module.padding_idx for ids in lefts]
        lefts = tuple(ids[keep] for ids, keep in zip(lefts, kept, strict=True))
        rights = tuple(one[keep] for one, keep in zip(rights, kept, strict=True))
    return {"weight": Outer(batch.members, lefts, rights)}


def _norm(
    module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], gradient: Tensor, batch: Batch
) -> dict[str, Piece] | None:
    """A norm's output is affine in its scale, feature by feature, whether that is w, 1 + w or w times a gate."""
    if type(module) is nn.LayerNorm:
        slope = functional.layer_norm(inputs[0], module.normalized_shape, eps=module.eps)
    else:
        held = dict(module.named_parameters())

        def at(value: float) -> Tensor:
            scale = {"weight": torch.full_like(held["weight"], value)}
            return functional_call(module, held | scale, inputs, keywords)

        with torch.no_grad():
            slope = at(1.0) - at(0.0)
    scale_BOI = _sum_by_row(gradient * slope, batch)
    if scale_BOI is None:
        return None
    pieces: dict[str, Piece] = {"weight": Direct(batch.members, scale_BOI)}
    return pieces | _bias(module, gradient, batch)


def _bias(module: nn.Module, gradient: Tensor, batch: Batch) -> dict[str, Piece]:
    if getattr(module, "bias", None) is None:
        return {}
    sum_BOI = _sum_by_row(gradient, batch)
    return {} if sum_BOI is None else {"bias": Direct(batch.members, sum_BOI)}


def _sum_by_row(tokens: Tensor, batch: Batch) -> Float[Tensor, "row feature one"] | None:
    """Sums over each row's tokens, None if its rows cannot be told; padding has no gradient and may stay."""
    if tokens.ndim >= 3 and len(tokens) == len(batch.rows):
        return tokens.flatten(1, -2).sum(dim=1)[:, :, None]
    rows = by_row(tokens, batch)
    return None if rows is None else torch.stack([one.sum(dim=0) for one in rows])[:, :, None]
