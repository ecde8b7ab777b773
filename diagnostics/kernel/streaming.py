"""Run a model within the memory budget to compute a kernel.

Products need each parameter's gradients of all rows in memory together. The plan (``memory_plan``) depends only on the
model, the rows and the budget. There are four kinds of plans:

1. At once: all rows fit in one batch, with one forward and one backward pass. The products of a parameter are computed
   as soon as its gradients are complete. A rectangular kernel has separate batches for rows and columns. Rows with much
   padding are split into several batches.
2. Kept: there are several batches, and the factors of all gradients fit in the budget. The factors are kept until the
   last batch.
3. Layer by layer (``layers``): each layer processes all rows before the next layer runs. The cost does not grow with
   the number of batches, unlike that of computing pairs of row blocks.
4. Whole model: the model runs once for every group of parameters that fits. This plan is used if layers cannot run one
   at a time, or if their inputs do not fit.

Parameters of unknown modules get their gradients from one row at a time. This is exact for every parameter of every
model: experts of a mixture, a bare ``nn.Parameter``, a weight shared by two layers. It costs about one more forward and
backward pass.

Every plan also runs one row alone, for the certificate. As soon as a part of the model is complete, the row's gradients
are multiplied, and the part's weight gradients are dropped. A part is a layer, or the modules outside the layers. In
the other plans it is the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oversharp.diagnostics.kernel.capture import Capture
from oversharp.diagnostics.kernel.certificate import SignedGradients, require_equal_gradients
from oversharp.diagnostics.kernel.forward import frozen_parameters, refuse_broken, response_logps, sum_logps
from oversharp.diagnostics.kernel.layers import LayerStack, kept_bytes, record_layers
from oversharp.diagnostics.kernel.memory_plan import (
    ACTIVATION_BYTES,
    ACTIVATION_BYTES_ON_A_CPU,
    MemoryPlan,
    find_plan,
    max_budget,
)
from oversharp.diagnostics.kernel.parameters import (
    Extent,
    Slice,
    Trained,
    activation_bytes,
    fit_at_once,
    group_slices,
    least_tokens_saved,
    require_budget,
    workspace_bytes,
)
from oversharp.diagnostics.kernel.pieces import Direct
from oversharp.diagnostics.kernel.products import KernelSum
from oversharp.diagnostics.kernel.rows import KernelBatch, Pairs, cut_by_length, make_batch
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.memory import trim_heap

#: Function that runs a part of the model forward and backward on one batch, given the batch's index.
Run = Callable[[int], object]


def cut_in_batches(
    loaded: LoadedModel, pairs: Pairs, sign_N: Float[Tensor, " row"], memory_bytes: int
) -> tuple[list[KernelBatch], bool]:
    """Cut the rows into batches whose activations take about ``memory_bytes`` each.

    A batch contains only rows of the same segment. Also returns whether all rows would fit in one batch.
    """
    per_token = activation_bytes(loaded.model)

    def cut(members: Sequence[int]) -> list[list[int]]:
        return cut_by_length(pairs.rows, members, activation_bytes=per_token, memory_bytes=memory_bytes)

    everyone = range(len(pairs.rows))
    segments = (everyone[: pairs.column_start], everyone[pairs.column_start : pairs.row_end], everyone[pairs.row_end :])
    batches = [make_batch(loaded, pairs, sign_N, members) for segment in segments for members in cut(segment)]
    return batches, len(batches) == 1 or len(cut(everyone)) == 1


def cut_padding(lengths: Sequence[int], *, least_saved: float) -> list[slice]:
    """Cut rows, sorted by ascending length, into batches with little padding.

    Each cut saves at least ``least_saved`` padding tokens.

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
) -> tuple[Float[Tensor, " row"], int]:
    """Add all trained parameters to ``kernel`` and ``gradients``.

    Returns the rows' log π in nats, and the index of the row that ran alone. The gradient of a row is multiplied by its
    sign in ``sign_N``. If ``memory_bytes`` is None, the budget is chosen from the free memory. ``note`` is called with
    a line of text if the computation will take long. Raises ``KernelError``.
    """
    model = loaded.model
    require_budget(trained, len(pairs.rows), max_budget(model, trained) if memory_bytes is None else memory_bytes)
    known = [parameter for parameter in trained if parameter.is_known]
    batch_bytes = min(memory_bytes or ACTIVATION_BYTES, ACTIVATION_BYTES)
    batches, at_once = cut_in_batches(loaded, pairs, sign_N, batch_bytes)
    plan = find_plan(model, known, Extent.measure(model, batches), memory_bytes, at_once=at_once)
    memory_bytes = plan.memory_bytes
    if plan.kind in ("kept", "whole model") and loaded.device.type == "cpu" and len(batches) > 1:
        # smaller batches have at most as much padding, so the plan still fits
        batches, _ = cut_in_batches(loaded, pairs, sign_N, min(batch_bytes, ACTIVATION_BYTES_ON_A_CPU))
    if line := plan.describe(Extent.measure(model, batches)):
        note(line)
    if len(batches) == 1:
        members, least_saved = batches[0].members, least_tokens_saved(model)
        parts = cut_padding(batches[0].lengths, least_saved=least_saved)
        if len(parts) > 1:
            narrower = [make_batch(loaded, pairs, sign_N, members[part]) for part in parts]
            if fit_at_once(known, Extent.measure(model, narrower), memory_bytes):
                batches = narrower
    with frozen_parameters(model, [parameter.tensor for parameter in trained]):
        streams = _Streams(loaded, pairs, sign_N, batches, kernel, gradients, plan)
        missing = streams.add(known)
    remaining = [parameter for parameter in trained if not parameter.is_known or parameter in missing]
    if remaining:
        rows = [make_batch(loaded, pairs, sign_N, [member]) for member in range(len(pairs.rows))]
        _add_row_by_row(model, rows, streams.row_alone, remaining, kernel, gradients, memory_bytes=memory_bytes)
    refuse_broken(kernel.kernel_RC)
    return streams.logp_sum_N, streams.row_alone


