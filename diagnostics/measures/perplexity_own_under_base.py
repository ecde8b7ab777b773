"""Perplexity of own samples under the base: how expected the base finds what a checkpoint writes.

Meaning: exp of the mean negative log-probability per token that the base gives to the first samples of each
checkpoint, the base's own included, averaged within a problem, then over problems. A fall says that training moved
the model towards what the base finds likely anyway. Scope ``all``, and ``task:NAME`` where there are several tasks.
Unit: perplexity, at least 1. 95 % t interval over problems; n counts problems.
Limits: a sharper model falls by itself, whether or not it lost a mode, so this is never a verdict. A mean of
exponentials: few unlikely responses, mostly short ones, carry it, and the interval is rough. Responses cut at the
token limit count as they are, so read it with ``truncation_rate``.
Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 leftmost: PPL of the base on y ~ checkpoint. Appendix H
takes 16 responses per problem; here it is as many as the panel has.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("own_logps", "checkpoint_id problem_id sample_index n_tokens base_logp_sum", [
...     ("base", "q1", 0, 2, 2 * log(1 / 6)), ("base", "q2", 0, 3, 3 * log(1 / 4)),
...     ("late", "q1", 0, 2, 2 * log(1 / 3)), ("late", "q2", 0, 1, log(1 / 2))])
>>> [(f.checkpoint_id, round(f.value, 6), f.n) for f in compute(evidence)]  # (6 + 4) / 2, then (3 + 2) / 2
[('base', 5.0, 2), ('late', 2.5, 2)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._counts import scopes
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._own import NO_OWN_LOGPS, own_forced
from diagnostics.measures._perplexity import BOUNDS, perplexity_of
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import mean_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and scope; unknown where the base has not scored all the samples."""
    complete, why = own_forced(evidence, "base_logp_sum")
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings.append(unknown(MEASURE, checkpoint_id, why[checkpoint_id]))
            continue
        rows = complete[checkpoint_id]
        perplexity_R, why_not = perplexity_of(
            rows["base_logp_sum"].to_numpy(dtype=np.float64), rows["n_tokens"].to_numpy(dtype=np.int64)
        )
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        by_problem = rows.assign(perplexity=perplexity_R).groupby("problem_id")
        mean_P = by_problem["perplexity"].mean().to_numpy(dtype=np.float64)
        for scope, in_scope_P in scopes(by_problem["task"].first().to_numpy(dtype=str)):
            interval = mean_interval(mean_P[in_scope_P], bounds=BOUNDS)
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope))
    return findings


MEASURE = Measure(
    name="perplexity_own_under_base",
    title="Perplexity of own samples under the base",
    unit="perplexity",
    section="perplexity",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", group="scope", y_label="perplexity under the base"),
    compute=compute,
)
