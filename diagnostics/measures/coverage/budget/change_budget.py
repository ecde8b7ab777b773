"""Decomposition of the change of pass@k between the base and a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import ANSWER_COLUMNS, NO_SAMPLES, Counts, common_counts, sampled_counts
from oversharp.diagnostics.measures.coverage.budget.distributions import Graded, Gradings, Undoable, missed, said
from oversharp.diagnostics.measures.coverage.budget.groups import GROUPS, Ways
from oversharp.diagnostics.measures.coverage.budget.parts import MOST_K_OF_WAYS, budgets, piece_of
from oversharp.diagnostics.measures.coverage.sharpening.controls import SEED, load_controls
from oversharp.diagnostics.measures.declare import comparisons, per_series
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, MISSING, WAY_COLUMNS
from oversharp.diagnostics.statistics.keys import inference_ks

#: The parts in the order in which they are reported, after the whole.
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
    """The sharpened base: its pass@1 and pass@k at each point, up to ``k``."""

    sharpness_S: np.ndarray
    drawn: tuple[Gradings, ...] = ()  # of each point but the first, which is the base
    rate_SP: np.ndarray | None = None  # success rates at each point that was not sampled
    k: int = 0
    why: str = ""


@per_series(
    needs=("sampled_counts", "read_counts"),
    missing=NO_SAMPLES,
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
    columns={**ANSWER_COLUMNS, **WAY_COLUMNS, "second_way_counts": WAY_COLUMNS["way_counts"]},
    title="Budget of the change of pass@k",
    unit="probability",
    section="coverage",
    rank=40,
    plot=Plot(x="step", group="scope", y_label="part of the change"),
    signed=True,
    of_base=False,
)
def change_budget(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Change budget: the change of pass@k since the base, decomposed into causes that add up to it.

    Meaning: scope ``all`` is the change of pass@k; the other scopes are its parts, Shapley values: the effect of a
    cause, averaged over the orders in which causes can be added.
    Causes outside ability: ``cut_off`` (truncated samples without a boxed answer would be correct as often as the
    others), ``unread`` (samples without a parsed answer would be correct as often as parsed ones), ``grader`` (the
    grades of a second verifier would count, after `oversharp regrade`). They remove the same share from any samples in
    the checkpoint's place.
    ``sharpening``: pass@k of the base sampled as sharply as possible with at most the checkpoint's pass@1 and at least
    its pass@k, on problems that it has not lost; or at its lowest temperature. It uses samples at lower temperatures
    (--controls), else the base reweighted to p^α, else answers of several draws that agree, up to the k that these
    reach.
    The rest, compared with the sharpened base, is split by problem: ``lost`` problems were solved, and now are no more
    often than false accepts explain, nor by a way of the base; ``gained`` the reverse; ``guesses`` are so rarely
    solved at both that chance would look the same; ``ways`` are solved by both, but a way of solving of the base is
    gone; ``unexplained`` is the change on the others.
    Unit: probability (difference). Estimator: unbiased pass@k; the group of a problem is determined by samples that do
    not count in its part, averaged over 32 splits, so that two samples of one distribution have parts of mean 0. 95 %
    intervals, simultaneous over all parts and k of a checkpoint: a bootstrap over problems that resamples them
    together. n counts problems.
    Limits: a part is a counterfactual, not a description of training. Beyond pass@1 rarely solved problems carry the
    change: there a lost way cannot be distinguished from a lost problem, a guess or a sharpened base, so ``ways`` is
    known at k = 1 alone. Guesses are few, and so their part is uncertain. Truncated samples may be wrong more often
    than the others: ``cut_off`` is then too large. Without a sharpened base its part is in the other groups. If fewer
    than k samples of a problem remain, pass@k of the remaining number stands in for it; a problem without any uses the
    other checkpoint's, as if nothing else had changed there.
    Source: ours. Shapley 1953 (A value for n-person games). Cover@τ, with a τ that depends on the false accepts, for
    the groups; ``frontier_loss`` for the sharpened base.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id n n_correct n_cut n_unread"
    >>> evidence = tiny_evidence("read_counts", columns, [("base", f"q{i}", 64, 32, 0, 0) for i in range(40)]
    ...     + [("late", f"q{i}", 64, 16, 32, 0) for i in range(40)], n=64)
    >>> evidence.frames["sampled_counts"] = evidence.frames["read_counts"]
    >>> parts = [f for f in change_budget(evidence) if f.k == 1 and f.value and abs(f.value) > 0.01]
    >>> [(f.scope, round(f.value, 2)) for f in parts]
    [('all', -0.25), ('cut_off', -0.25)]
    """
    counts, why = sampled_counts(evidence)
    for checkpoint_id, why_not in comparisons(evidence, why):
        if why_not:
            yield checkpoint_id, why_not
        else:
            base, late = counts[evidence.base_id], counts[checkpoint_id]
            yield checkpoint_id, _budget(evidence, base, checkpoint_id, min(base.fewest, late.fewest))


