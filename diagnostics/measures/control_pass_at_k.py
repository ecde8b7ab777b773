"""Pass@k of the controls: the base at lower temperatures and reweighted, a checkpoint at higher temperatures.

Meaning: the points of the sharpening frontiers, and what a hotter checkpoint gives; the scope names the temperature, as
``T=0.6``, or of the base the exponent, as ``power=2``: its sampled responses reweighted to p², where they hold 90 % of
its probability. Not to be pooled with the audit's own samples: other settings, and random numbers of their own.
Unit: probability. Estimator: mean over problems of the unbiased estimate; 95 % t interval over problems with a variance
floor. n counts problems. k are 1 and the powers of two up to the number of samples; of the power, up to half of them.
Limits: only where ``--controls`` drew. Where top-p or top-k cut the audit's own samples they cut these too.
Source: ours; pass@k as in Chen et al. 2021 (arXiv 2107.03374).

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("control_counts", "checkpoint_id problem_id temperature own_temperature n n_correct", [
...     ("base", f"q{i}", 0.5, 1.0, 2, 1) for i in range(40)], n=2)
>>> [(f.checkpoint_id, f.scope, f.k, f.value) for f in compute(evidence)]
[('base', 'T=0.5', 1, 0.5), ('base', 'T=0.5', 2, 1.0)]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._counts import OF_ANSWERS, pass_at_k_of, sampled_counts
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures._frontier import EXPONENTS, controls
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval


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
    return [*found, *_reweighted(evidence)]


def _reweighted(evidence: Evidence) -> Iterator[Finding]:
    """The base's sampled responses reweighted, where that is known."""
    if not len(evidence.frames.get("sampled_counts", ())):
        return
    power = next(one for one in controls(evidence) if one.name == "power")
    if power.rate_SP is None:
        return
    clusters = evidence.clusters(pd.Series(sampled_counts(evidence).problem_ids))
    for exponent, share_P in zip(EXPONENTS[1:], power.rate_SP, strict=True):
        for k in (2**i for i in range(power.k.bit_length())):
            interval = share_interval(1.0 - (1.0 - share_P) ** k, cluster_P=clusters)
            yield known(MEASURE, evidence.base_id, interval, scope=f"power={exponent:g}", k=k)


MEASURE = Measure(
    name="control_pass_at_k",
    title="Pass@k of the controls",
    unit="probability",
    section="coverage",
    needs=("control_counts",),
    also=("sampled_counts", "base_responses", "greedy_grades", "answer_counts"),
    missing="not drawn at another temperature: --controls does",
    plot=Plot(x="step", group="scope", y_label="pass@k", y_range=(0.0, 1.0)),
    compute=compute,
    columns=OF_ANSWERS,
)
