"""Rules that compute the rows' gradients of a module's parameters, by module type.

A parameter's gradient is a matrix: ``O`` is the parameter's first axis, ``I`` all other axes, flattened. A *piece* is
such a gradient for the rows of one call: a sum of outer products, a one-hot sum, or the full matrix. For modules
without a rule, ``streaming`` computes gradients row by row.
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

#: Smallest absolute value of a norm's scale for which the gradient is computed by dividing by the scale.
_LEAST_SCALE = 1e-20


@dataclass(frozen=True, eq=False)
class Outer:
    """Gradients as sums of outer products over tokens: Σ_t left_t ⊗ right_t for each row.

    ``members`` are cut into bands of rows of similar length. Each band has a left factor of shape rows × tokens × O and
    a right factor of shape rows × tokens × I. Padding is 0 in one of the factors.
    """

    members: tuple[int, ...]
    lefts: tuple[Tensor, ...]
    rights: tuple[Tensor, ...]

    def part(self, first: int, last: int, *, own_memory: bool) -> Outer:
        """Return entries ``first`` to ``last`` of axis ``O``; ``own_memory`` requests a copy."""
        if first == 0 and last == self.lefts[0].shape[2]:
            return self
        lefts = tuple(left[:, :, first:last] for left in self.lefts)
        return Outer(self.members, tuple(left.clone() for left in lefts) if own_memory else lefts, self.rights)

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add entries ``first`` to ``last`` of axis ``O`` to the gradients of all kernel rows.

        Rows in ``written`` have values already, to which the entries are added. Other rows are uninitialised: they are
        overwritten and added to ``written``.
        """
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
    """Gradients of an embedding: ``right_TI`` at entry ``token_T`` of kernel row ``member_T``."""

    members: tuple[int, ...]
    member_T: Int[Tensor, " token"]
    token_T: Int[Tensor, " token"]
    right_TI: Float[Tensor, "token in"]

    def part(self, first: int, last: int, *, own_memory: bool) -> OneHot:
        """Return entries ``first`` to ``last`` of axis ``O``, see ``Outer.part``."""
        kept = (self.token_T >= first) & (self.token_T < last)
        return OneHot(self.members, self.member_T[kept], self.token_T[kept] - first, self.right_TI[kept])

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add entries ``first`` to ``last`` of axis ``O`` to all kernel rows, see ``Outer.add_to``."""
        missing = sorted(set(self.members) - written)
        if missing:
            gradient_NOI[missing] = 0
            written.update(missing)
        part = self.part(first, last, own_memory=False)
        place_T = part.member_T * (last - first) + part.token_T
        gradient_NOI.view(-1, gradient_NOI.shape[2]).index_add_(0, place_T, part.right_TI)


@dataclass(frozen=True, eq=False)
class Direct:
    """Full gradient matrices, one per row."""

    members: tuple[int, ...]
    gradient_BOI: Float[Tensor, "row out in"]

    def part(self, first: int, last: int, *, own_memory: bool) -> Direct:
        """Return entries ``first`` to ``last`` of axis ``O``, see ``Outer.part``."""
        gradient_BOI = self.gradient_BOI[:, first:last]
        return Direct(self.members, gradient_BOI.clone() if own_memory else gradient_BOI)

    def add_to(self, gradient_NOI: Float[Tensor, "row out in"], first: int, last: int, written: set[int]) -> None:
        """Add entries ``first`` to ``last`` of axis ``O`` to all kernel rows, see ``Outer.add_to``."""
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
    """One call of a module, and the gradient at its output.

    ``output`` is None if the module's rule does not need it, or if later code modified it in place.
    """

    module: Any
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output: Tensor | None
    gradient: Tensor
    batch: KernelBatch
    #: Cache by norm type: the constant that the norm adds to its scale, None if unknown.
    offsets: dict[type[nn.Module], float | None]


#: Function that returns a piece for each parameter of a call's module, or None if the layout is unknown.
Rule = Callable[[LayerCall], dict[str, Piece] | None]


def find_rule(module: nn.Module) -> Rule | None:
    """Return the rule for the module's type, None if there is no rule.

    A subclass has no rule, because it may compute something else.
    """
    if type(module) in (nn.Linear, Conv1D):
        return _linear
    if type(module) is nn.Embedding and module.max_norm is None and not module.scale_grad_by_freq:
        return _embedding
    if type(module).__name__.endswith(("RMSNorm", "LayerNorm")):
        own = own_parameters(module)
        is_leaf = not any(True for child in module.children() for _ in child.parameters())
        if is_leaf and "weight" in own and own.keys() <= {"weight", "bias"}:
            return norm if all(parameter.ndim == 1 for parameter in own.values()) else None
    return None


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the module's parameters without those of its children.

    It is faster than ``named_parameters``.
    """
    return {name: parameter for name, parameter in module._parameters.items() if parameter is not None}


