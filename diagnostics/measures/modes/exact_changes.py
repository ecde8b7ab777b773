"""Measures of changes of the correct modes, from their exact probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import select_clusters
from oversharp.diagnostics.measures.declare import against_base, per_series
from oversharp.diagnostics.measures.modes.exact import EXACT_MODES, NO_MODES, NOISE_NATS, ExactModes, load_exact_modes
from oversharp.diagnostics.statistics.intervals import ratio_interval, share_interval, yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

SOLVABLE_ABOVE = 0.02
LOST_BELOW = 0.002
TENFOLD_NATS = math.log(10.0)
EDGES = (0.001, 0.01, 0.1)
#: Names of the bins. Their alphabetical order is the order of probabilities.
BINS = ("base p 0-0.001", "base p 0.001-0.01", "base p 0.01-0.1", "base p 0.1-1")
LOSERS = ("incorrect", "dominant", "minority")


@against_base(
    input=EXACT_MODES,
    title="Problems lost (exact)",
    unit="share of problems",
    section="problems",
    rank=40,
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
)
def problems_lost_exact(base: ExactModes, late: ExactModes) -> Interval:
    """Problems lost, exactly: success probability fell from above 0.02 to below 0.002.

    Meaning: problems that the base solves within about 50 samples, and that the checkpoint does not solve within about
    500. They are determined from exact probabilities, so neither chance nor a sampling budget plays a role.
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: only for problems that list all accepted responses. Both thresholds are conventions. They differ by a factor
    of 10, so a small drift cannot cross both.
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
    """Problems over-sharpened: the share of problems with a correct mode that fell.

    Meaning: this applies Definition 2.1 of [A] to each problem. Sharpening is moderate if no correct mode lost
    probability. It is over-sharpening if any correct mode did. An unchanged mode counts as moderate, and so does a fall
    within the numeric noise of scoring (1e-4 nats).
    Unit: share of problems. 95 % exact binomial interval over problems. The base has no finding.
    Limits: the definition is strict. Any training lowers some mode a little, so the share soon approaches 1. Compare it
    with ``modes_fallen_10x`` and ``mass_lost``. Only for problems that list all accepted responses.
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

    Meaning: the share of correct modes that lost more probability than the numeric noise of scoring (1e-4 nats).
    Unit: share of modes, pooled over problems. n counts modes. 95 % interval over problems (ratio estimator with a
    variance floor), because modes of one problem are correlated. The base has no finding.
    Limits: small and large falls count alike. ``modes_fallen_10x`` counts only large falls. Only for problems that list
    all accepted responses.
    Source: [A] (arXiv 2601.15609), Def 2.1; the share instead of a yes or no is ours.

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
    """Modes fallen more than tenfold: the share of correct modes below a tenth of the base's.

    Meaning: the share of correct modes that are practically lost. A mode whose probability fell tenfold needs ten times
    as many samples to occur again.
    Unit: share of modes, pooled over problems. n counts modes. 95 % interval over problems (ratio estimator with a
    variance floor), because modes of one problem are correlated. The base has no finding.
    Limits: the factor is a convention. A mode that was negligible under the base counts as much as a leading mode;
    ``mass_lost`` weighs modes by their probability. Only for problems that list all accepted responses.
    Source: [A] (arXiv 2601.15609), Def 2.1; the share instead of a yes or no is ours.

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
    """Correct mass lost: the share of the base's correct probability that was lost.

    Meaning: Σ max(0, π_base − π_t) / Σ π_base over a problem's correct modes, averaged over problems. Modes are weighed
    by their probability under the base, and gains of other modes do not compensate losses. 0 means moderate sharpening.
    1 means that all correct modes of the base are gone.
    Unit: share of the base's correct probability. 95 % t interval over problems with a variance floor. n counts
    problems. The base has no finding.
    Limits: only for problems that list all accepted responses. Problems that the base cannot solve at all (every mode
    has probability 0) are excluded.
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


@against_base(
    input=EXACT_MODES,
    title="Gain of a mode by its base probability",
    unit="probability",
    section="dynamics",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="gain in probability of a correct mode"),
    signed=True,
)
def squeeze(base: ExactModes, late: ExactModes) -> Results:
    """Squeeze: the probability that a correct mode gained, by its probability under the base.

    Meaning: π_t − π_base, averaged over all correct modes whose base probability p is in the same bin. The scopes are
    the bins ``base p 0-0.001`` to ``base p 0.1-1``. If likely modes gain while unlikely modes lose, unlikely modes are
    squeezed out: on-policy learning reinforces the base's preferences. Under moderate sharpening no bin loses.
    Unit: probability, signed. 95 % interval over problems (ratio estimator), because modes of one problem are
    correlated. n counts modes. The base has no finding. Both probabilities are exact, so there is no regression to the
    mean.
    Limits: a likely mode can lose more and an unlikely mode can gain more. A mean near 0 can hide gains together with
    losses: ``modes_fallen`` counts the losses. If only few problems have a large gain, the interval is too narrow. Only
    for problems that list all accepted responses. A bin without modes has no finding.
    Source: [C] (The Reasoning Boundary Paradox), section 5, Eq 8 and Fig 5; the bins are ours.

    >>> import math
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
    ...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.05)), ("base", "q2", "c", math.log(0.5)),
    ...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)),
    ...     ("late", "q2", "c", math.log(0.7))])
    >>> [(f.scope, round(f.value, 4), f.n) for f in squeeze(evidence)]
    [('base p 0.01-0.1', -0.04, 1), ('base p 0.1-1', 0.4, 2)]
    """
    before_M = np.exp(base.logp_M)
    gain_M = np.exp(late.logp_M) - before_M
    bin_M = np.digitize(before_M, EDGES)
    results: dict[str, Result] = {}
    for number, scope in enumerate(BINS):
        is_inside_M = bin_M == number
        modes_P = late.sum_by_problem(is_inside_M)
        has_modes_P = modes_P > 0
        if not has_modes_P.any():
            continue
        gain_P = late.sum_by_problem(np.where(is_inside_M, gain_M, 0.0))
        # no variance floor: a floor of one problem that deviates by 1 would dwarf the gains of unlikely modes
        interval = ratio_interval(
            gain_P[has_modes_P],
            modes_P[has_modes_P],
            floor=False,
            bounds=(-1.0, 1.0),
            cluster_P=select_clusters(late.cluster_P, has_modes_P),
        )
        results[scope] = replace(interval, n=int(is_inside_M.sum()))
    return results


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
    """Relative negative: the responses that lose probability to others in one step.

    Meaning: the responses of a problem are divided into three classes, and the class that lost most probability since
    the previous checkpoint is determined. ``incorrect`` contains all responses that are not a correct mode.
    ``dominant`` is the correct mode that is most likely under the base. ``minority`` contains all other correct modes,
    whose falls are added. The value of a scope is the share of problems in which it lost most, and the three sum to 1.
    In the exploitation stage of [B], responses with a low reward lose (``incorrect``). In its exploration stage, the
    mode that training made dominant loses.
    Unit: share of problems, among those in which any class lost more than the numeric noise of scoring (1e-4 nats). n
    counts these. 95 % exact binomial interval over problems. The base has no finding.
    Limits: with 0/1 rewards no correct mode has a negative expected advantage. A correct mode that falls is then not
    penalised, but loses to more likely modes (``squeeze``). So only ``incorrect`` is a relative negative in the sense
    of [B], which gives correct actions different rewards. Training on other problems also moves probability. The size
    of the loss has no effect. A problem with one mode has no minority. If two classes lost equally, the first in the
    order above counts. Only for problems that list all accepted responses.
    Source: [B] (arXiv 2510.04028), section 3, Lemma 1 and Remark 3. Comparing checkpoints instead of single updates is
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
            why_not = f"previous checkpoint: {why[before_id]}"
        if why_not:
            yield checkpoint_id, dict.fromkeys(LOSERS, why_not)
        else:
            yield checkpoint_id, _shares_of_losers(modes[base_id], modes[before_id], modes[checkpoint_id])