def _budget(evidence: Evidence, counts: Counts, checkpoint_id: str, fewest: int) -> Results:
    """Return the parts by scope and k; a part that cannot be known has the reason."""
    if fewest < 2:
        return dict.fromkeys(SCOPES, _ONE_RESPONSE)
    base, late = (_gradings(evidence, counts, one) for one in (evidence.base_id, checkpoint_id))
    why = _why_not(evidence, checkpoint_id, has_second=base.second is not None and late.second is not None)
    causes: list[Undoable] = [one for one in get_args(Undoable) if one not in why]
    k_most = inference_ks(fewest)[-1]
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
    results: dict[tuple[str, int | None], Result] = {}
    for k, parts in zip(ks, made, strict=True):
        if isinstance(ways, str):
            why["ways"] = ways
        elif k > MOST_K_OF_WAYS:
            why["ways"] = _WAYS_AT_1
        why["sharpening"] = sharper.why or f"the colder base reaches k = {sharper.k} alone"
        results |= {(scope, k): parts.get(scope, why.get(scope, "")) for scope in SCOPES}
    return results


# ---------------------------------------------------------------- samples by grade


def _gradings(evidence: Evidence, counts: Counts, checkpoint_id: str) -> Gradings:
    rows = _of_checkpoint(evidence, "read_counts", checkpoint_id)
    own = _graded(rows.set_index("problem_id").reindex(list(counts.problem_ids)))
    return Gradings(own=own, second=_second(evidence, counts.problem_ids, checkpoint_id, own))


def _graded(rows: pd.DataFrame) -> Graded:
    n_P, correct_P, cut_P, unread_P = (rows[name].fillna(0).to_numpy(np.int64) for name in _COUNTED)
    return Graded(n_P=n_P, correct_P=correct_P, cut_P=cut_P, unread_P=unread_P)


def _second(
    evidence: Evidence, problem_ids: Sequence[str], checkpoint_id: str, own: Graded, temperature: float | None = None
) -> Graded | None:
    """Return the grades of a second verifier, and those of the first for problems that the second graded in part."""
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
    """Return the reason for each cause that the samples cannot identify."""
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


# ---------------------------------------------------------------- the sharpened base


def _sharper(evidence: Evidence, counts: Counts, k_most: int, *, second: bool) -> _Sharper:
    """Return the base at lower temperatures if these were sampled, else reweighted, else by agreeing answers."""
    known = {one.name: one for one in load_controls(evidence)}
    drawn = known["temperature"]
    if drawn.points is not None:
        return _at_temperatures(evidence, counts, min(k_most, drawn.k), second=second)
    found = next((one for one in (known["power"], known["answers"]) if one.points is not None), None)
    if found is None or found.points is None or second:
        return _Sharper(sharpness_S=np.zeros(1), why=drawn.why if found is None else _BY_FIRST)
    return _Sharper(sharpness_S=found.points.sharpness_S, rate_SP=found.rate_SP, k=min(k_most, found.k))


def _at_temperatures(evidence: Evidence, counts: Counts, k: int, *, second: bool) -> _Sharper:
    rows = _of_checkpoint(evidence, "control_counts", evidence.base_id)
    own_temperature, drawn, colder = float(rows["own_temperature"].iloc[0]), [], []
    for temperature, table in sorted(rows.groupby("temperature"), reverse=True):
        by_problem = table.set_index("problem_id").reindex(list(counts.problem_ids))
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
    """Return the probability that j samples of the base at each sharper point are all wrong, with all causes undone.

    Without a point at a k for which it is unknown.
    """
    if sharper.k < 2 or k not in {1, sharper.k}:
        return np.empty((0, n_problems, k + 1))
    if sharper.rate_SP is not None:
        return (1.0 - sharper.rate_SP[..., None]) ** np.arange(k + 1)
    drawn = [said(one, causes) for one in sharper.drawn]
    return np.stack([missed(one.read_P, one.correct_P, k) for one in drawn])


# ---------------------------------------------------------------- ways


def _ways(evidence: Evidence, counts: Counts, checkpoint_id: str, *, second: bool) -> Ways | str:
    """Return correct samples of the base's ways, or the reason why they are unknown."""
    frame = evidence.frames.get("second_way_counts" if second else "way_counts")
    if frame is None or frame.empty:
        return MISSING
    common, why = common_counts(evidence)
    if {evidence.base_id, checkpoint_id} & why.keys() or common[checkpoint_id].problem_ids != counts.problem_ids:
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
