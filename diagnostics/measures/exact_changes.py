"""What became of the correct modes since the base, on their exact probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from oversharp.diagnostics.measures._exact import NO_MODES, NOISE_NATS, ExactModes, exact_modes
from oversharp.diagnostics.measures._findings import among, comparisons, findings_at, told
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, Section
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import ratio_interval, share_interval, yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

SOLVABLE_ABOVE = 0.02
LOST_BELOW = 0.002
TENFOLD_NATS = math.log(10.0)


def _change(
    name: str,
    title: str,
    *,
    unit: Literal["share of problems", "share of modes", "share of probability"],
    of: Callable[[ExactModes, str, str], Interval | str],
    doc: str,
    section: Section = "modes",
    y_label: str | None = None,
) -> Measure:
    """``of`` the modes, the base and a checkpoint: an interval, or why there is none."""

    def compute(evidence: Evidence) -> list[Finding]:
        modes = exact_modes(evidence)
        compared = comparisons(evidence, modes.why)
        return findings_at(measure, compared, lambda i: [told(measure, i, of(modes, evidence.base_id, i))])

    measure = Measure(
        name=name,
        title=title,
        unit=unit,
        section=section,
        needs=("mode_logps",),
        missing=NO_MODES,
        plot=Plot(x="step", y_label=y_label or unit, y_range=(0.0, 1.0)),
        compute=compute,
        of_base=False,
        doc=doc,
    )
    return measure


def _lost(modes: ExactModes, base_id: str, checkpoint_id: str) -> Interval:
    before_P, now_P = modes.success_probabilities(base_id), modes.success_probabilities(checkpoint_id)
    return yes_no_interval((before_P > SOLVABLE_ABOVE) & (now_P < LOST_BELOW), cluster_P=modes.cluster_P)


def _over_sharpened(modes: ExactModes, base_id: str, checkpoint_id: str) -> Interval:
    fell_M = modes.change_nats(base_id, checkpoint_id) < -NOISE_NATS
    return yes_no_interval(modes.sum_by_problem(fell_M) > 0, cluster_P=modes.cluster_P)


def _fallen(modes: ExactModes, base_id: str, checkpoint_id: str, *, by_nats: float) -> Interval:
    fell_M = modes.change_nats(base_id, checkpoint_id) < -by_nats
    modes_P = modes.sum_by_problem(np.ones(len(modes.problem_M)))
    fell_P = modes.sum_by_problem(fell_M)
    share = ratio_interval(fell_P, modes_P, floor=True, bounds=(0.0, 1.0), cluster_P=modes.cluster_P)
    return replace(share, n=len(fell_M))


def _mass_lost(modes: ExactModes, base_id: str, checkpoint_id: str) -> Interval | str:
    share_M, solvable_P = modes.conditional_shares(base_id)
    if not solvable_P.any():
        return "base: every mode of every problem has probability 0"
    change_M = modes.change_nats(base_id, checkpoint_id)
    lost_M = share_M * -np.expm1(np.minimum(change_M, 0.0))
    lost_P = np.minimum(modes.sum_by_problem(lost_M), 1.0)  # rounding may exceed 1 by 1e-16
    return share_interval(lost_P[solvable_P], cluster_P=among(modes.cluster_P, solvable_P))


MEASURES = (
    _change(
        "problems_lost_exact",
        "Problems lost (exact)",
        unit="share of problems",
        section="problems",
        of=_lost,
        doc="""
Problems lost, exactly: success probability above 0.02 under the base and below 0.002 now.

Meaning: problems that the base solved within some 50 samples and the checkpoint does not within some 500, decided on
exact probabilities: no chance, no sampling budget.
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: only where all accepted responses of a problem are listed. Both thresholds are conventions, a decade apart so
that no small drift crosses them.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the thresholds are ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.03)), ("base", "q2", "b", math.log(0.03)),
...     ("late", "q1", "a", math.log(0.001)), ("late", "q2", "b", math.log(0.01))])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('late', 0.5)]
""",
    ),
    _change(
        "problems_over_sharpened",
        "Problems over-sharpened (Definition 2.1)",
        unit="share of problems",
        of=_over_sharpened,
        doc="""
