"""What one call of a module gives to the gradients of its parameters, row by row: a small function per module kind.

A parameter's gradient is laid out as its first axis (``O``) by all the others (``I``). A module that is not known
here gives nothing: its parameters take the path of ``single_rows``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from oversharp.diagnostics.kernel.rows import KernelBatch

#: A scale that is nearer to 0 is not divided by.
_LEAST_SCALE = 1e-20


@dataclass(frozen=True, eq=False)
class Outer:
    """Gradients that are sums over tokens of outer products: Σ_t left_t ⊗ right_t for each row.

    ``members`` are cut into bands of rows of about one length: a band's left is rows × tokens × O, its right rows ×
    tokens × I. What is padding is 0 on one side.
    """

    members: tuple[int, ...]
    lefts: tuple[Tensor, ...]
    rights: tuple[Tensor, ...]

    def part(self, first: int, last: int, *, own_memory: bool) -> Outer:
        """The rows ``first`` to ``last`` of the gradient; with ``own_memory`` it keeps nothing else alive."""
        if first == 0 and last == self.lefts[0].shape[2]:
            return self
        lefts = tuple(left[:, :, first:last] for left in self.lefts)
        return Outer(self.members, tuple(left.clone() for left in lefts) if own_memory else lefts, self.rights)

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add the rows ``first`` to ``last`` of the gradient; what is not in ``written`` holds nothing yet."""
        start = 0
        for left_BTO, right_BTI in zip(self.lefts, self.rights, strict=True):
            left_BOT = left_BTO[:, :, first:last].transpose(1, 2)
            members = self.members[start : start + len(left_BTO)]
            start += len(left_BTO)
            if members[-1] - members[0] + 1 == len(members) and written.isdisjoint(members):
                torch.bmm(left_BOT, right_BTI, out=gradient_NOI[members[0] : members[-1] + 1])
                written.update(members)
            else:
                Direct(members, left_BOT @ right_BTI).add_to(gradient_NOI, 0, last - first, written)


@dataclass(frozen=True, eq=False)
class OneHot:
    """Gradients of an embedding: row ``token_T`` of that of row ``member_T`` of the kernel gets ``right_TI``."""

    members: tuple[int, ...]
    member_T: Int[Tensor, " token"]
    token_T: Int[Tensor, " token"]
    right_TI: Float[Tensor, "token in"]

    def part(self, first: int, last: int, *, own_memory: bool) -> OneHot:
        """The rows ``first`` to ``last`` of the gradient; with ``own_memory`` it keeps nothing else alive."""
        kept = (self.token_T >= first) & (self.token_T < last)
        return OneHot(self.members, self.member_T[kept], self.token_T[kept] - first, self.right_TI[kept])

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add the rows ``first`` to ``last`` of the gradient; what is not in ``written`` holds nothing yet."""
        missing = sorted(set(self.members) - written)
        if missing:
            gradient_NOI[missing] = 0
            written.update(missing)
        part = self.part(first, last, own_memory=False)
        place_T = part.member_T * (last - first) + part.token_T
        gradient_NOI.view(-1, gradient_NOI.shape[2]).index_add_(0, place_T, part.right_TI)


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
        members = self.members
        if members[-1] - members[0] + 1 == len(members) and written.isdisjoint(members):
            gradient_NOI[members[0] : members[-1] + 1] = self.gradient_BOI[:, first:last]
            written.update(members)
            return
        for member, gradient_OI in zip(members, self.gradient_BOI[:, first:last], strict=True):
            if member in written:
                gradient_NOI[member] += gradient_OI
            else:
                gradient_NOI[member] = gradient_OI
            written.add(member)


Piece = Outer | OneHot | Direct


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerCall:
    """One run of a module, and the gradient at its output; ``output`` is None if it was written to since."""

    module: Any
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Tensor | None
    gradient: Tensor
    batch: KernelBatch
    #: What is added to the scale of a norm of this type, None if that is not known; filled as types are met.
    offsets: dict[type[nn.Module], float | None]


#: A piece for each parameter; None: not known here.
Kind = Callable[[LayerCall], dict[str, Piece] | None]


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
        held = own_parameters(module)
        own_are_all = not any(True for child in module.children() for _ in child.parameters())
        if own_are_all and "weight" in held and held.keys() <= {"weight", "bias"}:
            return norm if all(parameter.ndim == 1 for parameter in held.values()) else None
    return None


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The module's parameters without those of modules in it; ``named_parameters`` takes several times as long."""
    return {name: parameter for name, parameter in module._parameters.items() if parameter is not None}


def is_outer(module: nn.Module, attribute: str) -> bool:
    """Whether the parameter's piece is an ``Outer``."""
    return attribute == "weight" and kind_of(module) in (_linear, _conv1d, _embedding)


def in_bands(tokens: Tensor, batch: KernelBatch) -> tuple[Tensor, ...] | None:
    """A tensor that ends in a feature axis as one of rows × tokens × features for each band, None if rows are unclear.

    Known are (row, token, …), (row, head, token, …), rows one after the other, and the head's responses.
    """
    n_rows, width = batch.ids_BL.shape
    if tokens.ndim >= 3 and tokens.shape[0] == n_rows:
        if tokens.ndim > 3:
            return (tokens.reshape(n_rows, -1, tokens.shape[-1]),)  # padding has no gradient: it may stay
        if tokens.shape[1] == width:
            return tuple(tokens[start:end, :most] for start, end, most in batch.bands)
    if tokens.ndim == 2 and tokens.shape[0] == n_rows * width:
        return in_bands(tokens.view(n_rows, width, -1), batch)
    if tokens.ndim == 3 and tokens.shape[:2] == (1, len(batch.member_T)):
        return tokens.split(batch.response_lengths, dim=1)
    return None


