"""ρ, the cosine between the gradients of two fixed responses: its mean, its extremes, and among correct responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from oversharp.diagnostics.measures._findings import told
from oversharp.diagnostics.measures._kernel import NO_KERNEL, Rows
from oversharp.diagnostics.measures._kernel_findings import number, of_fixed
from oversharp.diagnostics.measures._kernel_pairs import RELATED, UNRELATED, WITHIN, pair_groups, pair_mean
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.units import Interval

GROUPS = (WITHIN, RELATED, UNRELATED)
NO_TWO_CORRECT = "no problem has two correct responses in the kernel; run the audit with more --kernel-responses"

#: A scope, and its value or why there is none.
Told = tuple[str, Interval | str]


def _rho(
    name: str, title: str, *, scopes: Sequence[str], of: Callable[[Rows], Iterator[Told]], y_label: str, doc: str
) -> Measure:
    """``of`` the fixed responses of every checkpoint, in each of ``scopes``."""

    def compute(evidence: Evidence) -> list[Finding]:
        return of_fixed(
            measure, evidence, scopes, lambda i, rows: [told(measure, i, made, scope=scope) for scope, made in of(rows)]
        )

    measure = Measure(
        name=name,
        title=title,
        unit="cosine",
        section="kernel",
        needs=("kernel_runs", "kernel_members", "kernel_pairs"),
        missing=NO_KERNEL,
        plot=Plot(x="step", group="scope" if len(scopes) > 1 else "none", y_label=y_label),
        compute=compute,
        signed=True,
        doc=doc,
    )
    return measure


def _means(rows: Rows) -> Iterator[Told]:
    for group in pair_groups(rows):
        yield group.scope, group.why or pair_mean(rows.cosines, rows, group)


def _of_correct(rows: Rows) -> Iterator[Told]:
    correct = rows.take(np.flatnonzero(rows.correct_N))
    within = pair_groups(correct)[0]
    yield "all", NO_TWO_CORRECT if within.why else pair_mean(correct.cosines, correct, within)


def _extremes(rows: Rows) -> Iterator[Told]:
    for group in pair_groups(rows):
        cosine_E = rows.cosines[group.pairs_NN]
        yield f"min {group.scope}", group.why or number(cosine_E.min(), len(cosine_E))
        yield f"max {group.scope}", group.why or number(cosine_E.max(), len(cosine_E))


MEASURES = (
    _rho(
        "kernel_rho",
        "Coupling ρ",
        scopes=GROUPS,
        of=_means,
        y_label="mean cosine of gradients",
        doc="""
Coupling ρ: how far the gradients of two responses point the same way.

Meaning: the mean cosine K_ij/√(K_ii·K_jj) between fixed responses. Positive: raising one raises the other; 0: they move
apart from each other. Scopes: two responses ``within problems``, of ``related problems`` (one group), of ``unrelated
problems`` (different groups). Over-sharpening spreads between problems only as far as this is above 0.
Unit: cosine, −1 to 1. Averaged within a problem (or a pair of problems), then over these. 95 % interval over problems:
Student's t within problems, the delete-one-problem jackknife between them. n counts problems.
Limits: correct and wrong responses are mixed here, and a step on a wrong one is taken away from it:
``kernel_rho_correct`` keeps to the correct ones. Whatever all responses share (the language, the format, the prompt of
one problem) is coupling too.
Source: [A] (arXiv 2601.15609), section 2.3, ρ; the cosine is ours, because K_ij grows with the lengths.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (3, 0), (0, 1))}, rows)
>>> [(f.scope, f.value, f.why) for f in compute(evidence)][:2]
[('within problems', 1.0, None), ('related problems', 0.0, None)]
>>> compute(evidence)[2].why
'all problems are one group; give them a field "group" in --problems to tell related from unrelated'
""",
    ),
    _rho(
        "kernel_rho_correct",
        "Coupling of correct responses",
        scopes=("all",),
        of=_of_correct,
        y_label="mean cosine, correct responses of a problem",
        doc="""
Coupling of correct responses: how far raising one correct response raises the others of its problem.

Meaning: the mean cosine of gradients between the correct fixed responses of a problem (distinct texts: modes, and
correct panel responses). Above 0, learning one solution lifts the others; at 0 or below, the others are on their own
or pay for it. Beside it stands ``kernel_rho_null``, which is 0 for any model.
Unit: cosine, −1 to 1; averaged within a problem first. 95 % t interval over problems with at least two correct
responses; n counts them.
Limits: correct responses share the prompt, the format and often most of their text, and that is coupling too. Where
the modes are in the kernel they are all enumerated correct responses or the first of them; without modes, the correct
ones that the base happened to draw.
Source: Assumption 2.1 of [A] (arXiv 2601.15609), as a number; the null beside it is ours.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "mode", True), ("q1", "panel", True), ("q1", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (3, 4), (-9, 0))}, rows)
>>> [(f.value, f.n) for f in compute(evidence)]
[(0.6, 1)]
""",
    ),
    _rho(
        "kernel_rho_extremes",
        "Coupling ρ, extremes",
        scopes=tuple(f"{end} {group}" for group in GROUPS for end in ("min", "max")),
        of=_extremes,
        y_label="cosine of gradients",
        doc="""
Smallest and largest ρ: the extreme couplings that the bounds of [A] rest on.

Meaning: the smallest and the largest cosine between the gradients of two fixed responses: scopes ``min`` and ``max``
``within problems``, of ``related problems``, of ``unrelated problems``.
Unit: cosine, −1 to 1; n counts pairs. No interval: extremes of a fixed set.
Limits: extremes follow single pairs, and two wordings of one solution are nearly one response. More responses make
them more extreme, so compare audits of equal size only. ``kernel_rho`` is the mean.
Source: [A] (arXiv 2601.15609), section 2.3, ρ_min and ρ_max; the cosine is ours.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q1", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, 3), (-1, 0))}, rows)
>>> [(f.scope, f.value, f.n) for f in compute(evidence)][:2]
[('min within problems', -1.0, 3), ('max within problems', 0.0, 3)]
""",
    ),
)