class _Streams:
    """Runs the model over the batches, as the plan requires.

    After ``add``, ``logp_sum_N`` has each row's log π in nats, and ``row_alone`` is the index of the row that ran
    alone.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        pairs: Pairs,
        sign_N: Float[Tensor, " row"],
        batches: Sequence[KernelBatch],
        kernel: KernelSum,
        gradients: SignedGradients,
        plan: MemoryPlan,
    ) -> None:
        self._make_batch = partial(make_batch, loaded, pairs, sign_N)
        self._n_kernel_rows = pairs.row_end
        self._model = loaded.model
        self._batches = batches
        self._plan = plan
        self._kernel = kernel
        self._gradients = gradients
        self._memory_bytes = plan.memory_bytes
        self._extent = Extent.measure(loaded.model, batches)
        self._missing: list[Trained] = []
        self.logp_sum_N = torch.zeros(len(pairs.rows), dtype=torch.float64, device=loaded.device)
        self.row_alone = 0

    def add(self, trained: Sequence[Trained]) -> list[Trained]:
        """Add the products of ``trained`` to the kernel; return the parameters that were not captured."""
        groups = self._plan.groups
        if self._plan.kind == "layer by layer":
            stack = self._record_layers()
            if stack is not None:
                self._memory_bytes -= kept_bytes(self._model, self._extent.n_tokens)
                self._run_layers(stack, trained)
                return self._missing
            groups = group_slices(trained, self._extent, self._memory_bytes)
        self._run_model(groups, trained)
        return self._missing

    def _record_layers(self) -> LayerStack | None:
        stack = record_layers(self._model, self._batches)
        if stack is None or not stack.record_alone(self._choose_alone(stack.logp_sums_B)):
            return None
        return stack

    def _choose_alone(self, logp_sums_B: Sequence[Tensor]) -> KernelBatch:
        """Store each row's log π, and return the row that runs alone as a batch.

        It shares its batch, because other rows cannot be mixed with it otherwise. Among such rows it has the lowest
        log π: its response has many or unlikely tokens, so its gradient is large compared with rounding errors.
        """
        for batch, logp_sum_B in zip(self._batches, logp_sums_B, strict=True):
            self.logp_sum_N[list(batch.members)] = logp_sum_B
        shared = {member for batch in self._batches if len(batch.members) > 1 for member in batch.members}
        kernel_rows = range(self._n_kernel_rows)
        candidates = [row for row in kernel_rows if row in shared] or kernel_rows
        logps = self.logp_sum_N.tolist()
        self.row_alone = min(candidates, key=lambda row: logps[row])
        return self._make_batch([self.row_alone])

    def _run_model(self, groups: Sequence[Sequence[Slice]], trained: Sequence[Trained]) -> None:
        logp_sums_B: list[Tensor] = []

        def run(number: int) -> None:
            logp_T = response_logps(self._model, self._batches[number])
            if len(logp_sums_B) == number:
                logp_sums_B.append(sum_logps(logp_T, self._batches[number]))
            logp_T.backward(self._batches[number].sign_T)

        self._run_groups(groups, run)
        alone = self._choose_alone(logp_sums_B)
        self._finish(trained, lambda: response_logps(self._model, alone).backward(alone.sign_T))

    def _run_layers(self, stack: LayerStack, trained: Sequence[Trained]) -> None:
        places = {module: index for index, layer in enumerate(stack.layers) for module in layer.modules()}
        parts: dict[int | None, list[Trained]] = {}
        for parameter in trained:
            where = {places.get(module) for module, _ in parameter.uses}
            if len(where) == 1:
                parts.setdefault(where.pop(), []).append(parameter)
            else:
                self._missing.append(parameter)  # shared between layers, which never run together
        stack.start()
        for index in reversed(range(len(stack.layers))):
            below: list[Tensor] = [torch.empty(0)] * len(self._batches)

            def run_layer(number: int, index: int = index, below: list[Tensor] = below) -> None:
                below[number] = stack.run_layer(index, number)

            part = parts.get(index, [])
            self._run_groups(group_slices(part, self._extent, self._memory_bytes), run_layer)
            self._finish(part, partial(stack.run_layer_alone, index))
            stack.descend(below, index)
        self._check_layers(stack)
        trim_heap()  # return freed memory to the system: the head needs memory in addition to that of the layers
        part = parts.get(None, [])
        self._run_groups(group_slices(part, self._extent, self._memory_bytes), stack.run_rest)
        self._finish(part, stack.run_rest_alone)

    def _check_layers(self, stack: LayerStack) -> None:
        """Compare the gradients of the row that runs alone at the first layer's input."""
        for number, batch in enumerate(self._batches):
            if self.row_alone in batch.members:
                gradient_BLH = stack.upstream[number].reshape(*batch.ids_BL.shape, -1)
                alone_LH = stack.alone.gradients[0].flatten(0, -2)
                row_LH = gradient_BLH[batch.members.index(self.row_alone), : len(alone_LH)]
                refuse_broken(torch.stack([row_LH, alone_LH]))
                require_equal_gradients(row_LH, alone_LH)

    def _finish(self, trained: Sequence[Trained], run_alone: Callable[[], object]) -> None:
        """Compute the certificate's products of ``trained``, and drop their gradients.

        ``run_alone`` runs a part of the model forward and backward on the row that runs alone.
        """
        if trained:
            with self._gradients.multiply_row_pass(trained):
                run_alone()
            self._gradients.finish(trained)

    def _run_groups(self, groups: Sequence[Sequence[Slice]], run: Run) -> None:
        for group in groups:
            capture = Capture(group, self._kernel, workspace_bytes=workspace_bytes(self._memory_bytes))
            with self._gradients.collect_pass([part.trained for part in group]) as collected:
                for number, batch in enumerate(self._batches):
                    is_last = number + 1 == len(self._batches)
                    with (
                        self._gradients.collect_batch(collected, batch.segment),
                        capture.capture_batch(batch, is_last=is_last),
                    ):
                        run(number)
            self._missing += [parameter for parameter in capture.find_missing() if parameter not in self._missing]


