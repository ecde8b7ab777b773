"""Perplexity of base samples: how expected a checkpoint finds what the base wrote.

Meaning: exp of the mean negative log-probability per token that each checkpoint, the base included, gives to the
responses of the panel, which the base drew once; averaged within a problem, then over problems. A rise says that the
model moved away from what it could say before. Scope ``all`` takes every response of the panel, ``correct`` the
correct ones only: what is unlearned there was worth keeping.
Unit: perplexity, at least 1. 95 % t interval over problems; n counts problems.
Limits: a rise of ``correct`` is no proof of a lost mode: other wordings of the same solution may have taken over the
probability. ``correct`` rests on the problems that the base solved in the panel, ``all`` on every problem: compare
each with its own start, not with the other. The panel is drawn at --panel-temperature and scored at temperature 1. A
mean of exponentials: few unlikely responses, mostly short ones, carry it, and the interval is rough.
Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 middle: PPL of the checkpoint on y ~ base.

>>> from math import log
>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"
>>> evidence = tiny_evidence("panel_logps", columns, [
...     ("base", "q", 0, True, 2, 2 * log(1 / 2)), ("base", "q", 1, False, 1, log(1 / 4)),
...     ("late", "q", 0, True, 2, 2 * log(1 / 5)), ("late", "q", 1, False, 1, log(1 / 5))])
>>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in compute(evidence)]
[('base', 'all', 3.0), ('base', 'correct', 2.0), ('late', 'all', 5.0), ('late', 'correct', 5.0)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._panel import NO_PANEL, NONE_CORRECT, panel_of
from diagnostics.measures._perplexity import BOUNDS, perplexity_of
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

SCOPES = ("all", "correct")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``all`` and ``correct``; unknown where the panel is not scored in full."""
    panel = panel_of(evidence)
    whole_P = np.ones(len(panel.problem_ids), dtype=bool)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = panel.why.get(checkpoint_id)
        if why_not is None:
            perplexity_R, why_not = perplexity_of(panel.logp_R[checkpoint_id], panel.n_tokens_R)
        if why_not:
            findings += [unknown(MEASURE, checkpoint_id, why_not, scope=scope) for scope in SCOPES]
            continue
        intervals = [
            *panel.intervals(perplexity_R, [("all", whole_P)], bounds=BOUNDS),
            *panel.intervals(perplexity_R, [("correct", whole_P)], among_R=panel.correct_R, bounds=BOUNDS),
        ]
        findings += [known(MEASURE, checkpoint_id, interval, scope=scope) for scope, interval in intervals]
        if not panel.correct_R.any():
            findings.append(unknown(MEASURE, checkpoint_id, NONE_CORRECT, scope="correct"))
    return findings


MEASURE = Measure(
    name="perplexity_base_samples",
    title="Perplexity of base samples",
    unit="perplexity",
    section="perplexity",
    needs=("panel_logps",),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="perplexity under the checkpoint"),
    compute=compute,
)
