"""Recurring errors: how likely two wrong samples of a problem give the same wrong answer.

Meaning: 1 is one mistake made again and again, near 0 every mistake is another. Where it climbs, what is wrong is said
more surely, and a vote over the samples is more easily led astray.
Unit: probability (unbiased Simpson index of the wrong answers, mean over problems). 95 % t interval over problems with
a variance floor; n counts problems with at least two wrong samples that state an answer.
Limits: responses in which no answer was found are no error that recurs, and are left out. Problems that are solved more
often have fewer wrong samples and fall out of the mean, so that the problems differ between checkpoints. Answers of few
possible values, as of multiple choice, recur by luck.
Source: GRPO repeats its errors, [B] (arXiv 2510.04028), section 4.3; greedy responses that fail alike, [C] (The
Reasoning Boundary Paradox), Tables 6 and 7. The index is Simpson 1949, Nature 163:688.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "41", None, False, 2), ("base", "q", "43", None, False, 2),
...     ("late", "q", "41", None, False, 3), ("late", "q", "NA", None, False, 1)], n=4)
>>> [(f.checkpoint_id, round(f.value, 4)) for f in compute(evidence)]  # 4 of 12 ordered pairs agree; then all
[('base', 0.3333), ('late', 1.0)]
"""

from __future__ import annotations

import pandas as pd

from oversharp.diagnostics.measures._counts import OF_ANSWERS, reasons
from oversharp.diagnostics.measures._findings import checkpoint_ids, findings_at, known, places, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import NO_ANSWER, Finding
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where a problem lacks samples or none has two wrong answers."""
    frame = evidence.frames["answer_counts"]
    why = (
        reasons(evidence, frame, frame["n"]) if len(frame) else dict.fromkeys(checkpoint_ids(evidence), MEASURE.missing)
    )
    wrong = frame[~frame["correct"].astype(bool) & (frame["answer"] != NO_ANSWER)]
    counts = wrong.groupby(["checkpoint_id", "problem_id", "answer"])["n"].sum().reset_index()
    twice = counts.groupby(["checkpoint_id", "problem_id"])["n"].transform("sum") >= 2
    counts = counts[twice]

    def at(checkpoint_id: str) -> list[Finding]:
        own = counts[counts["checkpoint_id"] == checkpoint_id]
        if own.empty:
            return [unknown(MEASURE, checkpoint_id, "no problem has two wrong samples that state an answer")]
        group_A, problems = pd.factorize(own["problem_id"])
        index_P = simpson_index(own["n"].to_numpy(), group_A, len(problems))
        interval = share_interval(index_P, cluster_P=evidence.clusters(map(str, problems)))
        return [known(MEASURE, checkpoint_id, interval)]

    return findings_at(MEASURE, places(evidence, why), at)


MEASURE = Measure(
    name="recurring_errors",
    title="Errors that recur",
    unit="probability",
    section="entropy",
    needs=("answer_counts",),
    missing="no graded samples",
    plot=Plot(x="step", y_label="chance that two errors are the same", y_range=(0.0, 1.0)),
    compute=compute,
    columns=OF_ANSWERS,
)
