"""The base drawn sharper, in the three ways that an audit can know of, and every checkpoint against each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures._agreeing import agreeing_pass_at_k, agreeing_shares
from oversharp.diagnostics.measures._counts import CorrectCounts, pass_at_k_of, sampled_counts
from oversharp.diagnostics.measures._findings import comparisons, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, FrontierPoints, Matched, against_frontier
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.units import few_clusters, named_clusters

SEED = 0
#: Exponents of the power distribution: the base is sharpened by them.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
#: Numbers of draws that agree, and the fewest samples of a problem at which that point is off by less than .5 points in
#: pass@1 and in pass@k at k = n/16, on laws of four kinds (benchmarks/results/agreeing.md).
AGREEING = {1: 1, 2: 32, 3: 64, 4: 128, 8: 256}
#: Of a problem's probability, what its different sampled responses must hold for their power distribution to be known.
LEAST_MASS = 0.9
#: Attempts per sample of the base. pass@k of a share that was estimated is biased down at large k; the jackknife takes
#: off most of it as long as k stays small against the samples.
ATTEMPTS_PER_SAMPLE = 1 / 16


@dataclass(frozen=True, kw_only=True)
class Control:
    """One way of drawing the base sharper; ``points`` is None where it is not known, for the reason ``why``.

    ``k`` is the number of attempts of the plane's coverage. ``rate_SP``: success rates of the problems at the points
    after the base, each between 0 and 1; None where they were drawn.
    """

    name: str
    points: FrontierPoints | None
    k: int = 0
    rate_SP: np.ndarray | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Every complete checkpoint but the base against one control; ``why`` where there is none."""

    control: Control
    against: Mapping[str, AgainstFrontier]
    why: Mapping[str, str]


def controls(evidence: Evidence) -> tuple[Control, ...]:
    """The ways of drawing the base sharper, known or not: temperature, power, answers."""
    return evidence.once(_controls)


def compared(evidence: Evidence) -> tuple[Compared, ...]:
    """All checkpoints against all controls."""
    return evidence.once(_compared)


def findings(measure: Measure, evidence: Evidence, of: Callable[[AgainstFrontier], Matched]) -> list[Finding]:
    """One finding per checkpoint but the base and control; its scope is the control's name."""
    counts = sampled_counts(evidence)
    made = []
    for one, (checkpoint_id, _) in product(compared(evidence), comparisons(evidence, counts.why)):
        scope, k = one.control.name, one.control.k or None
        if checkpoint_id in one.why:
            made.append(unknown(measure, checkpoint_id, one.why[checkpoint_id], scope=scope, k=k))
        else:
            made.append(_finding(measure, checkpoint_id, one, of(one.against[checkpoint_id]), counts))
    return made


def _finding(measure: Measure, checkpoint_id: str, one: Compared, found: Matched, counts: CorrectCounts) -> Finding:
    bounded = found.low is not None or found.high is not None
    return Finding(
        checkpoint_id=checkpoint_id,
        measure=measure.name,
        unit=measure.unit,
        scope=one.control.name,
        k=one.control.k,
        value=found.value,
        low=found.low,
        high=found.high,
        n=len(counts.problem_ids),
        why=None if found.value is not None else found.why,
        interval_over=("problems" if named_clusters(counts.cluster_P) is None else "clusters") if bounded else None,
        why_no_interval=few_clusters(counts.cluster_P),
    )


def _compared(evidence: Evidence) -> tuple[Compared, ...]:
    return tuple(_against(evidence, control) for control in controls(evidence))


