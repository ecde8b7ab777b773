"""Problems that came within reach or left it: solved at least once in n samples by the base, and now."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from oversharp.diagnostics.measures._counts import common_counts
from oversharp.diagnostics.measures._findings import among, comparisons, findings_at, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import yes_no_interval

Solved = Bool[np.ndarray, " problem"]


def _every(before_P: Solved, now_P: Solved) -> Solved:
    return np.ones_like(before_P)


def _flow(
    name: str,
    title: str,
    *,
    doc: str,
    holds: Callable[[Solved, Solved], Solved],
    asked: Callable[[Solved, Solved], Solved] = _every,
    none: str = "",
) -> Measure:
    """The share of problems of which ``holds`` is true, given whether the base and the checkpoint solve them.

    Where only those ``asked`` count, ``none`` says why there is no share without one.
    """

    def compute(evidence: Evidence) -> list[Finding]:
        counts = common_counts(evidence)

        def at(checkpoint_id: str) -> list[Finding]:
            solved = counts.correct_P[evidence.base_id] > 0, counts.correct_P[checkpoint_id] > 0
            asked_P = asked(*solved)
            if not asked_P.any():
                return [unknown(measure, checkpoint_id, none)]
            clusters = among(counts.cluster_P, asked_P)
            return [known(measure, checkpoint_id, yes_no_interval(holds(*solved)[asked_P], cluster_P=clusters))]

        return findings_at(measure, comparisons(evidence, counts.why), at)

    measure = Measure(
        name=name,
        title=title,
        unit="share of problems",
        section="problems",
        needs=("problem_counts",),
        missing="no graded samples",
        plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
        compute=compute,
        of_base=False,
        doc=doc,
    )
    return measure


MEASURES = (
    _flow(
        "problems_lost",
        "Problems lost",
        holds=lambda before_P, now_P: before_P & ~now_P,
        doc="""
Problems lost: solved at least once in n samples by the base, never now.

Meaning: the problems that left the reach of the model at this sampling budget.
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: a problem with a small success probability is lost and gained by chance: without any change, hundreds of
problems show as many lost as gained. Read it beside ``problems_gained``; a single lost problem needs fresh samples to
be believed. The value depends on n, which is the same for both.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence)]
[('late', 0.25, 4)]
""",
    ),
    _flow(
        "problems_gained",
        "Problems gained",
        holds=lambda before_P, now_P: ~before_P & now_P,
        doc="""
Problems gained: never solved in n samples by the base, at least once now.

Meaning: the problems that came within the reach of the model at this sampling budget.
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: part of the gain is chance, as for ``problems_lost``; only the two together say something. The value depends on
n, which is the same for both.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence)]
[('late', 0.25, 4)]
""",
    ),
    _flow(
        "problems_kept",
        "Problems kept",
        holds=lambda before_P, now_P: before_P & now_P,
        doc="""
Problems kept: solved at least once in n samples by the base and now.

Meaning: the problems that stayed within reach. What kept, lost and gained leave of 1 are the problems that neither
solves.
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: the value depends on n, which is the same for both.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence)]
[('late', 0.5, 4)]
""",
    ),
    _flow(
        "support_retention",
        "Support retention rate",
        holds=lambda before_P, now_P: now_P,
        asked=lambda before_P, now_P: before_P,
        none="the base solves no problem",
        doc="""
Support retention rate (SRR): of the problems that the base solves at least once in n samples, the share solved now.

Meaning: ``problems_kept`` over what there was to keep, kept + lost. 1 means that nothing left the reach of the model at
this sampling budget.
Unit: share of problems, of those that the base solves; n counts these. 95 % exact binomial interval over them. The base
itself has no row.
Limits: below 1 without any change: rare successes of the base are luck that need not come again (see
``problems_lost``). Read it beside ``net_discovery``, which the same luck raises. The value depends on n, which is the
same for both.
Source: Wu et al. 2025 (arXiv 2507.14843), support retention rate, there of solutions; here a problem counts as one.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, round(f.value, 3), f.n) for f in compute(evidence)]
[('late', 0.667, 3)]
""",
    ),
    _flow(
        "net_discovery",
        "Net discovery rate",
        holds=lambda before_P, now_P: ~before_P,
        asked=lambda before_P, now_P: now_P,
        none="no problem is solved here",
        doc="""
Net discovery rate (NDR): of the problems solved now at least once in n samples, the share that the base never solved.

Meaning: ``problems_gained`` over all that is within reach now, kept + gained.
Unit: share of problems, of those that are solved now; n counts these. 95 % exact binomial interval over them. The base
itself has no row.
Limits: above 0 without any change: some problems that the base missed by chance are hit now (see ``problems_gained``).
It says nothing of losses: read it beside ``support_retention``. The value depends on n, which is the same for both.
Source: Wu et al. 2025 (arXiv 2507.14843), net discovery rate, there of solutions; here a problem counts as one.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, round(f.value, 3), f.n) for f in compute(evidence)]
[('late', 0.333, 3)]
""",
    ),
)
