"""Exact entropy of the correct modes."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.modes.exact import ALL_IMPOSSIBLE, EXACT_MODES, ExactModes
from oversharp.diagnostics.statistics.intervals import sparse_interval


@per_checkpoint(
    input=EXACT_MODES,
    title="Mode entropy (exact)",
    unit="nats",
    section="entropy",
    rank=50,
    plot=Plot(x="step", y_label="entropy of correct modes (nats)"),
)
def mode_entropy_exact(modes: ExactModes) -> Result:
    """Exact mode entropy: the entropy of π(mode | correct), averaged over problems.

    Meaning: how evenly the correct probability is spread over a problem's correct modes. 0 means one mode is left; exp
    of it is an effective number of modes.
    Unit: nats. 95 % t interval over problems with a floor for those at 0, if five problems or more are above it; n
    counts problems.
    Limits: falls under every kind of sharpening, including the moderate kind, so it is never a verdict alone. Only for
    problems that list all accepted responses, if some problem lists two; problems that the checkpoint cannot solve at
    all are excluded.
    Source: Shannon entropy over the correct modes of [A] (arXiv 2601.15609), section 2.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.2)), ("base", "q1", "b", math.log(0.2)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", -math.inf)])
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in mode_entropy_exact(evidence)]  # log 2, then nothing left
    [('base', 0.6931), ('late', 0.0)]
    """
    if modes.why_undivided:
        return modes.why_undivided
    share_M, is_solvable_P = modes.conditional_shares()
    if not is_solvable_P.any():
        return ALL_IMPOSSIBLE
    surprise_M = -np.log(np.where(share_M > 0.0, share_M, 1.0))  # 0 · log 0 = 0
    entropy_P = modes.sum_by_problem(share_M * surprise_M)[is_solvable_P]
    return sparse_interval(entropy_P, cluster_P=select_clusters(modes.cluster_P, is_solvable_P))
