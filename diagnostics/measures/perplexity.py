"""Perplexity of single responses: the base's under a checkpoint, and a checkpoint's own under the base."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures._counts import common_counts, scopes
from oversharp.diagnostics.measures._findings import (
    checkpoint_ids,
    findings_at,
    known,
    places,
    told,
    unknown,
    without_interval,
)
from oversharp.diagnostics.measures._own import NO_OWN_LOGPS, own_forced
from oversharp.diagnostics.measures._panel import NO_PANEL, NONE_CORRECT, BasePanel, panel_of
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, View
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval

#: A scope of the panel: its name, its problems, its responses (None: all), and what to say where it has none.
_Part = tuple[str, Bool[np.ndarray, " problem"], Bool[np.ndarray, " response"] | None, str]

#: A uniform guess over a million tokens costs 14 nats; far beyond it the exponential swamps or overflows the mean.
MOST_NATS_PER_TOKEN = 100.0


def perplexity_of(
    logp_R: Float[np.ndarray, " response"], n_tokens_R: Int[np.ndarray, " response"]
) -> tuple[Float[np.ndarray, " response"], str | None]:
    """exp(−log π(y) / |y|) of each response, and why their mean means nothing, if so ([C] Eq 6, before the mean).

    ``logp_R`` in nats, summed over ``n_tokens_R`` tokens.

    >>> perplexity_of(np.log([0.25, 0.5]), np.array([2, 1]))
    (array([2., 2.]), None)
    >>> perplexity_of(np.array([-500.0]), np.array([2]))[1]
    'a response has 250 nats per token here, more than any guess costs; check the weights'
    """
    nats_per_token_R = -logp_R / n_tokens_R
    most = float(nats_per_token_R.max(initial=0.0))
    if most > MOST_NATS_PER_TOKEN:
        why = f"a response has {most:.0f} nats per token here, more than any guess costs; check the weights"
        return np.exp(np.minimum(nats_per_token_R, MOST_NATS_PER_TOKEN)), why
    return np.exp(nats_per_token_R), None


def _of_panel(
    name: str,
    title: str,
    *,
    named: tuple[str, str],
    parts: Callable[[Evidence, BasePanel], tuple[list[_Part], str | None]],
    needs: tuple[View, ...],
    doc: str,
) -> Measure:
    """The mean perplexity of every part of the panel; unknown in the scopes ``named`` where there is no part."""

    def compute(evidence: Evidence) -> list[Finding]:
        panel = panel_of(evidence)
        of, why_no_parts = parts(evidence, panel)

        def at(checkpoint_id: str) -> list[Finding]:
            perplexity_R, why_not = perplexity_of(panel.logp_R[checkpoint_id], panel.n_tokens_R)
            if why_not or why_no_parts:
                why = why_no_parts or why_not or ""
                return [unknown(measure, checkpoint_id, why, scope=scope) for scope in named]
            findings = []
            for scope, in_P, among_R, none in of:
                made = panel.intervals(perplexity_R, [(scope, in_P)], among_R=among_R)
                told_P = without_interval(made[0][1]) if made else none
                findings.append(told(measure, checkpoint_id, told_P, scope=scope))
            return findings

        return findings_at(measure, places(evidence, panel.why), at, scopes=named)

    measure = Measure(
        name=name,
        title=title,
        unit="perplexity",
        section="perplexity",
        needs=needs,
        missing=NO_PANEL,
        plot=Plot(x="step", group="scope", y_label="perplexity under the checkpoint"),
        compute=compute,
        doc=doc,
    )
    return measure


def _whole(evidence: Evidence, panel: BasePanel) -> tuple[list[_Part], str | None]:
    whole_P = np.ones(len(panel.problem_ids), dtype=bool)
    return [("all", whole_P, None, NO_PANEL), ("correct", whole_P, panel.correct_R, NONE_CORRECT)], None


def _flow(evidence: Evidence, panel: BasePanel) -> tuple[list[_Part], str | None]:
    """The correct responses to problems that improved and that declined, or why they cannot be told apart."""
    ids = checkpoint_ids(evidence)
    if not ids:
        return [], None
    # As many samples of both: then a problem that did not change is as likely to improve as to decline.
    counts = common_counts(evidence)
    last_id = ids[-1]
    if last_id == evidence.base_id:
        return [], "the series has no checkpoint after the base"
    for checkpoint_id, name in ((evidence.base_id, "base"), (last_id, "last checkpoint")):
        if checkpoint_id in counts.why:
            return [], f"{name}: {counts.why[checkpoint_id]}"
    if not panel.correct_R.any():
        return [], NONE_CORRECT
    position = {problem_id: i for i, problem_id in enumerate(counts.problem_ids)}
    lacking = [problem_id for problem_id in panel.problem_ids if problem_id not in position]
    if lacking:
        return [], f"{len(lacking)} of {len(panel.problem_ids)} problems of the panel have no graded samples"
    at_P = [position[problem_id] for problem_id in panel.problem_ids]
    change_P = (counts.correct_P[last_id] - counts.correct_P[evidence.base_id])[at_P]
    none = "no problem that {} between the base and the last checkpoint has a correct panel response"
    flows = {"improved": change_P > 0, "declined": change_P < 0}
    return [(scope, in_P, panel.correct_R, none.format(scope)) for scope, in_P in flows.items()], None


def _own_under_base(evidence: Evidence) -> list[Finding]:
    complete, why = own_forced(evidence, "base_logp_sum")

    def at(checkpoint_id: str) -> list[Finding]:
        rows = complete[checkpoint_id]
        perplexity_R, why_not = perplexity_of(
            rows["base_logp_sum"].to_numpy(dtype=np.float64), rows["n_tokens"].to_numpy(dtype=np.int64)
        )
        if why_not:
            return [unknown(OWN_UNDER_BASE, checkpoint_id, why_not)]
        by_problem = rows.assign(perplexity=perplexity_R).groupby("problem_id")
        mean_P = by_problem["perplexity"].mean().to_numpy(dtype=np.float64)
        return [
            known(OWN_UNDER_BASE, checkpoint_id, without_interval(mean_interval(mean_P[in_P])), scope=scope)
            for scope, in_P in scopes(by_problem["task"].first().to_numpy(dtype=str))
        ]

    return findings_at(OWN_UNDER_BASE, places(evidence, why), at)


OWN_UNDER_BASE = Measure(
    name="perplexity_own_under_base",
    title="Perplexity of own samples under the base",
    unit="perplexity",
    section="perplexity",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", group="scope", y_label="perplexity under the base"),
    compute=_own_under_base,
    doc="""
