"""Token entropy: how undecided the model is at each token of its own responses.

Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, teacher-forced on the
checkpoint's own samples. Scope ``all`` averages over the tokens of a response, then over responses, then over
problems; ``token_pooled`` averages over all tokens at once, so long responses weigh more.
Unit: nats per token. 95 % t interval over problems (pooled: ratio estimator); n counts responses.
Limits: falls under moderate sharpening too, so it is never a verdict by itself. Checkpoints sample different
responses, so a shift in style or length moves it as well. Responses truncated at the token limit count as they are.
Source: [B] (arXiv 2510.04028), C.5.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sample_entropies", "checkpoint_id problem_id sample_index entropy_sum n_tokens", [
...     ("base", "q1", 0, 2.0, 2), ("base", "q2", 0, 1.0, 4)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]  # (1 + 1/4) / 2, then 3 / 6
[('all', 0.625, 2), ('token_pooled', 0.5, 2)]
"""

from __future__ import annotations

import math

import numpy as np

from oversharp.diagnostics.measures._counts import reasons
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval, ratio_interval

SCOPES = ("all", "token_pooled")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``all`` and ``token_pooled``; unknown where responses are not scored."""
    frame = evidence.frames["sample_entropies"]
    if frame.empty:
        why_not = "no response is scored for token entropy"
        return [unknown(MEASURE, i, why_not, scope=scope) for i in checkpoint_ids(evidence) for scope in SCOPES]
    frame = frame.assign(entropy_mean=frame["entropy_sum"] / frame["n_tokens"], responses=1)
    by_problem = frame.groupby(["checkpoint_id", "problem_id"])
    # How many samples are scored is a setting of the audit, the same for every problem and checkpoint.
    why = reasons(evidence, frame, frame["responses"], expected=int(by_problem.size().max()))
    sums = by_problem[["entropy_mean", "entropy_sum", "n_tokens", "responses"]].sum()
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings += [unknown(MEASURE, checkpoint_id, why[checkpoint_id], scope=scope) for scope in SCOPES]
            continue
        here = sums.loc[checkpoint_id]
        n = int(here["responses"].sum())
        positive = (0.0, math.inf)
        per_problem_P = (here["entropy_mean"] / here["responses"]).to_numpy(dtype=np.float64)
        clusters = evidence.clusters(here.index)
        mean = mean_interval(per_problem_P, bounds=positive, cluster_P=clusters)
        findings.append(known(MEASURE, checkpoint_id, mean, n=n))
        entropy_P, tokens_P = (here[name].to_numpy(dtype=np.float64) for name in ("entropy_sum", "n_tokens"))
        pooled = ratio_interval(entropy_P, tokens_P, floor=False, bounds=positive, cluster_P=clusters)
        findings.append(known(MEASURE, checkpoint_id, pooled, scope="token_pooled", n=n))
    return findings


MEASURE = Measure(
    name="token_entropy",
    title="Token entropy",
    unit="nats per token",
    section="entropy",
    needs=("sample_entropies",),
    missing="no response is scored for token entropy; the audit needs a teacher-forced pass",
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
    compute=compute,
)
