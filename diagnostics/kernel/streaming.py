"""Runs a model over all rows so that each parameter's gradients of all rows meet, within the memory that there is.

Which plan is followed (``memory_plan``) depends on the model, the rows and the budget alone:

1. all rows could be one batch: one forward and one backward pass; what the modules give is multiplied and dropped at
   once, but for a rectangular kernel, whose two sides are batches of their own, and for rows of which much would be
   padding, which make several batches;
2. several batches, and what all modules give fits in the budget: the same, kept from batch to batch;
3. else layer by layer (``layers``): each layer meets all rows before the next is run;
4. where that is impossible, as layers of this model cannot be run alone or their inputs do not fit either: the whole
   model again for every group of parameters that fits.

Layer by layer rather than pairs of blocks of rows: its cost does not grow with the number of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oversharp.diagnostics.kernel.capture import Capture
from oversharp.diagnostics.kernel.certificate import SignedGradients
from oversharp.diagnostics.kernel.forward import held_still, logp_sums, refuse_broken, response_logps
from oversharp.diagnostics.kernel.layers import LayerStack, kept_bytes, record
from oversharp.diagnostics.kernel.memory_plan import (
    ACTIVATION_BYTES,
    ACTIVATION_BYTES_ON_A_CPU,
    MemoryPlan,
    find_plan,
    most_bytes,
)
from oversharp.diagnostics.kernel.parameters import (
    Extent,
    Slice,
    Trained,
    activation_bytes,
    fit_at_once,
    in_groups,
    least_tokens_saved,
    require_budget,
    workspace_bytes,
)
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import KernelBatch, Pairs, cut_by_length, make_batch
from oversharp.diagnostics.kernel.single_rows import add_row_by_row
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.memory import trim_heap

#: Runs a part of the model forward and backward on the batch of this number.
Run = Callable[[int], object]


def cut_in_batches(
    loaded: LoadedModel, pairs: Pairs, sign_N: Float[Tensor, " row"], memory_bytes: int
) -> tuple[list[KernelBatch], bool]:
    """Batches of rows of one segment whose activations take about ``memory_bytes``, and whether one could hold all."""
    per_token = activation_bytes(loaded.model)

    def cut(members: Sequence[int]) -> list[list[int]]:
        return cut_by_length(pairs.rows, members, activation_bytes=per_token, memory_bytes=memory_bytes)

    everyone = range(len(pairs.rows))
    segments = (everyone[: pairs.column_start], everyone[pairs.column_start : pairs.row_end], everyone[pairs.row_end :])
    batches = [make_batch(loaded, pairs, sign_N, members) for segment in segments for members in cut(segment)]
    return batches, len(batches) == 1 or len(cut(everyone)) == 1


def cut_padding(lengths: Sequence[int], *, least_saved: float) -> list[slice]:
    """Where to cut rows of ascending length into batches with little padding: each cut saves ``least_saved`` tokens.

    >>> cut_padding([10] * 40 + [40] * 20, least_saved=1000), cut_padding([40] * 60, least_saved=1000)
    ([slice(0, 40, None), slice(40, 60, None)], [slice(0, 60, None)])
    """

    def cut(start: int, stop: int) -> list[slice]:
        saved = {end: (end - start) * (lengths[stop - 1] - lengths[end - 1]) for end in range(start + 1, stop)}
        end = max(saved, key=lambda end: saved[end], default=stop)
        if saved.get(end, 0) < least_saved:
            return [slice(start, stop)]
        return cut(start, end) + cut(end, stop)

    return cut(0, len(lengths))


def add_all(
    loaded: LoadedModel,
    pairs: Pairs,
    sign_N: Float[Tensor, " row"],
    trained: Sequence[Trained],
    kernel: KernelSum,
    gradients: SignedGradients,
    *,
    memory_bytes: int | None,
    note: Callable[[str], None],
) -> Float[Tensor, " row"]:
    """Add every trained parameter to ``kernel`` and ``gradients``; log π of every row, in nats.

    Rows take part times their sign in ``sign_N``. ``memory_bytes`` None: within what is free. ``note`` is told the way
    where it is a long one. Raises ``KernelError``.
    """
    model = loaded.model
    require_budget(trained, len(pairs.rows), most_bytes(model, trained) if memory_bytes is None else memory_bytes)
    known = [one for one in trained if one.known]
    at_one_time = min(memory_bytes or ACTIVATION_BYTES, ACTIVATION_BYTES)
    batches, at_once = cut_in_batches(loaded, pairs, sign_N, at_one_time)
    plan = find_plan(model, known, Extent.of(model, batches), memory_bytes, at_once=at_once)
    memory_bytes = plan.memory_bytes
    if plan.kind in ("kept", "whole model") and loaded.device.type == "cpu" and len(batches) > 1:
        # no more padding than before, so that the plan holds
        batches, _ = cut_in_batches(loaded, pairs, sign_N, min(at_one_time, ACTIVATION_BYTES_ON_A_CPU))
    if says := plan.says(Extent.of(model, batches)):
        note(says)
    if len(batches) == 1:
        members, least_saved = batches[0].members, least_tokens_saved(model)
        parts = cut_padding(batches[0].lengths, least_saved=least_saved)
        if len(parts) > 1:
            narrower = [make_batch(loaded, pairs, sign_N, members[part]) for part in parts]
            if fit_at_once(known, Extent.of(model, narrower), memory_bytes):
                batches = narrower
    with held_still(model, [one.parameter for one in trained]):
        streams = _Streams(model, batches, kernel, gradients, plan)
        logp_sums_B, left_out = streams.take(known)
    logp_sum_N = torch.zeros(len(pairs.rows), dtype=torch.float64, device=loaded.device)
    for batch, logp_sum_B in zip(batches, logp_sums_B, strict=True):
        logp_sum_N[list(batch.members)] = logp_sum_B
    awkward = [one for one in trained if not one.known or one in left_out]
    if awkward:
        rows = [make_batch(loaded, pairs, sign_N, [member]) for member in range(len(pairs.rows))]
        add_row_by_row(model, rows, awkward, kernel, gradients, memory_bytes=memory_bytes)
    refuse_broken(kernel.kernel_RC)
    return logp_sum_N


class _Streams:
    """The ways to run the model over the batches."""

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[KernelBatch],
        kernel: KernelSum,
        gradients: SignedGradients,
        plan: MemoryPlan,
    ) -> None:
        self._model = model
        self._batches = batches
        self._plan = plan
        self._kernel = kernel
        self._gradients = gradients
        self._memory_bytes = plan.memory_bytes
        self._extent = Extent.of(model, batches)
        self._left_out: list[Trained] = []

    def take(self, trained: Sequence[Trained]) -> tuple[list[Tensor], list[Trained]]:
        """log π of the rows of every batch, and the parameters that were left out."""
        groups = self._plan.groups
        if self._plan.kind == "layer by layer":
            stack = record(self._model, self._batches)
            if stack is not None:
                self._memory_bytes -= kept_bytes(self._model, self._extent.n_tokens)
                return self._layer_by_layer(stack, trained), self._left_out
            groups = in_groups(trained, self._extent, self._memory_bytes)
        return self._whole_model(groups), self._left_out

    def _whole_model(self, groups: Sequence[Sequence[Slice]]) -> list[Tensor]:
        logp_sums_B: list[Tensor] = []

        def run(number: int) -> None:
            logp_T = response_logps(self._model, self._batches[number])
            if len(logp_sums_B) == number:
                logp_sums_B.append(logp_sums(logp_T, self._batches[number]))
            logp_T.backward(self._batches[number].sign_T)

        self._run_groups(groups, run)
        return logp_sums_B

    def _layer_by_layer(self, stack: LayerStack, trained: Sequence[Trained]) -> list[Tensor]:
        places = {module: index for index, layer in enumerate(stack.layers) for module in layer.modules()}
        parts: dict[int | None, list[Trained]] = {}
        for one in trained:
            where = {places.get(module) for module, _ in one.uses}
            if len(where) == 1:
                parts.setdefault(where.pop(), []).append(one)
            else:
                self._left_out.append(one)  # shared between layers: they never run together
        stack.start()
        for index in reversed(range(len(stack.layers))):
            below: list[Tensor] = [torch.empty(0)] * len(self._batches)

            def run_layer(number: int, index: int = index, below: list[Tensor] = below) -> None:
                below[number] = stack.run_layer(index, number)

            self._run_groups(in_groups(parts.get(index, []), self._extent, self._memory_bytes), run_layer)
            stack.descend(below, index)
        trim_heap()  # the head comes, on top of the gradients of all layers and of the holes that activations left
        self._run_groups(in_groups(parts.get(None, []), self._extent, self._memory_bytes), stack.run_rest)
        return stack.logp_sums_B

    def _run_groups(self, groups: Sequence[Sequence[Slice]], run: Run) -> None:
        for group in groups:
            capture = Capture(group, self._kernel, workspace_bytes=workspace_bytes(self._memory_bytes))
            with self._gradients.of_pass([one.trained for one in group]) as asking:
                for number, batch in enumerate(self._batches):
                    last = number + 1 == len(self._batches)
                    with self._gradients.of_batch(asking, batch.segment), capture.of_batch(batch, last=last):
                        run(number)
            self._left_out += [one for one in capture.left_out() if one not in self._left_out]