def is_outer(module: nn.Module, attribute: str) -> bool:
    """Return whether the parameter's piece is an ``Outer``."""
    return attribute == "weight" and find_rule(module) in (_linear, _embedding)


def split_bands(tokens: Tensor, batch: KernelBatch) -> tuple[Tensor, ...] | None:
    """Split activations into one tensor of rows × tokens × features per band.

    Returns None for an unknown layout. Known layouts are (row, token, …), (row, head, token, …), concatenated rows, and
    the head's response tokens.
    """
    n_rows, width = batch.ids_BL.shape
    if tokens.ndim >= 3 and tokens.shape[0] == n_rows:
        if tokens.ndim > 3:
            return (tokens.reshape(n_rows, -1, tokens.shape[-1]),)  # padding has no gradient
        if tokens.shape[1] == width:
            return tuple(tokens[start:end, :most] for start, end, most in batch.bands)
    if tokens.ndim == 2 and tokens.shape[0] == n_rows * width:
        return split_bands(tokens.view(n_rows, width, -1), batch)
    if tokens.ndim == 3 and tokens.shape[:2] == (1, len(batch.member_T)):
        return tokens.split(batch.response_lengths, dim=1)
    return None


def rows_are_unclear(gradient: Float[Tensor, "... feature"], batch: KernelBatch) -> bool:
    """Return whether the gradient's first axis might not be the rows.

    That is possible if a later axis has the same size. Then the positions without gradient decide: each row's last
    token and the padding. The certificate would not detect swapped axes.
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
    inputs, gradients = split_bands(call.inputs[0], call.batch), split_bands(call.gradient, call.batch)
    if inputs is None or gradients is None:
        return None
    sides = (inputs, gradients) if type(call.module) is Conv1D else (gradients, inputs)  # its weight is transposed
    return {"weight": Outer(call.batch.members, *sides)} | _bias(call)


def _embedding(call: LayerCall) -> dict[str, Piece] | None:
    ids_BL, batch = call.inputs[0], call.batch
    if ids_BL.shape != batch.ids_BL.shape:
        return None
    kept_BL = batch.mask_BL
    if call.module.padding_idx is not None:  # autograd skips this token even if it ends a response
        kept_BL = kept_BL & (ids_BL != call.module.padding_idx)
    row_T, column_T = kept_BL.nonzero(as_tuple=True)
    members = torch.tensor(batch.members, device=ids_BL.device)
    kept = row_T, column_T
    return {"weight": OneHot(batch.members, members[row_T], ids_BL[kept], call.gradient[kept])}


def norm(call: LayerCall) -> dict[str, Piece] | None:
    """Return the pieces of a norm layer.

    Each feature of its output is affine in the scale parameter w. The scale may be w, 1 + w, or w times a gate. Without
    a bias, the derivative of the output by w is the output divided by the scale.
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
    return {"weight": Direct(call.batch.members, scale_BOI)} | _bias(call)


def _slope(call: LayerCall) -> Tensor:
    """Return the derivative of the output by the scale parameter w."""
    if type(call.module) is nn.LayerNorm:
        return functional.layer_norm(call.inputs[0], call.module.normalized_shape, eps=call.module.eps)
    return _at_scale(call, 1.0) - _at_scale(call, 0.0)


def _offset(call: LayerCall) -> float | None:
    """Return 0 if the output is proportional to w, 1 if it is proportional to 1 + w, else None."""
    if getattr(call.module, "bias", None) is not None:
        return None
    at_zero, at_one = _at_scale(call, 0.0), _at_scale(call, 1.0)
    if not bool(at_zero.any()):
        return 0.0
    return 1.0 if torch.equal(at_one, 2 * at_zero) else None


def _at_scale(call: LayerCall, value: float) -> Tensor:
    own = own_parameters(call.module)
    scale = {"weight": torch.full_like(own["weight"], value)}
    with torch.no_grad():
        output: Tensor = functional_call(call.module, own | scale, call.inputs, call.keywords)
    return output


def _bias(call: LayerCall) -> dict[str, Piece]:
    if getattr(call.module, "bias", None) is None:
        return {}
    sum_BOI = _sum_by_row(call.gradient, call.batch)
    return {} if sum_BOI is None else {"bias": Direct(call.batch.members, sum_BOI)}


def _sum_by_row(tokens: Tensor, batch: KernelBatch) -> Float[Tensor, "row feature one"] | None:
    """Return sums over each row's tokens, None for an unknown layout. Padding contributes 0."""
    if tokens.ndim >= 3 and len(tokens) == len(batch.rows):
        return tokens.flatten(1, -2).sum(dim=1)[:, :, None]
    bands = split_bands(tokens, batch)
    return None if bands is None else torch.cat([band.sum(dim=1) for band in bands])[:, :, None]
