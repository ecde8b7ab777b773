"""Perplexity by flow: how expected correct base samples are on problems that improved and on those that declined.

Meaning: the problems are split once, by Δr = success rate at the last checkpoint − success rate of the base: scope
``improved`` has Δr > 0, ``declined`` Δr < 0, and a problem with Δr = 0 is in neither. Then, under every checkpoint,
exp of the mean negative log-probability per token of the correct responses that the base drew for the panel, averaged
within a problem, then over problems. At the base, lower in ``improved`` than in ``declined`` says that training
improves where the base already found correct solutions likely; the later checkpoints show what became of them.
Unit: perplexity, at least 1. 95 % t interval over problems; n counts problems with a correct panel response.
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
>>> from diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct n_tokens logp_sum", [
...     ("base", "q1", 0, True, 1, log(1 / 2)), ("base", "q2", 0, True, 2, 2 * log(1 / 6)),
...     ("late", "q1", 0, True, 1, log(1 / 2)), ("late", "q2", 0, True, 2, 2 * log(1 / 9))])
>>> counts = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 4), ("late", "q2", 4, 1)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in compute(evidence)]
[('base', 'improved', 2.0), ('base', 'declined', 6.0), ('late', 'improved', 2.0), ('late', 'declined', 9.0)]
"""

from __future__ import annotations

from diagnostics.measures._counts import common_counts
from diagnostics.measures._findings import checkpoint_ids, known, unknown
from diagnostics.measures._panel import NO_PANEL, NONE_CORRECT, BasePanel, Scope, panel_of
from diagnostics.measures._perplexity import BOUNDS, perplexity_of
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

SCOPES = ("improved", "declined")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``improved`` and ``declined``; unknown where a scope has no problem."""
    panel = panel_of(evidence)
    flow, why_no_flow = _split(evidence, panel)
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = panel.why.get(checkpoint_id) or why_no_flow
        if why_not is None:
            perplexity_R, why_not = perplexity_of(panel.logp_R[checkpoint_id], panel.n_tokens_R)
        if why_not:
            findings += [unknown(MEASURE, checkpoint_id, why_not, scope=scope) for scope in SCOPES]
            continue
        intervals = dict(panel.intervals(perplexity_R, flow, among_R=panel.correct_R, bounds=BOUNDS))
        for scope in SCOPES:
            if scope in intervals:
                findings.append(known(MEASURE, checkpoint_id, intervals[scope], scope=scope))
            else:
                nothing = (
                    f"no problem that {scope} between the base and the last checkpoint has a correct panel response"
                )
                findings.append(unknown(MEASURE, checkpoint_id, nothing, scope=scope))
    return findings


def _split(evidence: Evidence, panel: BasePanel) -> tuple[list[Scope], str | None]:
    """The panel's problems that improved and that declined, or why they cannot be told apart."""
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
    return [("improved", change_P > 0), ("declined", change_P < 0)], None


MEASURE = Measure(
    name="perplexity_base_samples_flow",
    title="Perplexity of correct base samples by flow",
    unit="perplexity",
    section="perplexity",
    needs=("panel_logps", "problem_counts"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="perplexity under the checkpoint"),
    compute=compute,
)
