"""How far Δ⁺ and pass@k change together over a series: as two curves, and problem by problem with a test."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._courses import Courses, courses
from oversharp.diagnostics.measures._findings import checkpoint_ids, told
from oversharp.diagnostics.measures._panel import NO_PANEL
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.permutation import link_test, within_correlation
from oversharp.diagnostics.statistics.units import Interval

PERMUTATIONS = 1999
SEED = 0


def _link(
    name: str,
    title: str,
    *,
    unit: str,
    of: Callable[[Courses, int], Interval | str],
    y_label: str,
    y_range: tuple[float, float],
    signed: bool,
    doc: str,
) -> Measure:
    """``of`` the courses and k, at the last checkpoint; unknown with fewer than 3 complete checkpoints."""

    def compute(evidence: Evidence) -> list[Finding]:
        ids = checkpoint_ids(evidence)
        if not ids:
            return []
        both = courses(evidence)
        return [told(measure, ids[-1], both.why or both.too_few(k) or of(both, k), k=k) for k in evidence.ks]

    measure = Measure(
        name=name,
        title=title,
        unit=unit,
        section="interference",
        needs=("panel_logps", "sampled_counts"),
        missing=NO_PANEL,
        plot=Plot(x="k", group="checkpoint", y_label=y_label, log_x=True, y_range=y_range),
        compute=compute,
        signed=signed,
        doc=doc,
    )
    return measure


def _correlation(both: Courses, k: int) -> Interval | str:
    interference_C = _changes(both.logp_TP.mean(axis=1))
    coverage_C = _changes(both.pass_at_k(k).mean(axis=1))
    r = within_correlation(interference_C[None], coverage_C[None])
    if r is None:
        return f"Δ⁺ or pass@{k} is the same at every checkpoint, so they have no correlation"
    return Interval(mean=r, low=None, high=None, n=len(interference_C))


def _changes(level_T: Float[np.ndarray, " checkpoint"]) -> Float[np.ndarray, " pair"]:
    """Later less earlier, for every pair of checkpoints."""
    return np.array([later - earlier for earlier, later in itertools.combinations(level_T, 2)])


def _p_value(both: Courses, k: int) -> Interval | str:
    interference_SP = np.diff(both.logp_TP, axis=0)
    test = link_test(
        interference_SP,
        np.diff(both.pass_at_k(k)[:, both.at_P], axis=0),
        stratum_P=both.counts.task_P[both.at_P],
        n_permutations=PERMUTATIONS,
        seed=SEED,
    )
    if test.p_value is None:
        return f"Δ⁺ or pass@{k}: {test.why}"
    return Interval(mean=test.p_value, low=None, high=None, n=interference_SP.shape[1])


MEASURES = (
    _link(
        "interference_correlation",
        "Interference and pass@k, correlation",
        unit="correlation",
        of=_correlation,
        y_label="r of Δ⁺ and Δ pass@k",
        y_range=(-1.0, 1.0),
        signed=True,
        doc="""
Interference and pass@k: how far they change together from checkpoint to checkpoint.

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
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("20", "q1", 0, True, -6.0, 9), ("40", "q1", 0, True, -7.0, 9)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("20", "q1", 4, 3), ("40", "q1", 4, 2)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.k, round(f.value, 4), f.n) for f in compute(evidence)]
[('40', 1, 1.0, 3)]
""",
    ),
    _link(
        "interference_correlation_p",
        "Interference and pass@k, permutation test",
        unit="p-value",
        of=_p_value,
        y_label="p-value",
        y_range=(0.0, 1.0),
        signed=False,
        doc="""
Interference and pass@k, tested: whether the problems that lost log-probability are those that lost pass@k.

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
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     (c, f"q{i}", 0, True, -9.0 - i * t, 9) for t, c in enumerate(("base", "20", "40")) for i in range(8)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 16, 16 - i * t) for t, c in enumerate(("base", "20", "40")) for i in range(8)], n=16)
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.k, f.value, f.n) for f in compute(evidence)]  # log-probability and pass@1 fall alike
[('40', 1, 0.0005, 8)]
""",
    ),
)
