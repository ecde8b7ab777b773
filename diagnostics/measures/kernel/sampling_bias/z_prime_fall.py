"""Measure of the predicted and the realised change of correct modes outside the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.declare import pair_steps, per_series
from oversharp.diagnostics.measures.kernel.gradients.batch import BETA
from oversharp.diagnostics.measures.kernel.gradients.coupling import average_over_problems
from oversharp.diagnostics.measures.kernel.sampling_bias.partitions import (
    Partition,
    load_partitions,
    welch_difference,
)
from oversharp.diagnostics.measures.modes.exact import load_exact_modes
from oversharp.diagnostics.measures.panel.own import load_own_samples

REALISED, PREDICTED, NOT_ABOVE_ONE = "realised, Z above 1", "predicted, Z above 1", "realised, Z not above 1"
DIFFERENCE = "difference"
SCOPES = (REALISED, PREDICTED, NOT_ABOVE_ONE, DIFFERENCE)
ONE_KIND = "one of the two groups (Z′ above 1, Z′ not above 1) has no problem with an unsampled correct mode"


@per_series(
    needs=("own_logps", "mode_logps", "graded_samples"),
    missing="the problems do not list every accepted response (modes), or no own sample is scored under the base",
    columns={"graded_samples": ("checkpoint_id", "problem_id", "greedy", "sample_index", "mode")},
    title="Unsampled correct modes, predicted and realised change",
    unit="nats",
    section="kernel",
    rank=50,
    plot=Plot(x="step", group="scope", y_label="change of log π to the next checkpoint (nats)"),
    signed=True,
    of_base=False,
)
def z_prime_fall(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Unsampled correct modes: whether they fell as Z′ predicts.

    Meaning: a batch with Z′ > 1 divides the probability of every unsampled response by Z′. This measure considers the
    correct modes that the previous checkpoint's own samples do not contain, and their change of log π to this
    checkpoint. Scopes:
    - ``realised, Z above 1``: the change for problems with Z′ > 1 (at β = 1).
    - ``predicted, Z above 1``: the predicted change −log Z′ for the same problems.
    - ``realised, Z not above 1``: the change for all other problems.
    - ``difference``: the first minus the third. If its interval is below 0, modes fall more for Z′ > 1, which confirms
      the claim.
    Unit: nats, signed. Mean over the modes of a problem, then over problems. 95 % t interval over problems.
    ``difference`` has Welch's interval, because the two groups contain different problems. n counts problems, and for
    ``difference`` those of both groups.
    Limits: only for problems that list all accepted responses. The batch consists of the audit's samples, not the
    trainer's, and π_ref is the base. So interpret signs and order, but not sizes. Problems with Z′ > 1 also differ from
    the others in difficulty. Modes of probability 0 are excluded.
    Source: [A] (arXiv 2601.15609), Theorem 2.2; the comparison is ours.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> own = tiny_evidence("own_logps", "checkpoint_id problem_id sample_index response_id correct base_logp_sum", [
    ...     ("base", "q", 0, "r1", True, log(0.6)), ("base", "q", 1, "r2", False, log(0.2))])
    >>> graded = tiny_evidence("graded_samples", "checkpoint_id problem_id sample_index greedy mode", [
    ...     ("base", "q", 0, False, "a"), ("base", "q", 1, False, "x")])
    >>> modes = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q", "a", log(0.6)), ("base", "q", "b", log(0.1)), ("late", "q", "a", log(0.8)),
    ...     ("late", "q", "b", log(0.05))])
    >>> evidence = combine_views(modes, own, graded)
    >>> [(f.scope, round(f.value, 4)) for f in z_prime_fall(evidence) if f.value is not None]
    [('realised, Z above 1', -0.6931), ('predicted, Z above 1', -0.2704)]
    """
    modes, why_modes = load_exact_modes(evidence)
    samples, why_samples = load_own_samples(evidence, "base_logp_sum")
    batches, _ = load_partitions(evidence)
    name_M = evidence.frames["mode_logps"][["problem_id", "mode"]].drop_duplicates().sort_values(["problem_id", "mode"])
    for before_id, after_id, why_not in pair_steps(evidence, why_modes):
        if why_not is None and before_id in why_samples:
            why_not = f"previous checkpoint: {why_samples[before_id]}"
        if why_not is not None:
            yield after_id, dict.fromkeys(SCOPES, why_not)
            continue
        change_M = modes[after_id].change_nats(modes[before_id])
        is_counted_M = _unsampled(evidence, before_id, samples[before_id], name_M) & np.isfinite(change_M)
        mean_change = name_M.assign(change=change_M)[is_counted_M].groupby("problem_id")["change"].mean()
        values = _changes(batches[before_id], mean_change.to_dict())
        none = "no problem of this kind has an unsampled correct mode"
        has_both = values[REALISED] and values[NOT_ABOVE_ONE]
        difference = welch_difference(values[REALISED], values[NOT_ABOVE_ONE]) if has_both else ONE_KIND
        means = {scope: average_over_problems(changes, why_none=none) for scope, changes in values.items()}
        yield after_id, means | {DIFFERENCE: difference}


def _unsampled(evidence: Evidence, checkpoint_id: str, own: pd.DataFrame, name_M: pd.DataFrame) -> np.ndarray:
    """Return a mask of the modes that do not occur in the batch."""
    graded = evidence.frames["graded_samples"]
    graded = graded[(graded["checkpoint_id"] == checkpoint_id) & ~graded["greedy"].astype(bool)]
    drawn = own[["problem_id", "sample_index"]].merge(
        graded[["problem_id", "sample_index", "mode"]], on=["problem_id", "sample_index"]
    )
    seen = set(zip(drawn["problem_id"], drawn["mode"], strict=True))
    return np.array([key not in seen for key in zip(name_M["problem_id"], name_M["mode"], strict=True)], dtype=bool)


def _changes(partitions: Sequence[Partition], mean_change: Mapping[str, float]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {REALISED: [], PREDICTED: [], NOT_ABOVE_ONE: []}
    for partition in partitions:
        change = mean_change.get(partition.batch.problem_id)
        if change is None:
            continue
        if partition.is_above_one(BETA):
            values[REALISED].append(change)
            values[PREDICTED].append(-partition.log_z(BETA))
        else:
            values[NOT_ABOVE_ONE].append(change)
    return values
