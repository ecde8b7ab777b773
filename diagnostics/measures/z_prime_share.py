"""Z′ above 1: the share of problems where learning the own samples takes probability from all that was not sampled.

Meaning: a policy fitted to a batch divides the probability of every unsampled response, right or wrong, by
Z′ = Σ π_ref·exp(N·A/(βG)). The batch is the checkpoint's first own samples of a problem, π_ref what the base gives
them. Scopes ``beta 0.001``, ``beta 0.04`` and ``beta 1`` for the weight β of the KL term, which the audit does
not know; ``first bound`` and ``second bound``: the share where that lower bound alone, at any β, proves Z′ > 1.
Unit: share of problems. 95 % t interval over problems with a variance floor; n counts problems.
Limits: the sampling bias of one batch of few samples at the target of the update, not of a training step. A batch all
correct or all wrong has Z′ = 1. Modes are distinct responses; where responses are long, π_ref is near 0 and so is
Z′ − 1 unless β is small: differences below 1e-9 count as none. Advantages are of correctness, normalised in the batch.
Source: [A] (arXiv 2601.15609), Theorems 2.2 and 2.3.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_scores", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", False, log(0.8))])
>>> [(f.scope, f.value) for f in compute(evidence)]
[('beta 0.001', 1.0), ('beta 0.04', 1.0), ('beta 1', 0.5), ('first bound', 0.5), ('second bound', 0.5)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._own import NO_OWN_SCORES, own_scored
from diagnostics.measures._z_prime import ROUNDING, Partition, partitions
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.statistics.intervals import share_interval
from diagnostics.types import Finding

BETAS = (0.001, 0.04, 1.0)
SCOPES = (*(f"beta {beta:g}" for beta in BETAS), "first bound", "second bound")


def compute(evidence: Evidence) -> list[Finding]:
    """Five findings per checkpoint; unknown where the base has not scored all its own samples."""
    complete, why = own_scored(evidence, "base_logp_sum")
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings += [unknown(MEASURE, checkpoint_id, why[checkpoint_id], scope=scope) for scope in SCOPES]
            continue
        above_PX = np.array([_above_one(one) for one in partitions(complete[checkpoint_id])], dtype=np.float64)
        for scope, above_P in zip(SCOPES, above_PX.T, strict=True):
            findings.append(known(MEASURE, checkpoint_id, share_interval(above_P), scope=scope))
    return findings


def _above_one(partition: Partition) -> list[bool]:
    exact = [partition.is_above_one(beta) for beta in BETAS]
    if not partition.batch.is_informative:
        return [*exact, False, False]
    bounds = partition.bounds()
    gap = bounds.from_gap.value
    return [*exact, bounds.from_counts > 1.0 + ROUNDING, gap is not None and gap > 1.0 + ROUNDING]


MEASURE = Measure(
    name="z_prime_share",
    title="Problems with Z′ above 1",
    unit="share of problems",
    section="kernel",
    needs=("own_scores",),
    missing=NO_OWN_SCORES,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
)
