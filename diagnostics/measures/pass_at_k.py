"""Pass@k estimated from samples: of every checkpoint, and its difference from the base, problem by problem."""

from __future__ import annotations

import itertools

from oversharp.diagnostics.measures._counts import sampled_counts, scopes, too_few_samples, within_reach
from oversharp.diagnostics.measures._findings import among, comparisons, known, places, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval


def _pass_at_k(name: str, title: str, *, plot: Plot, doc: str, less_base: bool) -> Measure:
    """A finding per checkpoint, k and scope; unknown, for ``all`` only, where a problem lacks samples or k > n."""

    def compute(evidence: Evidence) -> list[Finding]:
        counts = sampled_counts(evidence)
        where = comparisons(evidence, counts.why) if less_base else places(evidence, counts.why)
        findings = []
        for (checkpoint_id, incomplete), k in itertools.product(where, evidence.ks):
            of = (checkpoint_id, evidence.base_id) if less_base else (checkpoint_id,)
            least = 0 if incomplete else min(map(counts.least, of))
            why_not = incomplete or too_few_samples(k, least)
            if why_not:
                findings.append(unknown(measure, checkpoint_id, why_not, k=k))
                continue
            value_P = counts.pass_at_k(checkpoint_id, k)
            if less_base:
                value_P = value_P - counts.pass_at_k(evidence.base_id, k)
            for scope, in_scope_P in scopes(counts.task_P):
                interval = share_interval(
                    value_P[in_scope_P],
                    bounds=(-1.0 if less_base else 0.0, 1.0),
                    cluster_P=among(counts.cluster_P, in_scope_P),
                )
                findings.append(known(measure, checkpoint_id, within_reach(interval, k, least), scope=scope, k=k))
        return findings

    measure = Measure(
        name=name,
        title=title,
        unit="probability",
        section="coverage",
        needs=("sampled_counts",),
        missing="no graded samples",
        plot=plot,
        compute=compute,
        signed=less_base,
        of_base=not less_base,
        doc=doc,
    )
    return measure


MEASURES = (
    _pass_at_k(
        "pass_at_k",
        "Pass@k",
        less_base=False,
        plot=Plot(x="k", group="checkpoint", y_label="pass@k", log_x=True, y_range=(0.0, 1.0)),
        doc="""
Pass@k: the chance that at least one of k responses is correct, averaged over problems.

Meaning: coverage. At k = 1 it is the accuracy; at large k it asks whether the model can still solve the problem at
all. Over-sharpening shows as a curve that starts above the base's and ends below it. Scope ``all`` is the whole
problem set, ``task:NAME`` one task of several.
Unit: probability. Estimator: unbiased 1 − C(n−c, k)/C(n, k) per problem; 95 % t interval over problems with a
variance floor. Base and checkpoint share their problems, so compare them by ``pass_at_k_delta``, not by whether two
intervals overlap.
Limits: unknown for k > n. No interval for n/2 < k: there the value hangs on a few samples per problem (k = 1 always
has one). A response that could not be graded counts as not correct: see ``timeout_rate``.
Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('base', 1, 0.375), ('base', 2, 0.6667), ('late', 1, 0.5), ('late', 2, 0.5)]
""",
    ),
    _pass_at_k(
        "pass_at_k_delta",
        "Pass@k against base",
        less_base=True,
        plot=Plot(x="step", group="k", y_label="pass@k − base"),
        doc="""
Pass@k against base: the paired difference, problem by problem.

Meaning: coverage gained (above 0) or lost (below 0) since the base. A gain at k = 1 with a loss at large k is the
signature of over-sharpening. Scope ``all`` is the whole problem set, ``task:NAME`` one task of several. The base
itself has no row.
Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates;
95 % paired t interval over problems with a variance floor.
Limits: one interval per (k, checkpoint), not adjusted for looking at many: a single interval below 0 is no verdict.
Unknown for k > n; no interval for n/2 < k (k = 1 always has one).
Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1; moderate sharpening ([A] arXiv 2601.15609, Def 2.1) cannot lower
pass@k at any k.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('late', 1, 0.125), ('late', 2, -0.1667)]
""",
    ),
)
