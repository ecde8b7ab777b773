"""Interference and pass@k, tested: whether the problems that lost log-probability are those that lost pass@k.

Meaning: the p-value of a permutation test. In every pair of neighbouring checkpoints, the change in log-probability of
a problem's correct panel responses is correlated, over problems, with the change of the problem's pass@k; deviations
are taken from the mean of the pair (and of the task), so a trend that all problems share adds nothing. Small: the link
is between problems, not only between two curves that both trend. One value for the series, at its last checkpoint.
Unit: p-value, two-sided, never 0: (1 + number of permutations as far) / (1 + 1999). 1999 permutations, seed 0; each
gives problems the whole course of another problem of the task, which keeps what repeats within a problem from
step to step. n counts problems with a correct panel response. The panel's responses are not among the samples of
pass@k, so common noise cannot make the link.
Limits: one p-value per k, not adjusted for several. It holds for the problems at hand if those of a task are
exchangeable; what drives both changes (a problem's difficulty, say) is a link too, and no cause is shown. With the
noise of few samples, or when pass@k is near 0 or 1 on most problems, a true link stays unseen. Checkpoints without a
complete panel or without all samples are left out. The panel is drawn at the panel temperature, and teacher-forced Δ⁺
holds phrasing noise and is no test of Def 2.1 of [A].
Source: the claim is [C] (The Reasoning Boundary Paradox), section 4.2, Fig 3; the test is ours, after Pitman 1937
(J. R. Stat. Soc. Suppl. 4:225), pooled over pairs.

>>> from dataclasses import replace
>>> from diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     (c, f"q{i}", 0, True, -9.0 - i * t, 9) for t, c in enumerate(("base", "20", "40")) for i in range(8)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 16, 16 - i * t) for t, c in enumerate(("base", "20", "40")) for i in range(8)], n=16)
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.k, f.value, f.n) for f in compute(evidence)]  # log-probability and pass@1 fall alike
[('40', 1, 0.0005, 8)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._interference import courses
from diagnostics.measures._panel import NO_PANEL
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import Interval
from diagnostics.statistics.permutation import link_test

PERMUTATIONS = 1999
SEED = 0


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per k, at the last checkpoint; unknown with fewer than 3 complete checkpoints."""
    ids = checkpoint_ids(evidence)
    if not ids:
        return []
    both = courses(evidence)
    findings = []
    for k in evidence.ks:
        why_not = both.why or both.too_few(k)
        if why_not:
            findings.append(unknown(MEASURE, ids[-1], why_not, k=k))
            continue
        interference_SP = np.diff(both.logp_TP, axis=0)
        test = link_test(
            interference_SP,
            np.diff(both.pass_at_k(k)[:, both.at_P], axis=0),
            stratum_P=both.counts.task_P[both.at_P],
            n_permutations=PERMUTATIONS,
            seed=SEED,
        )
        if test.p_value is None:
            still = f"Δ⁺ or pass@{k}: {test.why}"
            findings.append(unknown(MEASURE, ids[-1], still, k=k))
            continue
        interval = Interval(mean=test.p_value, low=None, high=None, n=interference_SP.shape[1])
        findings.append(known(MEASURE, ids[-1], interval, k=k))
    return findings


MEASURE = Measure(
    name="interference_correlation_p",
    title="Interference and pass@k, permutation test",
    unit="p-value",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="k", group="checkpoint", y_label="p-value", log_x=True, y_range=(0.0, 1.0)),
    compute=compute,
)
