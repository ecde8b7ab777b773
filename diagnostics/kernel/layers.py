"""Run one decoder layer at a time on all batches.

This keeps one layer's gradients of all rows in memory together. A first forward pass records the inputs of each layer
for all rows. Then each layer runs forward and backward from its recorded inputs, from the last layer to the first, and
returns the gradient at its input. Modules outside the layers (embeddings, last norm, head) run again with the layers
replaced by their recorded outputs. Compared with a single batch, this costs one additional forward pass, for any number
of batches.

The certificate's row that runs alone starts each layer from the gradient of a pass through the whole model. So the
certificate fails if the layers exchange more than hidden states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oversharp.diagnostics.kernel.forward import response_logps, sum_logps
from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.models.cached_passes import innermost


@dataclass(frozen=True)
class _Call:
    """Recorded inputs and outputs of one call of a layer.

    ``others`` are the further elements of an output tuple, or None if the output is a single tensor.
    """

    hidden_BLH: Tensor
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output_BLH: Tensor
    others: tuple[Any, ...] | None

    def wrap(self, hidden_BLH: Tensor) -> Any:
        """Return ``hidden_BLH`` in the same structure as the layer's output: a tensor or a tuple."""
        return hidden_BLH if self.others is None else (hidden_BLH, *self.others)


@dataclass(frozen=True)
class _RowAlone:
    """A batch of one row that ran through the whole model, and its recorded calls.

    ``gradients`` are those of the row's log π, times its sign, at the first layer's input and at each layer's output.
    """

    batch: KernelBatch
    calls: list[_Call]
    gradients: tuple[Tensor, ...]


