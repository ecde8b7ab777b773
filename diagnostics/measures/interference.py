"""Changes of the log-probabilities of the base's responses: against the base, and from checkpoint to checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oversharp.diagnostics.measures._findings import among, comparisons, known, unknown, without_interval
from oversharp.diagnostics.measures._panel import (
    NO_PANEL,
    NONE_CORRECT,
    BasePanel,
    Scope,
    base_success_scopes,
    panel_of,
    steps,
    success_scopes,
)
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import median_interval

#: (before, after, the reason why the two cannot be compared)
Pair = tuple[str, str, str | None]


def _findings(
    measure: Measure, panel: BasePanel, pairs: Iterable[Pair], of: Sequence[Scope], *, squared: bool
) -> list[Finding]:
    """At the later of each pair, problem means first: mean change in nats over correct responses (Δ⁺), or ``squared``
    over all responses (‖Δ‖); their mean over the problems of each scope, and the median over all problems."""
    findings = []
    for before_id, after_id, why_not in pairs:
        if why_not or not (squared or panel.correct_R.any()):
            findings.append(unknown(measure, after_id, why_not or NONE_CORRECT))
            continue
        change_R = panel.change_nats(before_id, after_id)
        values_R, among_R = (change_R**2, None) if squared else (change_R, panel.correct_R)
        # A few problems that moved far carry the mean, and where the sample lacks them nothing in it says so.
        findings += [
            known(measure, after_id, without_interval(interval), scope=scope)
            for scope, interval in panel.intervals(values_R, of, among_R=among_R)
        ]
        mean_P, some_P = panel.problem_means(values_R, among_R)
        findings.append(
            known(
                measure,
                after_id,
                median_interval(mean_P[some_P], cluster_P=among(panel.cluster_P, some_P)),
                scope="median",
            )
        )
    return findings


def _from_base(evidence: Evidence, panel: BasePanel) -> list[Pair]:
    return [(evidence.base_id, checkpoint_id, why) for checkpoint_id, why in comparisons(evidence, panel.why)]


def _interference(name: str, title: str, *, y_label: str, doc: str, by_step: bool, squared: bool) -> Measure:
    """Scopes are the tasks, and the problems by base success; Δ⁺ against the base says why where these are unknown."""

    def compute(evidence: Evidence) -> list[Finding]:
        panel = panel_of(evidence)
        pairs = list(steps(evidence, panel.why)) if by_step else _from_base(evidence, panel)
        of = [*panel.task_scopes(), *success_scopes(evidence, panel)]
        findings = _findings(measure, panel, pairs, of, squared=squared)
        if panel.logp_R and not by_step and not squared:
            _, why_not = base_success_scopes(evidence, panel.problem_ids)
            if why_not:
                findings += [unknown(measure, after_id, why_not, scope="base success") for _, after_id, _ in pairs]
        return findings

    measure = Measure(
        name=name,
        title=title,
        unit="nats²" if squared else "nats per response",
        section="interference",
        needs=("panel_logps", "sampled_counts"),
        missing=NO_PANEL,
        plot=Plot(x="step", group="scope", y_label=y_label),
        compute=compute,
        signed=not squared,
        of_base=False,
        doc=doc,
    )
    return measure


MEASURES = (
    _interference(
        "interference",
        "Interference against base",
        by_step=False,
        squared=False,
        y_label="Δ⁺ (nats per response)",
        doc="""
Interference against base: how the log-probability of the base's correct responses has changed.

Meaning: Δ⁺. Correct responses drawn once from the base, apart from the audit's samples, are scored under every
checkpoint; below 0, training made solutions that the base had less likely. Scope ``all`` is the whole problem set,
``task:NAME`` one task of several, ``base 0`` the problems that no base sample solved, ``base 0-10%`` … ``base 90-100%``
those with a base success rate above the one and up to the other bound. These rates come from other samples than the
panel. The base itself has no row.
Unit: nats per response: the sum over its tokens. Estimator: mean over the correct panel responses of a problem, then
over problems (Def 4.1 averages over pairs of problem and response; problems with many correct responses would weigh
more). n counts problems with a correct panel response. Means have no interval: where 3 % of problems move thirty times
as far as the rest, a t interval over 30 problems misses in 40 % of audits. Scope ``median`` is the median over the
problems of ``all``, with a 95 % interval that holds for any law, from six problems on.
Limits: no test of Def 2.1 of [A]: a mode keeps its probability while its wordings trade places, and one nat of such
phrasing noise makes Δ⁺ negative in nearly all unchanged modes. The panel is drawn at the panel temperature, which
favours what the base finds likely where it is below 1. Long responses change by more nats. Intervals of single
checkpoints are not adjusted for looking at many.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, with the base as μ and all training as the update.

