"""Diversity of answers and modes among the samples of one problem."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    ONE_MODE,
    LabelCounts,
    count_labels_by_checkpoint,
    effective_number,
    find_incomplete,
    has_second_mode,
    simpson_interval,
)
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.records.types import NO_ANSWER
from oversharp.diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy, unseen_room
from oversharp.diagnostics.statistics.intervals import sparse_interval
from oversharp.diagnostics.statistics.units import Interval

NO_WRONG_PAIR = "no problem has two wrong samples that state an answer"
NO_CORRECT_PAIR = "no problem has two correct samples with a named mode"


def _distinct_answers(why_single: str) -> Input[LabelCounts]:
    """Return the input of distinct final answers; ``why_single`` is the reason for n = 1."""

    def load(evidence: Evidence) -> Loaded[LabelCounts]:
        frame = evidence.frames["answer_counts"]
        why = find_incomplete(evidence, frame, frame["n"])
        single = dict.fromkeys(evidence.checkpoint_ids, why_single) if evidence.n < 2 else {}
        return count_labels_by_checkpoint(evidence, frame, "answer"), {**single, **why}

    return Input(load=load, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS)


@per_checkpoint(
    input=_distinct_answers("one sample per problem has no entropy"),
    scopes=("all", "plug_in"),
    title="Answer entropy",
    unit="nats",
    section="entropy",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="answer entropy (nats)"),
)
def answer_entropy(counts: LabelCounts) -> Results:
    """Answer entropy: the entropy of the final answers of a problem's samples.

    Meaning: −Σ p log p over distinct final answers, correct or not; a response without a parsed answer is the answer
    NA. Scope ``all`` is the Chao–Wang–Jost estimate, nearly unbiased; ``plug_in`` puts observed frequencies into the
    formula, as [B] does, and hides much of a real drop at small n.
    Unit: nats ([B] prints bits: multiply by 1.4427). 95 % t interval over problems with a floor for those at 0 and,
    above, room for answers that no sample showed; n counts problems. No interval for ``plug_in``, which is too low by
    an unknown amount, nor if fewer than five problems show two answers.
    Limits: also falls under moderate sharpening, so it is no verdict. Comparable only at the same number of samples per
    problem, which the audit keeps equal. Needs two samples per problem.
    Source: [B] (arXiv 2510.04028), C.5; Chao, Wang, Jost 2013, Methods in Ecology and Evolution 4:1091.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "4", "2+2", True, 2), ("base", "q", "NA", None, False, 2),
    ...     ("late", "q", "4", "2+2", True, 4)], n=4)
    >>> [(f.checkpoint_id, f.scope, round(f.value, 4)) for f in answer_entropy(evidence)]
    [('base', 'all', 0.8333), ('base', 'plug_in', 0.6931), ('late', 'all', 0.0), ('late', 'plug_in', 0.0)]
    """
    answers = counts.counts_A, counts.group_A, counts.n_problems
    plug_in_P = plug_in_entropy(*answers)
    return {
        "all": sparse_interval(
            chao_wang_jost_entropy(*answers),
            room_above=float(unseen_room(*answers).mean()),
            cluster_P=counts.cluster_P,
        ),
        # without interval, which would not include the bias
        "plug_in": Interval(mean=float(plug_in_P.mean()), low=None, high=None, n=len(plug_in_P)),
    }


@per_checkpoint(
    input=_distinct_answers("one sample per problem has no pairs"),
    title="Answer agreement (Simpson)",
    unit="probability",
    section="entropy",
    rank=60,
    plot=Plot(x="step", y_label="probability that two samples agree", y_range=(0.0, 1.0)),
)
def answer_simpson(counts: LabelCounts) -> Interval:
    """Answer agreement: the probability that two samples of a problem give one answer.

    Meaning: the unbiased Simpson index Σ c(c−1) / (n(n−1)) over distinct answers, correct or not, averaged over
    problems. 1 means that all samples of every problem agree; its reciprocal is an effective number of answers. Unlike
    entropy it has no bias at any sample size, so prefer it when n is small.
    Unit: probability. 95 % t interval over problems with a variance floor; n counts problems.
    Limits: also rises under moderate sharpening, so it is no verdict; insensitive to rare answers. Needs two samples
    per problem.
    Source: Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "4", "2+2", True, 3), ("base", "q", "5", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, f.value) for f in answer_simpson(evidence)]  # 6 of 12 ordered pairs agree
    [('base', 0.5)]
    """
    return simpson_interval(counts)


def _load_wrong_answers(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the wrong answers, over problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    wrong = frame[~frame["correct"].astype(bool) & (frame["answer"] != NO_ANSWER)]
    counts = count_labels_by_checkpoint(evidence, wrong, "answer", least=2)
    empty = {i: NO_WRONG_PAIR for i, own in counts.items() if not own.n_problems}
    return counts, empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=Input(load=_load_wrong_answers, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS),
    title="Errors that recur",
    unit="probability",
    section="entropy",
    plot=Plot(x="step", y_label="probability that two errors are the same", y_range=(0.0, 1.0)),
)
def recurring_errors(counts: LabelCounts) -> Interval:
    """Recurring errors: the probability that two wrong samples give the same answer.

    Meaning: at 1 one mistake recurs in every wrong sample, near 0 every mistake differs. If it rises, wrong answers
    become more confident, and a majority vote over the samples is misled more often.
    Unit: probability (unbiased Simpson index of the wrong answers, mean over problems). 95 % t interval over problems
    with a variance floor; n counts problems with at least two wrong samples that state an answer.
    Limits: responses without a parsed answer are excluded. Problems that are solved more often have fewer wrong samples
    and drop out of the mean, so the problems differ between checkpoints. Answers with few possible values, such as
    multiple choice, recur by chance.
    Source: GRPO repeats its errors, [B] (arXiv 2510.04028), section 4.3; greedy responses that fail alike, [C] (The
    Reasoning Boundary Paradox), Tables 6 and 7. The index is Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "41", None, False, 2), ("base", "q", "43", None, False, 2),
    ...     ("late", "q", "41", None, False, 3), ("late", "q", "NA", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in recurring_errors(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 0.3333), ('late', 1.0)]
    """
    return simpson_interval(counts)


def _load_modes(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the modes of correct samples, over problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    counts = count_labels_by_checkpoint(evidence, frame[frame["correct"].astype(bool)], "mode", least=2)
    empty = {i: NO_CORRECT_PAIR for i, own in counts.items() if not own.n_problems}
    one_mode = {} if has_second_mode(evidence) else dict.fromkeys(counts, ONE_MODE)
    return counts, one_mode | empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=Input(load=_load_modes, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS),
    title="Effective correct modes",
    unit="modes",
    section="modes",
    rank=30,
    plot=Plot(x="step", y_label="effective number of correct modes"),
)
def effective_modes(counts: LabelCounts) -> Result:
    """Effective modes: the effective number of correct modes of a problem.

    Meaning: 1 / mean over problems of the probability that two correct samples of one problem share their mode
    (unbiased Simpson index). 1 means that each problem is solved in a single way.
    Unit: modes. 95 % interval: the reciprocal of the t interval of the mean index with a variance floor; n counts
    problems with at least two correct samples. The upper end is open (None) if the index could be 0.
    Limits: the problems with two correct samples differ between checkpoints. Also falls under moderate sharpening, so
    it is no verdict. Needs a verifier that names the mode of a solution; unknown if no problem shows a second correct
    mode at any checkpoint, as with verifiers whose modes are the answers.
    Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 2),
    ...     ("late", "q", "42", "6 * 7", True, 4)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in effective_modes(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 3.0), ('late', 1.0)]
    """
    return effective_number(counts) or "no two correct samples of a problem share a mode; draw more samples"
