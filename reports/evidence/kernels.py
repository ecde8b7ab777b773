"""Gradient kernels of the base and of the last two checkpoints, and the prediction of the last step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oversharp.diagnostics.measures.kernel.gradients.coupling import Coupling, build_coupling
from oversharp.diagnostics.measures.kernel.gradients.predictions import SCOPES, Prediction, predict_step
from oversharp.diagnostics.store.load import Frames
from oversharp.reports import numbers
from oversharp.reports.evidence.source import SeriesSource

NOT_ASKED_FOR = "this series was audited without a gradient kernel; audit it again"


@dataclass(frozen=True, kw_only=True)
class SeriesKernels:
    """Gradient kernels of one series by step.

    ``why`` is step → reason for a missing kernel. ``asked_for`` is whether the audit had kernels in its settings.
    """

    at_step: Mapping[int, Coupling]
    why: Mapping[int, str]
    asked_for: bool

    def why_not(self, step: int) -> str:
        """Return the reason why there is no figure of the kernel at ``step``."""
        if not self.asked_for:
            return NOT_ASKED_FOR
        if step in self.at_step:
            return f"step {step}: no fixed response with a gradient"
        return f"step {step}: {self.why.get(step, 'this checkpoint has no kernel; run the audit again')}"

    def batch_before(self, series: SeriesSource) -> str:
        """Return how much of the training data between the last two checkpoints is stored, as text."""
        before, _ = last_pair(series)
        coupling = None if before is None else self.at_step.get(before)
        if coupling is None or not len(coupling.batch_S):
            return "no part of the training batches in between"
        groups = len(np.unique(coupling.rows.problem_N[coupling.batch_S]))
        counts = f"{numbers.plural(groups, 'group')} ({numbers.plural(len(coupling.batch_S), 'draw')})"
        return f"{counts} of the training batches in between"

    def last_step(self, series: SeriesSource) -> tuple[str, Prediction] | str:
        """Predict the step to the last checkpoint from the kernel of the checkpoint before it.

        Returns the scope of the prediction and the prediction, or the reason why there is none. The scope is the
        training batch if that is stored, else the checkpoint's own samples.
        """
        before, last = last_pair(series)
        if before is None:
            return "only the base was audited, so there is no step to predict"
        for step in (before, last):
            if step not in self.at_step:
                return self.why_not(step)
        made = {scope: predict_step(self.at_step[before], self.at_step[last], scope) for scope in SCOPES}
        for scope, outcome in made.items():
            if isinstance(outcome, Prediction):
                return scope, outcome
        return "; ".join(f"{scope}: {why}" for scope, why in made.items())


def last_pair(series: SeriesSource) -> tuple[int | None, int]:
    """Return the steps of the last two checkpoints; the first is None if the base is the last."""
    steps = [int(step) for step in series.checkpoints["step"] if int(step) <= series.last_step]
    return (steps[-2] if len(steps) > 1 else None), series.last_step


def read_kernels(store: Frames, series: SeriesSource) -> SeriesKernels:
    """Read the kernels of the base and of the last two checkpoints."""
    before, last = last_pair(series)
    steps = sorted({series.base_step, last, *([] if before is None else [before])})
    runs = store.frame("SELECT step, why FROM kernel_runs WHERE series = $series ORDER BY step", series=series.name)
    at_step = {}
    for step in steps:
        members, pairs = (
            store.frame(f"SELECT * FROM {view} WHERE series = $series AND step = $step", series=series.name, step=step)
            for view in ("kernel_members", "kernel_pairs")
        )
        if not members.empty and not pairs.empty:
            at_step[step] = build_coupling(members, pairs)
    why = {int(row["step"]): str(row["why"]) for row in runs.to_dict("records") if isinstance(row["why"], str)}
    return SeriesKernels(at_step=at_step, why=why, asked_for=not runs.empty)
