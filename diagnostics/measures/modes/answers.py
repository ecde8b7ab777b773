"""Diversity of the final answers of one problem's samples: entropy and agreement."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Evidence, Plot, Results
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    LabelCounts,
    count_labels_by_checkpoint,
    find_incomplete,
)
from oversharp.diagnostics.measures.declare import Input, Loaded, per_checkpoint
from oversharp.diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy, simpson_index, unseen_room
from oversharp.diagnostics.statistics.intervals import share_interval, sparse_interval
from oversharp.diagnostics.statistics.units import Interval


def _answers(why_single: str) -> Input[LabelCounts]:
    """Make the input of all distinct final answers; ``why_single`` is the reason for one sample per problem."""

    def load(evidence: Evidence) -> Loaded[LabelCounts]:
        frame = evidence.frames["answer_counts"]
        why = find_incomplete(evidence, frame, frame["n"])
        single = dict.fromkeys(evidence.checkpoint_ids, why_single) if evidence.n < 2 else {}
        return count_labels_by_checkpoint(evidence, frame, "answer"), {**single, **why}

    return Input(load=load, needs=("answer_counts",), missing=NO_SAMPLES, columns=ANSWER_COLUMNS)


@per_checkpoint(
    input=_answers("one sample per problem has no entropy"),
    scopes=("all", "plug_in"),
    title="Answer entropy",
    unit="nats",
    section="entropy",
    rank=10,
    plot=Plot(x="step", group="scope", y_label="answer entropy (nats)"),
)
def answer_entropy(counts: LabelCounts) -> Results:
    """Answer entropy: the entropy of the final answers of one problem's samples, averaged over problems.

    Meaning: −Σ p log p over distinct final answers, correct or not; a response without a parsed answer is the answer
    NA. Scope ``all`` is the Chao–Wang–Jost estimate, nearly unbiased; ``plug_in`` puts observed frequencies into the
    formula, as [B] does, and hides much of a real drop at small n.
    Unit: nats ([B] prints bits: multiply by 1.4427). 95 % t interval over problems with a floor for those at 0 and,
    above, room for answers that no sample showed; n counts problems. No interval for ``plug_in``, which is too low by
    an unknown amount, nor if fewer than five problems show two answers.
    Limits: falls under moderate sharpening too, so it is never a verdict alone. Comparable only at the same number of
    samples per problem, which the audit keeps equal. Needs two samples per problem.
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
        # A description: an interval around it would not include its bias.
        "plug_in": Interval(mean=float(plug_in_P.mean()), low=None, high=None, n=len(plug_in_P)),
    }


@per_checkpoint(
    input=_answers("one sample per problem has no pairs"),
    title="Answer agreement (Simpson)",
    unit="probability",
    section="entropy",
    rank=60,
    plot=Plot(x="step", y_label="chance that two samples agree", y_range=(0.0, 1.0)),
)
def answer_simpson(counts: LabelCounts) -> Interval:
    """Answer agreement: the probability that two samples of one problem give the same final answer.

    Meaning: the unbiased Simpson index Σ c(c−1) / (n(n−1)) over distinct answers, correct or not, averaged over
    problems. 1 means that all samples of every problem agree; its reciprocal is an effective number of answers. Unlike
    entropy it has no bias at any sample size, so prefer it when n is small.
    Unit: probability. 95 % t interval over problems with a variance floor; n counts problems.
    Limits: rises under moderate sharpening too, so it is never a verdict alone; insensitive to rare answers. Needs two
    samples per problem.
    Source: Simpson 1949, Nature 163:688.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
    ...     ("base", "q", "4", "2+2", True, 3), ("base", "q", "5", None, False, 1)], n=4)
    >>> [(f.checkpoint_id, f.value) for f in answer_simpson(evidence)]  # 6 of 12 ordered pairs agree
    [('base', 0.5)]
    """
    index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
    return share_interval(index_P, cluster_P=counts.cluster_P)
