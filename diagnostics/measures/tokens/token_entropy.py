"""Entropy of tokens of own samples."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import find_incomplete
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.statistics.intervals import mean_interval, ratio_interval

SCOPES = ("all", "token_pooled")
MISSING = "no response is scored for token entropy; the audit needs a teacher-forced pass"


def _load(evidence: Evidence) -> Loaded[tuple[pd.DataFrame, np.ndarray | None]]:
    """Load the sums of entropies, tokens and responses of every problem, and the clusters of the problems."""
    frame = evidence.frames["sample_entropies"]
    frame = frame.assign(entropy_mean=frame["entropy_sum"] / frame["n_tokens"], responses=1)
    by_problem = frame.groupby(["checkpoint_id", "problem_id"])
    # How many samples are scored is a setting of the audit, the same for every problem and checkpoint.
    why = find_incomplete(evidence, frame, frame["responses"], expected=int(by_problem.size().max()))
    sums = by_problem[["entropy_mean", "entropy_sum", "n_tokens", "responses"]].sum()
    own = {i: sums.loc[i] for i in evidence.checkpoint_ids if i not in why}
    return {i: (rows, evidence.clusters(rows.index)) for i, rows in own.items()}, why


@per_checkpoint(
    input=Input(load=_load, needs=("sample_entropies",), missing=MISSING),
    scopes=SCOPES,
    title="Token entropy",
    unit="nats per token",
    section="entropy",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="token entropy (nats per token)"),
)
def token_entropy(sums_and_clusters: tuple[pd.DataFrame, np.ndarray | None]) -> Results:
    """Token entropy: the entropy of the next token in the model's own responses.

    Meaning: the entropy of the next-token distribution over the full vocabulary at temperature 1, teacher-forced on
    the checkpoint's own samples. Scope ``all`` averages over the tokens of a response, then over responses, then over
    problems; ``token_pooled`` averages over all tokens at once, so long responses weigh more.
    Unit: nats per token. 95 % t interval over problems (pooled: ratio estimator); n counts responses.
    Limits: falls under moderate sharpening too, so it is never a verdict alone. Checkpoints sample different
    responses, so a shift in style or length moves it as well. Responses truncated at the token limit are included.
    Source: [B] (arXiv 2510.04028), C.5.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sample_entropies", "checkpoint_id problem_id sample_index entropy_sum n_tokens", [
    ...     ("base", "q1", 0, 2.0, 2), ("base", "q2", 0, 1.0, 4)])
    >>> [(f.scope, f.value, f.n) for f in token_entropy(evidence)]  # (1 + 1/4) / 2, then 3 / 6
    [('all', 0.625, 2), ('token_pooled', 0.5, 2)]
    """
    sums, cluster_P = sums_and_clusters
    n, positive = int(sums["responses"].sum()), (0.0, math.inf)
    mean_P = (sums["entropy_mean"] / sums["responses"]).to_numpy(dtype=np.float64)
    entropy_P, tokens_P = (sums[name].to_numpy(dtype=np.float64) for name in ("entropy_sum", "n_tokens"))
    pooled = ratio_interval(entropy_P, tokens_P, floor=False, bounds=positive, cluster_P=cluster_P)
    return {
        "all": replace(mean_interval(mean_P, bounds=positive, cluster_P=cluster_P), n=n),
        "token_pooled": replace(pooled, n=n),
    }