@dataclass
class LayerStack:
    """The decoder layers and their recorded calls (``calls[batch][layer]``)."""

    model: nn.Module
    layers: tuple[nn.Module, ...]
    batches: Sequence[KernelBatch]
    calls: list[list[_Call]]
    logp_sums_B: list[Float[Tensor, " row"]]
    #: Gradient of Σ c_i log π_i at the output of the layer that runs next, for each batch.
    upstream: list[Tensor] = field(default_factory=list)
    _alone: _RowAlone | None = None

    @property
    def alone(self) -> _RowAlone:
        """The row that runs alone. Call ``record_alone`` before."""
        assert self._alone is not None
        return self._alone

    def record_alone(self, batch: KernelBatch) -> bool:
        """Run the whole model on a batch of one row, forward and backward.

        Returns False if a gradient could flow to the embeddings past the first layer's input. Then layers cannot run
        one at a time.
        """
        with torch.enable_grad():
            calls, logp_T = _record_calls(self.model, self.layers, batch)
            side_inputs = _tensors([(call.inputs, call.keywords) for call in calls])
            if not calls or not calls[0].hidden_BLH.requires_grad or any(side.requires_grad for side in side_inputs):
                return False
            boundaries = [calls[0].hidden_BLH, *(call.output_BLH for call in calls)]
            gradients = torch.autograd.grad(logp_T @ batch.sign_T, boundaries)
        self._alone = _RowAlone(batch, [_detach(call) for call in calls], gradients)
        return True

    def start(self) -> None:
        """Compute the gradients at the output of the last layer."""
        for number, batch in enumerate(self.batches):
            with self._replaced_layers(self.calls[number]) as (_, last_BLH):
                response_logps(self.model, batch).backward(batch.sign_T)
            assert last_BLH.grad is not None
            self.upstream.append(last_BLH.grad)

    def run_layer(self, index: int, number: int) -> Tensor:
        """Run a layer forward and backward on a batch; return the gradient at its input."""
        call = self.calls[number][index]
        hidden_BLH = call.hidden_BLH.detach().requires_grad_()
        output = self.layers[index](hidden_BLH, *call.inputs, **call.keywords)
        _hidden_part(output).backward(self.upstream[number])
        assert hidden_BLH.grad is not None
        return hidden_BLH.grad

    def run_layer_alone(self, index: int) -> None:
        """Run a layer forward and backward on the row that runs alone."""
        call = self.alone.calls[index]
        output_BLH = _hidden_part(self.layers[index](call.hidden_BLH, *call.inputs, **call.keywords))
        if output_BLH.requires_grad:  # otherwise the row uses no trained parameter of the layer
            output_BLH.backward(self.alone.gradients[index + 1])

    def descend(self, below: list[Tensor], index: int) -> None:
        """Move on to the next lower layer.

        ``below`` are the gradients at the input of layer ``index``.
        """
        self.upstream = below
        for calls in self.calls:
            if index + 1 < len(calls):  # run_rest needs the last layer's output
                calls[index + 1] = _drop_tensors(calls[index + 1], keep_output=index + 2 == len(calls))

    def run_rest(self, number: int) -> None:
        """Run the modules outside the layers on a batch. Call after all layers have run."""
        self._run_rest(self.batches[number], self.calls[number], self.upstream[number])

    def run_rest_alone(self) -> None:
        """Run the modules outside the layers on the row that runs alone."""
        self._run_rest(self.alone.batch, self.alone.calls, self.alone.gradients[0])

    def _run_rest(self, batch: KernelBatch, calls: list[_Call], upstream_BLH: Tensor) -> None:
        with self._replaced_layers(calls) as (first, _):
            logp_T = response_logps(self.model, batch)
            # two backward passes: the gradients of a tied embedding are never in memory together
            logp_T.backward(batch.sign_T)
            if first[0].requires_grad:
                first[0].backward(upstream_BLH)

    @contextmanager
    def _replaced_layers(self, calls: list[_Call]) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Replace the layers by their recorded outputs inside the block.

        Yields two values: a list to which the first layer's input is appended when it runs, and the last layer's
        output.
        """
        entered: list[Tensor] = []
        last_BLH = calls[-1].output_BLH.detach().requires_grad_()

        def first(hidden_states: Tensor, *_inputs: Any, **_keywords: Any) -> Any:
            entered.append(hidden_states)
            return calls[0].wrap(last_BLH if len(calls) == 1 else hidden_states.detach())

        def between(call: _Call) -> Any:
            return lambda hidden_states, *_inputs, **_keywords: call.wrap(hidden_states)

        def last(*_inputs: Any, **_keywords: Any) -> Any:
            return calls[-1].wrap(last_BLH)

        with ExitStack() as restored:
            for layer, call in zip(self.layers, calls, strict=True):
                replacement = first if layer is self.layers[0] else last if layer is self.layers[-1] else between(call)
                restored.callback(_restore_forward, layer, layer.__dict__.get("forward"))
                layer.__dict__["forward"] = replacement
            yield entered, last_BLH


def find_layers(model: nn.Module) -> tuple[nn.Module, ...]:
    """Return the decoder layers: the longest ``ModuleList`` whose modules all have parameters.

    Returns an empty tuple if no such list has at least two modules.
    """
    stacks = [tuple(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    whole = [stack for stack in stacks if all(any(True for _ in layer.parameters()) for layer in stack)]
    longest = max(whole, key=len, default=())
    return longest if len(longest) > 1 else ()


def kept_bytes(model: nn.Module, n_tokens: int) -> int:
    """Return the memory for all layers' inputs and one layer's gradients, for ``n_tokens``."""
    hidden_size = int(innermost(model).get_input_embeddings().weight.shape[1])
    return 4 * hidden_size * (len(find_layers(model)) + 3) * n_tokens


def record_layers(model: nn.Module, batches: Sequence[KernelBatch]) -> LayerStack | None:
    """Run the model once on every batch and record the inputs of each layer.

    Returns None unless each layer runs exactly once, on the output of the previous layer. Otherwise layers cannot run
    one at a time.
    """
    layers = find_layers(model)
    stack = LayerStack(model, layers, batches, [], [])
    for batch in batches:
        with torch.no_grad():
            calls, logp_T = _record_calls(model, layers, batch)
        if not calls:
            return None
        stack.calls.append(calls)
        stack.logp_sums_B.append(sum_logps(logp_T, batch))
    return stack


def _record_calls(
    model: nn.Module, layers: tuple[nn.Module, ...], batch: KernelBatch
) -> tuple[list[_Call], Float[Tensor, " response_token"]]:
    """Return the calls of the layers, empty if layers cannot run one at a time, and log π of the response tokens."""
    ran: list[tuple[nn.Module, _Call]] = []

    def keep(layer: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        keywords = dict(keywords)
        hidden_BLH, *others = inputs or (keywords.pop("hidden_states"),)
        returned = output[1:] if isinstance(output, tuple) else None
        ran.append((layer, _Call(hidden_BLH, tuple(others), keywords, _hidden_part(output), returned)))

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(keep, with_kwargs=True).remove)
        logp_T = response_logps(model, batch)
    calls = [call for _, call in ran]
    in_order = tuple(layer for layer, _ in ran) == layers
    consecutive = all(lower.output_BLH is upper.hidden_BLH for lower, upper in pairwise(calls))
    return (calls if in_order and consecutive else []), logp_T


def _detach(call: _Call) -> _Call:
    others = call.others
    if others is not None:
        others = tuple(other.detach() if isinstance(other, Tensor) else other for other in others)
    return _Call(call.hidden_BLH.detach(), call.inputs, call.keywords, call.output_BLH.detach(), others)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Return all tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list | dict):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _tensors(element)


def _drop_tensors(call: _Call, *, keep_output: bool) -> _Call:
    empty = call.hidden_BLH.new_empty(0)
    return _Call(empty, (), {}, call.output_BLH if keep_output else empty, call.others)


def _hidden_part(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _restore_forward(layer: nn.Module, forward: Any) -> None:
    if forward is None:
        del layer.__dict__["forward"]
    else:
        layer.__dict__["forward"] = forward
