"""Runs one decoder layer of a model at a time, so that the rows of many batches meet in it before the next is run.

The inputs of all layers are kept for all rows; each layer is run again from them, from the last to the first, and
hands down the gradient at its input. What is not in a layer (embeddings, last norm, head) is run again with the layers
standing still. This costs one forward pass more than a single batch, however many batches there are.
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

from oversharp.diagnostics.kernel.forward import logp_sums, response_logps
from oversharp.diagnostics.kernel.rows import KernelBatch
from oversharp.diagnostics.models.cached_passes import innermost


@dataclass(frozen=True)
class _Call:
    """A layer's hidden input, its other inputs, and what it returns beside its hidden output (None: nothing)."""

    hidden_BLH: Tensor
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    output_BLH: Tensor
    beside: tuple[Any, ...] | None

    def returned(self, hidden_BLH: Tensor) -> Any:
        """``hidden_BLH`` in the form in which the layer returns."""
        return hidden_BLH if self.beside is None else (hidden_BLH, *self.beside)


@dataclass
class LayerStack:
    """The decoder layers, and for every batch what goes into them (``calls[batch][layer]``)."""

    model: nn.Module
    layers: tuple[nn.Module, ...]
    batches: Sequence[KernelBatch]
    calls: list[list[_Call]]
    logp_sums_B: list[Float[Tensor, " row"]]
    #: Signed gradients at the output of the layer that is run next, for every batch.
    upstream: list[Tensor] = field(default_factory=list)

    def start(self) -> None:
        """Find the gradients at the last layer's output."""
        for number, batch in enumerate(self.batches):
            with self._standing_still(number) as (_, last_BLH):
                response_logps(self.model, batch).backward(batch.sign_T)
            assert last_BLH.grad is not None
            self.upstream.append(last_BLH.grad)

    def run_layer(self, index: int, number: int) -> Tensor:
        """Run a layer forward and backward on a batch; the gradient at its input."""
        call = self.calls[number][index]
        hidden_BLH = call.hidden_BLH.detach().requires_grad_()
        output = self.layers[index](hidden_BLH, *call.inputs, **call.keywords)
        _hidden_part(output).backward(self.upstream[number])
        assert hidden_BLH.grad is not None
        return hidden_BLH.grad

    def descend(self, below: list[Tensor], index: int) -> None:
        """Go on to the next lower layer: ``below`` are the gradients at the input of this one."""
        self.upstream = below
        for calls in self.calls:
            if index + 1 < len(calls):  # nothing above needs it any more, but for the last output
                calls[index + 1] = _emptied(calls[index + 1], keep_output=index + 2 == len(calls))

    def run_rest(self, number: int) -> None:
        """Run what is not in a layer on a batch; ``upstream`` must have come down to the first layer's input."""
        with self._standing_still(number) as (first, _):
            batch = self.batches[number]
            total = response_logps(self.model, batch) @ batch.sign_T
            total = total + (first[0] * self.upstream[number]).sum()
            total.backward()

    @contextmanager
    def _standing_still(self, number: int) -> Iterator[tuple[list[Tensor], Tensor]]:
        """Inside, the layers hand on what is kept. Gives the first one's input, once it ran, and the last's output."""
        calls = self.calls[number]
        entered: list[Tensor] = []
        last_BLH = calls[-1].output_BLH.detach().requires_grad_()

        def first(hidden_states: Tensor, *_inputs: Any, **_keywords: Any) -> Any:
            entered.append(hidden_states)
            return calls[0].returned(last_BLH if len(calls) == 1 else hidden_states.detach())

        def between(call: _Call) -> Any:
            return lambda hidden_states, *_inputs, **_keywords: call.returned(hidden_states)

        def last(*_inputs: Any, **_keywords: Any) -> Any:
            return calls[-1].returned(last_BLH)

        with ExitStack() as restored:
            for layer, call in zip(self.layers, calls, strict=True):
                stand_in = first if layer is self.layers[0] else last if layer is self.layers[-1] else between(call)
                restored.callback(_put_back, layer, layer.__dict__.get("forward"))
                layer.__dict__["forward"] = stand_in
            yield entered, last_BLH


def find_layers(model: nn.Module) -> tuple[nn.Module, ...]:
    """The modules of the model's longest list of modules that have parameters; empty if there is none of two."""
    stacks = [tuple(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    whole = [stack for stack in stacks if all(any(True for _ in layer.parameters()) for layer in stack)]
    longest = max(whole, key=len, default=())
    return longest if len(longest) > 1 else ()


def kept_bytes(model: nn.Module, n_tokens: int) -> int:
    """What the inputs of all layers, and the gradients at one, take; of so many tokens, padding included."""
    hidden_size = int(innermost(model).get_input_embeddings().weight.shape[1])
    return 4 * hidden_size * (len(find_layers(model)) + 3) * n_tokens


def record(model: nn.Module, batches: Sequence[KernelBatch]) -> LayerStack | None:
    """Run the model once on every batch and keep what goes into each layer.

    None if the layers are not run one after the other, each on what the one before it gives: then a layer cannot be
    run alone.
    """
    layers = find_layers(model)
    stack = LayerStack(model, layers, batches, [], [])
    for batch in batches:
        ran: list[tuple[nn.Module, _Call]] = []

        def keep(
            layer: nn.Module,
            inputs: tuple[Any, ...],
            keywords: dict[str, Any],
            output: Any,
            ran: list[tuple[nn.Module, _Call]] = ran,
        ) -> None:
            keywords = dict(keywords)
            hidden_BLH, *others = inputs or (keywords.pop("hidden_states"),)
            beside = output[1:] if isinstance(output, tuple) else None
            ran.append((layer, _Call(hidden_BLH, tuple(others), keywords, _hidden_part(output), beside)))

        with ExitStack() as hooks, torch.no_grad():
            for layer in layers:
                hooks.callback(layer.register_forward_hook(keep, with_kwargs=True).remove)
            stack.logp_sums_B.append(logp_sums(response_logps(model, batch), batch))
        if not layers or tuple(layer for layer, _ in ran) != layers:
            return None
        calls = [call for _, call in ran]
        if any(lower.output_BLH is not upper.hidden_BLH for lower, upper in pairwise(calls)):
            return None
        stack.calls.append(calls)
    return stack


def _emptied(call: _Call, *, keep_output: bool) -> _Call:
    nothing = call.hidden_BLH.new_empty(0)
    return _Call(nothing, (), {}, call.output_BLH if keep_output else nothing, call.beside)


def _hidden_part(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


def _put_back(layer: nn.Module, forward: Any) -> None:
    if forward is None:
        del layer.__dict__["forward"]
    else:
        layer.__dict__["forward"] = forward