def _against(evidence: Evidence, control: Control) -> Compared:
    counts = sampled_counts(evidence)
    why = {one: why_not for one, why_not in comparisons(evidence, counts.why) if why_not}
    complete = [one for one, why_not in comparisons(evidence, counts.why) if not why_not]
    if control.points is None or not complete:
        return Compared(control=control, against={}, why={**dict.fromkeys(complete, control.why), **why})
    found = against_frontier(
        control.points,
        np.stack([counts.pass_at_k(one, 1) for one in complete]),
        np.stack([counts.pass_at_k(one, control.k) for one in complete]),
        groups=[[place] for place in range(len(complete))],
        rng=np.random.default_rng(SEED),
        cluster_P=counts.cluster_P,
    )
    return Compared(control=control, against=dict(zip(complete, found, strict=True)), why=why)


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    counts = sampled_counts(evidence)
    ways: Mapping[str, Callable[[Evidence, CorrectCounts, int], Control]] = {
        "temperature": _by_temperature,
        "power": _by_power,
        "answers": _by_answers,
    }
    complete = [one for one, why_not in comparisons(evidence, counts.why) if not why_not]
    if not complete:
        return tuple(Control(name=name, points=None) for name in ways)
    k_most = inference_ks(min(counts.least(one) for one in (evidence.base_id, *complete)))[-1]
    found = [way(evidence, counts, k_most) for way in ways.values()]
    return tuple(one if one.points is None or one.k > 1 else _too_small(one) for one in found)


def _too_small(control: Control) -> Control:
    """At k = 1 both axes of the plane are pass@1, and nothing is compared."""
    return Control(name=control.name, points=None, why="too few samples for a pass@k beyond pass@1")


# ---------------------------------------------------------------- temperature: drawn


def _by_temperature(evidence: Evidence, counts: CorrectCounts, k_most: int) -> Control:
    drawn = _frame(evidence, "control_counts")
    drawn = drawn[drawn["checkpoint_id"] == evidence.base_id] if len(drawn) else drawn
    tables = {
        float(temperature): own.set_index("problem_id").reindex(counts.problem_ids)
        for temperature, own in (drawn.groupby("temperature") if len(drawn) else ())
    }
    whole = {t: one for t, one in tables.items() if (one["n"] == one["n_planned"]).all()}
    if not whole:
        why = "the base was not drawn at a lower temperature: --controls does"
        return Control(
            name="temperature", points=None, why=why if not tables else "the colder draws of the base are incomplete"
        )
    colder = sorted(whole, reverse=True)
    own_temperature = float(drawn["own_temperature"].iloc[0])
    k = _power_of_two(min(k_most, *(int(one["n"].min()) for one in whole.values())))
    rows = {t: (one["n"].to_numpy(np.int64), one["n_correct"].to_numpy(np.int64)) for t, one in whole.items()}
    points = FrontierPoints(
        sharpness_S=1.0 - np.array([own_temperature, *colder]) / own_temperature,
        x_SP=np.stack([counts.pass_at_k(evidence.base_id, 1), *(pass_at_k_of(*rows[t], 1) for t in colder)]),
        y_SP=np.stack([counts.pass_at_k(evidence.base_id, k), *(pass_at_k_of(*rows[t], k) for t in colder)]),
        limit_P=_greedy(evidence, counts),
    )
    return Control(name="temperature", points=points, k=k)


def _greedy(evidence: Evidence, counts: CorrectCounts) -> np.ndarray | None:
    """Of every problem whether the base's greedy response is right."""
    rows = _frame(evidence, "greedy_grades")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    if not len(rows):
        return None
    right = rows.drop_duplicates("problem_id").set_index("problem_id")["correct"].reindex(counts.problem_ids)
    return None if right.isna().any() else right.astype("float64").to_numpy()


# ---------------------------------------------------------------- power: reweighted


