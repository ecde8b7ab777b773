"""Responses that lose probability when others gain it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.measures.modes.exact import NO_MODES, NOISE_NATS, ExactModes, load_exact_modes
from oversharp.diagnostics.statistics.intervals import yes_no_interval

SCOPES = ("incorrect", "dominant", "minority")


@per_series(
    needs=("mode_logps",),
    missing=NO_MODES,
    title="Responses that lose probability to others",
    unit="share of problems",
    section="dynamics",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    of_base=False,
)
def relative_negative(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Relative negative: the responses that lose probability to others, from one checkpoint to the next.

    Meaning: per problem, which class lost most probability since the checkpoint before. Scope ``incorrect`` is all
    mass outside the correct modes, ``dominant`` the base's likeliest correct mode, ``minority`` the falls of all other
    correct modes together; the value is the share of problems, and the three sum to 1. The exploitation stage of [B]
    takes from what has a low reward (incorrect); its exploration stage takes from the mode that it made dominant.
    Unit: share of problems, of those where anything was lost beyond the numeric noise of scoring (1e-4 nats); n counts
    these. 95 % exact binomial interval over problems. The base has no row.
    Limits: with 0/1 rewards no correct mode has a negative expected advantage, so a correct mode that falls is squeezed
    by the likelier ones (``squeeze``), not punished: only ``incorrect`` is then a relative negative in the sense of
    [B], which gives its correct actions different rewards. Training on other problems moves mass too. The size of the
    loss is not weighed, and a problem with one mode has no minority. Equal losses count for the first in the order
    above. Only for problems that list all accepted responses.
    Source: [B] (arXiv 2510.04028), section 3, Lemma 1 and Remark 3; from checkpoints instead of updates, which is
    ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q", "a", math.log(0.5)), ("base", "q", "b", math.log(0.1)),
    ...     ("middle", "q", "a", math.log(0.8)), ("middle", "q", "b", math.log(0.1)),
    ...     ("late", "q", "a", math.log(0.5)), ("late", "q", "b", math.log(0.4))])
    >>> [(f.checkpoint_id, f.scope) for f in relative_negative(evidence) if f.value == 1.0]
    [('middle', 'incorrect'), ('late', 'dominant')]
    """
    modes, why = load_exact_modes(evidence)
    base_id = evidence.base_id
    for before_id, checkpoint_id in pairwise(evidence.checkpoint_ids):
        why_not = why.get(checkpoint_id)
        if base_id in why:
            why_not = f"base: {why[base_id]}"
        elif before_id in why:
            why_not = f"the checkpoint before: {why[before_id]}"
        if why_not:
            yield checkpoint_id, dict.fromkeys(SCOPES, why_not)
        else:
            yield checkpoint_id, _shares_of_losers(modes[base_id], modes[before_id], modes[checkpoint_id])


def _shares_of_losers(base: ExactModes, before: ExactModes, after: ExactModes) -> Results:
    lost_PS = _lost_probability(base, before, after)
    has_moved_P = lost_PS.max(axis=1) > 0.0
    if not has_moved_P.any():
        why_not = "no probability moved since the checkpoint before, beyond the numeric noise of scoring"
        return dict.fromkeys(SCOPES, why_not)
    loser_P, cluster_P = lost_PS[has_moved_P].argmax(axis=1), select_clusters(after.cluster_P, has_moved_P)
    return {scope: yes_no_interval(loser_P == number, cluster_P=cluster_P) for number, scope in enumerate(SCOPES)}


def _lost_probability(base: ExactModes, before: ExactModes, after: ExactModes) -> Float[np.ndarray, "problem scope"]:
    """Return the probability lost by each of ``SCOPES`` in each problem; 0 for a gain or for noise."""
    order_M = base.by_likelihood()
    is_dominant_M = np.zeros(len(order_M), dtype=bool)
    is_dominant_M[order_M[base.start_P]] = True
    has_fallen_M = after.change_nats(before) < -NOISE_NATS
    fall_M = np.where(has_fallen_M, np.exp(before.logp_M) - np.exp(after.logp_M), 0.0)
    # incorrect responses lost what the correct modes gained; a sum of probabilities is as noisy as its terms
    gain_P = after.success_probability - before.success_probability
    return np.stack(
        [
            np.where(gain_P > NOISE_NATS * after.success_probability, gain_P, 0.0),
            after.sum_by_problem(np.where(is_dominant_M, fall_M, 0.0)),
            after.sum_by_problem(np.where(is_dominant_M, 0.0, fall_M)),
        ],
        axis=1,
    )
