"""The base sampled sharper by three controls, and every checkpoint compared with each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.counts import Counts, pass_at_k_of, sampled_counts
from oversharp.diagnostics.measures.coverage.sharpening.agreement import agreeing_pass_at_k, agreeing_shares
from oversharp.diagnostics.measures.declare import comparisons
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, FrontierPoints, against_frontier
from oversharp.diagnostics.statistics.keys import inference_ks

SEED = 0
#: Exponents of the power distribution, which sharpen the base.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
#: Numbers of draws that agree, and the fewest samples of a problem at which the error of that point is below 0.5 points
#: in pass@1 and in pass@k at k = n/16, for four kinds of distributions (benchmarks/results/agreeing.md).
AGREEING = {1: 1, 2: 32, 3: 64, 4: 128, 8: 256}
#: Least probability that the distinct sampled responses of a problem cover, so that their power distribution is known.
LEAST_MASS = 0.9
#: Attempts per sample of the base. pass@k of an estimated share is biased down at large k; the jackknife removes most
#: of the bias while k is small compared with the samples.
ATTEMPTS_PER_SAMPLE = 1 / 16


@dataclass(frozen=True, kw_only=True)
class Control:
    """One way to sharpen the base; ``points`` is None if it is unknown, for the reason ``why``.

    ``k`` is the number of attempts of the plane's coverage. ``rate_SP``: success rates of the problems at the points
    after the base, each between 0 and 1; None if these points were sampled.
    """

    name: str
    points: FrontierPoints | None
    k: int = 0
    rate_SP: np.ndarray | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ControlComparison:
    """Every complete checkpoint but the base against one control, with the reason ``why`` for each of the others."""

    control: Control
    against: Mapping[str, AgainstFrontier]
    why: Mapping[str, str]


def load_controls(evidence: Evidence) -> tuple[Control, ...]:
    """Return the three controls, known or not: temperature, power, answers."""
    return evidence.once(_controls)


def compare_controls(evidence: Evidence) -> tuple[ControlComparison, ...]:
    """Compare all checkpoints with all controls."""
    return evidence.once(_compare_controls)


def _compare_controls(evidence: Evidence) -> tuple[ControlComparison, ...]:
    return tuple(_compare(evidence, control) for control in load_controls(evidence))


def _compare(evidence: Evidence, control: Control) -> ControlComparison:
    counts, reasons = sampled_counts(evidence)
    why = {i: why_not for i, why_not in comparisons(evidence, reasons) if why_not}
    complete = [i for i, why_not in comparisons(evidence, reasons) if not why_not]
    if control.points is None or not complete:
        return ControlComparison(control=control, against={}, why={**dict.fromkeys(complete, control.why), **why})
    against = against_frontier(
        control.points,
        np.stack([counts[i].pass_at_k(1) for i in complete]),
        np.stack([counts[i].pass_at_k(control.k) for i in complete]),
        groups=[[place] for place in range(len(complete))],
        rng=np.random.default_rng(SEED),
        cluster_P=counts[evidence.base_id].cluster_P,
    )
    return ControlComparison(control=control, against=dict(zip(complete, against, strict=True)), why=why)


def _controls(evidence: Evidence) -> tuple[Control, ...]:
    counts, why = sampled_counts(evidence)
    makers: Mapping[str, Callable[[Evidence, Counts, int], Control]] = {
        "temperature": _by_temperature,
        "power": _by_power,
        "answers": _by_answers,
    }
    complete = [i for i, why_not in comparisons(evidence, why) if not why_not]
    if not complete:
        return tuple(Control(name=name, points=None) for name in makers)
    k_most = inference_ks(min(counts[i].fewest for i in (evidence.base_id, *complete)))[-1]
    made = [make(evidence, counts[evidence.base_id], k_most) for make in makers.values()]
    return tuple(one if one.points is None or one.k > 1 else _too_small(one) for one in made)


def _too_small(control: Control) -> Control:
    """Return the control as unknown: at k = 1 both axes of the plane are pass@1."""
    return Control(name=control.name, points=None, why="too few samples for a pass@k beyond pass@1")


# ---------------------------------------------------------------- temperature: sampled


def _by_temperature(evidence: Evidence, base: Counts, k_most: int) -> Control:
    drawn = _frame(evidence, "control_counts")
    drawn = drawn[drawn["checkpoint_id"] == evidence.base_id] if len(drawn) else drawn
    tables = {
        float(temperature): own.set_index("problem_id").reindex(list(base.problem_ids))
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
        x_SP=np.stack([base.pass_at_k(1), *(pass_at_k_of(*rows[t], 1) for t in colder)]),
        y_SP=np.stack([base.pass_at_k(k), *(pass_at_k_of(*rows[t], k) for t in colder)]),
        limit_P=_greedy(evidence, base),
    )
    return Control(name="temperature", points=points, k=k)


def _greedy(evidence: Evidence, base: Counts) -> np.ndarray | None:
    """Return whether the base's greedy response to each problem is correct, or None if a response is missing."""
    rows = _frame(evidence, "greedy_grades")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    if not len(rows):
        return None
    right = rows.drop_duplicates("problem_id").set_index("problem_id")["correct"].reindex(list(base.problem_ids))
    return None if right.isna().any() else right.astype("float64").to_numpy()


