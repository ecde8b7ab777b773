"""Measure of problems that an earlier checkpoint solved and this one does not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import NO_SAMPLES, load_common_counts
from oversharp.diagnostics.measures.declare import compare_with_base, per_series
from oversharp.diagnostics.statistics.intervals import yes_no_interval

SCOPES = ("all", "clear")
#: Significance level of scope ``clear``.
LEVEL = 0.05


@per_series(
    needs=("problem_counts",),
    missing=NO_SAMPLES,
    title="Temporal forgetting",
    unit="share of problems",
    section="problems",
    rank=70,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    of_base=False,
)
def temporal_forgetting(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Temporal forgetting: problems that an earlier checkpoint solved and this one does not.

    Meaning: problems that the base or an earlier checkpoint solved, and that training later lost. Scope ``all`` is the
    share of problems with a correct sample at the base or any earlier checkpoint, and none at this one. An ensemble of
    checkpoints would still solve them. Scope ``clear`` counts only problems for which chance is an unlikely
    explanation. For these, suppose that this checkpoint and the best earlier one had the same success rate. Then the
    probability that all correct samples are at the earlier one is at most 5 %, divided by the number of earlier
    checkpoints.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: ``all`` grows with the number of checkpoints even if nothing changes. Chance alone puts 20 % of the problems
    with a success rate of 2 % and 64 samples each in ``all`` at the first checkpoint after the base, and 27 % at the
    ninth. For ``clear`` these shares are 0.3 % and 0.01 %. Compare ``all`` with ``problems_gained``. The problems in
    ``clear`` are significant; the others in ``all`` may be chance. The value depends on n, which is the same at every
    checkpoint: with a stopping rule, n is the smallest cap, and ``clear`` counts the correct samples of the first round
    of earlier checkpoints. A checkpoint with missing samples is skipped.
    Source: Li et al. 2025 (arXiv 2505.20196), temporal forgetting score. There each checkpoint has one greedy answer or
    a mean over few samples. ``clear`` is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 16, 0), ("base", "q2", 16, 1), ("base", "q3", 16, 0), ("base", "q4", 16, 3),
    ...     ("20", "q1", 16, 9), ("20", "q2", 16, 0), ("20", "q3", 16, 0), ("20", "q4", 16, 9),
    ...     ("40", "q1", 16, 0), ("40", "q2", 16, 0), ("40", "q3", 16, 0), ("40", "q4", 16, 9)], n=16)
    >>> [(f.checkpoint_id, f.scope, f.value) for f in temporal_forgetting(evidence)]  # q2 may be chance, q1 is not
    [('20', 'all', 0.25), ('20', 'clear', 0.0), ('40', 'all', 0.5), ('40', 'clear', 0.25)]
    """
    counts, why = load_common_counts(evidence)
    order = [checkpoint_id for checkpoint_id in evidence.checkpoint_ids if checkpoint_id in counts]
    for checkpoint_id, why_not in compare_with_base(evidence, why):
        if why_not:
            yield checkpoint_id, dict.fromkeys(SCOPES, why_not)
            continue
        here = counts[checkpoint_id]
        before = [counts[earlier] for earlier in order[: order.index(checkpoint_id)]]
        best_P = np.max([earlier.correct_P for earlier in before], axis=0)
        forgotten_P = np.any([earlier.is_solved for earlier in before], axis=0) & ~here.is_solved
        n_wrong_P = here.n_P if here.reach_P is None else here.reach_P
        clear_P = forgotten_P & (chance_of_none(best_P, here.n_P, n_wrong_P) <= LEVEL / len(before))
        yield (
            checkpoint_id,
            {
                scope: yes_no_interval(is_counted_P, cluster_P=here.cluster_P)
                for scope, is_counted_P in zip(SCOPES, (forgotten_P, clear_P), strict=True)
            },
        )


def chance_of_none(
    correct_P: Int[np.ndarray, " problem"], n_P: Int[np.ndarray, " problem"], n_wrong_P: Int[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """Return the p value of Fisher's exact test of c of n against 0 of m: C(n, c)/C(n + m, c).

    >>> chance_of_none(np.array([1, 2]), np.array([16, 16]), np.array([16, 64])).round(4).tolist()
    [0.5, 0.038]
    """
    all_P = n_P + n_wrong_P
    return np.exp(gammaln(n_P + 1) - gammaln(n_P - correct_P + 1) + gammaln(all_P - correct_P + 1) - gammaln(all_P + 1))
