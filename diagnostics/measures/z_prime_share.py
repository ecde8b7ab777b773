"""Z′ above 1: how often learning the own samples takes probability from all that was not sampled.

Meaning: a policy fitted to a batch divides the probability of every unsampled response, right or wrong, by
Z′ = Σ π_ref·exp(N·A/(βG)). The batch is a checkpoint's first ``--panel`` (default 4) own samples of a problem, π_ref
what the base gives them. Only a mixed batch, part correct and part wrong, has an advantage; any other has Z′ = 1.
Scope ``mixed``: the share of problems whose batch is mixed. Of the mixed batches, the share with Z′ > 1: ``of mixed,
beta 0.04`` and ``of mixed, beta 1`` for the weight β of the KL term, which the audit does not know; ``of mixed, first
bound`` and ``of mixed, second bound``: where that lower bound alone, at any β, proves it.
Unit: share of problems. 95 % t interval over problems with a variance floor; n counts problems, for ``of mixed`` those
whose batch is mixed.
Limits: the sampling bias of one batch of few samples at the target of the update, not of a training step. More samples
make more batches mixed, and as β falls every mixed batch gets Z′ > 1. Modes are distinct responses; where responses
are long, π_ref is near 0 and so is Z′ − 1 unless β is small: differences below 1e-9 count as none. Advantages are of
correctness, normalised in the batch.
Source: [A] (arXiv 2601.15609), Theorems 2.2 and 2.3.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2)),
...     ("base", "q2", 0, "c", True, log(0.1)), ("base", "q2", 1, "d", False, log(0.8))])
>>> [(f.scope, f.value) for f in compute(evidence)][:3]
[('mixed', 1.0), ('of mixed, beta 0.04', 1.0), ('of mixed, beta 1', 0.5)]
"""

from __future__ import annotations

from diagnostics.measures._findings import checkpoint_ids, unknown
from diagnostics.measures._kernel_findings import over_problems
from diagnostics.measures._own import NO_OWN_LOGPS
from diagnostics.measures._z_prime import NONE_MIXED, ROUNDING, Partition, own_partitions
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

BETAS = (0.04, 1.0)
MIXED = "mixed"
OF_MIXED = (*(f"of mixed, beta {beta:g}" for beta in BETAS), "of mixed, first bound", "of mixed, second bound")
SCOPES = (MIXED, *OF_MIXED)


def compute(evidence: Evidence) -> list[Finding]:
    """Five findings per checkpoint; unknown where the base has not scored all its own samples."""
    complete, why = own_partitions(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings += [unknown(MEASURE, checkpoint_id, why[checkpoint_id], scope=scope) for scope in SCOPES]
            continue
        found = complete[checkpoint_id]
        above = [_above_one(one) for one in found if one.batch.is_informative]
        values = {MIXED: [float(one.batch.is_informative) for one in found]}
        values |= {scope: [of_one[i] for of_one in above] for i, scope in enumerate(OF_MIXED)}
        findings += [
            over_problems(MEASURE, checkpoint_id, values[scope], scope=scope, why=NONE_MIXED, share=True)
            for scope in SCOPES
        ]
    return findings


def _above_one(partition: Partition) -> tuple[float, ...]:
    """1 where Z′ of a mixed batch, and each of its lower bounds, is above 1, in the order of ``OF_MIXED``."""
    bounds = partition.bounds()
    assert bounds.from_gap.value is not None  # it has both correct and wrong samples
    lower = (bounds.from_counts, bounds.from_gap.value)
    above = [*(partition.is_above_one(beta) for beta in BETAS), *(bound > 1.0 + ROUNDING for bound in lower)]
    return tuple(map(float, above))


MEASURE = Measure(
    name="z_prime_share",
    title="Mixed batches, and those of them with Z′ above 1",
    unit="share of problems",
    section="kernel",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
)
