"""Find the trained parameters, and group their gradients by available memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import nn

from oversharp.diagnostics.kernel.pieces import find_rule, is_outer, own_parameters
from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.models.cached_passes import innermost
from oversharp.diagnostics.records.errors import KernelError, KernelTooLargeError

#: Largest number of passes over one part of a model. A memory budget that needs more passes is rejected as too slow.
MAX_PASSES = 64
#: Share of the memory budget for computing products. The rest stores the gradients, or the factors of their outer
#: products.
WORKSPACE_SHARE = 0.25
#: Launch overhead of one pass on a CPU and on a GPU, in multiplications.
_MULTIPLICATIONS_PER_PASS, _MULTIPLICATIONS_PER_PASS_ON_A_GPU = 1.5e8, 1.5e11
#: Cost of reading the weights and updating their gradients in one pass, as the number of tokens of equal cost.
_TOKENS_PER_PASS = 64


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained parameter, whose gradient is a matrix of ``n_out`` × ``n_in``.

    ``uses`` are the modules that use the parameter, as pairs of module and attribute name.
    """

    name: str
    tensor: nn.Parameter
    uses: tuple[tuple[nn.Module, str], ...]

    @property
    def n_out(self) -> int:
        """Length of the first axis."""
        return self.tensor.shape[0] if self.tensor.ndim else 1

    @property
    def n_in(self) -> int:
        """Product of the lengths of all other axes."""
        return math.prod(self.tensor.shape[1:])

    @property
    def is_known(self) -> bool:
        """Whether ``pieces`` has a rule for every module that uses the parameter."""
        return all(find_rule(module) is not None for module, _ in self.uses)