def _shares_of_losers(base: ExactModes, before: ExactModes, after: ExactModes) -> Results:
    lost_PS = _lost_probability(base, before, after)
    has_moved_P = lost_PS.max(axis=1) > 0.0
    if not has_moved_P.any():
        why_not = "no probability changed since the previous checkpoint by more than the numeric noise of scoring"
        return dict.fromkeys(LOSERS, why_not)
    loser_P, cluster_P = lost_PS[has_moved_P].argmax(axis=1), select_clusters(after.cluster_P, has_moved_P)
    return {scope: yes_no_interval(loser_P == number, cluster_P=cluster_P) for number, scope in enumerate(LOSERS)}


def _lost_probability(base: ExactModes, before: ExactModes, after: ExactModes) -> Float[np.ndarray, "problem scope"]:
    """Return the probability that each class of ``LOSERS`` lost, for each problem."""
    order_M = base.by_likelihood()
    is_dominant_M = np.zeros(len(order_M), dtype=bool)
    is_dominant_M[order_M[base.start_P]] = True
    has_fallen_M = after.change_nats(before) < -NOISE_NATS
    fall_M = np.where(has_fallen_M, np.exp(before.logp_M) - np.exp(after.logp_M), 0.0)
    # incorrect responses lost the probability that the correct modes gained
    gain_P = after.success_probability - before.success_probability
    return np.stack(
        [
            np.where(gain_P > NOISE_NATS * after.success_probability, gain_P, 0.0),
            after.sum_by_problem(np.where(is_dominant_M, fall_M, 0.0)),
            after.sum_by_problem(np.where(is_dominant_M, 0.0, fall_M)),
        ],
        axis=1,
    )
