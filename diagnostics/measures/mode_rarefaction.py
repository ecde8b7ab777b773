"""Mode rarefaction: how many different correct modes k samples of a problem are expected to show.

Meaning: Σ over the correct modes of a problem of 1 − C(n−c, k)/C(n, k), the chance that a mode drawn c times in n
samples is among k of them, averaged over problems. Where pass@k asks whether any correct answer is in reach, this asks
how many: it falls with every mode that training makes rare, also while pass@k stays at 1.
Unit: modes. 95 % t interval over problems with a floor for those without a mode, for k up to n/2 and where five
problems or more show one. Equal samples of a problem at every checkpoint.
Limits: modes that were never drawn do not count; falls under moderate sharpening too, so it is never a verdict by
itself. Needs a verifier that names the mode of a solution; unknown where no problem shows a second correct mode at any
checkpoint, as with verifiers whose modes are the answers.
Source: Hurlbert 1971, Ecology 52:577, Eq 14.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 1),
...     ("base", "q", "1", None, False, 1),
...     ("late", "q", "42", "6 * 7", True, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]  # 1 − 1/6, and 1 − 3/6
[('base', 1, 0.75), ('base', 2, 1.3333), ('late', 1, 1.0), ('late', 2, 1.0)]
"""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures._counts import (
    OF_ANSWERS,
    ONE_MODE,
    reasons,
    shows_a_second_mode,
    too_few_samples,
    within_reach,
)
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import sparse_interval
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

NO_MODES = "no correct sample has a named mode"


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and k; unknown where a problem lacks samples or no correct sample has a mode."""
    frame = evidence.frames["answer_counts"]
    why = reasons(evidence, frame, frame["n"])
    n_of_problem = frame.groupby(["checkpoint_id", "problem_id"])["n"].sum()
    modes = frame[frame["correct"].astype(bool) & frame["mode"].notna()]
    counts = modes.groupby(["checkpoint_id", "problem_id", "mode"])["n"].sum().reset_index()
    none = NO_MODES if modes.empty else None if shows_a_second_mode(evidence) else ONE_MODE
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        why_not = why.get(checkpoint_id) or none
        if why_not:
            findings += [unknown(MEASURE, checkpoint_id, why_not, k=k) for k in evidence.ks]
            continue
        n_P = n_of_problem[checkpoint_id]
        own = counts[counts["checkpoint_id"] == checkpoint_id]
        place_M = n_P.index.get_indexer(own["problem_id"])
        n_M, count_M = n_P.to_numpy()[place_M], own["n"].to_numpy()
        least = int(n_P.min())
        for k in evidence.ks:
            if too_few := too_few_samples(k, least):
                findings.append(unknown(MEASURE, checkpoint_id, too_few, k=k))
                continue
            seen_M = np.zeros(len(own))
            for n in np.unique(n_M):
                seen_M[n_M == n] = pass_at_k_table(int(n), [k])[count_M[n_M == n], 0]
            seen_P = np.bincount(place_M, weights=seen_M, minlength=len(n_P))
            interval = sparse_interval(seen_P, cluster_P=evidence.clusters(n_P.index))
            findings.append(known(MEASURE, checkpoint_id, within_reach(interval, k, least), k=k))
    return findings


MEASURE = Measure(
    name="mode_rarefaction",
    title="Distinct correct modes among k samples",
    unit="modes",
    section="modes",
    needs=("answer_counts",),
    missing="no graded samples",
    plot=Plot(x="k", group="checkpoint", y_label="distinct correct modes", log_x=True),
    compute=compute,
    columns=OF_ANSWERS,
)