Perplexity of own samples under the base: how expected the base finds what a checkpoint writes.

Meaning: exp of the mean negative log-probability per token that the base gives to the first samples of each
checkpoint, the base's own included, averaged within a problem, then over problems. A fall says that training moved
the model towards what the base finds likely anyway. Scope ``all``, and ``task:NAME`` where there are several tasks.
Unit: perplexity, at least 1. n counts problems. No interval: a mean of exponentials hangs on a few responses.
Limits: a sharper model falls by itself, whether or not it lost a mode, so this is never a verdict. A mean of
exponentials: few unlikely responses, mostly short ones, carry it. Responses cut at the
token limit count as they are, so read it with ``truncation_rate``.
Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 leftmost: PPL of the base on y ~ checkpoint. Appendix H
takes 16 responses per problem; here it is as many as the panel has.

>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("own_logps", "checkpoint_id problem_id sample_index n_tokens base_logp_sum", [
...     ("base", "q1", 0, 2, 2 * log(1 / 6)), ("base", "q2", 0, 3, 3 * log(1 / 4)),
...     ("late", "q1", 0, 2, 2 * log(1 / 3)), ("late", "q2", 0, 1, log(1 / 2))])
>>> [(f.checkpoint_id, round(f.value, 6), f.n) for f in compute(evidence)]  # (6 + 4) / 2, then (3 + 2) / 2
[('base', 5.0, 2), ('late', 2.5, 2)]
""",
)

MEASURES = (
    _of_panel(
        "perplexity_base_samples",
        "Perplexity of base samples",
        named=("all", "correct"),
        parts=_whole,
        needs=("panel_logps",),
        doc="""
