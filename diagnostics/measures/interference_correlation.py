"""Interference and pass@k: how far they change together from checkpoint to checkpoint.

Meaning: Pearson's r over all pairs of an earlier and a later checkpoint, between Δ⁺ (the change in log-probability of
the base's correct panel responses) and the change of pass@k. Near 1: checkpoints that lost the base's solutions lost
coverage too. One value for the series, at its last checkpoint.
Unit: correlation, −1 to 1. Δ⁺ is the mean over the correct panel responses of a problem, then over problems; pass@k is
the unbiased estimate averaged over all sampled problems. The panel's responses are not among the samples of pass@k, so
the two axes share no noise. n counts pairs of checkpoints; no interval, because pairs overlap (each checkpoint is in
many).
Limits: a description, not evidence. Two curves that merely trend have |r| near .8; ``interference_correlation_p`` is
the test. Checkpoints without a complete panel or without all samples are left out; with fewer than 3 left, or a curve
that does not move, r is unknown. The paper's y⁺ are correct solutions of its test set, here the base's panel
responses. The panel is drawn at the panel temperature, and teacher-forced Δ⁺ holds phrasing noise and is no test of
Def 2.1 of [A].
Source: [C] (The Reasoning Boundary Paradox), section 4.2, Fig 3.

>>> from dataclasses import replace
>>> from diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("20", "q1", 0, True, -6.0, 9), ("40", "q1", 0, True, -7.0, 9)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("20", "q1", 4, 3), ("40", "q1", 4, 2)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.k, round(f.value, 4), f.n) for f in compute(evidence)]
[('40', 1, 1.0, 3)]
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float

from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._interference import courses
from diagnostics.measures._panel import NO_PANEL
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import Interval
from diagnostics.statistics.permutation import within_correlation


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
        interference_C = _changes(both.logp_TP.mean(axis=1))
        coverage_C = _changes(both.pass_at_k(k).mean(axis=1))
        r = within_correlation(interference_C[None], coverage_C[None])
        if r is None:
            still = f"Δ⁺ or pass@{k} is the same at every checkpoint, so they have no correlation"
            findings.append(unknown(MEASURE, ids[-1], still, k=k))
            continue
        interval = Interval(mean=r, low=None, high=None, n=len(interference_C))
        findings.append(known(MEASURE, ids[-1], interval, k=k))
    return findings


def _changes(level_T: Float[np.ndarray, " checkpoint"]) -> Float[np.ndarray, " pair"]:
    """Later less earlier, for every pair of checkpoints."""
    return np.array([later - earlier for earlier, later in itertools.combinations(level_T, 2)])


MEASURE = Measure(
    name="interference_correlation",
    title="Interference and pass@k, correlation",
    unit="correlation",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="k", group="checkpoint", y_label="r of Δ⁺ and Δ pass@k", log_x=True, y_range=(-1.0, 1.0)),
    compute=compute,
    signed=True,
)
