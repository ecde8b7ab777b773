"""Two log-probabilities of the same response: how far apart they are per token, on average and at worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._findings import checkpoint_ids, findings_at, known, places, unknown
from oversharp.diagnostics.measures._own import NO_OWN_LOGPS, own_forced
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot, View
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

SCOPES = ("all", "max")
NONE_TWICE = "no panel response is scored twice here; run the audit with --panel 4"


def _gap(
    name: str,
    title: str,
    *,
    view: View,
    missing: str,
    rows_of: Callable[[Evidence], tuple[Mapping[str, pd.DataFrame], Mapping[str, str]]],
    between: tuple[str, str],
    doc: str,
) -> Measure:
    """Scope ``all``: mean of |one − other| / n_tokens within a problem, then over problems; ``max``: the largest.

    ``rows_of`` gives rows at each checkpoint, or why there are none, with the columns problem_id, n_tokens and the two
    log-probability sums in nats that ``between`` names. Unknown where one of the two is infinite.
    """
    one, other = between

    def compute(evidence: Evidence) -> list[Finding]:
        complete, why = rows_of(evidence)

        def at(checkpoint_id: str) -> list[Finding]:
            rows = complete[checkpoint_id]
            gap = (rows[one] - rows[other]).abs() / rows["n_tokens"]
            # Two responses of probability 0 differ by −inf − −inf, which is no number either.
            n_broken = int((~np.isfinite(gap)).sum())
            if n_broken:
                told = (
                    f"{n_broken} of {len(gap)} responses have probability 0 here by one of the two; check the weights"
                )
                return [unknown(measure, checkpoint_id, told, scope=scope) for scope in SCOPES]
            per_problem = gap.groupby(rows["problem_id"]).mean()
            per_problem_P = per_problem.to_numpy(dtype=np.float64)
            clusters = evidence.clusters(per_problem.index)
            largest = Interval(mean=float(gap.max()), low=None, high=None, n=len(gap))
            return [
                known(measure, checkpoint_id, mean_interval(per_problem_P, bounds=(0.0, math.inf), cluster_P=clusters)),
                known(measure, checkpoint_id, largest, scope="max"),
            ]

        return findings_at(measure, places(evidence, why), at, scopes=SCOPES)

    measure = Measure(
        name=name,
        title=title,
        unit="nats per token",
        section="health",
        needs=(view,),
        missing=missing,
        plot=Plot(x="step", group="scope", y_label="|log-probability difference| (nats per token)"),
        compute=compute,
        doc=doc,
    )
    return measure


def _scored_twice(evidence: Evidence) -> tuple[Mapping[str, pd.DataFrame], Mapping[str, str]]:
    frame = evidence.frames["repeated_logps"].sort_values(["problem_id", "response_id"])
    rows_of = dict(iter(frame.groupby("checkpoint_id")))
    return rows_of, {i: NONE_TWICE for i in checkpoint_ids(evidence) if i not in rows_of}


MEASURES = (
    _gap(
        "sampler_scorer_gap",
        "Gap between sampler and scorer",
        view="own_logps",
        missing=NO_OWN_LOGPS,
        rows_of=lambda evidence: own_forced(evidence, "own_logp_sum"),
        between=("sampler_logp_sum", "own_logp_sum"),
        doc="""
Sampler–scorer gap: whether the sampler ran the weights that the scorer ran.

Meaning: the sampler reports the log-probability of what it drew, and teacher forcing computes it again under the same
checkpoint. Scope ``all`` is the mean absolute difference per token, within a problem, then over problems; ``max`` the
largest of any response. Rounding leaves a small gap, larger with another engine or in less than float32. A gap far
above that of the other checkpoints means stale or damaged weights, another tokenizer or another prompt: then no number
of that checkpoint can be trusted.
Unit: nats per token. 95 % t interval over problems; n counts problems, of ``max`` responses, which has no interval.
Limits: equal texts share one teacher-forced score. A text that was drawn as other tokens than were scored, or cut just
before its end token, shows a gap that is no fault: it raises ``max`` more than ``all``. Weights that changed too
little to matter pass.
Source: ours; the samplers' contract asks for log-probabilities at temperature 1 over the full vocabulary.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index n_tokens sampler_logp_sum own_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, 2, -3.0, -3.0), ("base", "q2", 0, 4, -5.0, -6.0)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('all', 0.125, 2), ('max', 0.25, 2)]
""",
    ),
    _gap(
        "scoring_noise",
        "Scoring noise",
        view="repeated_logps",
        missing=NONE_TWICE,
        rows_of=_scored_twice,
        between=("logp_sum", "second_logp_sum"),
        doc="""
Scoring noise: how far rounding alone moves a log-probability.

Meaning: some responses of the panel are teacher-forced twice under the same weights, the second time in float32 and in
batches of another shape. Scope ``all`` is the mean absolute difference per token, within a problem, then over problems;
``max`` the largest of any response. A change of log-probability between checkpoints that is no larger means nothing.
Unit: nats per token. 95 % t interval over problems; n counts problems, of ``max`` responses, which has no interval.
Limits: a lower bound of the numeric error: what both scores share is not in it, and in a float32 audit of a small model
it is often 0. The responses are those of the first problems in the order of their hashes, not of all. For scale:
bfloat16 moved the scores of the built-in task's model by 0.004 nats per token on average, 0.022 at most.
Source: ours; no paper states its floor.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id response_id n_tokens logp_sum second_logp_sum"
>>> evidence = tiny_evidence("repeated_logps", columns, [
...     ("base", "q1", "a", 2, -3.0, -3.0), ("base", "q2", "b", 4, -5.0, -6.0)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('all', 0.125, 2), ('max', 0.25, 2)]
""",
    ),
)
