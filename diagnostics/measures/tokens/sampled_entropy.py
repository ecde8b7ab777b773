"""Token entropy estimated from the log-probabilities of the sampled tokens, for which no distribution is needed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.statistics.intervals import ratio_interval


def _load(evidence: Evidence) -> Loaded[tuple[pd.DataFrame, np.ndarray | None]]:
    """Load sums of log-probabilities and tokens by problem, and the clusters."""
    frame = evidence.frames["sampled_logps"]
    n_problems = frame["problem_id"].nunique()
    by_checkpoint = {str(i): rows.set_index("problem_id").sort_index() for i, rows in frame.groupby("checkpoint_id")}
    values, why = {}, {}
    for checkpoint_id in evidence.checkpoint_ids:
        rows = by_checkpoint.get(checkpoint_id, frame.iloc[:0])
        n_complete = int((rows["n"] == rows["n_first_round"]).sum())
        if n_complete == n_problems:
            values[checkpoint_id] = (rows, evidence.clusters(rows.index))
        else:
            n_lacking = n_problems - n_complete
            why[checkpoint_id] = f"{n_lacking} of {n_problems} problems lack log-probabilities of some samples here"
    return values, why


@per_checkpoint(
    input=Input(
        load=_load,
        needs=("sampled_logps",),
        missing="no sample has a log-probability from its sampler, at temperature 1 without top-p and top-k",
        first_round=True,
    ),
    title="Token entropy, estimated from samples",
    unit="nats per token",
    section="entropy",
    rank=25,
    plot=Plot(x="step", y_label="token entropy (nats per token)"),
)
def sampled_token_entropy(sums_and_clusters: tuple[pd.DataFrame, np.ndarray | None]) -> Results:
    """Token entropy, estimated from samples: the mean negative log-probability of the sampled tokens.

    Meaning: an estimate of ``token_entropy``, scope ``token_pooled``, from the sampler's log-probability of each token.
    A server gives these, but no distributions. At temperature 1 a sampled token's negative log-probability has the
    entropy of its distribution as expected value. So both sums over a response have the same expected value, also if
    the response was truncated. All samples of the first round are used.
    Unit: nats per token, pooled over all tokens. 95 % t interval over problems (ratio estimator). n counts samples.
    Limits: known only for samples at temperature 1 without top-p and top-k. An import whose files do not name top-p or
    top-k counts as one without. Long responses have more weight. It also falls under moderate sharpening, so a fall
    alone does not show a loss. Samples with a log-probability of minus infinity count as lacking it.
    Source: the entropy of a sequence is the expected sum of the entropies of its tokens (chain rule; Cover and Thomas,
    Elements of Information Theory, 2.5). Training logs of GRPO often call the same average entropy.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_logps", "checkpoint_id problem_id n_first_round n logp_sum n_tokens", [
    ...     ("base", "q1", 2, 2, -3.0, 4), ("base", "q2", 2, 2, -1.0, 4)])
    >>> [(f.value, f.n) for f in sampled_token_entropy(evidence)]  # (3 + 1) / (4 + 4)
    [(0.5, 4)]
    """
    sums, cluster_P = sums_and_clusters
    surprisal_P, tokens_P = -sums["logp_sum"].to_numpy(dtype=np.float64), sums["n_tokens"].to_numpy(dtype=np.float64)
    interval = ratio_interval(surprisal_P, tokens_P, floor=False, bounds=(0.0, math.inf), cluster_P=cluster_P)
    return replace(interval, n=int(sums["n"].sum()))
