"""Relative negative: which responses pay for the gains of the others, from one checkpoint to the next.

Meaning: per problem, who lost most probability since the checkpoint before. Scope ``incorrect`` is all mass outside
the correct modes, ``dominant`` the base's likeliest correct mode, ``minority`` the falls of all other correct modes
together; the value is the share of problems, and the three sum to 1. The exploitation stage of [B] takes from what has
a low reward (incorrect); its exploration stage takes from the mode that it made dominant.
Unit: share of problems, of those where anything was lost beyond the numeric noise of scoring (1e-4 nats); the others
are left out, and n counts the rest. 95 % exact binomial interval over problems. The base itself has no row.
Limits: with 0/1 rewards no correct mode has a negative expected advantage, so a correct mode that falls is squeezed
by the likelier ones (``squeeze``), not punished: only ``incorrect`` is then a relative negative in the sense of [B],
which gives its correct actions different rewards. Training on other problems moves mass too. How much was lost is not
weighed, and a problem with one mode has no minority. Equal losses count for the first in the order above. Only where
all accepted responses of a problem are listed.
Source: [B] (arXiv 2510.04028), section 3, Lemma 1 and Remark 3; taken from checkpoints instead of updates, which is
ours.

>>> import math
>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("mode_logps", "checkpoint_id problem_id mode logp_sum", [
...     ("base", "q", "a", math.log(0.5)), ("base", "q", "b", math.log(0.1)),
...     ("middle", "q", "a", math.log(0.8)), ("middle", "q", "b", math.log(0.1)),
...     ("late", "q", "a", math.log(0.5)), ("late", "q", "b", math.log(0.4))])
>>> [(f.checkpoint_id, f.scope) for f in compute(evidence) if f.value == 1.0]
[('middle', 'incorrect'), ('late', 'dominant')]
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._exact import NO_MODES, NOISE_NATS, ExactModes, exact_modes
from oversharp.diagnostics.measures._findings import among, checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import yes_no_interval

SCOPES = ("incorrect", "dominant", "minority")


def compute(evidence: Evidence) -> list[Finding]:
    """Three findings per checkpoint but the base; unknown where a mode is not scored here, before, or by the base."""
    modes = exact_modes(evidence)
    findings: list[Finding] = []
    for before_id, checkpoint_id in pairwise(checkpoint_ids(evidence)):
        why_not = _why_not(modes, evidence.base_id, before_id, checkpoint_id)
        if why_not is None:
            lost_PS = _lost(modes, evidence.base_id, before_id, checkpoint_id)
            moved_P = lost_PS.max(axis=1) > 0.0
            if moved_P.any():
                payer_P = lost_PS[moved_P].argmax(axis=1)
                for number, scope in enumerate(SCOPES):
                    share = yes_no_interval(payer_P == number, cluster_P=among(modes.cluster_P, moved_P))
                    findings.append(known(MEASURE, checkpoint_id, share, scope=scope))
                continue
            why_not = "no probability moved since the checkpoint before, beyond the numeric noise of scoring"
        findings += [unknown(MEASURE, checkpoint_id, why_not, scope=scope) for scope in SCOPES]
    return findings


def _why_not(modes: ExactModes, base_id: str, before_id: str, checkpoint_id: str) -> str | None:
    if base_id in modes.why:
        return f"base: {modes.why[base_id]}"
    if before_id in modes.why:
        return f"the checkpoint before: {modes.why[before_id]}"
    return modes.why.get(checkpoint_id)


def _lost(modes: ExactModes, base_id: str, before_id: str, checkpoint_id: str) -> Float[np.ndarray, "problem scope"]:
    """Probability lost by each of ``SCOPES`` in each problem; 0 where it gained or only noise moved it."""
    # Stable, so the first mode in lexical order is dominant among equals.
    order_M = np.lexsort((-modes.logp_M[base_id], modes.problem_M))
    dominant_M = np.zeros(len(order_M), dtype=bool)
    dominant_M[order_M[modes.start_P]] = True
    fell_M = modes.change_nats(before_id, checkpoint_id) < -NOISE_NATS
    fall_M = np.where(fell_M, np.exp(modes.logp_M[before_id]) - np.exp(modes.logp_M[checkpoint_id]), 0.0)
    success_before_P, success_P = modes.success_probabilities(before_id), modes.success_probabilities(checkpoint_id)
    # What the correct modes gained, the incorrect responses lost; a sum of probabilities is as noisy as its parts.
    gain_P = success_P - success_before_P
    return np.stack(
        [
            np.where(gain_P > NOISE_NATS * success_P, gain_P, 0.0),
            modes.sum_by_problem(np.where(dominant_M, fall_M, 0.0)),
            modes.sum_by_problem(np.where(dominant_M, 0.0, fall_M)),
        ],
        axis=1,
    )


MEASURE = Measure(
    name="relative_negative",
    title="Who pays for the gains",
    unit="share of problems",
    section="dynamics",
    needs=("mode_logps",),
    missing=NO_MODES,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
