"""Agreement of wrong answers."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    LabelCounts,
    count_labels_by_checkpoint,
    find_incomplete,
)
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.units import Interval

NO_PAIR = "no problem has two wrong samples that state an answer"


def _load(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the wrong answers, over problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    wrong = frame[~frame["correct"].astype(bool) & (frame["answer"] != NO_ANSWER)]
    counts = count_labels_by_checkpoint(evidence, wrong, "answer", least=2)
    empty = {i: NO_PAIR for i, own in counts.items() if not own.n_problems}
    return counts, empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=Input(load=_load, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS),
    title="Errors that recur",
    unit="probability",
    section="entropy",
    plot=Plot(x="step", y_label="chance that two errors are the same", y_range=(0.0, 1.0)),
)
def recurring_errors(counts: LabelCounts) -> Interval:
    """Recurring errors: the probability that two wrong samples of a problem give the same wrong answer.

    Meaning: at 1 one mistake recurs in every wrong sample, near 0 every mistake differs. If it rises, wrong answers
    become more confident, and a majority vote over the samples is misled more often.
    Unit: probability (unbiased Simpson index of the wrong answers, mean over problems). 95 % t interval over problems
    with a variance floor; n counts problems with at least two wrong samples that state an answer.
    Limits: responses without a parsed answer are excluded. Problems that are solved more often have fewer wrong
    samples and drop out of the mean, so the problems differ between checkpoints. Answers with few possible values,
    such as multiple choice, recur by chance.
    Source: GRPO repeats its errors, [B] (arXiv 2510.04028), section 4.3; greedy responses that fail alike, [C] (The
    Reasoning Boundary Paradox), Tables 6 and 7. The index is Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "41", None, False, 2), ("base", "q", "43", None, False, 2),
    ...     ("late", "q", "41", None, False, 3), ("late", "q", "NA", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in recurring_errors(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 0.3333), ('late', 1.0)]
    """
    index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
    return share_interval(index_P, cluster_P=counts.cluster_P)
