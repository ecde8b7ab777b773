"""Exact shares of the correct probability by mode."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.modes.exact import ALL_IMPOSSIBLE, NO_MODES, ExactModes, load_exact_modes
from oversharp.diagnostics.statistics.intervals import share_interval

SCOPES = ("dominant", "second", "other")


def _load(evidence: Evidence) -> Loaded[tuple[ExactModes, ExactModes]]:
    """Load the modes of every checkpoint together with the base's; without the base's nothing is known."""
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
    """Exact mode shares: the correct probability split between the base's leading mode and the others.

    Meaning: π(mode | correct), averaged over problems. Scope ``dominant`` is the mode that is likeliest under the
    base, ``second`` the base's second, ``other`` all others; the three sum to 1. A dominant share that climbs to 1 is
    mode collapse onto what the base preferred already.
    Unit: share of probability. 95 % t interval over problems with a variance floor.
    Limits: only for problems that list all accepted responses, if some problem lists two; problems that the
    checkpoint cannot solve at all are excluded. Ties under the base go to the first mode in lexical order.
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
    # Rank of each mode under the base within its problem: 0 is dominant.
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
