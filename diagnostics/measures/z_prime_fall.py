"""Unsampled correct modes: whether they fell where Z′ says they must.

Meaning: a batch with Z′ > 1 divides every unsampled response by Z′. The change of log π from one checkpoint to the next
over the correct modes that the earlier one's own samples missed: scopes ``realised, Z above 1`` and ``realised, Z not
above 1``, and ``predicted, Z above 1``, which is −log Z′, both at β = 1. Scope ``difference``: the realised change
where Z′ > 1 minus that where it is not. The claim holds up if its interval lies below 0: modes fall more where Z′ > 1.
Unit: nats, signed. Mean over the modes of a problem, then over problems; 95 % t interval over problems, Welch's for
``difference``, because the two groups hold different problems; n counts problems, for ``difference`` those of both.
Limits: only where all accepted responses of a problem are listed. The batch is the audit's, not the trainer's, and
π_ref is the base: read signs and order, not sizes. Problems with Z′ > 1 differ from the others in difficulty too. Modes
of probability 0 are left out.
Source: [A] (arXiv 2601.15609), Theorem 2.2; the comparison is ours.

>>> from dataclasses import replace
>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> own = tiny_evidence("own_logps", "checkpoint_id problem_id sample_index response_id correct base_logp_sum", [
...     ("base", "q", 0, "r1", True, log(0.6)), ("base", "q", 1, "r2", False, log(0.2))])
>>> graded = tiny_evidence("graded_samples", "checkpoint_id problem_id sample_index greedy mode", [
...     ("base", "q", 0, False, "a"), ("base", "q", 1, False, "x")])
>>> modes = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "a", log(0.6)), ("base", "q", "b", log(0.1)), ("late", "q", "a", log(0.8)),
...     ("late", "q", "b", log(0.05))])
>>> evidence = replace(modes, frames={**own.frames, **graded.frames, **modes.frames})
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence) if f.value is not None]
[('realised, Z above 1', -0.6931), ('predicted, Z above 1', -0.2704)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._batch import BETA
from oversharp.diagnostics.measures._exact import exact_modes
from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel_findings import over_problems
from oversharp.diagnostics.measures._own import own_forced
from oversharp.diagnostics.measures._panel import steps
from oversharp.diagnostics.measures._z_prime import Partition, own_partitions, welch_difference
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding

REALISED, PREDICTED, BESIDE = "realised, Z above 1", "predicted, Z above 1", "realised, Z not above 1"
DIFFERENCE = "difference"
SCOPES = (REALISED, PREDICTED, BESIDE, DIFFERENCE)
ONE_KIND = "no problem with Z′ above 1, or none without, has an unsampled correct mode; there is nothing to compare"


def compute(evidence: Evidence) -> list[Finding]:
    """Four findings per checkpoint but the first; unknown where modes or own samples are not scored in full."""
    modes = exact_modes(evidence)
    complete, why_own = own_forced(evidence, "base_logp_sum")
    batches, _ = own_partitions(evidence)
    name_M = evidence.frames["mode_logps"][["problem_id", "mode"]].drop_duplicates().sort_values(["problem_id", "mode"])
    findings = []
    for before_id, after_id, why_modes in steps(evidence, modes.why):
        why = why_modes
        if why is None and before_id in why_own:
            why = f"the checkpoint before: {why_own[before_id]}"
        if why is not None:
            findings += [unknown(MEASURE, after_id, why, scope=scope) for scope in SCOPES]
            continue
        change_M = modes.change_nats(before_id, after_id)
        table = name_M.assign(change=change_M)
        unsampled = table[_unsampled(evidence, before_id, complete[before_id], name_M) & np.isfinite(change_M)]
        mean_change = unsampled.groupby("problem_id")["change"].mean()
        values = _values(batches[before_id], mean_change.to_dict())
        none = "no problem of this kind has an unsampled correct mode"
        findings += [over_problems(MEASURE, after_id, values[scope], scope=scope, why=none) for scope in values]
        if values[REALISED] and values[BESIDE]:
            findings.append(
                known(MEASURE, after_id, welch_difference(values[REALISED], values[BESIDE]), scope=DIFFERENCE)
            )
        else:
            findings.append(unknown(MEASURE, after_id, ONE_KIND, scope=DIFFERENCE))
    return findings


def _unsampled(evidence: Evidence, checkpoint_id: str, own: pd.DataFrame, name_M: pd.DataFrame) -> np.ndarray:
    """Which modes none of the own samples in the batch hit."""
    graded = evidence.frames["graded_samples"]
    graded = graded[(graded["checkpoint_id"] == checkpoint_id) & ~graded["greedy"].astype(bool)]
    drawn = own[["problem_id", "sample_index"]].merge(
        graded[["problem_id", "sample_index", "mode"]], on=["problem_id", "sample_index"]
    )
    seen = set(zip(drawn["problem_id"], drawn["mode"], strict=True))
    return np.array([key not in seen for key in zip(name_M["problem_id"], name_M["mode"], strict=True)], dtype=bool)


def _values(found: Sequence[Partition], mean_change: Mapping[str, float]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {REALISED: [], PREDICTED: [], BESIDE: []}
    for partition in found:
        change = mean_change.get(partition.batch.problem_id)
        if change is None:
            continue
        if partition.is_above_one(BETA):
            values[REALISED].append(change)
            values[PREDICTED].append(-partition.log_z(BETA))
        else:
            values[BESIDE].append(change)
    return values


MEASURE = Measure(
    name="z_prime_fall",
    title="Unsampled correct modes, predicted and realised change",
    unit="nats",
    section="kernel",
    needs=("own_logps", "mode_logps", "graded_samples"),
    missing="the problems do not list every accepted response (modes), or no own sample is scored under the base",
    plot=Plot(x="step", group="scope", y_label="change of log π to the next checkpoint (nats)"),
    compute=compute,
    signed=True,
    of_base=False,
    columns={"graded_samples": ("checkpoint_id", "problem_id", "greedy", "sample_index", "mode")},
)