# ---------------------------------------------------------------- power: reweighted


def _by_power(evidence: Evidence, base: Counts, k_most: int) -> Control:
    rows = _frame(evidence, "base_responses")
    if not len(rows) or rows["logp_sum_raw"].isna().any():
        return Control(name="power", points=None, why="the log-probabilities of the base's samples are not known")
    if not rows["own_law"].all():
        return Control(name="power", points=None, why="the base was not drawn at temperature 1, untruncated")
    problem_R = pd.Index(base.problem_ids).get_indexer(rows["problem_id"])
    logp_R, correct_R = rows["logp_sum_raw"].to_numpy(np.float64), rows["correct"].to_numpy(np.float64)
    n_problems = len(base.problem_ids)
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
    # the base itself is counted: its own distribution lacks what was never sampled, and that is mostly wrong
    points = FrontierPoints(
        sharpness_S=1.0 - 1.0 / np.array(EXPONENTS),
        x_SP=np.stack([base.pass_at_k(1), *share_SP]),
        y_SP=np.stack([base.pass_at_k(k_most), *(1.0 - (1.0 - share_SP) ** k_most)]),
        limit_P=limit_P,
    )
    return Control(name="power", points=points, k=k_most, rate_SP=share_SP)


def _share(weight_R: np.ndarray, correct_R: np.ndarray, problem_R: np.ndarray, n_problems: int) -> np.ndarray:
    """Return the share of each problem's weight on correct rows; 0 without any weight."""
    all_P = np.bincount(problem_R, weight_R, n_problems)
    right_P = np.bincount(problem_R, weight_R * correct_R, n_problems)
    return right_P / np.where(all_P > 0.0, all_P, 1.0)


# ---------------------------------------------------------------- answers: counted


def _by_answers(evidence: Evidence, base: Counts, k_most: int) -> Control:
    rows = _frame(evidence, "answer_counts")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    named = rows[rows["answer"] != "NA"] if len(rows) else rows
    if not len(named) or (rows["correct"].astype(bool) & (rows["answer"] == "NA")).any():
        return Control(name="answers", points=None, why="what the base's samples answer is not known")
    if (named.groupby("problem_id")["answer"].nunique() < 2).all():
        return Control(name="answers", points=None, why="no problem has two different answers")
    by_answer = named.groupby(["problem_id", "answer"], as_index=False).agg(n=("n", "sum"), correct=("correct", "max"))
    problem_R = pd.Index(base.problem_ids).get_indexer(by_answer["problem_id"])
    n_R, correct_R = by_answer["n"].to_numpy(np.int64), by_answer["correct"].to_numpy(np.float64)
    n_P = rows.groupby("problem_id")["n"].sum().reindex(list(base.problem_ids)).fillna(0).to_numpy(np.int64)
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
        x_SP=np.stack([base.pass_at_k(1), *(one for one, _ in pass_at)]),
        y_SP=np.stack([base.pass_at_k(k), *(one for _, one in pass_at)]),
        limit_P=_share((n_R == most_P[problem_R]).astype(np.float64), correct_R, problem_R, n_problems),
    )
    shares = [agreeing_shares(n_R, correct_R, problem_R, n_problems, draws=draws) for draws in told]
    return Control(name="answers", points=points, k=k, rate_SP=np.stack(shares))


def _power_of_two(k: int) -> int:
    return 1 << (k.bit_length() - 1)


def _frame(evidence: Evidence, view: str) -> pd.DataFrame:
    return evidence.frames.get(view, pd.DataFrame())
