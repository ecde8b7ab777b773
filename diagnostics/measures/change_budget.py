"""The budget of a change: of how many points each of its parts is, from the base to a checkpoint; they add up to it.

Meaning: scope ``all`` is the change of pass@k; the other scopes are its parts, Shapley values: what a cause changes,
averaged over the orders in which causes can come.
What is no ability: ``cut_off`` (samples that the token limit ended before an answer stood in a box would be as often
right as the others), ``unread`` (those without an answer that could be read as often as the ones that were read),
``grader`` (the grades of a second verifier would count, after `oversharp regrade`). They take as much from any samples
in the checkpoint's place.
``sharpening``: what the base does that is drawn as cold as can be with no more pass@1 and no less pass@k than the
checkpoint has, on problems that this has not lost; or as cold as it was drawn. At lower temperatures where these were
drawn (--controls), else reweighted to p^α, else by answers of several draws that agree, up to the k that these reach.
The rest, beside the colder base, is told by the problems that carry it: ``lost`` were solved, and are no more often
than accepted guesses would be, nor by a way that the base went; ``gained`` the other way round; ``guesses`` are so
rarely solved at both that luck would look the same; ``ways`` are solved by both, but a way of solving that the base
went is gone; ``unexplained`` is what moved on the others.
Unit: probability (difference). Estimator: unbiased pass@k; which group a problem is of is told by samples that do not
count in its part, averaged over 32 splits, so that two draws of one law have parts of mean 0. 95 % intervals of all
parts of a checkpoint's budgets at once, whatever the k: a bootstrap over problems that draws them together. n counts
problems.
Limits: a part says what would be otherwise, not what was done to the model. Beyond pass@1 it is rarely solved problems
that move: there a way that is gone is not told from a problem that is lost, a guess or a colder base, so that ``ways``
is known at k = 1 alone. Guesses are few: their part is no better known than their number. Samples that are cut off may
be wrong more often than the others: ``cut_off`` is then too large. Without a colder base its part lies in the other
groups. Where fewer than k samples of a problem are left, pass@k of so many stands for it; of a problem
without any the other checkpoint's are taken, as though nothing else had changed there.
Source: ours. Shapley 1953 (A value for n-person games). Cover@τ, with a τ that follows the accepted guesses, for the
groups; ``frontier_loss`` for the colder base.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id n n_correct n_cut n_unread"
>>> evidence = tiny_evidence("read_counts", columns, [("base", f"q{i}", 64, 32, 0, 0) for i in range(40)]
...     + [("late", f"q{i}", 64, 16, 32, 0) for i in range(40)], n=64)
>>> evidence.frames["sampled_counts"] = evidence.frames["read_counts"]
>>> [(f.scope, round(f.value, 2)) for f in compute(evidence) if f.k == 1 and f.value and abs(f.value) > 0.01]
[('all', -0.25), ('cut_off', -0.25)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._budget import MOST_K_OF_WAYS, budgets, piece_of
from oversharp.diagnostics.measures._budget_groups import GROUPS, Ways
from oversharp.diagnostics.measures._budget_laws import Graded, Gradings, Undoable, missed, said
from oversharp.diagnostics.measures._counts import OF_ANSWERS, CorrectCounts, common_counts, sampled_counts
from oversharp.diagnostics.measures._findings import comparisons, findings_at, told, unknown
from oversharp.diagnostics.measures._frontier import SEED, controls
from oversharp.diagnostics.measures._ways import LEVELS, MISSING, OF_WAYS
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.keys import inference_ks

#: The parts in the order in which they are told, after the whole.
PARTS = (*get_args(Undoable), "sharpening", *GROUPS)
SCOPES = ("all", *PARTS)
_COUNTED = ["n", "n_correct", "n_cut", "n_unread"]
_CUT_NOT_TOLD = "not every graded sample tells why it ended"
_UNREAD_NOT_TOLD = "another tool graded, which does not tell what it could not read"
_ONE_GRADER = "graded by one verifier; `oversharp regrade` grades the same samples by another, as a series of its own"
_WAYS_AT_1 = (
    "a way that is gone is told at k = 1 alone: beyond it rarely solved problems count, and few samples tell their ways"
)
_ONE_RESPONSE = "one response per problem: the parts of a change need several"
_BY_FIRST = "known of what the first verifier accepts alone"


@dataclass(frozen=True, kw_only=True)
class _Sharper:
    """The base drawn sharper: pass@1 and pass@k of it at each point, up to ``k``."""

    sharpness_S: np.ndarray
    drawn: tuple[Gradings, ...] = ()  # of each point but the first, which is the base as it is
    rate_SP: np.ndarray | None = None  # where each point is known by its success rates
    k: int = 0
    why: str = ""


def compute(evidence: Evidence) -> list[Finding]:
    """A finding per checkpoint but the base, k and part; a part that cannot be known has the reason."""
    counts = sampled_counts(evidence)

    def at(checkpoint_id: str) -> Iterator[Finding]:
        return _budget(evidence, counts, checkpoint_id)

    return findings_at(MEASURE, comparisons(evidence, counts.why), at)


def _budget(evidence: Evidence, counts: CorrectCounts, checkpoint_id: str) -> Iterator[Finding]:
    if min(counts.least(one) for one in (evidence.base_id, checkpoint_id)) < 2:
        yield from (unknown(MEASURE, checkpoint_id, _ONE_RESPONSE, scope=scope) for scope in SCOPES)
        return
    base, late = (_drawn(evidence, counts, one) for one in (evidence.base_id, checkpoint_id))
    why = _why_not(evidence, checkpoint_id, has_second=base.second is not None and late.second is not None)
    causes: list[Undoable] = [one for one in get_args(Undoable) if one not in why]
    k_most = inference_ks(min(counts.least(one) for one in (evidence.base_id, checkpoint_id)))[-1]
    sharper = _sharper(evidence, counts, k_most, second="grader" in causes)
    ways = _ways(evidence, counts, checkpoint_id, second="grader" in causes)
    rng = np.random.default_rng(SEED)
    ks = sorted({1, k_most} | ({sharper.k} if sharper.k else set()))
    pieces = [
        piece_of(
            base,
            late,
            k,
            causes=causes,
            guess_rate=evidence.guess_rate,
            sharper_SPJ=_sharper_missed(sharper, k, causes, len(counts.problem_ids)),
            ways=None if isinstance(ways, str) else ways,
            rng=rng,
        )
        for k in ks
    ]
    made = budgets(pieces, sharpness_S=sharper.sharpness_S, rng=rng, cluster_P=counts.cluster_P)
    for k, parts in zip(ks, made, strict=True):
        if isinstance(ways, str):
            why["ways"] = ways
        elif k > MOST_K_OF_WAYS:
            why["ways"] = _WAYS_AT_1
        why["sharpening"] = sharper.why or f"the colder base reaches k = {sharper.k} alone"
        for scope in SCOPES:
            yield told(MEASURE, checkpoint_id, parts.get(scope, why.get(scope, "")), scope=scope, k=k)


# ---------------------------------------------------------------- what was drawn


def _drawn(evidence: Evidence, counts: CorrectCounts, checkpoint_id: str) -> Gradings:
    rows = _of_checkpoint(evidence, "read_counts", checkpoint_id)
    own = _graded(rows.set_index("problem_id").reindex(counts.problem_ids))
    return Gradings(own=own, second=_second(evidence, counts.problem_ids, checkpoint_id, own))


def _graded(rows: pd.DataFrame) -> Graded:
    n_P, correct_P, cut_P, unread_P = (rows[name].fillna(0).to_numpy(np.int64) for name in _COUNTED)
    return Graded(n_P=n_P, correct_P=correct_P, cut_P=cut_P, unread_P=unread_P)


def _second(
    evidence: Evidence, problem_ids: Sequence[str], checkpoint_id: str, own: Graded, temperature: float | None = None
) -> Graded | None:
    """What a second verifier says of the same samples; of problems that it did not grade wholly what the first does."""
    rows = _of_checkpoint(evidence, "second_counts", checkpoint_id)
    if not len(rows):
        return None
    chosen = rows["temperature"].isna() if temperature is None else rows["temperature"] == temperature
    if not chosen.any():
        return None
    table = rows[chosen].set_index("problem_id").reindex(list(problem_ids))
    is_whole_P = (table["n"] == own.n_P).to_numpy()
    second = _graded(table)
    first = (own.n_P, own.correct_P, own.cut_P, own.unread_P)
    other = (second.n_P, second.correct_P, second.cut_P, second.unread_P)
    n_P, correct_P, cut_P, unread_P = (np.where(is_whole_P, b, a) for a, b in zip(first, other, strict=True))
    return Graded(n_P=n_P, correct_P=correct_P, cut_P=cut_P, unread_P=unread_P)


def _why_not(evidence: Evidence, checkpoint_id: str, *, has_second: bool) -> dict[str, str]:
    """Why samples cannot be told apart in the way that each cause needs."""
    rows = pd.concat([_of_checkpoint(evidence, "read_counts", one) for one in (evidence.base_id, checkpoint_id)])
    why = {}
    if rows["n_cut"].isna().any():
        why["cut_off"] = _CUT_NOT_TOLD
    if rows["n_unread"].isna().any():
        why["unread"] = _UNREAD_NOT_TOLD
    if not has_second:
        why["grader"] = _ONE_GRADER
    return why


def _of_checkpoint(evidence: Evidence, view: str, checkpoint_id: str) -> pd.DataFrame:
    frame = evidence.frames.get(view)
    return pd.DataFrame() if frame is None or frame.empty else frame[frame["checkpoint_id"] == checkpoint_id]


# ---------------------------------------------------------------- the base drawn sharper


def _sharper(evidence: Evidence, counts: CorrectCounts, k_most: int, *, second: bool) -> _Sharper:
    """At lower temperatures where these were drawn, else reweighted, else by agreeing answers."""
    known = {one.name: one for one in controls(evidence)}
    drawn = known["temperature"]
    if drawn.points is not None:
        return _at_temperatures(evidence, counts, min(k_most, drawn.k), second=second)
    found = next((one for one in (known["power"], known["answers"]) if one.points is not None), None)
    if found is None or found.points is None or second:
        return _Sharper(sharpness_S=np.zeros(1), why=drawn.why if found is None else _BY_FIRST)
    return _Sharper(sharpness_S=found.points.sharpness_S, rate_SP=found.rate_SP, k=min(k_most, found.k))


def _at_temperatures(evidence: Evidence, counts: CorrectCounts, k: int, *, second: bool) -> _Sharper:
    rows = _of_checkpoint(evidence, "control_counts", evidence.base_id)
    own_temperature, drawn, colder = float(rows["own_temperature"].iloc[0]), [], []
    for temperature, table in sorted(rows.groupby("temperature"), reverse=True):
        by_problem = table.set_index("problem_id").reindex(counts.problem_ids)
        if temperature >= own_temperature or not (by_problem["n"] == by_problem["n_planned"]).all():
            continue
        own = _graded(by_problem)
        other = _second(evidence, counts.problem_ids, evidence.base_id, own, float(temperature))
        if second and other is None:
            return _Sharper(sharpness_S=np.zeros(1), why=_BY_FIRST)
        drawn.append(Gradings(own=own, second=other))
        colder.append(float(temperature))
    if not drawn:
        return _Sharper(sharpness_S=np.zeros(1), why="the base was not drawn at a lower temperature: --controls does")
    return _Sharper(sharpness_S=1.0 - np.array([own_temperature, *colder]) / own_temperature, drawn=tuple(drawn), k=k)


def _sharper_missed(sharper: _Sharper, k: int, causes: Sequence[Undoable], n_problems: int) -> np.ndarray:
    """Chance that j samples of the base at each sharper point are all wrong, with all causes undone.

    No point at a k where it is not known.
    """
    if sharper.k < 2 or k not in {1, sharper.k}:
        return np.empty((0, n_problems, k + 1))
    if sharper.rate_SP is not None:
        return (1.0 - sharper.rate_SP[..., None]) ** np.arange(k + 1)
    drawn = [said(one, causes) for one in sharper.drawn]
    return np.stack([missed(one.read_P, one.correct_P, k) for one in drawn])


# ---------------------------------------------------------------- ways


def _ways(evidence: Evidence, counts: CorrectCounts, checkpoint_id: str, *, second: bool) -> Ways | str:
    """Correct samples of the ways that the base went often enough; or why nobody knows them."""
    frame = evidence.frames.get("second_way_counts" if second else "way_counts")
    if frame is None or frame.empty:
        return MISSING
    pair = common_counts(evidence)
    if {evidence.base_id, checkpoint_id} & pair.why.keys() or pair.problem_ids != counts.problem_ids:
        return "the checkpoints do not share as many samples of every problem"
    rows = frame[frame["level"] == LEVELS[0]]
    base, late = (rows[rows["checkpoint_id"] == one] for one in (evidence.base_id, checkpoint_id))
    if base["way"].isna().all():
        return MISSING
    index = pd.Index(counts.problem_ids)
    went, still = (one[one["way"].notna()].groupby(["problem_id", "way"])["n"].sum() for one in (base, late))
    unknown = late[late["way"].isna()].groupby("problem_id")["n"].sum()
    return Ways(
        problem_W=index.get_indexer(went.index.get_level_values("problem_id")),
        base_W=went.to_numpy(np.int64),
        late_W=still.reindex(went.index, fill_value=0).to_numpy(np.int64),
        unknown_P=unknown.reindex(index, fill_value=0).to_numpy(np.int64),
    )


MEASURE = Measure(
    name="change_budget",
    title="Budget of the change of pass@k",
    unit="probability",
    section="coverage",
    needs=("sampled_counts", "read_counts"),
    also=(
        "second_counts",
        "control_counts",
        "greedy_grades",
        "base_responses",
        "answer_counts",
        "problem_counts",
        "way_counts",
        "second_way_counts",
    ),
    missing="no graded samples",
    plot=Plot(x="step", group="scope", y_label="part of the change"),
    compute=compute,
    columns={**OF_ANSWERS, **OF_WAYS, "second_way_counts": OF_WAYS["way_counts"]},
    signed=True,
    of_base=False,
)
