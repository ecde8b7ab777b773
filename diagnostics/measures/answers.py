"""How much the final answers of one problem's samples differ: their entropy, and the chance that two agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oversharp.diagnostics.measures._counts import OF_ANSWERS, GroupedCounts, answers_by_checkpoint
from oversharp.diagnostics.measures._findings import checkpoint_ids, findings_at, known, places
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy, simpson_index, unseen_room
from oversharp.diagnostics.statistics.intervals import share_interval, sparse_interval
from oversharp.diagnostics.statistics.units import Interval


def _of_answers(
    name: str,
    title: str,
    *,
    unit: str,
    of: Mapping[str, Callable[[GroupedCounts], Interval]],
    of_one: str,
    plot: Plot,
    doc: str,
) -> Measure:
    """A finding per checkpoint and scope in ``of``; unknown where a problem lacks samples, or (``of_one``) n < 2."""

    def compute(evidence: Evidence) -> list[Finding]:
        answers, why = answers_by_checkpoint(evidence)
        if evidence.n < 2:
            why = {**dict.fromkeys(checkpoint_ids(evidence), of_one), **why}

        def at(checkpoint_id: str) -> list[Finding]:
            counts = answers[checkpoint_id]
            return [known(measure, checkpoint_id, estimate(counts), scope=scope) for scope, estimate in of.items()]

        return findings_at(measure, places(evidence, why), at, scopes=tuple(of))

    measure = Measure(
        name=name,
        title=title,
        unit=unit,
        section="entropy",
        needs=("answer_counts",),
        missing="no graded samples",
        plot=plot,
        compute=compute,
        columns=OF_ANSWERS,
        doc=doc,
    )
    return measure


def _entropy(counts: GroupedCounts) -> Interval:
    entropy_P = chao_wang_jost_entropy(counts.counts_A, counts.group_A, counts.n_problems)
    room_P = unseen_room(counts.counts_A, counts.group_A, counts.n_problems)
    return sparse_interval(entropy_P, room_above=float(room_P.mean()), cluster_P=counts.cluster_P)


def _plug_in(counts: GroupedCounts) -> Interval:
    """A description: an interval around it would not know how far it lies too low."""
    entropy_P = plug_in_entropy(counts.counts_A, counts.group_A, counts.n_problems)
    return Interval(mean=float(entropy_P.mean()), low=None, high=None, n=len(entropy_P))


def _agreement(counts: GroupedCounts) -> Interval:
    index_P = simpson_index(counts.counts_A, counts.group_A, counts.n_problems)
    return share_interval(index_P, cluster_P=counts.cluster_P)


MEASURES = (
    _of_answers(
        "answer_entropy",
        "Answer entropy",
        unit="nats",
        of={"all": _entropy, "plug_in": _plug_in},
        of_one="one sample per problem has no entropy",
        plot=Plot(x="step", group="scope", y_label="answer entropy (nats)"),
        doc="""
Answer entropy: how much the final answers of one problem's samples differ, averaged over problems.

Meaning: −Σ p log p over distinct final answers, right or wrong; a response without a parseable answer is the answer
NA. Scope ``all`` is the Chao–Wang–Jost estimate, nearly unbiased; ``plug_in`` puts observed frequencies into the
formula, as [B] does, and hides much of a real drop at small n.
Unit: nats ([B] prints bits: multiply by 1.4427). 95 % t interval over problems with a floor for those at 0 and, above,
room for the answers that no sample showed; n counts problems. No interval for ``plug_in``, which is too low by an
unknown amount, nor where fewer than five problems show two answers.
Limits: falls under moderate sharpening too, so it is never a verdict by itself. Comparable only at the same number of
samples per problem, which the audit keeps equal. Needs two samples per problem.
Source: [B] (arXiv 2510.04028), C.5; Chao, Wang, Jost 2013, Methods in Ecology and Evolution 4:1091.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "4", "2+2", True, 2), ("base", "q", "NA", None, False, 2),
...     ("late", "q", "4", "2+2", True, 4)], n=4)
>>> [(f.checkpoint_id, f.scope, round(f.value, 4)) for f in compute(evidence)]
[('base', 'all', 0.8333), ('base', 'plug_in', 0.6931), ('late', 'all', 0.0), ('late', 'plug_in', 0.0)]
""",
    ),
    _of_answers(
        "answer_simpson",
        "Answer agreement (Simpson)",
        unit="probability",
        of={"all": _agreement},
        of_one="one sample per problem has no pairs",
        plot=Plot(x="step", y_label="chance that two samples agree", y_range=(0.0, 1.0)),
        doc="""
Answer agreement: the chance that two samples of one problem give the same final answer.

Meaning: the unbiased Simpson index Σ c(c−1) / (n(n−1)) over distinct answers, right or wrong, averaged over problems.
1 means that all samples of every problem agree; its reciprocal is an effective number of answers. Unlike entropy it
has no bias at any sample size, so it is the first number to trust when n is small.
Unit: probability. 95 % t interval over problems with a variance floor; n counts problems.
Limits: rises under moderate sharpening too, so it is never a verdict by itself; blind to rare answers. Needs two
samples per problem.
Source: Simpson 1949, Nature 163:688.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("answer_counts", "checkpoint_id problem_id answer mode correct n", [
...     ("base", "q", "4", "2+2", True, 3), ("base", "q", "5", None, False, 1)], n=4)
>>> [(f.checkpoint_id, f.value) for f in compute(evidence)]  # 6 of 12 ordered pairs agree
[('base', 0.5)]
""",
    ),
)
