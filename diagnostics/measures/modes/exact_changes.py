"""Changes of the correct modes since the base, on their exact probabilities."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import against_base
from oversharp.diagnostics.measures.modes.exact import EXACT_MODES, NOISE_NATS, ExactModes
from oversharp.diagnostics.statistics.intervals import ratio_interval, share_interval, yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

SOLVABLE_ABOVE = 0.02
LOST_BELOW = 0.002
TENFOLD_NATS = math.log(10.0)


@against_base(
    input=EXACT_MODES,
    title="Problems lost (exact)",
    unit="share of problems",
    section="problems",
    rank=40,
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
)
def problems_lost_exact(base: ExactModes, late: ExactModes) -> Interval:
    """Problems lost, exactly: success probability above 0.02 under the base and below 0.002 at the checkpoint.

    Meaning: problems that the base solves in about 50 samples and the checkpoint does not solve in about 500. They are
    determined from exact probabilities, without chance and without a sampling budget.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no row.
    Limits: only for problems that list all accepted responses. Both thresholds are conventions, a factor
    of 10 apart, so that no small drift crosses both.
    Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the thresholds are ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.03)), ("base", "q2", "b", math.log(0.03)),
    ...     ("late", "q1", "a", math.log(0.001)), ("late", "q2", "b", math.log(0.01))])
    >>> [(f.checkpoint_id, f.value) for f in problems_lost_exact(evidence)]
    [('late', 0.5)]
    """
    is_lost_P = (base.success_probability > SOLVABLE_ABOVE) & (late.success_probability < LOST_BELOW)
    return yes_no_interval(is_lost_P, cluster_P=late.cluster_P)


@against_base(
    input=EXACT_MODES,
    title="Problems over-sharpened (Definition 2.1)",
    unit="share of problems",
    section="modes",
    rank=70,
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
)
def problems_over_sharpened(base: ExactModes, late: ExactModes) -> Interval:
    """Problems over-sharpened: the share of problems with a correct mode whose probability fell below the base's.

    Meaning: Definition 2.1 of [A] decided problem by problem. Sharpening is moderate if no correct mode lost
    probability; it is over-sharpening if any did. Equality counts as moderate, and so does a fall within the numeric
    noise of scoring (1e-4 nats).
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no row.
    Limits: strict. Any training moves some mode down a little, so the share soon saturates near 1: compare it with
    ``modes_fallen_10x`` and ``mass_lost``. Only for problems that list all accepted responses.
    Source: [A] (arXiv 2601.15609), Def 2.1.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
    ...     ("late", "q1", "a", math.log(0.8)), ("late", "q1", "b", math.log(0.1)), ("late", "q2", "c", math.log(0.5))])
    >>> [(f.checkpoint_id, f.value) for f in problems_over_sharpened(evidence)]
    [('late', 0.5)]
    """
    has_fallen_M = late.change_nats(base) < -NOISE_NATS
    return yes_no_interval(late.sum_by_problem(has_fallen_M) > 0, cluster_P=late.cluster_P)


@against_base(
    input=EXACT_MODES,
    title="Modes fallen",
    unit="share of modes",
    section="modes",
    rank=50,
    plot=Plot(x="step", y_label="share of modes", y_range=(0.0, 1.0)),
)
def modes_fallen(base: ExactModes, late: ExactModes) -> Interval:
    """Modes fallen: the share of correct modes whose probability is below that under the base.

    Meaning: the share of correct modes that lost any probability beyond the numeric noise of scoring (1e-4 nats).
    Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
    variance floor), because modes of one problem are correlated. The base has no row.
    Limits: counts small and large falls alike; ``modes_fallen_10x`` counts only large ones. Only for problems that list
    all accepted responses.
    Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)),
    ...     ("late", "q2", "c", math.log(0.4))])
    >>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in modes_fallen(evidence)]
    [('late', 0.6667, 3)]
    """
    return _share_fallen(base, late, by_nats=NOISE_NATS)


@against_base(
    input=EXACT_MODES,
    title="Modes fallen more than tenfold",
    unit="share of modes",
    section="modes",
    rank=10,
    plot=Plot(x="step", y_label="share of modes", y_range=(0.0, 1.0)),
)
def modes_fallen_10x(base: ExactModes, late: ExactModes) -> Interval:
    """Modes fallen more than tenfold: the share of correct modes with less than a tenth of the base's probability.

    Meaning: the share of correct modes that are practically lost. A mode that fell tenfold needs ten times as many
    samples to be sampled again.
    Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
    variance floor), because modes of one problem are correlated. The base has no row.
    Limits: the factor is a convention. A mode that was negligible under the base counts like a leading one;
    ``mass_lost`` weighs them. Only for problems that list all accepted responses.
    Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)),
    ...     ("late", "q2", "c", math.log(0.4))])
    >>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in modes_fallen_10x(evidence)]
    [('late', 0.3333, 3)]
    """
    return _share_fallen(base, late, by_nats=TENFOLD_NATS)


@against_base(
    input=EXACT_MODES,
    title="Correct mass lost",
    unit="share of probability",
    section="modes",
    rank=60,
    plot=Plot(x="step", y_label="share of the base's correct probability", y_range=(0.0, 1.0)),
)
def mass_lost(base: ExactModes, late: ExactModes) -> Result:
    """Correct mass lost: the share of the base's correct probability that its modes have lost since.

    Meaning: per problem, Σ max(0, π_base − π_t) / Σ π_base over the correct modes, averaged over problems. It weighs
    modes by their probability, and gains of other modes do not compensate losses: 0 is moderate sharpening, 1 means
    that all correct modes of the base are gone.
    Unit: share of the base's correct probability. 95 % t interval over problems with a variance floor; n counts
    problems. The base has no row.
    Limits: only for problems that list all accepted responses; problems that the base cannot solve at all (every mode
    at probability 0) have no share and are excluded.
    Source: [A] (arXiv 2601.15609), Def 2.1; the weighting is ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.05))])
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in mass_lost(evidence)]
    [('late', 0.3)]
    """
    share_M, is_solvable_P = base.conditional_shares()
    if not is_solvable_P.any():
        return "base: every mode of every problem has probability 0"
    lost_M = share_M * -np.expm1(np.minimum(late.change_nats(base), 0.0))
    lost_P = np.minimum(late.sum_by_problem(lost_M), 1.0)  # rounding may exceed 1 by 1e-16
    return share_interval(lost_P[is_solvable_P], cluster_P=select_clusters(late.cluster_P, is_solvable_P))


def _share_fallen(base: ExactModes, late: ExactModes, *, by_nats: float) -> Interval:
    has_fallen_M = late.change_nats(base) < -by_nats
    modes_P = late.sum_by_problem(np.ones(len(late.problem_M)))
    fallen_P = late.sum_by_problem(has_fallen_M)
    share = ratio_interval(fallen_P, modes_P, floor=True, bounds=(0.0, 1.0), cluster_P=late.cluster_P)
    return replace(share, n=len(has_fallen_M))
