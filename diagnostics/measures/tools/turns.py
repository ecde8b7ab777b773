"""Measures of turns: their number, and pass@k within a limit of turns."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.counts import compute_pass_at_k, explain_too_few, keep_reliable_interval
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.tools.samples import AGENT_SAMPLES, AgentSamples
from oversharp.diagnostics.statistics.intervals import mean_interval, share_interval
from oversharp.diagnostics.statistics.units import Interval

#: Limits of turns. Those above the longest sample are left out.
LIMITS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89)


@per_checkpoint(
    input=AGENT_SAMPLES,
    by_k=True,
    title="Pass@k within T turns",
    unit="probability",
    section="tools",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="pass@(k, T)", y_range=(0.0, 1.0)),
)
def pass_at_k_turns(samples: AgentSamples, k: int) -> Results:
    """Pass@k within T turns: the probability that one of k samples is correct and has at most T turns of the model.

    Meaning: how far a result depends on long interaction. Scope ``T=3`` counts a sample as right only if it is
    correct and the model had at most three turns. A model that uses tools in vain gains nothing with T. The largest
    T is the longest sample of the series: there the value is that of ``pass_at_k``.
    Unit: probability. Estimator: the unbiased estimate of ``pass_at_k`` with these counts. 95 % t interval over
    problems with a variance floor. With a stopping rule only the first round is used.
    Limits: unbiased for a limit that the model does not know and at which a run counts as wrong. A model that knows the
    limit, or is asked for an answer there, may solve more: then the value is a lower bound. One turn is one message of
    the model, with all its calls. Unknown for k > n.
    Source: Pass@(k, T) of arXiv 2604.14877; Chen et al. 2021 (arXiv 2107.03374), Eq 1.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated"
    >>> rows = [("base", "q", i, i < 2, 1 + i, i, 0, 0) for i in range(4)]
    >>> evidence = tiny_evidence("agent_samples", columns, rows, ks=(1, 2))
    >>> [(f.scope, f.k, round(f.value, 3)) for f in pass_at_k_turns(evidence) if f.scope in ("T=1", "T=2")]
    [('T=1', 1, 0.25), ('T=2', 1, 0.5), ('T=1', 2, 0.5), ('T=2', 2, 0.833)]
    """
    n_P = samples.sum_by_problem(pd.Series(1, index=samples.rows.index)).astype(int)
    fewest = int(n_P.min())
    if why_not := explain_too_few(k, fewest):
        return why_not
    results = {}
    for limit in [*(limit for limit in LIMITS if limit < samples.longest), samples.longest]:
        is_right = samples.rows["correct"].astype(bool) & (samples.rows["n_turns"] <= limit)
        value_P = compute_pass_at_k(n_P, samples.sum_by_problem(is_right).astype(int), k)
        results[f"T={limit}"] = keep_reliable_interval(share_interval(value_P, cluster_P=samples.cluster_P), k, fewest)
    return results


@per_checkpoint(
    input=AGENT_SAMPLES,
    title="Turns",
    unit="turns",
    section="tools",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="turns of the model per sample"),
)
def turns_per_sample(samples: AgentSamples) -> Results:
    """Turns: the mean number of turns of the model per sample.

    Meaning: scope ``all`` is over all samples. Scopes ``correct`` and ``not_correct`` are over samples of one grade. A
    turn is one message of the model. A plain response has one.
    Unit: turns: mean over a problem's samples, then over problems. 95 % t interval over problems. n counts samples.
    Limits: a scope of one grade covers only the problems that have such samples, so its problems differ between
    checkpoints.
    Source: ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_turns n_calls n_invalid n_repeated"
    >>> rows = [("base", "q", 0, True, 1, 0, 0, 0), ("base", "q", 1, False, 4, 3, 0, 0)]
    >>> [(f.scope, f.value, f.n) for f in turns_per_sample(tiny_evidence("agent_samples", columns, rows, n=2))]
    [('all', 2.5, 2), ('correct', 1.0, 1), ('not_correct', 4.0, 1)]
    """
    return samples.by_grade("n_turns", mean_count)


def mean_count(samples: AgentSamples, value_S: pd.Series) -> Interval:
    """Return the mean of a count over samples, then over problems."""
    interval = mean_interval(samples.mean_by_problem(value_S), bounds=(0.0, math.inf), cluster_P=samples.cluster_P)
    return replace(interval, n=len(value_S))