# ---------------------------------------------------------------- parameters of unknown modules


def _add_row_by_row(
    model: nn.Module,
    rows: Sequence[KernelBatch],
    row_alone: int,
    trained: Sequence[Trained],
    kernel: KernelSum,
    gradients: SignedGradients,
    *,
    memory_bytes: int,
) -> None:
    """Add the products of ``trained``, computed one row at a time.

    ``rows`` are batches of one row each. For these parameters the certificate sums the same gradients, so it checks
    only their products. It cannot use gradients of a larger batch: their forward pass rounds differently, which changes
    gradients by up to 6e-5 of their length on trained models. Raises ``KernelError``.
    """
    gradients.forget(trained)
    # parameters without uses are budgeted as full gradients
    bare = [Trained(parameter.name, parameter.tensor, ()) for parameter in trained]
    extent = Extent(n_rows=len(rows), n_tokens=0, n_responses=0, head=None)
    for group in group_slices(bare, extent, memory_bytes):
        pieces: list[list[Direct]] = [[] for _ in group]
        for row in rows:
            row_gradients = _row_gradients(model, row, [part.trained.tensor for part in group])
            for collected, part, gradient in zip(pieces, group, row_gradients, strict=True):
                if gradient is None:
                    continue
                if part.first == 0:
                    gradients.add(part.trained.name, row.segment, gradient)
                gradient_BOI = gradient.reshape(1, part.trained.n_out, part.trained.n_in)
                collected.append(Direct(row.members, gradient_BOI).part(part.first, part.last, own_memory=True))
        complete = [part.trained for part in group if part.first == 0]
        gradients_alone = _row_gradients(model, rows[row_alone], [parameter.tensor for parameter in complete])
        for parameter, gradient in zip(complete, gradients_alone, strict=True):
            if gradient is not None:
                gradients.multiply_row(parameter.name, gradient)
        gradients.finish(complete)
        for collected, part in zip(pieces, group, strict=True):
            if collected:  # otherwise no row uses the parameter, and its gradient is 0
                kernel.add(part.trained.name, collected, part.shape, workspace_bytes=workspace_bytes(memory_bytes))


def _row_gradients(
    model: nn.Module, row: KernelBatch, parameters: Sequence[nn.Parameter]
) -> tuple[torch.Tensor | None, ...]:
    """Return ∇ log π of one row, times its sign, for each parameter.

    A parameter that does not affect the row has None.
    """
    before = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        for parameter in before:
            parameter.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        with torch.enable_grad():
            total = response_logps(model, row) @ row.sign_T
            if not total.requires_grad:
                return (None,) * len(parameters)
            return torch.autograd.grad(total, list(parameters), allow_unused=True)
    finally:
        for parameter, required in before.items():
            parameter.requires_grad_(required)