@dataclass(frozen=True)
class Slice:
    """Entries ``first`` to ``last`` of a parameter's first axis.

    ``dense``: the full gradient of each row is stored, instead of the factors of its outer products.
    """

    trained: Trained
    first: int
    last: int
    dense: bool

    @property
    def is_whole(self) -> bool:
        """Whether the slice is the whole parameter."""
        return self.first == 0 and self.last == self.trained.n_out

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the slice's gradient."""
        return self.last - self.first, self.trained.n_in


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Total size of the rows.

    ``n_tokens`` includes padding. ``n_responses`` is the number of response tokens, which ``head`` processes.
    """

    n_rows: int
    n_tokens: int
    n_responses: int
    head: nn.Module | None

    @classmethod
    def measure(cls, model: nn.Module, batches: Sequence[KernelBatch]) -> Extent:
        """Return the total size of the batches."""
        return cls(
            n_rows=sum(len(batch.members) for batch in batches),
            n_tokens=sum(batch.ids_BL.numel() for batch in batches),
            n_responses=sum(sum(batch.response_lengths) for batch in batches),
            head=innermost(model).get_output_embeddings(),
        )


def find_trained(model: nn.Module) -> list[Trained]:
    """Return every trained parameter with the modules that use it.

    Raises ``KernelError`` if there is none.
    """
    uses: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    names: dict[nn.Parameter, str] = {}
    for prefix, module in model.named_modules():
        for attribute, parameter in own_parameters(module).items():
            uses.setdefault(parameter, []).append((module, attribute))
            names.setdefault(parameter, f"{prefix}.{attribute}" if prefix else attribute)
    wanted = {parameter for parameter in names if parameter.requires_grad}
    if not wanted and hasattr(model, "peft_config"):
        wanted = set(_adapter_parameters(model))  # peft freezes an adapter that is loaded for inference
    if not wanted:
        raise KernelError("the gradient kernel: no parameter of the model is trained; call model.requires_grad_(True)")
    return [
        Trained(name, parameter, tuple(uses[parameter]))
        for parameter, name in names.items()
        if parameter in wanted and parameter.is_floating_point()
    ]


def activation_bytes(model: nn.Module) -> tuple[int, int]:
    """Estimate the activation memory of a pass, in bytes.

    The first number is per token, the second in addition per response token.
    """
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
    """Return how many padding tokens an additional pass must save to be worth its overhead."""
    embeddings = innermost(model).get_input_embeddings(), innermost(model).get_output_embeddings()
    weights = [own_parameters(module).get("weight") for module in model.modules() if module not in embeddings]
    multiplications_per_token = sum(weight.numel() for weight in weights if weight is not None)
    on_cpu = next(model.parameters()).device.type == "cpu"
    multiplications = _MULTIPLICATIONS_PER_PASS if on_cpu else _MULTIPLICATIONS_PER_PASS_ON_A_GPU
    return multiplications / max(multiplications_per_token, 1) + _TOKENS_PER_PASS


def workspace_bytes(memory_bytes: int) -> int:
    """Return the part of the memory budget for computing products."""
    return int(memory_bytes * WORKSPACE_SHARE)


def require_budget(trained: Iterable[Trained], n_rows: int, memory_bytes: int) -> None:
    """Raise ``KernelError`` if the budget is too small for any computation.

    One entry of the widest parameter's first axis must fit.
    """
    block_bytes = 4 * n_rows * max(parameter.n_in for parameter in trained)
    share = min(WORKSPACE_SHARE, 1 - WORKSPACE_SHARE)
    if block_bytes > share * memory_bytes:
        raise make_budget_error(memory_bytes, block_bytes / share)


def group_slices(trained: Iterable[Trained], extent: Extent, memory_bytes: int) -> list[list[Slice]]:
    """Cut the parameters into slices, in groups that each fit in the memory budget.

    Raises ``KernelError`` if more than ``MAX_PASSES`` groups are needed.
    """
    room_bytes = memory_bytes - workspace_bytes(memory_bytes)
    groups: list[list[Slice]] = [[]]
    free_bytes = room_bytes
    total_bytes = 0
    for parameter in trained:
        total_bytes += _stored_bytes(parameter, parameter.n_out, extent)[0]
        first = 0
        while first < parameter.n_out:
            width = _max_width(parameter, parameter.n_out - first, extent, free_bytes)
            if groups[-1] and width < parameter.n_out - first:
                groups.append([])
                free_bytes = room_bytes
                continue
            used_bytes, dense = _stored_bytes(parameter, max(1, width), extent)
            groups[-1].append(Slice(parameter, first, first + max(1, width), dense))
            free_bytes -= used_bytes
            first += max(1, width)
    if len(groups) > MAX_PASSES:
        raise make_budget_error(memory_bytes, total_bytes / MAX_PASSES / (1 - WORKSPACE_SHARE))
    return groups


def fit_at_once(trained: Iterable[Trained], extent: Extent, memory_bytes: int) -> bool:
    """Return whether the gradients of all parameters fit in the budget together.

    Gradients are counted as factors where they have factors.
    """
    kept_bytes = sum(
        _factor_bytes(parameter, parameter.n_out, extent) or _dense_bytes(parameter, parameter.n_out, extent)
        for parameter in trained
    )
    return kept_bytes <= memory_bytes - workspace_bytes(memory_bytes)


def _stored_bytes(parameter: Trained, width: int, extent: Extent) -> tuple[int, bool]:
    """Return the bytes to store ``width`` entries, and whether as full gradients or factors."""
    dense_bytes, factor_bytes = _dense_bytes(parameter, width, extent), _factor_bytes(parameter, width, extent)
    return (dense_bytes, True) if factor_bytes is None else min((factor_bytes, False), (dense_bytes, True))


def _dense_bytes(parameter: Trained, width: int, extent: Extent) -> int:
    return 4 * extent.n_rows * width * parameter.n_in


def _factor_bytes(parameter: Trained, width: int, extent: Extent) -> int | None:
    """Return the bytes of the outer products' factors.

    None if the gradient is not a sum of outer products.
    """
    if not parameter.uses or not all(is_outer(module, attribute) for module, attribute in parameter.uses):
        return None
    factor_bytes = 0
    for module, _ in parameter.uses:
        n_tokens = extent.n_responses if module is extent.head else extent.n_tokens
        factor_bytes += 4 * n_tokens * ((2 if isinstance(module, nn.Embedding) else width) + parameter.n_in)
    return factor_bytes


def _max_width(parameter: Trained, limit: int, extent: Extent, free_bytes: int) -> int:
    """Return the largest number of entries that fit in ``free_bytes``, at most ``limit``."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if _stored_bytes(parameter, middle, extent)[0] <= free_bytes:
            low = middle
        else:
            high = middle - 1
    return low


def _adapter_parameters(model: Any) -> Iterator[nn.Parameter]:
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    active = {model.active_adapter} if isinstance(model.active_adapter, str) else set(model.active_adapter)
    for module in model.modules():
        if not isinstance(module, BaseTunerLayer | AuxiliaryTrainingWrapper):
            continue
        for layer_name in module.adapter_layer_names:
            by_adapter = attrgetter(layer_name)(module)
            for adapter in active & set(by_adapter):
                part = by_adapter[adapter]
                yield from [part] if isinstance(part, nn.Parameter) else part.parameters()


def make_budget_error(memory_bytes: int, needed_bytes: float) -> KernelTooLargeError:
    """Return the error for a budget that is too small for the rows."""
    return KernelTooLargeError(
        f"the gradient kernel: {memory_bytes / 2**30:.3g} GiB is too small for this model and these rows, which "
        f"need at least {max(needed_bytes, 1) * 1.01 / 2**30:.3g} GiB; raise --kernel-memory-gib, or pass fewer rows",
        share=min(0.9, memory_bytes / max(needed_bytes, 1)),  # at most 0.9, because slices may divide unevenly
    )
