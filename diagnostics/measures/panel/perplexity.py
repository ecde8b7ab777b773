"""Measures of perplexity.

They cover the base's responses under a checkpoint, and a checkpoint's own samples under the base.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import drop_interval, list_task_scopes, load_common_counts
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.measures.panel.own import NO_OWN_LOGPS, load_own_samples
from oversharp.diagnostics.measures.panel.scores import NO_PANEL, NONE_CORRECT, PANEL, PanelScores, load_panel_scores
from oversharp.diagnostics.statistics.intervals import mean_interval

#: Largest accepted nats per token. A uniform guess over a million tokens costs 14 nats. Values far above that would
#: dominate the mean of exponentials, or overflow.
MOST_NATS_PER_TOKEN = 100.0


def perplexity_of(
    logp_R: Float[np.ndarray, " response"], n_tokens_R: Int[np.ndarray, " response"]
) -> tuple[Float[np.ndarray, " response"], str | None]:
    """Return exp(−log π(y) / |y|) of each response, and why their mean is meaningless, or None.

    ``logp_R`` is in nats, summed over ``n_tokens_R`` tokens.

    >>> perplexity_of(np.log([0.25, 0.5]), np.array([2, 1]))
    (array([2., 2.]), None)
    >>> perplexity_of(np.array([-500.0]), np.array([2]))[1]
    'a response has 250 nats per token here, far more than a uniform guess; check the weights'
    """
    nats_per_token_R = -logp_R / n_tokens_R
    most = float(nats_per_token_R.max(initial=0.0))
    if most > MOST_NATS_PER_TOKEN:
        why = f"a response has {most:.0f} nats per token here, far more than a uniform guess; check the weights"
        return np.exp(np.minimum(nats_per_token_R, MOST_NATS_PER_TOKEN)), why
    return np.exp(nats_per_token_R), None


@per_checkpoint(
    input=Input(
        load=lambda evidence: load_own_samples(evidence, "base_logp_sum"), needs=("own_logps",), missing=NO_OWN_LOGPS
    ),
    title="Perplexity of own samples under the base",
    unit="perplexity",
    section="perplexity",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="perplexity under the base"),
)
def perplexity_own_under_base(rows: pd.DataFrame) -> Results:
    """Perplexity of own samples under the base: how likely the base finds them.

    Meaning: the base scores the first samples of each checkpoint, including its own. The value is exp of the mean
    negative log-probability per token, averaged within a problem, then over problems. A fall means that training moved
    the model towards responses that the base finds likely. Scopes are ``all``, and ``task:NAME`` if there are several
    tasks.
    Unit: perplexity, at least 1. n counts problems. There is no interval, because a mean of exponentials depends on a
    few responses.
    Limits: sharpening lowers it, whether or not a mode was lost, so a fall alone does not show a loss. A few unlikely
    responses, mostly short ones, dominate the mean of exponentials. Responses truncated at the token limit are
    included, so compare it with ``truncation_rate``.
    Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 leftmost: PPL of the base on y ~ checkpoint. Appendix H
    uses 16 responses per problem. Here it is as many as the panel has.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("own_logps", "checkpoint_id problem_id sample_index n_tokens base_logp_sum", [
    ...     ("base", "q1", 0, 2, 2 * log(1 / 6)), ("base", "q2", 0, 3, 3 * log(1 / 4)),
    ...     ("late", "q1", 0, 2, 2 * log(1 / 3)), ("late", "q2", 0, 1, log(1 / 2))])
    >>> findings = perplexity_own_under_base(evidence)  # (6 + 4) / 2, then (3 + 2) / 2
    >>> [(f.checkpoint_id, round(f.value, 6), f.n) for f in findings]
    [('base', 5.0, 2), ('late', 2.5, 2)]
    """
    perplexity_R, why_not = perplexity_of(
        rows["base_logp_sum"].to_numpy(dtype=np.float64), rows["n_tokens"].to_numpy(dtype=np.int64)
    )
    if why_not:
        return why_not
    by_problem = rows.assign(perplexity=perplexity_R).groupby("problem_id")
    mean_P = by_problem["perplexity"].mean().to_numpy(dtype=np.float64)
    return {
        scope: drop_interval(mean_interval(mean_P[in_scope_P]))
        for scope, in_scope_P in list_task_scopes(by_problem["task"].first().to_numpy(dtype=str))
    }


@per_checkpoint(
    input=PANEL,
    scopes=("all", "correct"),
    title="Perplexity of base samples",
    unit="perplexity",
    section="perplexity",
    rank=20,
    plot=Plot(x="step", group="scope", y_label="perplexity under the checkpoint"),
)
def perplexity_base_samples(scores: PanelScores) -> Results:
    """Perplexity of base samples: how likely a checkpoint finds the responses of the base.

    Meaning: each checkpoint, including the base, scores the panel, which was sampled once from the base. The value is
    exp of the mean negative log-probability per token, averaged within a problem, then over problems. A rise means that
    the model moved away from its earlier responses. Scope ``all`` is every panel response, ``correct`` only the correct
    ones.
    Unit: perplexity, at least 1. n counts problems. There is no interval, because a mean of exponentials depends on a
    few responses.
    Limits: a rise of ``correct`` does not show that a mode was lost, because other wordings of the same solution may
    have gained the probability. ``correct`` covers only the problems with a correct panel response, ``all`` every
    problem. So compare each scope with its own value at the base, and not with the other scope. The panel is sampled at
    --panel-temperature and scored at temperature 1. A few unlikely responses, mostly short ones, dominate the mean of
    exponentials.
    Source: [C] (The Reasoning Boundary Paradox), Eq 6 and Fig 4 middle: PPL of the checkpoint on y ~ base.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id sample_index correct n_tokens logp_sum"
    >>> evidence = tiny_evidence("panel_logps", columns, [
    ...     ("base", "q", 0, True, 2, 2 * log(1 / 2)), ("base", "q", 1, False, 1, log(1 / 4)),
    ...     ("late", "q", 0, True, 2, 2 * log(1 / 5)), ("late", "q", 1, False, 1, log(1 / 5))])
    >>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in perplexity_base_samples(evidence)]
    [('base', 'all', 3.0), ('base', 'correct', 2.0), ('late', 'all', 5.0), ('late', 'correct', 5.0)]
    """
    perplexity_R, why_not = perplexity_of(scores.logp_R, scores.n_tokens_R)
    if why_not:
        return {"all": why_not, "correct": why_not}
    whole_P = np.ones(len(scores.problem_ids), dtype=bool)
    return {
        "all": _mean(scores, perplexity_R, whole_P, None, NO_PANEL),
        "correct": _mean(scores, perplexity_R, whole_P, scores.correct_R, NONE_CORRECT),
    }


def _by_flow(evidence: Evidence) -> Loaded[tuple[PanelScores, dict[str, Bool[np.ndarray, " problem"]] | str]]:
    """Load the panel and the problems that improved or declined, or why these are unknown."""
    scores, why = load_panel_scores(evidence)
    flows = _flows(evidence, next(iter(scores.values()))) if scores else ""
    return {i: (own, flows) for i, own in scores.items()}, why


def _flows(evidence: Evidence, panel: PanelScores) -> dict[str, Bool[np.ndarray, " problem"]] | str:
    # with equal numbers of samples at both checkpoints, an unchanged problem is as likely to improve as to decline
    counts, why = load_common_counts(evidence)
    last_id = evidence.checkpoint_ids[-1]
    if last_id == evidence.base_id:
        return "the series has no checkpoint after the base"
    for checkpoint_id, name in ((evidence.base_id, "base"), (last_id, "last checkpoint")):
        if checkpoint_id in why:
            return f"{name}: {why[checkpoint_id]}"
    if not panel.correct_R.any():
        return NONE_CORRECT
    position = {problem_id: i for i, problem_id in enumerate(counts[last_id].problem_ids)}
    lacking = [problem_id for problem_id in panel.problem_ids if problem_id not in position]
    if lacking:
        return f"{len(lacking)} of {len(panel.problem_ids)} problems of the panel have no graded samples"
    place_P = [position[problem_id] for problem_id in panel.problem_ids]
    change_P = (counts[last_id].correct_P - counts[evidence.base_id].correct_P)[place_P]
    return {"improved": change_P > 0, "declined": change_P < 0}


@per_checkpoint(
    input=Input(load=_by_flow, needs=("panel_logps", "problem_counts"), missing=NO_PANEL, first_round=True),
    scopes=("improved", "declined"),
    title="Perplexity of correct base samples by flow",
    unit="perplexity",
    section="perplexity",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="perplexity under the checkpoint"),
)
def perplexity_base_samples_flow(
    panel: tuple[PanelScores, dict[str, Bool[np.ndarray, " problem"]] | str],
) -> Results:
    """Perplexity of correct base samples, on problems that improved and on problems that declined.

    Meaning: the problems are split once by Δr, the success rate at the last checkpoint minus that of the base. Scope
    ``improved`` contains problems with Δr > 0, ``declined`` those with Δr < 0. Problems with Δr = 0 are in neither.
    Every checkpoint scores the correct panel responses of these problems. The value is exp of the mean negative
    log-probability per token, averaged within a problem, then over problems. If the value at the base is lower in
    ``improved`` than in ``declined``, training improves problems whose correct solutions the base already found likely.
    The values at later checkpoints show whether these solutions became more or less likely.
    Unit: perplexity, at least 1. n counts problems with a correct panel response. There is no interval, because a mean
    of exponentials depends on a few responses.
    Limits: the split depends on the outcome. Sampling noise puts some unchanged problems in either scope (regression to
    the mean), so a gap that opens after the base is not independent evidence. Both success rates use the same number of
    samples; with more samples of the base, rare successes would look like declines. A problem with a rate near 1 can
    only decline, and one near 0 can only improve. A problem without a correct panel response is in neither scope.
    Source: [C] (The Reasoning Boundary Paradox), Fig 4 rightmost, Eq 6 and 7, appendix H. This is our interpretation.
    The caption refers to the likelihood of correct solutions under the base, the text to the PPL of the checkpoint over
    training steps. Both are reported: the value at the base, and the curve over checkpoints. The paper's D↑ and D↓
    (here ``improved`` and ``declined``) come from one comparison of the base with the trained policy. Appendix H uses
    only the 64 (AIME: 3) problems that changed most on each side. Here
    all problems that changed count, as in Eq 7. The paper does not state whether its responses are sampled from the
    base. Its claim is about such responses, so these are used here.

    >>> from math import log
    >>> from oversharp.diagnostics.measures.examples import combine_views, tiny_evidence
    >>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct n_tokens logp_sum", [
    ...     ("base", "q1", 0, True, 1, log(1 / 2)), ("base", "q2", 0, True, 2, 2 * log(1 / 6)),
    ...     ("late", "q1", 0, True, 1, log(1 / 2)), ("late", "q2", 0, True, 2, 2 * log(1 / 9))])
    >>> counts = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 4), ("late", "q2", 4, 1)])
    >>> evidence = combine_views(panel, counts)
    >>> [(f.checkpoint_id, f.scope, round(f.value, 6)) for f in perplexity_base_samples_flow(evidence)]
    [('base', 'improved', 2.0), ('base', 'declined', 6.0), ('late', 'improved', 2.0), ('late', 'declined', 9.0)]
    """
    scores, flows = panel
    perplexity_R, why_not = perplexity_of(scores.logp_R, scores.n_tokens_R)
    if isinstance(flows, str) or why_not:
        why = flows if isinstance(flows, str) else str(why_not)
        return {"improved": why, "declined": why}
    none = "no problem that {} between the base and the last checkpoint has a correct panel response"
    return {
        flow: _mean(scores, perplexity_R, in_flow_P, scores.correct_R, none.format(flow))
        for flow, in_flow_P in flows.items()
    }


def _mean(
    scores: PanelScores,
    perplexity_R: Float[np.ndarray, " response"],
    in_scope_P: Bool[np.ndarray, " problem"],
    is_counted_R: Bool[np.ndarray, " response"] | None,
    why_none: str,
) -> Result:
    """Return the mean over the counted responses in scope, or ``why_none`` if there is none."""
    means = scores.intervals(perplexity_R, [("all", in_scope_P)], is_counted_R=is_counted_R)
    return drop_interval(means["all"]) if means else why_none
