"""Measures of the diversity of answers and modes among the samples of a problem."""

from __future__ import annotations

from collections.abc import Callable

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

NO_WRONG_PAIR = "no problem has two wrong samples with an answer"
NO_CORRECT_PAIR = "no problem has two correct samples with a named mode"


def _distinct_answers(why_single: str) -> Input[LabelCounts]:
    """Return the input of distinct final answers; ``why_single`` is the reason for n = 1."""

    def load(evidence: Evidence) -> Loaded[LabelCounts]:
        frame = evidence.frames["answer_counts"]
        why = find_incomplete(evidence, frame, frame["n"])
        single = dict.fromkeys(evidence.checkpoint_ids, why_single) if evidence.n_first_round < 2 else {}
        return count_labels_by_checkpoint(evidence, frame, "answer"), {**single, **why}

    return _input(load)


def _input(load: Callable[[Evidence], Loaded[LabelCounts]]) -> Input[LabelCounts]:
    return Input(load=load, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS, first_round=True)


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

    Meaning: −Σ p log p over the distinct final answers of a problem, correct or not, averaged over problems. Responses
    without a parsed answer count as one answer, NA. Scope ``all`` is the Chao–Wang–Jost estimate, which is nearly
    unbiased. Scope ``plug_in`` puts the observed frequencies into the formula, as [B] does. For small n it hides much
    of a real fall.
    Unit: nats ([B] prints bits: multiply by 1.4427). 95 % t interval over problems, with a variance floor for problems
    at 0. The upper bound allows for answers that no sample showed. n counts problems. ``plug_in`` has no interval,
    because it is too low by an unknown amount. There is no interval if fewer than five problems have two answers.
    Limits: it also falls under moderate sharpening, so a fall alone does not show a loss. Compare only values with the
    same number of samples per problem, which the audit keeps equal. It needs at least two samples per problem.
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
        # no interval, because it would ignore the bias
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
    """Answer agreement: the probability that two samples of a problem have the same answer.

    Meaning: the unbiased Simpson index Σ c(c−1) / (n(n−1)) over the distinct answers of a problem, correct or not,
    averaged over problems. 1 means that all samples of every problem agree. Its reciprocal is an effective number of
    answers. Unlike entropy it is unbiased for any number of samples, so prefer it for small n.
    Unit: probability. 95 % t interval over problems with a variance floor. n counts problems.
    Limits: it also rises under moderate sharpening, so a rise alone does not show a loss. It is insensitive to rare
    answers. It needs at least two samples per problem.
    Source: Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "4", "2+2", True, 3), ("base", "q", "5", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, f.value) for f in answer_simpson(evidence)]  # 6 of 12 ordered pairs agree
    [('base', 0.5)]
    """
    return simpson_interval(counts)


def _load_wrong_answers(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the wrong answers, for problems with at least two wrong samples with an answer."""
    frame = evidence.frames["answer_counts"]
    wrong = frame[~frame["correct"].astype(bool) & (frame["answer"] != NO_ANSWER)]
    counts = count_labels_by_checkpoint(evidence, wrong, "answer", least=2)
    empty = {i: NO_WRONG_PAIR for i, own in counts.items() if not own.n_problems}
    return counts, empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=_input(_load_wrong_answers),
    title="Errors that recur",
    unit="probability",
    section="entropy",
    plot=Plot(x="step", y_label="probability that two errors are the same", y_range=(0.0, 1.0)),
)
def recurring_errors(counts: LabelCounts) -> Interval:
    """Recurring errors: the probability that two wrong samples have the same answer.

    Meaning: at 1, all wrong samples of a problem make the same mistake. Near 0, every mistake differs. If the value
    rises, the model becomes more confident in its wrong answers, and a majority vote over its samples is wrong more
    often.
    Unit: probability (unbiased Simpson index of the wrong answers, mean over problems). 95 % t interval over problems
    with a variance floor. n counts problems with at least two wrong samples that state an answer.
    Limits: responses without a parsed answer are excluded. Problems that are solved more often have fewer wrong samples
    and may drop out, so checkpoints cover different problems. If few answers are possible, as in multiple choice,
    errors recur by chance.
    Source: GRPO repeats its errors, [B] (arXiv 2510.04028), section 4.3; greedy responses that fail in the same way,
    [C] (The Reasoning Boundary Paradox), Tables 6 and 7. The index is Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "41", None, False, 2), ("base", "q", "43", None, False, 2),
    ...     ("late", "q", "41", None, False, 3), ("late", "q", "NA", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in recurring_errors(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 0.3333), ('late', 1.0)]
    """
    return simpson_interval(counts)


def _load_modes(evidence: Evidence) -> Loaded[LabelCounts]:
    """Count the modes of correct samples, for problems with at least two such samples."""
    frame = evidence.frames["answer_counts"]
    counts = count_labels_by_checkpoint(evidence, frame[frame["correct"].astype(bool)], "mode", least=2)
    empty = {i: NO_CORRECT_PAIR for i, own in counts.items() if not own.n_problems}
    one_mode = {} if has_second_mode(evidence) else dict.fromkeys(counts, ONE_MODE)
    return counts, one_mode | empty | find_incomplete(evidence, frame, frame["n"])


@per_checkpoint(
    input=_input(_load_modes),
    title="Effective correct modes",
    unit="modes",
    section="modes",
    rank=30,
    plot=Plot(x="step", y_label="effective number of correct modes"),
)
def effective_modes(counts: LabelCounts) -> Result:
    """Effective modes: the effective number of correct modes of a problem.

    Meaning: the probability that two correct samples of a problem have the same mode (unbiased Simpson index) is
    averaged over problems. The effective number is 1 divided by this mean. 1 means that all correct samples of a
    problem have the same mode.
    Unit: modes. The 95 % interval is the reciprocal of the t interval of the mean index with a variance floor. n counts
    problems with at least two correct samples. The upper bound is missing if the index could be 0.
    Limits: the problems with two correct samples differ between checkpoints. It also falls under moderate sharpening,
    so a fall alone does not show a loss. The verifier must name the mode of a solution. The number is unknown if no
    problem has samples of two correct modes at any checkpoint, for example because the verifier's modes are the
    answers.
    Source: Simpson 1949, Nature 163:688; as effective number, Hill 1973, Ecology 54:427 (order 2).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "42", "6 * 7", True, 2), ("base", "q", "42", "7 * 6", True, 2),
    ...     ("late", "q", "42", "6 * 7", True, 4)], n=4)
    >>> [(f.checkpoint_id, round(f.value, 4)) for f in effective_modes(evidence)]  # 4 of 12 ordered pairs; then all
    [('base', 3.0), ('late', 1.0)]
    """
    return effective_number(counts) or "no two correct samples of a problem share a mode; draw more samples"
