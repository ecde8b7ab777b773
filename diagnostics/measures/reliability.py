"""How reliably problems are solved: by all of k responses (Pass^k), or by a share of them (G-Pass@k)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._counts import by_counts, sampled_counts, too_few_samples, within_reach
from oversharp.diagnostics.measures._findings import known, places, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import at_least_table


class ChanceTable(Protocol):
    """What is asked of k responses, for every number of correct ones among n."""

    def __call__(self, n: int, k: int) -> Float[np.ndarray, " correct"]:
        """Probabilities."""


def _all_of(n: int, k: int) -> Float[np.ndarray, " correct"]:
    return at_least_table(n, k, k)


def _share_of(percent: int) -> ChanceTable:
    # in whole numbers: 0.55 * 20 is more than 11
    return lambda n, k: at_least_table(n, k, -(-percent * k // 100))


def _mean_above_half(n: int, k: int) -> Float[np.ndarray, " correct"]:
    least = range(-(-k // 2) + 1, k + 1)
    return np.asarray(2.0 / k * np.sum([at_least_table(n, k, one) for one in least], axis=0))


def _reliability(name: str, title: str, *, of: Mapping[str, ChanceTable], plot: Plot, doc: str) -> Measure:
    """A finding per checkpoint, k and scope in ``of``; unknown where a problem lacks samples, or k > n."""

    def compute(evidence: Evidence) -> list[Finding]:
        counts = sampled_counts(evidence)
        findings = []
        where = itertools.product(places(evidence, counts.why), evidence.ks, of.items())
        for (checkpoint_id, incomplete), k, (scope, table) in where:
            least = 0 if incomplete else counts.least(checkpoint_id)
            why_not = incomplete or too_few_samples(k, least)
            if k < 2 and scope == MEAN:
                why_not = why_not or "the mean over shares above one half needs k of 2 or more"
            if why_not:
                findings.append(unknown(measure, checkpoint_id, why_not, scope=scope, k=k))
                continue
            n_P, correct_P = counts.n_P[checkpoint_id], counts.correct_P[checkpoint_id]
            value_P = by_counts(n_P, correct_P, partial(table, k=k))
            interval = within_reach(share_interval(value_P, cluster_P=counts.cluster_P), k, least)
            findings.append(known(measure, checkpoint_id, interval, scope=scope, k=k))
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
        doc=doc,
    )
    return measure


#: The mean over all shares above one half.
MEAN = "mean"
SHARES = (25, 50, 75)

MEASURES = (
    _reliability(
        "pass_hat_k",
        "Pass^k",
        of={"all": _all_of},
        plot=Plot(x="k", group="checkpoint", y_label="pass^k", log_x=True, y_range=(0.0, 1.0)),
        doc="""
Pass^k: the chance that all of k responses are correct, averaged over problems.

Meaning: reliability, the other end of pass@k: at k = 1 both are the accuracy, then pass@k rises with k and pass^k
falls. Sharpening raises it. A model that lost coverage while pass^k rose has become sure of fewer problems.
Unit: probability. Estimator: unbiased C(c, k)/C(n, k) per problem, c of n samples correct; 95 % t interval over
problems with a variance floor.
Limits: unknown for k > n. No interval for n/2 < k. Independent draws: a user who tries again after a failure has other
chances. A response that could not be graded counts as not correct.
Source: Yao et al. 2024 (arXiv 2406.12045), pass^k.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 3), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('base', 1, 0.5), ('base', 2, 0.25), ('late', 1, 0.5), ('late', 2, 0.5)]
""",
    ),
    _reliability(
        "g_pass_at_k",
        "G-Pass@k",
        of={**{f"tau {percent / 100:g}": _share_of(percent) for percent in SHARES}, MEAN: _mean_above_half},
        plot=Plot(x="step", group="scope", y_label="G-Pass@k", y_range=(0.0, 1.0)),
        doc="""
G-Pass@k: the chance that at least a share τ of k responses is correct, averaged over problems.

Meaning: what lies between pass@k (one of k) and pass^k (all of k). Scopes are ``tau 0.25``, ``tau 0.5``, ``tau 0.75``,
and ``mean``, the mean over shares above one half (mG-Pass@k). Training that only sharpens raises it for large τ.
Unit: probability. Estimator: the unbiased hypergeometric tail per problem, at least ⌈τ k⌉ of k, for c of n samples
correct; 95 % t interval over problems with a variance floor.
Limits: for small k several τ ask for the same number of responses. ``mean`` is unknown at k = 1. Unknown for k > n;
no interval for n/2 < k. A response that could not be graded counts as not correct.
Source: Liu et al. 2024 (arXiv 2412.13147), G-Pass@k and mG-Pass@k.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 8, 2), ("base", "q2", 8, 6)], n=8, ks=(4,))
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence)]
[('tau 0.25', 0.8929), ('tau 0.5', 0.6071), ('tau 0.75', 0.3929), ('mean', 0.25)]
""",
    ),
)
