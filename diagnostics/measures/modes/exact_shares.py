"""Measures of shares and entropy of the correct modes, from exact probabilities."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.modes.exact import (
    ALL_IMPOSSIBLE,
    EXACT_MODES,
    NO_MODES,
    ExactModes,
    load_exact_modes,
)
from oversharp.diagnostics.statistics.intervals import share_interval, sparse_interval

SCOPES = ("dominant", "second", "other")


def _load(evidence: Evidence) -> Loaded[tuple[ExactModes, ExactModes]]:
    """Load the modes of the base and of every checkpoint; without the base all are unknown."""
    modes, why = load_exact_modes(evidence)
    base_id = evidence.base_id
    if base_id in why:
        return {}, dict.fromkeys(evidence.checkpoint_ids, f"base: {why[base_id]}")
    return {i: (modes[base_id], own) for i, own in modes.items()}, why


@per_checkpoint(
    input=Input(load=_load, needs=("mode_logps",), missing=NO_MODES),
    scopes=SCOPES,
    title="Mode shares (exact)",
    unit="share of probability",
    section="modes",
    plot=Plot(x="step", group="scope", y_label="share of correct probability", y_range=(0.0, 1.0)),
)
def mode_share_exact(modes_and_base: tuple[ExactModes, ExactModes]) -> Results:
    """Exact mode shares: the base's leading mode and the others in correct probability.

    Meaning: π(mode | correct), averaged over problems. Scope ``dominant`` is the mode that is most likely under the
    base, ``second`` the base's second mode, ``other`` all other modes. The three sum to 1. A dominant share that rises
    to 1 is mode collapse onto the base's preference.
    Unit: share of probability. 95 % t interval over problems with a variance floor.
    Limits: only for problems that list all accepted responses, and only if at least one problem lists two. Problems
    that the checkpoint cannot solve at all are excluded. If modes are equally likely under the base, the first in
    alphabetical order leads.
    Source: [A] (arXiv 2601.15609), section 2 (modes and their probabilities).

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.1)),
    ...     ("late", "q1", "a", math.log(0.2)), ("late", "q1", "b", math.log(0.6))])
    >>> [(f.checkpoint_id, f.scope, round(f.value, 4)) for f in mode_share_exact(evidence)][:4]
    [('base', 'dominant', 0.75), ('base', 'second', 0.25), ('base', 'other', 0.0), ('late', 'dominant', 0.25)]
    """
    base, modes = modes_and_base
    if modes.why_undivided:
        return dict.fromkeys(SCOPES, modes.why_undivided)
    # rank of each mode within its problem by probability under the base; 0 is dominant
    order_M = base.by_likelihood()
    rank_M = np.empty(len(order_M), dtype=np.int64)
    rank_M[order_M] = np.arange(len(order_M)) - base.start_P[base.problem_M]
    share_M, is_solvable_P = modes.conditional_shares()
    if not is_solvable_P.any():
        return dict.fromkeys(SCOPES, ALL_IMPOSSIBLE)
    cluster_P = select_clusters(modes.cluster_P, is_solvable_P)
    shares_P = [modes.sum_by_problem(np.where(np.minimum(rank_M, 2) == rank, share_M, 0.0)) for rank in range(3)]
    return {
        scope: share_interval(share_P[is_solvable_P], cluster_P=cluster_P)
        for scope, share_P in zip(SCOPES, shares_P, strict=True)
    }


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

    Meaning: how evenly the probability of correct responses is spread over a problem's correct modes. 0 means that only
    one mode is left. The exponential of the entropy is an effective number of modes.
    Unit: nats. 95 % t interval over problems with a variance floor for problems at 0, if at least five problems are
    above 0. n counts problems.
    Limits: it falls under every kind of sharpening, including moderate sharpening, so a fall alone does not show a
    loss. Only for problems that list all accepted responses, and only if at least one problem lists two. Problems that
    the checkpoint cannot solve at all are excluded.
    Source: Shannon entropy over the correct modes of [A] (arXiv 2601.15609), section 2.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.2)), ("base", "q1", "b", math.log(0.2)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", -math.inf)])
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in mode_entropy_exact(evidence)]  # log 2, then a single mode
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
