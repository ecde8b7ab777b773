"""Measures of the difference between two log-probabilities of the same response, per token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.panel.own import NO_OWN_LOGPS, load_own_samples
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

SCOPES = ("all", "max")
NONE_TWICE = "no panel response is scored twice here; run the audit with --panel 4"


@dataclass(frozen=True, kw_only=True)
class _Gaps:
    """Absolute difference per token of two log-probabilities, for each response.

    ``gap`` is in nats per token. ``cluster_P`` has the cluster of each problem.
    """

    gap: pd.Series
    problem_id: pd.Series
    cluster_P: Int[np.ndarray, " problem"] | None


def _own_scores(evidence: Evidence) -> Loaded[_Gaps]:
    """Load the log-probabilities of own samples from the sampler and from teacher forcing."""
    rows_of, why = load_own_samples(evidence, "own_logp_sum")
    return {i: _gaps(evidence, rows, "sampler_logp_sum", "own_logp_sum") for i, rows in rows_of.items()}, why


def _repeated_scores(evidence: Evidence) -> Loaded[_Gaps]:
    """Load the two scores of each response that was teacher-forced twice."""
    frame = evidence.frames["repeated_logps"].sort_values(["problem_id", "response_id"])
    gaps = {str(i): _gaps(evidence, rows, "logp_sum", "second_logp_sum") for i, rows in frame.groupby("checkpoint_id")}
    return gaps, {i: NONE_TWICE for i in evidence.checkpoint_ids if i not in gaps}


def _gaps(evidence: Evidence, rows: pd.DataFrame, first: str, second: str) -> _Gaps:
    return _Gaps(
        gap=(rows[first] - rows[second]).abs() / rows["n_tokens"],
        problem_id=rows["problem_id"],
        cluster_P=evidence.clusters(sorted(rows["problem_id"].unique())),
    )


@per_checkpoint(
    input=Input(load=_own_scores, needs=("own_logps",), missing=NO_OWN_LOGPS),
    scopes=SCOPES,
    title="Gap between sampler and scorer",
    unit="nats per token",
    section="health",
    rank=100,
    plot=Plot(x="step", group="scope", y_label="|log-probability difference| (nats per token)"),
)
def sampler_scorer_gap(gaps: _Gaps) -> Results:
    """Sampler–scorer gap: whether sampler and scorer used the same weights.

    Meaning: the sampler reports the log-probability of each sample. Teacher forcing computes it again under the same
    checkpoint. Scope ``all`` is the mean absolute difference per token, averaged within a problem, then over problems.
    Scope ``max`` is the largest difference of a single response. Rounding causes a small gap. The gap is larger if
    sampler and scorer use different engines, or a lower precision than float32. If the gap is far above that of the
    other checkpoints, one of the two used outdated or damaged weights, another tokenizer or another prompt. Then no
    number of that checkpoint is valid.
    Unit: nats per token. 95 % t interval over problems. n counts problems. ``max`` has no interval, and its n counts
    responses.
    Limits: equal texts share one teacher-forced score. A gap without a fault occurs if the sampled tokens of a text
    differ from the scored tokens, or if a response was truncated just before its end token. It raises ``max`` more than
    ``all``. Very small changes of the weights are not detected.
    Source: ours. Samplers must report log-probabilities at temperature 1 over the full vocabulary.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index n_tokens sampler_logp_sum own_logp_sum"
    >>> evidence = tiny_evidence("own_logps", columns, [
    ...     ("base", "q1", 0, 2, -3.0, -3.0), ("base", "q2", 0, 4, -5.0, -6.0)])
    >>> [(f.scope, f.value, f.n) for f in sampler_scorer_gap(evidence)]
    [('all', 0.125, 2), ('max', 0.25, 2)]
    """
    return _mean_and_max(gaps)


@per_checkpoint(
    input=Input(load=_repeated_scores, needs=("repeated_logps",), missing=NONE_TWICE),
    scopes=SCOPES,
    title="Scoring noise",
    unit="nats per token",
    section="health",
    rank=110,
    plot=Plot(x="step", group="scope", y_label="|log-probability difference| (nats per token)"),
)
def scoring_noise(gaps: _Gaps) -> Results:
    """Scoring noise: how much rounding alone changes a log-probability.

    Meaning: some panel responses are teacher-forced twice under the same weights. The second pass uses float32 and
    batches of another shape; a server keeps its precision, and gets these responses one by one. Scope ``all`` is the
    mean absolute difference per token, averaged within a problem, then over problems. Scope ``max`` is the largest
    difference of a single response. A change of log-probability between checkpoints means something only if it is
    larger than this noise.
    Unit: nats per token. 95 % t interval over problems. n counts problems. ``max`` has no interval, and its n counts
    responses.
    Limits: the value is a lower bound of the numeric error, because it does not contain errors that both passes share.
    It is often 0 in a float32 audit of a small model, and for a server, also one in bfloat16. The responses are those
    of the first problems, in the order of their hashes. For comparison: bfloat16 changed the scores of the built-in
    task's model by 0.004 nats per token on average, and by at most 0.022.
    Source: ours. None of the papers reports its numeric noise.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id response_id n_tokens logp_sum second_logp_sum"
    >>> evidence = tiny_evidence("repeated_logps", columns, [
    ...     ("base", "q1", "a", 2, -3.0, -3.0), ("base", "q2", "b", 4, -5.0, -6.0)])
    >>> [(f.scope, f.value, f.n) for f in scoring_noise(evidence)]
    [('all', 0.125, 2), ('max', 0.25, 2)]
    """
    return _mean_and_max(gaps)


def _mean_and_max(gaps: _Gaps) -> Results:
    """Return the mean over problems and the maximum, or a reason if a score is infinite."""
    # the difference of two scores of probability 0, −inf − −inf, is NaN
    n_broken, n = int((~np.isfinite(gaps.gap)).sum()), len(gaps.gap)
    if n_broken:
        why = f"one of the two scores of {n_broken} of {n} responses is a probability of 0; check the weights"
        return dict.fromkeys(SCOPES, why)
    mean_P = gaps.gap.groupby(gaps.problem_id).mean().to_numpy(dtype=np.float64)
    return {
        "all": mean_interval(mean_P, bounds=(0.0, math.inf), cluster_P=gaps.cluster_P),
        "max": Interval(mean=float(gaps.gap.max()), low=None, high=None, n=n),
    }
