"""Which parameters are trained, where they are used, and how many of their gradients fit in memory at one time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import nn

from oversharp.diagnostics.kernel.pieces import is_outer, kind_of, own_parameters
from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.records.errors import KernelError, KernelTooLargeError

#: Runs through the same part of a model beyond which a budget is refused rather than served very slowly.
MOST_PASSES = 64
#: The share of the budget in which products are formed; the rest keeps what they are formed of.
WORKSPACE_SHARE = 0.25
#: In the time that it takes to start what a pass runs, so many multiplications could be done.
_MULTIPLICATIONS_PER_PASS, _MULTIPLICATIONS_PER_PASS_ON_A_GPU = 1.5e8, 1.5e11
#: In the time that it takes to read the weights and to add to their gradients, so many tokens could be run.
_TOKENS_PER_PASS = 64


@dataclass(frozen=True, eq=False)
class Trained:
    """A parameter that is trained: its gradient is ``n_out`` × ``n_in`` numbers. ``uses``: (module, attribute)."""

    name: str
    parameter: nn.Parameter
    uses: tuple[tuple[nn.Module, str], ...]

    @property
    def n_out(self) -> int:
        """Length of the first axis."""
        return self.parameter.shape[0] if self.parameter.ndim else 1

    @property
    def n_in(self) -> int:
        """Numbers for each entry of the first axis."""
        return math.prod(self.parameter.shape[1:])

    @property
    def known(self) -> bool:
        """Whether every module that holds it is of a known kind."""
        return all(kind_of(module) is not None for module, _ in self.uses)


@dataclass(frozen=True)
class Slice:
    """Entries ``first`` to ``last`` of a parameter's first axis; ``dense``: keep gradients, not what makes them."""

    trained: Trained
    first: int
    last: int
    dense: bool

    @property
    def whole(self) -> bool:
        """Whether it is all of the parameter."""
        return self.first == 0 and self.last == self.trained.n_out

    @property
    def shape(self) -> tuple[int, int]:
        """Of the gradient of the slice."""
        return self.last - self.first, self.trained.n_in


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much there is of the rows: tokens with padding, response tokens alone, rows; ``head`` sees the second."""

    n_rows: int
    n_tokens: int
    n_responses: int
    head: nn.Module | None

    @classmethod
    def of(cls, model: nn.Module, batches: Sequence[KernelBatch]) -> Extent:
        """What the batches hold together."""
        return cls(
            n_rows=sum(len(batch.members) for batch in batches),
            n_tokens=sum(batch.ids_BL.numel() for batch in batches),
            n_responses=sum(sum(batch.response_lengths) for batch in batches),
            head=innermost(model).get_output_embeddings(),
        )


def trained_parameters(model: nn.Module) -> list[Trained]:
    """Every parameter that is trained, each once, with all modules that hold it. Raises ``KernelError`` if none is."""
    uses: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    names: dict[nn.Parameter, str] = {}
    for prefix, module in model.named_modules():
        for attribute, parameter in own_parameters(module).items():
            uses.setdefault(parameter, []).append((module, attribute))
            names.setdefault(parameter, f"{prefix}.{attribute}" if prefix else attribute)
    wanted = {parameter for parameter in names if parameter.requires_grad}
    if not wanted and hasattr(model, "peft_config"):
        wanted = set(_of_active_adapter(model))  # peft loads an adapter for use with everything frozen
    if not wanted:
        raise KernelError("the gradient kernel: no parameter of the model is trained; call model.requires_grad_(True)")
    return [
        Trained(name, parameter, tuple(uses[parameter]))
        for parameter, name in names.items()
        if parameter in wanted and parameter.is_floating_point()
    ]


def activation_bytes(model: nn.Module) -> tuple[int, int]:
    """Roughly what a token, and a response token beside, takes in a forward and backward pass."""
    head = innermost(model).get_output_embeddings()
    per_token = per_response_token = 0
    for module in model.modules():
        weight = own_parameters(module).get("weight")
        if weight is None or weight.ndim != 2:
            continue
        if module is head:
            per_response_token += 4 * 4 * sum(weight.shape)
        elif not isinstance(module, nn.Embedding):
            per_token += 2 * 4 * sum(weight.shape)
    return per_token, per_response_token


def least_tokens_saved(model: nn.Module) -> float:
    """Tokens that a pass of its own must save to be worth what it costs beside its tokens."""
    embeddings = innermost(model).get_input_embeddings(), innermost(model).get_output_embeddings()
    weights = [own_parameters(module).get("weight") for module in model.modules() if module not in embeddings]
    multiplications_per_token = sum(weight.numel() for weight in weights if weight is not None)
    on_cpu = next(model.parameters()).device.type == "cpu"
    multiplications = _MULTIPLICATIONS_PER_PASS if on_cpu else _MULTIPLICATIONS_PER_PASS_ON_A_GPU
    return multiplications / max(multiplications_per_token, 1) + _TOKENS_PER_PASS


def workspace_bytes(memory_bytes: int) -> int:
    """The part of the budget in which products are formed."""
    return int(memory_bytes * WORKSPACE_SHARE)


def require_budget(trained: Iterable[Trained], n_rows: int, memory_bytes: int) -> None:
    """Raise ``KernelError`` unless the smallest block fits: one entry of the first axis of the widest parameter."""
    block_bytes = 4 * n_rows * max(one.n_in for one in trained)
    share = min(WORKSPACE_SHARE, 1 - WORKSPACE_SHARE)
    if block_bytes > share * memory_bytes:
        raise too_small(memory_bytes, block_bytes / share)


def in_groups(trained: Iterable[Trained], extent: Extent, memory_bytes: int) -> list[list[Slice]]:
    """Slices of the parameters, in groups that fit in the budget one at a time.

    Raises ``KernelError`` if that takes more than ``MOST_PASSES`` groups.
    """
    room_bytes = memory_bytes - workspace_bytes(memory_bytes)
    groups: list[list[Slice]] = [[]]
    free_bytes = room_bytes
    total_bytes = 0
    for one in trained:
        total_bytes += _stored_bytes(one, one.n_out, extent)[0]
        first = 0
        while first < one.n_out:
            width = _widest(one, one.n_out - first, extent, free_bytes)
            if groups[-1] and width < one.n_out - first:
                groups.append([])
                free_bytes = room_bytes
                continue
            taken_bytes, dense = _stored_bytes(one, max(1, width), extent)
            groups[-1].append(Slice(one, first, first + max(1, width), dense))
            free_bytes -= taken_bytes
            first += max(1, width)
    if len(groups) > MOST_PASSES:
        raise too_small(memory_bytes, total_bytes / MOST_PASSES / (1 - WORKSPACE_SHARE))
    return groups


def fit_at_once(trained: Iterable[Trained], extent: Extent, memory_bytes: int) -> bool:
    """Whether what makes all gradients fits in the budget together, none of them formed."""
    kept_bytes = sum(_factor_bytes(one, one.n_out, extent) or _dense_bytes(one, one.n_out, extent) for one in trained)
    return kept_bytes <= memory_bytes - workspace_bytes(memory_bytes)


def _stored_bytes(one: Trained, width: int, extent: Extent) -> tuple[int, bool]:
    """What keeping ``width`` entries takes, and whether the gradients are the smaller part to keep."""
    dense_bytes, factor_bytes = _dense_bytes(one, width, extent), _factor_bytes(one, width, extent)
    return (dense_bytes, True) if factor_bytes is None else min((factor_bytes, False), (dense_bytes, True))


def _dense_bytes(one: Trained, width: int, extent: Extent) -> int:
    return 4 * extent.n_rows * width * one.n_in


def _factor_bytes(one: Trained, width: int, extent: Extent) -> int | None:
    """What keeping the factors of outer products takes, None if its gradient is not made of such."""
    if not one.uses or not all(is_outer(module, attribute) for module, attribute in one.uses):
        return None
    factor_bytes = 0
    for module, _ in one.uses:
        n_tokens = extent.n_responses if module is extent.head else extent.n_tokens
        factor_bytes += 4 * n_tokens * ((2 if isinstance(module, nn.Embedding) else width) + one.n_in)
    return factor_bytes


def _widest(one: Trained, most: int, extent: Extent, free_bytes: int) -> int:
    """The most entries, up to ``most``, that fit; 0 if not even one does. What they take grows with them."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if _stored_bytes(one, middle, extent)[0] <= free_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _of_active_adapter(model: Any) -> Iterator[nn.Parameter]:
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    active = {model.active_adapter} if isinstance(model.active_adapter, str) else set(model.active_adapter)
    for module in model.modules():
        if not isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            continue
        for layer_name in module.adapter_layer_names:
            held = attrgetter(layer_name)(module)
            for adapter in active & set(held):
                part = held[adapter]
                yield from [part] if isinstance(part, nn.Parameter) else part.parameters()


def too_small(memory_bytes: int, needed_bytes: float) -> KernelTooLargeError:
    """The error of a budget that so many rows do not fit in."""
    return KernelTooLargeError(
        f"the gradient kernel: {memory_bytes / 2**30:.3g} GiB is too small for this model and so many rows, which "
        f"take {max(needed_bytes, 1) * 1.01 / 2**30:.3g} GiB or more; raise --kernel-memory-gib, or take fewer rows",
        share=min(0.9, memory_bytes / max(needed_bytes, 1)),  # where slices do not divide it evenly, it says too much
    )
