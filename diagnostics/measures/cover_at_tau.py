"""Cover@τ, the share of problems that are solved reliably: of every checkpoint, and its difference from the base."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from oversharp.diagnostics.measures._counts import CorrectCounts, common_counts
from oversharp.diagnostics.measures._findings import comparisons, findings_at, known, places, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval, yes_no_interval
from oversharp.diagnostics.statistics.units import Interval

#: τ in percent: in whole numbers 3 of 30 are 10 %.
PERCENTS = (10, 25, 50, 90)
SCOPES = tuple(f"tau {percent / 100:g}" for percent in PERCENTS)


def _covered(counts: CorrectCounts, checkpoint_id: str, percent: int) -> Bool[np.ndarray, " problem"]:
    return 100 * counts.correct_P[checkpoint_id] >= percent * counts.n_P[checkpoint_id]


def _too_coarse(percent: int, n: int) -> str | None:
    """Why n samples cannot tell a success rate of τ: below 1/τ a single hit is more, and so with misses near 1."""
    least = -(-100 // min(percent, 100 - percent))
    return f"needs at least {least} samples per problem; there are {n}" if n < least else None


def _cover(name: str, title: str, *, plot: Plot, doc: str, less_base: bool) -> Measure:
    """A finding per checkpoint and τ; unknown where a problem lacks samples or n is too small for τ."""

    def compute(evidence: Evidence) -> list[Finding]:
        counts = common_counts(evidence)

        def of(checkpoint_id: str, percent: int) -> Interval:
            covered_P = _covered(counts, checkpoint_id, percent)
            if not less_base:
                return yes_no_interval(covered_P, cluster_P=counts.cluster_P)
            change_P = covered_P.astype(np.float64) - _covered(counts, evidence.base_id, percent)
            return share_interval(change_P, bounds=(-1.0, 1.0), floor=2.0, cluster_P=counts.cluster_P)

        def at(checkpoint_id: str) -> list[Finding]:
            found = []
            for percent, scope in zip(PERCENTS, SCOPES, strict=True):
                why_not = _too_coarse(percent, counts.least(checkpoint_id))
                found.append(
                    unknown(measure, checkpoint_id, why_not, scope=scope)
                    if why_not
                    else known(measure, checkpoint_id, of(checkpoint_id, percent), scope=scope)
                )
            return found

        where = comparisons(evidence, counts.why) if less_base else places(evidence, counts.why)
        return findings_at(measure, where, at, scopes=SCOPES)

    measure = Measure(
        name=name,
        title=title,
        unit="share of problems",
        section="coverage",
        needs=("problem_counts",),
        missing="no graded samples",
        plot=plot,
        compute=compute,
        signed=less_base,
        of_base=not less_base,
        doc=doc,
    )
    return measure


MEASURES = (
    _cover(
        "cover_at_tau",
        "Cover@τ",
        less_base=False,
        plot=Plot(x="step", group="scope", y_label="share of problems solved at a rate of τ", y_range=(0.0, 1.0)),
        doc="""
Cover@τ: the share of problems of which at least a share τ of the samples is correct.

Meaning: coverage that luck does not move. Pass@k counts a problem as solved once any of k guesses hits, so at large k
it rewards guessing; Cover@τ asks for a success rate. Small τ is breadth, τ near 1 depth: pass@k is a mean of Cover@τ
over τ that at large k weighs only τ near 0. Scopes are ``tau 0.1``, ``tau 0.25``, ``tau 0.5`` and ``tau 0.9``.
Unit: share of problems. Estimator: the share with c/n ≥ τ, c of n samples correct; 95 % exact binomial interval over
problems. As many samples of a problem at every checkpoint.
Limits: what is estimated is the share at this n, not the share of problems whose true success rate is at least τ: rates
near τ fall on either side of it by chance. Where most rates lie near 0 and 1, the two differ by up to 0.02 at n = 16
and 0.01 at n = 64; where most lie between, by 0.07 and 0.02. Compare checkpoints at equal n only, which the audit
keeps. Where answers can be guessed (one option of four), a τ up to the chance of a guess counts guesses. Unknown with
fewer than 1/τ or 1/(1 − τ) samples.
Source: Dragoi et al. 2025 (arXiv 2510.08325), Cover@τ.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 10, 1), ("base", "q2", 10, 5), ("late", "q1", 10, 0), ("late", "q2", 10, 9)], n=10)
>>> [(f.checkpoint_id, f.value) for f in compute(evidence) if f.scope == "tau 0.1"]
[('base', 1.0), ('late', 0.5)]
>>> [(f.checkpoint_id, f.value) for f in compute(evidence) if f.scope == "tau 0.9"]
[('base', 0.0), ('late', 0.5)]
""",
    ),
    _cover(
        "cover_at_tau_delta",
        "Cover@τ against base",
        less_base=True,
        plot=Plot(x="step", group="scope", y_label="Cover@τ − base"),
        doc="""
Cover@τ against base: the paired difference, problem by problem.

Meaning: how many more (above 0) or fewer problems are solved at a rate of at least τ since the base. A gain at τ = 0.9
with a loss at τ = 0.1 is sharpening that gave up problems, and no guess is needed to see it. Scopes are ``tau 0.1``,
``tau 0.25``, ``tau 0.5`` and ``tau 0.9``. The base itself has no row.
Unit: share of problems (difference, −1 to 1). Estimator: mean over problems of the difference of c/n ≥ τ; 95 % paired t
interval over problems with a variance floor of two problems.
Limits: of problems whose rate is near τ some cross it by chance, in both directions alike where nothing changed. One
interval per τ and checkpoint, not adjusted for looking at many: a single one below 0 is no verdict. Unknown with fewer
than 1/τ or 1/(1 − τ) samples.
Source: Dragoi et al. 2025 (arXiv 2510.08325), Cover@τ; the difference is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 10, 1), ("base", "q2", 10, 5), ("late", "q1", 10, 0), ("late", "q2", 10, 9)], n=10)
>>> [(f.scope, f.value) for f in compute(evidence)]
[('tau 0.1', -0.5), ('tau 0.25', 0.0), ('tau 0.5', 0.0), ('tau 0.9', 0.5)]
""",
    ),
)