def _by_power(evidence: Evidence, counts: CorrectCounts, k_most: int) -> Control:
    rows = _frame(evidence, "base_responses")
    if not len(rows) or rows["logp_sum_raw"].isna().any():
        return Control(name="power", points=None, why="the log-probabilities of the base's samples are not known")
    if not rows["own_law"].all():
        return Control(name="power", points=None, why="the base was not drawn at temperature 1, untruncated")
    problem_R = pd.Index(counts.problem_ids).get_indexer(rows["problem_id"])
    logp_R, correct_R = rows["logp_sum_raw"].to_numpy(np.float64), rows["correct"].to_numpy(np.float64)
    n_problems = len(counts.problem_ids)
    mass = float(np.bincount(problem_R, np.exp(logp_R), n_problems).mean())
    if mass < LEAST_MASS:
        held = f"the base's different samples hold {100 * mass:.0f} % of its probability"
        why = f"{held}; {100 * LEAST_MASS:.0f} % are needed"
        return Control(name="power", points=None, why=why)
    most_P = np.full(n_problems, -np.inf)
    np.maximum.at(most_P, problem_R, logp_R)
    relative_R = logp_R - most_P[problem_R]
    share_SP = np.stack(
        [_share(np.exp(exponent * relative_R), correct_R, problem_R, n_problems) for exponent in EXPONENTS[1:]]
    )
    limit_P = _share((relative_R == 0.0).astype(np.float64), correct_R, problem_R, n_problems)
    # the base itself is counted: of its own law, what was never sampled is left out, and that is mostly wrong
    points = FrontierPoints(
        sharpness_S=1.0 - 1.0 / np.array(EXPONENTS),
        x_SP=np.stack([counts.pass_at_k(evidence.base_id, 1), *share_SP]),
        y_SP=np.stack([counts.pass_at_k(evidence.base_id, k_most), *(1.0 - (1.0 - share_SP) ** k_most)]),
        limit_P=limit_P,
    )
    return Control(name="power", points=points, k=k_most, rate_SP=share_SP)


def _share(weight_R: np.ndarray, correct_R: np.ndarray, problem_R: np.ndarray, n_problems: int) -> np.ndarray:
    """Of every problem's weight, what lies on correct rows; 0 without any weight."""
    all_P = np.bincount(problem_R, weight_R, n_problems)
    right_P = np.bincount(problem_R, weight_R * correct_R, n_problems)
    return right_P / np.where(all_P > 0.0, all_P, 1.0)


# ---------------------------------------------------------------- answers: counted


def _by_answers(evidence: Evidence, counts: CorrectCounts, k_most: int) -> Control:
    rows = _frame(evidence, "answer_counts")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    named = rows[rows["answer"] != "NA"] if len(rows) else rows
    if not len(named) or (rows["correct"].astype(bool) & (rows["answer"] == "NA")).any():
        return Control(name="answers", points=None, why="what the base's samples answer is not known")
    if (named.groupby("problem_id")["answer"].nunique() < 2).all():
        return Control(name="answers", points=None, why="no problem has two different answers")
    by_answer = named.groupby(["problem_id", "answer"], as_index=False).agg(n=("n", "sum"), correct=("correct", "max"))
    problem_R = pd.Index(counts.problem_ids).get_indexer(by_answer["problem_id"])
    n_R, correct_R = by_answer["n"].to_numpy(np.int64), by_answer["correct"].to_numpy(np.float64)
    n_P = rows.groupby("problem_id")["n"].sum().reindex(counts.problem_ids).fillna(0).to_numpy(np.int64)
    n_problems, least = len(n_P), int(n_P[n_P > 0].min())
    k = _power_of_two(min(k_most, max(1, int(least * ATTEMPTS_PER_SAMPLE))))
    told = [draws for draws, fewest in AGREEING.items() if draws > 1 and fewest <= least]
    if not told:
        return _too_small(Control(name="answers", points=None))
    pass_at = [agreeing_pass_at_k(n_R, correct_R, problem_R, n_P, draws=draws, k=k) for draws in told]
    most_P = np.zeros(n_problems, dtype=np.int64)
    np.maximum.at(most_P, problem_R, n_R)
    points = FrontierPoints(
        sharpness_S=1.0 - 1.0 / np.array([1, *told], dtype=np.float64),
        x_SP=np.stack([counts.pass_at_k(evidence.base_id, 1), *(one for one, _ in pass_at)]),
        y_SP=np.stack([counts.pass_at_k(evidence.base_id, k), *(one for _, one in pass_at)]),
        limit_P=_share((n_R == most_P[problem_R]).astype(np.float64), correct_R, problem_R, n_problems),
    )
    shares = [agreeing_shares(n_R, correct_R, problem_R, n_problems, draws=draws) for draws in told]
    return Control(name="answers", points=points, k=k, rate_SP=np.stack(shares))


def _power_of_two(k: int) -> int:
    return 1 << (k.bit_length() - 1)


def _frame(evidence: Evidence, view: str) -> pd.DataFrame:
    return evidence.frames.get(view, pd.DataFrame())
