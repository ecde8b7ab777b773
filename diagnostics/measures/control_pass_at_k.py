"""Pass@k of what was drawn at another temperature: the base sharper, a checkpoint hotter.

Meaning: the points of the sharpening frontier, and what a hotter checkpoint gives; the scope names the temperature, as
``T=0.6``. Not to be pooled with the audit's own samples: other settings, and random numbers of their own.
Unit: probability. Estimator: mean over problems of the unbiased estimate; 95 % t interval over problems with a variance
floor. n counts problems. k are 1 and the powers of two up to the number of samples.
Limits: only what ``--controls`` drew. Where top-p or top-k cut the audit's own samples they cut these too.
Source: ours; pass@k as in Chen et al. 2021 (arXiv 2107.03374).

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("base", f"q{i}", 0.5, 1.0, 2, 1) for i in range(40)], n=2)
>>> [(f.checkpoint_id, f.scope, f.k, f.value) for f in compute(evidence)]
[('base', 'T=0.5', 1, 0.5), ('base', 'T=0.5', 2, 1.0)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._counts import pass_at_k_of
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint, temperature and k; unknown where it was not drawn, or not completely."""
    drawn = evidence.frames["control_counts"]
    n_problems = drawn["problem_id"].nunique()
    found = []
    for checkpoint_id in checkpoint_ids(evidence):
        own = drawn[drawn["checkpoint_id"] == checkpoint_id]
        if own.empty:
            found.append(unknown(MEASURE, checkpoint_id, MEASURE.missing))
        for temperature, rows in own.sort_values("problem_id").groupby("temperature"):
            n_P, scope = rows["n"].to_numpy(np.int64), f"T={temperature:g}"
            if len(rows) < n_problems or (rows["n"] != rows["n_planned"]).any():
                found.append(unknown(MEASURE, checkpoint_id, "its samples are incomplete", scope=scope))
                continue
            for k in (2**power for power in range(int(n_P.min()).bit_length())):
                value_P = pass_at_k_of(n_P, rows["n_correct"].to_numpy(np.int64), k)
                interval = share_interval(value_P, cluster_P=evidence.clusters(rows["problem_id"]))
                found.append(known(MEASURE, checkpoint_id, interval, scope=scope, k=k))
    return found


MEASURE = Measure(
    name="control_pass_at_k",
    title="Pass@k at other temperatures",
    unit="probability",
    section="coverage",
    needs=("control_counts",),
    missing="not drawn at another temperature: --controls does",
    plot=Plot(x="step", group="scope", y_label="pass@k", y_range=(0.0, 1.0)),
    compute=compute,
)