Perplexity of base samples: how expected a checkpoint finds what the base wrote.

Meaning: exp of the mean negative log-probability per token that each checkpoint, the base included, gives to the
responses of the panel, which the base drew once; averaged within a problem, then over problems. A rise says that the
model moved away from what it could say before. Scope ``all`` takes every response of the panel, ``correct`` the
correct ones only: what is unlearned there was worth keeping.
Unit: perplexity, at least 1. n counts problems. No interval: a mean of exponentials hangs on a few responses.
Limits: a rise of ``correct`` is no proof of a lost mode: other wordings of the same solution may have taken over the
probability. ``correct`` rests on the problems that the base solved in the panel, ``all`` on every problem: compare
each with its own start, not with the other. The panel is drawn at --panel-temperature and scored at temperature 1. A
mean of exponentials: few unlikely responses, mostly short ones, carry it.
Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 middle: PPL of the checkpoint on y ~ base.

>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"
>>> evidence = tiny_evidence("panel_logps", columns, [
...     ("base", "q", 0, True, 2, 2 * log(1 / 2)), ("base", "q", 1, False, 1, log(1 / 4)),
...     ("late", "q", 0, True, 2, 2 * log(1 / 5)), ("late", "q", 1, False, 1, log(1 / 5))])
>>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in compute(evidence)]
[('base', 'all', 3.0), ('base', 'correct', 2.0), ('late', 'all', 5.0), ('late', 'correct', 5.0)]
""",
    ),
    _of_panel(
        "perplexity_base_samples_flow",
        "Perplexity of correct base samples by flow",
        named=("improved", "declined"),
        parts=_flow,
        needs=("panel_logps", "problem_counts"),
        doc="""
Perplexity by flow: how expected correct base samples are on problems that improved and on those that declined.

Meaning: the problems are split once, by Δr = success rate at the last checkpoint − success rate of the base: scope
``improved`` has Δr > 0, ``declined`` Δr < 0, and a problem with Δr = 0 is in neither. Then, under every checkpoint,
exp of the mean negative log-probability per token of the correct responses that the base drew for the panel, averaged
within a problem, then over problems. At the base, lower in ``improved`` than in ``declined`` says that training
improves where the base already found correct solutions likely; the later checkpoints show what became of them.
Unit: perplexity, at least 1; n counts problems with a correct panel response. No interval: a mean of exponentials
hangs on a few responses.
Limits: the split is made on the outcome. Of problems that did not change, some count as improved and some as declined
by the noise of the audit's own samples (regression to the mean), and the later values are those of problems chosen
for how they ended: a gap that opens after the base is no evidence of its own. Both rates rest on as many samples: with
more of the base, rare successes look like declines, and the two scopes differ without any change. A problem near 1 can
only decline and one near 0 only improve. A problem that the base did not solve in the panel is in neither.
Source: [C] (The Reasoning Boundary Paradox), Fig 4 rightmost, Eq 6 and 7, appendix H. What we read there: the caption
speaks of the likelihood of correct solutions under the base, the text of PPL of the checkpoint over training steps;
both are the lines here, the first at the base. D↑ and D↓ come from one comparison of the base with the trained policy.
Appendix H keeps the 64 (AIME: 3) problems that changed most on each side; here all problems that changed count, as in
Eq 7. Whether the paper's responses are drawn from the base is not said; the claim is about those, so they are here.

>>> from dataclasses import replace
>>> from math import log
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct n_tokens logp_sum", [
...     ("base", "q1", 0, True, 1, log(1 / 2)), ("base", "q2", 0, True, 2, 2 * log(1 / 6)),
...     ("late", "q1", 0, True, 1, log(1 / 2)), ("late", "q2", 0, True, 2, 2 * log(1 / 9))])
>>> counts = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 4), ("late", "q2", 4, 1)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in compute(evidence)]
[('base', 'improved', 2.0), ('base', 'declined', 6.0), ('late', 'improved', 2.0), ('late', 'declined', 9.0)]
""",
    ),
    OWN_UNDER_BASE,
)
