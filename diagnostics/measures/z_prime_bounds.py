"""Z′ and its two lower bounds: how strongly a batch suppresses what it did not sample, and how much the theory sees.

Meaning: the mean of Z′ − 1 at β = 1 over problems whose own samples are part correct, part wrong, beside what [A]'s two
lower bounds give for it: scopes ``exact``, ``first bound`` (from counts and probabilities) and ``second bound`` (from
Δ_π alone). Both bounds minus 1 are proportional to 1/β; Z′ − 1 grows faster as β falls.
Unit: Z′ − 1, signed, a number without dimension. 95 % t interval over problems; n counts problems.
Limits: as ``z_prime_share``. The bounds lie below the exact value by the theorem; a second bound below 0 proves
nothing, and says nothing against Z′ > 1.
Source: [A] (arXiv 2601.15609), Theorem 2.3.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, "a", True, log(0.6)), ("base", "q1", 1, "b", False, log(0.2))])
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence)]  # 0.6·(√e − 1) + 0.2·(1/√e − 1), then ½·(0.6 − 0.2)
[('exact', 0.3105), ('first bound', 0.2), ('second bound', 0.2)]
"""

from __future__ import annotations

import math

from diagnostics.measures._batch import BETA
from diagnostics.measures._findings import checkpoint_ids, unknown
from diagnostics.measures._kernel_findings import over_problems
from diagnostics.measures._own import NO_OWN_LOGPS
from diagnostics.measures._z_prime import NONE_MIXED, own_partitions
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

SCOPES = ("exact", "first bound", "second bound")


def compute(evidence: Evidence) -> list[Finding]:
    """Three findings per checkpoint; unknown where no batch has both correct and wrong samples."""
    complete, why = own_partitions(evidence)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings += [unknown(MEASURE, checkpoint_id, why[checkpoint_id], scope=scope) for scope in SCOPES]
            continue
        values: dict[str, list[float]] = {scope: [] for scope in SCOPES}
        for partition in complete[checkpoint_id]:
            if not partition.batch.is_informative:
                continue
            bounds = partition.bounds()
            assert bounds.from_gap.value is not None  # it has both correct and wrong samples
            values["exact"].append(math.expm1(partition.log_z(BETA)))
            values["first bound"].append(bounds.from_counts - 1.0)
            values["second bound"].append(bounds.from_gap.value - 1.0)
        findings += [
            over_problems(MEASURE, checkpoint_id, values[scope], scope=scope, why=NONE_MIXED) for scope in SCOPES
        ]
    return findings


MEASURE = Measure(
    name="z_prime_bounds",
    title="Z′ and its lower bounds at β = 1",
    unit="Z′ − 1",
    section="kernel",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", group="scope", y_label="Z′ − 1, mean over problems"),
    compute=compute,
    signed=True,
)