>>> from dataclasses import replace
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q1", 1, False, -7.0, 9), ("base", "q2", 0, True, -5.0, 9),
...     ("base", "q2", 1, True, -4.0, 9), ("late", "q1", 0, True, -9.0, 9), ("late", "q1", 1, False, -1.0, 9),
...     ("late", "q2", 0, True, -5.5, 9), ("late", "q2", 1, True, -7.5, 9)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 0), ("base", "q2", 4, 3), ("late", "q1", 4, 0), ("late", "q2", 4, 4)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]  # q2: (−0.5 − 3.5) / 2 = −2
[('all', -1.5, 2), ('base 0', -1.0, 1), ('base 70-80%', -2.0, 1), ('median', -1.5, 2)]
""",
    ),
    _interference(
        "interference_step",
        "Interference between checkpoints",
        by_step=True,
        squared=False,
        y_label="Δ⁺ since the checkpoint before (nats per response)",
        doc="""
Interference from checkpoint to checkpoint: how the base's correct responses changed since the one before.

Meaning: Δ⁺ of the training between two neighbouring checkpoints. Below 0, these updates made solutions that the base
had less likely (negative interference). Scope ``all`` is the whole problem set, ``task:NAME`` one task of several,
``base 0-10%`` and so on problems by base success.
The base has no row.
Unit: nats per response: the sum over its tokens. Estimator: mean over the correct panel responses of a problem, then
over problems. n counts problems with a correct panel response. Means have no interval, because a few problems may
carry them; scope ``median`` is the median over the problems of ``all``, with a 95 % interval from six problems on.
Limits: the paper's update is one optimiser step; here it is all of them between two checkpoints, so values compare
only where checkpoints are evenly spaced. Not a test of Def 2.1 of [A]: wordings of one mode that trade places (phrasing
noise) move it too. The panel is drawn at the panel temperature. The steps add up to ``interference``.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, Fig 2C, with the base as μ.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, True, -5.0, 9),
...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, True, -4.0, 9),
...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, True, -6.0, 9)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence) if f.scope == "all"]
[('20', 1.5), ('40', -1.5)]
""",
    ),
    _interference(
        "interference_magnitude",
        "Interference magnitude against base",
        by_step=False,
        squared=True,
        y_label="mean squared change (nats²)",
        doc="""
Interference magnitude against base: how far the log-probabilities of the base's responses have moved at all.

Meaning: ‖Δ‖, correct responses and wrong ones, up or down. At 0 nothing outside the training batches changed; no loss
of coverage is possible then. Scope ``all`` is the whole problem set, ``task:NAME`` one task of several, ``base 0-10%``
and so on problems by base success. The base itself has no row.
Unit: nats², a mean square without a root, of the sum over a response's tokens. Estimator: mean over all panel responses
of a problem, then over problems. n counts problems of the panel. Means have no interval, because a few problems may
carry them; scope ``median`` is the median over the problems of ``all``, with a 95 % interval from six problems on.
Limits: a few responses that moved far make most of it. It says nothing of direction: sharpening that only raises
correct responses has a large magnitude too. Long responses move further. The panel is drawn at the panel temperature,
and wordings of one mode that trade places (phrasing noise) count as movement.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, with the base as μ and all training as the update.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
...     ("late", "q1", 0, True, -6.0, 9), ("late", "q2", 0, False, -8.0, 9)])
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence) if f.scope == "all"]  # (2² + 3²) / 2 nats²
[('late', 6.5, 2)]
""",
    ),
    _interference(
        "interference_magnitude_step",
        "Interference magnitude between checkpoints",
        by_step=True,
        squared=True,
        y_label="mean squared change since the checkpoint before (nats²)",
        doc="""
Interference magnitude from checkpoint to checkpoint: how far the base's responses moved since the one before.

Meaning: ‖Δ‖ of the training between two neighbouring checkpoints, correct responses and wrong ones, up or down. If it
grows, updates reach further beyond their batches: the model tells problems apart less. Scope ``all`` is the whole
problem set, ``task:NAME`` one task of several,
``base 0-10%`` and so on problems by base success. The base has no row.
Unit: nats², a mean square without a root, of the sum over a response's tokens. Estimator: mean over all panel responses
of a problem, then over problems. n counts problems of the panel. Means have no interval, because a few problems may
carry them; scope ``median`` is the median over the problems of ``all``, with a 95 % interval from six problems on.
Limits: the paper's update is one optimiser step; here it is all of them between two checkpoints, so values compare
only where checkpoints are evenly spaced, and grow with the learning rate. A few responses that moved far make most of
it. The panel is drawn at the panel temperature, and wordings of one mode that trade places (phrasing noise) count as
movement. Squares do not add up: the steps' sum is not ``interference_magnitude``.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Fig 2B, with the base as μ.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q2", 0, False, -5.0, 9),
...     ("20", "q1", 0, True, -6.0, 9), ("20", "q2", 0, False, -8.0, 9),
...     ("40", "q1", 0, True, -7.0, 9), ("40", "q2", 0, False, -8.0, 9)])
>>> [(f.checkpoint_id, f.value) for f in compute(evidence) if f.scope == "all"]
[('20', 6.5), ('40', 0.5)]
""",
    ),
)
