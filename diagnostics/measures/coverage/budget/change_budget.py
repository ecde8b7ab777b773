"""Measure that decomposes the change of pass@k between the base and a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pandas as pd
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    ANSWER_COLUMNS,
    NO_SAMPLES,
    Counts,
    load_common_counts,
    load_equal_counts,
)
from oversharp.diagnostics.measures.coverage.budget.distributions import (
    Graded,
    Gradings,
    Undoable,
    all_wrong,
    count_samples,
)
from oversharp.diagnostics.measures.coverage.budget.groups import GROUPS, Ways
from oversharp.diagnostics.measures.coverage.budget.parts import MOST_K_OF_WAYS, decompose_at_k, estimate_parts
from oversharp.diagnostics.measures.coverage.sharpening.controls import NOT_SAMPLED_LOWER, SEED, load_controls
from oversharp.diagnostics.measures.declare import compare_with_base, per_series
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS, MISSING, WAY_COLUMNS
from oversharp.diagnostics.statistics.keys import inference_ks

#: The parts of the change, in the order of the report.
PARTS = (*get_args(Undoable), "sharpening", *GROUPS)
SCOPES = ("all", *PARTS)
_COUNT_COLUMNS = ["n", "n_correct", "n_cut", "n_unread"]
_NO_FINISH_REASON = "some graded samples have no finish reason"
_NO_PARSE_FAILURES = "another tool graded the samples and did not report parse failures"
_ONE_GRADER = "graded by one verifier; `oversharp regrade` grades the same samples by another, as a separate series"
_WAYS_AT_1 = (
    "lost ways are measured at k = 1 only: at larger k, rarely solved problems dominate, which have too few correct "
    "samples to show their ways"
)
_ONE_RESPONSE = "one response per problem; a decomposition needs several"
_FIRST_GRADER_ONLY = "the sharpened base has grades of the first verifier only"


@dataclass(frozen=True, kw_only=True)
class _SharpenedBase:
    """pass@k of the base at each level of sharpening, for k up to ``k``.

    The first level is the unsharpened base. The others have either samples (``gradings``) or success rates
    (``rate_SP``). ``why`` is the reason if no sharpened base is available.
    """

    sharpness_S: np.ndarray
    gradings: tuple[Gradings, ...] = ()
    rate_SP: np.ndarray | None = None
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
    first_round=True,
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
    """Change budget: a decomposition of the change of pass@k since the base into causes.

    Meaning: scope ``all`` is the change of pass@k. The other scopes are its parts, which sum to it. Each part is the
    Shapley value of a cause: its effect, averaged over the orders in which the causes can be added.
    Three causes do not concern the model's ability. If another distribution (such as the sharpened base) takes the
    checkpoint's place, they remove the same share of its samples.
    - ``cut_off``: what if truncated samples without a boxed answer were correct as often as the others?
    - ``unread``: what if samples without a parsed answer were correct as often as parsed samples?
    - ``grader``: what if the grades of a second verifier counted? It needs `oversharp regrade`.
    One cause is sharpening.
    - ``sharpening``: pass@k of the sharpest base that has at most the checkpoint's pass@1 and at least its pass@k, on
      problems that are not lost. It is at most as sharp as the base at its lowest sampled temperature. The base is
      sharpened by samples at lower temperatures (--controls). Without these, its samples are reweighted to p^α. If that
      is impossible, answers on which several draws agree are used, up to the k that they allow.
    The rest is the change compared with the sharpened base, split by groups of problems.
    - ``lost``: the base solved the problem. Now it is solved no more often than false accepts explain, and not by a way
      of the base.
    - ``gained``: the reverse of ``lost``.
    - ``guesses``: base and checkpoint solve the problem so rarely that chance would look the same.
    - ``ways``: both solve the problem, but a way of the base is lost.
    - ``unexplained``: all other problems.
    Unit: probability (difference). Estimator: unbiased pass@k. Some samples determine the group of a problem, and the
    others measure its change, averaged over 32 splits. So two sets of samples from one distribution have parts of mean
    0. The 95 % intervals are simultaneous over all parts and k of a checkpoint, from a bootstrap over problems that
    resamples them together. n counts problems.
    Limits: a part is a counterfactual, not a description of training. For k above 1, rarely solved problems dominate
    the change, and a lost way looks like a lost problem, a false accept or a sharpened base. So ``ways`` is known only
    at k = 1. Few problems are guesses, so that part is uncertain. If truncated samples are wrong more often than the
    others, ``cut_off`` is too large. Without a sharpened base, the effect of sharpening is in the groups of problems.
    If fewer than k samples of a problem remain, pass@k is replaced by that of the remaining number. If none remain, the
    other checkpoint's samples are used, as if nothing else had changed.
    Source: ours. Shapley 1953 (A value for n-person games). The groups use Cover@τ, with a τ that depends on the false
    accepts. For the sharpened base see ``frontier_loss``.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> columns = "checkpoint_id problem_id n n_correct n_cut n_unread"
    >>> evidence = tiny_evidence("read_counts", columns, [("base", f"q{i}", 64, 32, 0, 0) for i in range(40)]
    ...     + [("late", f"q{i}", 64, 16, 32, 0) for i in range(40)], n=64)
    >>> evidence.frames["sampled_counts"] = evidence.frames["read_counts"]
    >>> parts = [f for f in change_budget(evidence) if f.k == 1 and f.value and abs(f.value) > 0.01]
    >>> [(f.scope, round(f.value, 2)) for f in parts]
    [('all', -0.25), ('cut_off', -0.25)]
    """
    counts, why = load_equal_counts(evidence)
    for checkpoint_id, why_not in compare_with_base(evidence, why):
        if why_not:
            yield checkpoint_id, why_not
        else:
            base, late = counts[evidence.base_id], counts[checkpoint_id]
            yield checkpoint_id, _decompose(evidence, base, checkpoint_id, min(base.fewest, late.fewest))


def _decompose(evidence: Evidence, counts: Counts, checkpoint_id: str, fewest: int) -> Results:
    """Return the parts by scope and k, or a reason for each part that cannot be known."""
    if fewest < 2:
        return dict.fromkeys(SCOPES, _ONE_RESPONSE)
    base, late = (_gradings(evidence, counts, i) for i in (evidence.base_id, checkpoint_id))
    why = _unidentified(evidence, checkpoint_id, has_second=base.second is not None and late.second is not None)
    causes: list[Undoable] = [cause for cause in get_args(Undoable) if cause not in why]
    k_most = inference_ks(fewest)[-1]
    sharpened = _sharpened_base(evidence, counts, k_most, second="grader" in causes)
    ways = _load_ways(evidence, counts, checkpoint_id, second="grader" in causes)
    rng = np.random.default_rng(SEED)
    ks = sorted({1, k_most} | ({sharpened.k} if sharpened.k else set()))
    decompositions = [
        decompose_at_k(
            base,
            late,
            k,
            causes=causes,
            guess_rate=evidence.guess_rate,
            sharper_SPJ=_sharper_all_wrong(sharpened, k, causes, len(counts.problem_ids)),
            ways=None if isinstance(ways, str) else ways,
            rng=rng,
        )
        for k in ks
    ]
    estimates = estimate_parts(decompositions, sharpness_S=sharpened.sharpness_S, rng=rng, cluster_P=counts.cluster_P)
    results: dict[tuple[str, int | None], Result] = {}
    for k, parts in zip(ks, estimates, strict=True):
        if isinstance(ways, str):
            why["ways"] = ways
        elif k > MOST_K_OF_WAYS:
            why["ways"] = _WAYS_AT_1
        why["sharpening"] = sharpened.why or f"the sharpened base is known only up to k = {sharpened.k}"
        results |= {(scope, k): parts.get(scope, why.get(scope, "")) for scope in SCOPES}
    return results


# ---------------------------------------------------------------- samples by grade


def _gradings(evidence: Evidence, counts: Counts, checkpoint_id: str) -> Gradings:
    rows = _rows(evidence, "read_counts", checkpoint_id)
    own = _to_graded(rows.set_index("problem_id").reindex(list(counts.problem_ids)))
    return Gradings(own=own, second=_second_grades(evidence, counts.problem_ids, checkpoint_id, own))


def _to_graded(rows: pd.DataFrame) -> Graded:
    n_P, correct_P, truncated_P, unparsed_P = (rows[name].fillna(0).to_numpy(np.int64) for name in _COUNT_COLUMNS)
    return Graded(n_P=n_P, correct_P=correct_P, truncated_P=truncated_P, unparsed_P=unparsed_P)


def _second_grades(
    evidence: Evidence, problem_ids: Sequence[str], checkpoint_id: str, own: Graded, temperature: float | None = None
) -> Graded | None:
    """Return the counts of a second verifier; None without one.

    A problem that it did not grade completely has the counts of the first verifier.
    """
    rows = _rows(evidence, "second_counts", checkpoint_id)
    if not len(rows):
        return None
    chosen = rows["temperature"].isna() if temperature is None else rows["temperature"] == temperature
    if not chosen.any():
        return None
    table = rows[chosen].set_index("problem_id").reindex(list(problem_ids))
    is_whole_P = (table["n"] == own.n_P).to_numpy()
    second = _to_graded(table)
    return Graded(
        n_P=np.where(is_whole_P, second.n_P, own.n_P),
        correct_P=np.where(is_whole_P, second.correct_P, own.correct_P),
        truncated_P=np.where(is_whole_P, second.truncated_P, own.truncated_P),
        unparsed_P=np.where(is_whole_P, second.unparsed_P, own.unparsed_P),
    )


def _unidentified(evidence: Evidence, checkpoint_id: str, *, has_second: bool) -> dict[str, str]:
    """Return the reason for each cause that the samples cannot identify."""
    rows = pd.concat([_rows(evidence, "read_counts", i) for i in (evidence.base_id, checkpoint_id)])
    why = {}
    if rows["n_cut"].isna().any():
        why["cut_off"] = _NO_FINISH_REASON
    if rows["n_unread"].isna().any():
        why["unread"] = _NO_PARSE_FAILURES
    if not has_second:
        why["grader"] = _ONE_GRADER
    return why


def _rows(evidence: Evidence, view: str, checkpoint_id: str) -> pd.DataFrame:
    frame = evidence.frames.get(view)
    return pd.DataFrame() if frame is None or frame.empty else frame[frame["checkpoint_id"] == checkpoint_id]


# ---------------------------------------------------------------- the sharpened base


def _sharpened_base(evidence: Evidence, counts: Counts, k_most: int, *, second: bool) -> _SharpenedBase:
    """Return the base sharpened by the first control that is known: temperature, power, answers."""
    controls = {control.name: control for control in load_controls(evidence)}
    temperature = controls["temperature"]
    if temperature.points is not None:
        return _sampled_temperatures(evidence, counts, min(k_most, temperature.k), second=second)
    for control in (controls["power"], controls["answers"]):
        if control.points is not None:
            if second:
                return _SharpenedBase(sharpness_S=np.zeros(1), why=_FIRST_GRADER_ONLY)
            sharpness_S = control.points.sharpness_S
            return _SharpenedBase(sharpness_S=sharpness_S, rate_SP=control.rate_SP, k=min(k_most, control.k))
    return _SharpenedBase(sharpness_S=np.zeros(1), why=temperature.why)


def _sampled_temperatures(evidence: Evidence, counts: Counts, k: int, *, second: bool) -> _SharpenedBase:
    rows = _rows(evidence, "control_counts", evidence.base_id)
    own_temperature = float(rows["own_temperature"].iloc[0])
    temperatures, gradings = [own_temperature], []
    for temperature, table in sorted(rows.groupby("temperature"), reverse=True):
        by_problem = table.set_index("problem_id").reindex(list(counts.problem_ids))
        if temperature >= own_temperature or not (by_problem["n"] == by_problem["n_planned"]).all():
            continue
        if evidence.is_stopped:
            by_problem = by_problem.assign(n=by_problem["n_first"], n_correct=by_problem["n_first_correct"])
        own = _to_graded(by_problem)
        other = _second_grades(evidence, counts.problem_ids, evidence.base_id, own, float(temperature))
        if second and other is None:
            return _SharpenedBase(sharpness_S=np.zeros(1), why=_FIRST_GRADER_ONLY)
        gradings.append(Gradings(own=own, second=other))
        temperatures.append(float(temperature))
    if not gradings:
        return _SharpenedBase(sharpness_S=np.zeros(1), why=NOT_SAMPLED_LOWER)
    sharpness_S = 1.0 - np.array(temperatures) / own_temperature
    return _SharpenedBase(sharpness_S=sharpness_S, gradings=tuple(gradings), k=k)


def _sharper_all_wrong(
    sharpened: _SharpenedBase, k: int, causes: Sequence[Undoable], n_problems: int
) -> Float[np.ndarray, "point problem count"]:
    """Return the probability that j samples of the base at each sharper point are all wrong.

    The result has no points if the sharpened base is unknown at k.
    """
    if sharpened.k < 2 or k not in {1, sharpened.k}:
        return np.empty((0, n_problems, k + 1))
    if sharpened.rate_SP is not None:
        return np.asarray((1.0 - sharpened.rate_SP[..., None]) ** np.arange(k + 1))
    samples = [count_samples(gradings, causes) for gradings in sharpened.gradings]
    return np.stack([all_wrong(counts.parsed_P, counts.correct_P, k) for counts in samples])


# ---------------------------------------------------------------- ways


def _load_ways(evidence: Evidence, counts: Counts, checkpoint_id: str, *, second: bool) -> Ways | str:
    """Return the correct samples of the base's ways, or the reason why they are unknown."""
    frame = evidence.frames.get("second_way_counts" if second else "way_counts")
    if frame is None or frame.empty:
        return MISSING
    common, why = load_common_counts(evidence)
    if {evidence.base_id, checkpoint_id} & why.keys() or common[checkpoint_id].problem_ids != counts.problem_ids:
        return "the checkpoints do not have equally many samples of every problem"
    rows = frame[frame["level"] == LEVELS[0]]
    base, late = (rows[rows["checkpoint_id"] == i] for i in (evidence.base_id, checkpoint_id))
    if base["way"].isna().all():
        return MISSING
    index = pd.Index(counts.problem_ids)
    base_n, late_n = (own[own["way"].notna()].groupby(["problem_id", "way"])["n"].sum() for own in (base, late))
    unknown = late[late["way"].isna()].groupby("problem_id")["n"].sum()
    return Ways(
        problem_W=index.get_indexer(base_n.index.get_level_values("problem_id")),
        base_W=base_n.to_numpy(np.int64),
        late_W=late_n.reindex(base_n.index, fill_value=0).to_numpy(np.int64),
        unknown_P=unknown.reindex(index, fill_value=0).to_numpy(np.int64),
    )