def rows_are_unclear(gradient: Float[Tensor, "... feature"], batch: KernelBatch) -> bool:
    """Whether the first axis may be another than that of the rows, as a later one is of the same size.

    Then it must be seen from what has no gradient in each row: its last token, which predicts nothing, and padding. The
    certificate cannot see it.
    """
    n_rows, width = batch.ids_BL.shape
    axes = gradient.shape[:-1]
    if n_rows == 1 or not axes or axes[0] != n_rows or n_rows not in axes[1:]:
        return False
    idle_BL = torch.ones_like(batch.mask_BL)
    idle_BL[:, :-1] = ~batch.mask_BL[:, 1:]
    along = [axis for axis, size in enumerate(axes) if axis > 0 and size == width]
    return all(bool(gradient.movedim(axis, 1)[idle_BL].any()) for axis in along)


def _linear(call: LayerCall) -> dict[str, Piece] | None:
    given, returned = in_bands(call.inputs[0], call.batch), in_bands(call.gradient, call.batch)
    if given is None or returned is None:
        return None
    pieces: dict[str, Piece] = {"weight": Outer(call.batch.members, returned, given)}
    return pieces | _bias(call)


def _conv1d(call: LayerCall) -> dict[str, Piece] | None:
    given, returned = in_bands(call.inputs[0], call.batch), in_bands(call.gradient, call.batch)
    if given is None or returned is None:
        return None
    pieces: dict[str, Piece] = {"weight": Outer(call.batch.members, given, returned)}
    return pieces | _bias(call)


def _embedding(call: LayerCall) -> dict[str, Piece] | None:
    ids_BL, batch = call.inputs[0], call.batch
    if ids_BL.shape != batch.ids_BL.shape:
        return None
    kept_BL = batch.mask_BL
    if call.module.padding_idx is not None:  # autograd gives its row no gradient, also where it ends a response
        kept_BL = kept_BL & (ids_BL != call.module.padding_idx)
    row_T, column_T = kept_BL.nonzero(as_tuple=True)
    members = torch.tensor(batch.members, device=ids_BL.device)
    kept = row_T, column_T
    return {"weight": OneHot(batch.members, members[row_T], ids_BL[kept], call.gradient[kept])}


def norm(call: LayerCall) -> dict[str, Piece] | None:
    """A norm's output is affine in its scale, feature by feature, whether that is w, 1 + w or w times a gate.

    Without a bias, the output is what the scale is multiplied with, times the scale: so it can be divided out.
    """
    module, gradient = call.module, call.gradient
    if type(module) not in call.offsets:
        call.offsets[type(module)] = _offset(call)
    offset = call.offsets[type(module)]
    if offset is not None and call.output is not None:
        scale = module.weight.detach() + offset if offset else module.weight.detach()
        if bool((scale.abs() > _LEAST_SCALE).all()):
            scaled_BOI = _sum_by_row(gradient * call.output, call.batch)
            return None if scaled_BOI is None else {"weight": Direct(call.batch.members, scaled_BOI / scale[:, None])}
    scale_BOI = _sum_by_row(gradient * _slope(call), call.batch)
    if scale_BOI is None:
        return None
    pieces: dict[str, Piece] = {"weight": Direct(call.batch.members, scale_BOI)}
    return pieces | _bias(call)


def _slope(call: LayerCall) -> Tensor:
    """What the scale is multiplied with."""
    if type(call.module) is nn.LayerNorm:
        return functional.layer_norm(call.inputs[0], call.module.normalized_shape, eps=call.module.eps)
    return _at_scale(call, 1.0) - _at_scale(call, 0.0)


def _offset(call: LayerCall) -> float | None:
    """0 if the output is w times something, 1 if it is 1 + w times something, None if it is neither."""
    if getattr(call.module, "bias", None) is not None:
        return None
    at_zero, at_one = _at_scale(call, 0.0), _at_scale(call, 1.0)
    if not bool(at_zero.any()):
        return 0.0
    return 1.0 if torch.equal(at_one, 2 * at_zero) else None


def _at_scale(call: LayerCall, value: float) -> Tensor:
    held = own_parameters(call.module)
    scale = {"weight": torch.full_like(held["weight"], value)}
    with torch.no_grad():
        output: Tensor = functional_call(call.module, held | scale, call.inputs, call.keywords)
    return output


def _bias(call: LayerCall) -> dict[str, Piece]:
    if getattr(call.module, "bias", None) is None:
        return {}
    sum_BOI = _sum_by_row(call.gradient, call.batch)
    return {} if sum_BOI is None else {"bias": Direct(call.batch.members, sum_BOI)}


def _sum_by_row(tokens: Tensor, batch: KernelBatch) -> Float[Tensor, "row feature one"] | None:
    """Sums over each row's tokens, None if its rows cannot be told; padding has no gradient and may stay."""
    if tokens.ndim >= 3 and len(tokens) == len(batch.rows):
        return tokens.flatten(1, -2).sum(dim=1)[:, :, None]
    bands = in_bands(tokens, batch)
    return None if bands is None else torch.cat([one.sum(dim=1) for one in bands])[:, :, None]
