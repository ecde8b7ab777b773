"""Temporal forgetting: problems that some checkpoint before solved and this one does not.

Meaning: what training found, or had from the base, and lost on the way. Scope ``all`` is the share of problems with a
correct sample at the base or any later checkpoint before this one, and none now; an ensemble of checkpoints would still
solve them. Scope ``clear`` counts those of them that luck does not explain: had the best checkpoint before and this one
the same success rate, all of its correct samples would fall to it with a chance of at most 5 %, divided by the number
of checkpoints before.
Unit: share of problems. 95 % exact binomial interval over problems. The base itself has no row.
Limits: ``all`` grows with the number of checkpoints without any change: of problems with a success rate of 2 % and 64
samples each, 20 % are forgotten by chance at the first checkpoint after the base, 27 % at the ninth; of ``clear`` 0.3 %
and 0.01 %. Read ``all`` beside ``problems_gained``, and ``clear`` for what is sure: the rest of ``all`` may be
forgotten or not. The value depends on n, which is the same at every checkpoint. A checkpoint that lacks samples is
passed over.
Source: Li et al. 2025 (arXiv 2505.20196), temporal forgetting score, there of one greedy answer or a mean over few
samples at each checkpoint; ``clear`` is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 16, 0), ("base", "q2", 16, 1), ("base", "q3", 16, 0), ("base", "q4", 16, 3),
...     ("20", "q1", 16, 9), ("20", "q2", 16, 0), ("20", "q3", 16, 0), ("20", "q4", 16, 9),
...     ("40", "q1", 16, 0), ("40", "q2", 16, 0), ("40", "q3", 16, 0), ("40", "q4", 16, 9)], n=16)
>>> [(f.checkpoint_id, f.scope, f.value) for f in compute(evidence)]  # q2 may have been luck, q1 was not
[('20', 'all', 0.25), ('20', 'clear', 0.0), ('40', 'all', 0.5), ('40', 'clear', 0.25)]
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln

from oversharp.diagnostics.measures._counts import common_counts
from oversharp.diagnostics.measures._findings import checkpoint_ids, comparisons, findings_at, known
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import yes_no_interval

SCOPES = ("all", "clear")
#: A problem that did not change is called clearly forgotten with at most this chance.
LEVEL = 0.05


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint but the base; unknown where a problem lacks samples, here or at the base."""
    counts = common_counts(evidence)
    order = [checkpoint_id for checkpoint_id in checkpoint_ids(evidence) if checkpoint_id in counts.correct_P]

    def at(checkpoint_id: str) -> list[Finding]:
        before_TP = np.stack([counts.correct_P[one] for one in order[: order.index(checkpoint_id)]])
        best_P, n_P = before_TP.max(axis=0), counts.n_P[checkpoint_id]
        forgotten_P = (best_P > 0) & (counts.correct_P[checkpoint_id] == 0)
        clear_P = forgotten_P & (chance_of_none(best_P, n_P) <= LEVEL / len(before_TP))
        return [
            known(MEASURE, checkpoint_id, yes_no_interval(held_P, cluster_P=counts.cluster_P), scope=scope)
            for scope, held_P in zip(SCOPES, (forgotten_P, clear_P), strict=True)
        ]

    return findings_at(MEASURE, comparisons(evidence, counts.why), at, scopes=SCOPES)


def chance_of_none(
    correct_P: Int[np.ndarray, " problem"], n_P: Int[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """That all correct samples lie among the first n of 2n: C(n, c)/C(2n, c), Fisher's exact test against none of n."""
    return np.exp(
        gammaln(n_P + 1) - gammaln(n_P - correct_P + 1) + gammaln(2 * n_P - correct_P + 1) - gammaln(2 * n_P + 1)
    )


MEASURE = Measure(
    name="temporal_forgetting",
    title="Temporal forgetting",
    unit="share of problems",
    section="problems",
    needs=("problem_counts",),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
