"""Effective number of correct modes, from samples."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    ONE_MODE,
    LabelCounts,
    count_labels_by_checkpoint,
    find_incomplete,
    has_second_mode,
    reciprocal,
)
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.statistics.entropy import simpson_index
from oversharp.diagnostics.statistics.intervals import share_interval

NO_PAIR = "no problem has two correct samples with a named mode"


def _load(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the modes of correct samples, over problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    counts = count_labels_by_checkpoint(evidence, frame[frame["correct"].astype(bool)], "mode", least=2)
    empty = {i: NO_PAIR for i, own in counts.items() if not own.n_problems}
    one_mode = {} if has_second_mode(evidence) else dict.fromkeys(counts, ONE_MODE)
    return counts, one_mode | empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=Input(load=_load, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS),
    title="Effective correct modes",
    unit="modes",
    section="modes",
    rank=30,
    plot=Plot(x="step", y_label="effective number of correct modes"),
)
def effective_modes(counts: LabelCounts) -> Result:
    """Effective modes: the number of equally frequent correct modes with the same chance of agreement.

    Meaning: 1 / mean over problems of the probability that two correct samples of one problem share their mode
    (unbiased Simpson index). 1 means that each problem is solved in a single way.
    Unit: modes. 95 % interval: the reciprocal of the t interval of the mean index with a variance floor; n counts
    problems with at least two correct samples. The upper end is open (None) if the index could be 0.
    Limits: the problems with two correct samples differ between checkpoints. Falls under moderate sharpening too, so
    it is never a verdict alone. Needs a verifier that names the mode of a solution; unknown if no problem shows a
    second correct mode at any checkpoint, as with verifiers whose modes are the answers.
    Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 2),
    ...     ("late", "q", "42", "6 * 7", True, 4)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in effective_modes(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 3.0), ('late', 1.0)]
    """
    index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
    index = share_interval(index_P, cluster_P=counts.cluster_P)
    if index.mean == 0.0:
        return "no two correct samples of a problem share their mode; draw more samples"
    return reciprocal(index)