Problems over-sharpened: the share of problems with a correct mode whose probability fell below the base's.

Meaning: Definition 2.1 of [A] decided problem by problem. Sharpening is moderate where no correct mode lost
probability; it is over-sharpening where any did. Equality counts as moderate, and so does a fall within the numeric
noise of scoring (1e-4 nats).
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: strict. Any training moves some mode down a little, so the share soon saturates near 1: read it with its
grades ``modes_fallen_10x`` and ``mass_lost``. Only where all accepted responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.8)), ("late", "q1", "b", math.log(0.1)), ("late", "q2", "c", math.log(0.5))])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]
[('late', 0.5)]
""",
    ),
    _change(
        "modes_fallen",
        "Modes fallen",
        unit="share of modes",
        of=lambda modes, base_id, checkpoint_id: _fallen(modes, base_id, checkpoint_id, by_nats=NOISE_NATS),
        doc="""
Modes fallen: the share of correct modes whose probability is below the base's.

Meaning: how much of the correct repertoire lost probability at all, by more than the numeric noise of scoring (1e-4
nats).
Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
variance floor), because modes of one problem move together. The base itself has no row.
Limits: counts a fall of a thousandth like a fall of a million; ``modes_fallen_10x`` grades it. Only where all accepted
responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)), ("late", "q2", "c", math.log(0.4))])
>>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in compute(evidence)]
[('late', 0.6667, 3)]
""",
    ),
    _change(
        "modes_fallen_10x",
        "Modes fallen more than tenfold",
        unit="share of modes",
        of=lambda modes, base_id, checkpoint_id: _fallen(modes, base_id, checkpoint_id, by_nats=TENFOLD_NATS),
        doc="""
Modes fallen more than tenfold: the share of correct modes with less than a tenth of the base's probability.

Meaning: how much of the correct repertoire is practically given up. A mode that fell tenfold needs ten times the
samples to be seen again.
Unit: share of modes, pooled over problems; n counts modes. 95 % interval over problems (ratio estimator with a
variance floor), because modes of one problem move together. The base itself has no row.
Limits: the factor is a convention. A mode that was negligible under the base counts like a leading one; ``mass_lost``
weighs them. Only where all accepted responses of a problem are listed.
Source: [A] (arXiv 2601.15609), Def 2.1; the grading is ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)), ("base", "q2", "c", math.log(0.5)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.01)), ("late", "q2", "c", math.log(0.4))])
>>> [(f.checkpoint_id, round(f.value, 4), f.n) for f in compute(evidence)]
[('late', 0.3333, 3)]
""",
    ),
    _change(
        "mass_lost",
        "Correct mass lost",
        unit="share of probability",
        y_label="share of the base's correct probability",
        of=_mass_lost,
        doc="""
Correct mass lost: the share of the base's correct probability that its modes have lost since.

Meaning: per problem, Σ max(0, π_base − π_t) / Σ π_base over the correct modes, averaged over problems. It weighs modes
by how much they mattered, and gains of other modes do not make up for losses: 0 is moderate sharpening, 1 means that
everything the base could do is gone.
Unit: share of the base's correct probability. 95 % t interval over problems with a variance floor; n counts problems.
The base itself has no row.
Limits: only where all accepted responses of a problem are listed; problems that the base cannot solve at all (every
mode at probability 0) have no share and are left out.
Source: [A] (arXiv 2601.15609), Def 2.1; the weighting is ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q1", "a", math.log(0.3)), ("base", "q1", "b", math.log(0.2)),
...     ("late", "q1", "a", math.log(0.9)), ("late", "q1", "b", math.log(0.05))])
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence)]
[('late', 0.3)]
""",
    ),
)
