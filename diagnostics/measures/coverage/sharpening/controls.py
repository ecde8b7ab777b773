"""Sharpen the base by three controls, and compare every checkpoint with each of them.

The controls are samples at lower temperatures (temperature), samples reweighted to a power of their probability
(power), and answers on which several draws agree (answers). Source: Quenouille 1956 (the jackknife).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence, cached_per_evidence
from oversharp.diagnostics.measures.counts import ControlSamples, Counts, load_sampled_counts
from oversharp.diagnostics.measures.declare import compare_with_base
from oversharp.diagnostics.statistics.frontier import AgainstFrontier, FrontierPoints, against_frontier
from oversharp.diagnostics.statistics.keys import inference_ks

SEED = 0
#: Exponents α of the power distribution p^α.
EXPONENTS = (1.0, 1.5, 2.0, 3.0, 4.0, 8.0)
#: Number of draws that must agree, and the samples per problem that this requires. With that number, the error of
#: pass@1 and of pass@k at k = n/16 is below half a percentage point, for four kinds of distributions
#: (benchmarks/results/agreeing.md).
AGREEING = {1: 1, 2: 32, 3: 64, 4: 128, 8: 256}
#: Share of the base's probability that its distinct samples must cover. Otherwise their power distribution is unknown.
LEAST_MASS = 0.9
#: Largest k, as a share of the base's samples. pass@k of an estimated share is biased down at large k. The jackknife
#: removes most of the bias only if k is small compared with the number of samples.
ATTEMPTS_PER_SAMPLE = 1 / 16
NOT_SAMPLED_LOWER = "the base was not sampled at a lower temperature; run the audit with --controls"


@dataclass(frozen=True, kw_only=True)
class Control:
    """The base sharpened by one method: samples at lower temperatures, power, or answers.

    Attributes:
        points: pass@1 and pass@k of the base at increasing sharpness; None if unknown.
        k: the k of pass@k in ``points``.
        rate_SP: success rate of each problem at each point after the base, from 0 to 1. None if the points were
            sampled.
        why: the reason why ``points`` is None.
    """

    name: str
    points: FrontierPoints | None
    k: int = 0
    rate_SP: np.ndarray | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ControlComparison:
    """Comparison of all complete checkpoints with one control.

    ``why`` has the reasons for the other checkpoints.
    """

    control: Control
    against: Mapping[str, AgainstFrontier]
    why: Mapping[str, str]


@cached_per_evidence
def compare_controls(evidence: Evidence) -> tuple[ControlComparison, ...]:
    """Compare all checkpoints with each control."""
    return tuple(_compare(evidence, control) for control in load_controls(evidence))


def _compare(evidence: Evidence, control: Control) -> ControlComparison:
    counts, reasons = load_sampled_counts(evidence)
    why = {i: why_not for i, why_not in compare_with_base(evidence, reasons) if why_not}
    complete = [i for i, why_not in compare_with_base(evidence, reasons) if not why_not]
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


@cached_per_evidence
def load_controls(evidence: Evidence) -> tuple[Control, ...]:
    """Return the controls temperature, power and answers, including those that are unknown."""
    counts, why = load_sampled_counts(evidence)
    builders: Mapping[str, Callable[[Evidence, Counts, int], Control]] = {
        "temperature": _control_by_temperature,
        "power": _control_by_power,
        "answers": _control_by_answers,
    }
    complete = [i for i, why_not in compare_with_base(evidence, why) if not why_not]
    if not complete:
        return tuple(Control(name=name, points=None) for name in builders)
    k_most = inference_ks(min(counts[i].fewest for i in (evidence.base_id, *complete)))[-1]
    controls = [build(evidence, counts[evidence.base_id], k_most) for build in builders.values()]
    return tuple(
        control if control.points is None or control.k > 1 else _too_small(evidence, control.name)
        for control in controls
    )


def _too_small(evidence: Evidence, name: str) -> Control:
    """Return an unknown control, for k = 1: pass@k and pass@1 would be the same."""
    of = " in the first round" if evidence.is_stopped and name == "answers" else ""
    return Control(name=name, points=None, why=f"too few samples{of} for a pass@k beyond pass@1")


# ---------------------------------------------------------------- control temperature: sampled


def _control_by_temperature(evidence: Evidence, base: Counts, k_most: int) -> Control:
    rows = _frame(evidence, "control_counts")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    tables = {
        float(temperature): own.set_index("problem_id").reindex(list(base.problem_ids))
        for temperature, own in (rows.groupby("temperature") if len(rows) else ())
    }
    complete = {t: table for t, table in tables.items() if (table["n"] == table["n_planned"]).all()}
    if not complete:
        why = NOT_SAMPLED_LOWER if not tables else "the base's samples at lower temperatures are incomplete"
        return Control(name="temperature", points=None, why=why)
    temperatures = sorted(complete, reverse=True)
    own_temperature = float(rows["own_temperature"].iloc[0])
    drawn = [ControlSamples.from_rows(evidence, complete[t]) for t in temperatures]
    k = _power_of_two(min(k_most, *(control.n_most for control in drawn)))
    points = FrontierPoints(
        sharpness_S=1.0 - np.array([own_temperature, *temperatures]) / own_temperature,
        x_SP=np.stack([base.pass_at_k(1), *(control.pass_at_k(1) for control in drawn)]),
        y_SP=np.stack([base.pass_at_k(k), *(control.pass_at_k(k) for control in drawn)]),
        limit_P=_greedy_grades(evidence, base),
    )
    return Control(name="temperature", points=points, k=k)


def _greedy_grades(evidence: Evidence, base: Counts) -> np.ndarray | None:
    """Return the grades of the base's greedy responses, None if one is missing."""
    rows = _frame(evidence, "greedy_grades")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    if not len(rows):
        return None
    right = rows.drop_duplicates("problem_id").set_index("problem_id")["correct"].reindex(list(base.problem_ids))
    return None if right.isna().any() else right.astype("float64").to_numpy()


# ---------------------------------------------------------------- control power: reweighted


def _control_by_power(evidence: Evidence, base: Counts, k_most: int) -> Control:
    rows = _frame(evidence, "base_responses")
    if not len(rows) or rows["logp_sum_raw"].isna().any():
        return Control(name="power", points=None, why="the log-probabilities of the base's samples are unknown")
    if not rows["own_law"].all():
        return Control(name="power", points=None, why="the base was not sampled at temperature 1 without truncation")
    problem_R = pd.Index(base.problem_ids).get_indexer(rows["problem_id"])
    logp_R, correct_R = rows["logp_sum_raw"].to_numpy(np.float64), rows["correct"].to_numpy(np.float64)
    n_problems = len(base.problem_ids)
    mass = float(np.bincount(problem_R, np.exp(logp_R), n_problems).mean())
    if mass < LEAST_MASS:
        why = (
            f"the base's distinct samples cover {100 * mass:.0f} % of its probability; "
            f"{100 * LEAST_MASS:.0f} % are needed"
        )
        return Control(name="power", points=None, why=why)
    most_P = np.full(n_problems, -np.inf)
    np.maximum.at(most_P, problem_R, logp_R)
    relative_R = logp_R - most_P[problem_R]
    share_SP = np.stack(
        [_share(np.exp(exponent * relative_R), correct_R, problem_R, n_problems) for exponent in EXPONENTS[1:]]
    )
    limit_P = _share((relative_R == 0.0).astype(np.float64), correct_R, problem_R, n_problems)
    # the base's own point is counted: reweighting would ignore responses that were never sampled, most of them wrong
    points = FrontierPoints(
        sharpness_S=1.0 - 1.0 / np.array(EXPONENTS),
        x_SP=np.stack([base.pass_at_k(1), *share_SP]),
        y_SP=np.stack([base.pass_at_k(k_most), *(1.0 - (1.0 - share_SP) ** k_most)]),
        limit_P=limit_P,
    )
    return Control(name="power", points=points, k=k_most, rate_SP=share_SP)


def _share(weight_R: np.ndarray, correct_R: np.ndarray, problem_R: np.ndarray, n_problems: int) -> np.ndarray:
    """Return the share of each problem's weight on correct rows, 0 if the problem has no weight."""
    all_P = np.bincount(problem_R, weight_R, n_problems)
    right_P = np.bincount(problem_R, weight_R * correct_R, n_problems)
    return right_P / np.where(all_P > 0.0, all_P, 1.0)


# ---------------------------------------------------------------- control answers: counted


def _control_by_answers(evidence: Evidence, base: Counts, k_most: int) -> Control:
    rows = _frame(evidence, "answer_counts")
    rows = rows[rows["checkpoint_id"] == evidence.base_id] if len(rows) else rows
    named = rows[rows["answer"] != "NA"] if len(rows) else rows
    if not len(named) or (rows["correct"].astype(bool) & (rows["answer"] == "NA")).any():
        return Control(name="answers", points=None, why="the answers of the base's samples are unknown")
    if (named.groupby("problem_id")["answer"].nunique() < 2).all():
        return Control(name="answers", points=None, why="no problem has two different answers")
    by_answer = named.groupby(["problem_id", "answer"], as_index=False).agg(n=("n", "sum"), correct=("correct", "max"))
    problem_R = pd.Index(base.problem_ids).get_indexer(by_answer["problem_id"])
    n_R, correct_R = by_answer["n"].to_numpy(np.int64), by_answer["correct"].to_numpy(np.float64)
    n_P = rows.groupby("problem_id")["n"].sum().reindex(list(base.problem_ids)).fillna(0).to_numpy(np.int64)
    n_problems, least = len(n_P), int(n_P[n_P > 0].min())
    k = _power_of_two(min(k_most, max(1, int(least * ATTEMPTS_PER_SAMPLE))))
    agreeing = [draws for draws, fewest in AGREEING.items() if draws > 1 and fewest <= least]
    if not agreeing:
        return _too_small(evidence, "answers")
    pass_at = [agreeing_pass_at_k(n_R, correct_R, problem_R, n_P, draws=draws, k=k) for draws in agreeing]
    most_P = np.zeros(n_problems, dtype=np.int64)
    np.maximum.at(most_P, problem_R, n_R)
    points = FrontierPoints(
        sharpness_S=1.0 - 1.0 / np.array([1, *agreeing], dtype=np.float64),
        x_SP=np.stack([base.pass_at_k(1), *(pass_1_P for pass_1_P, _ in pass_at)]),
        y_SP=np.stack([base.pass_at_k(k), *(pass_k_P for _, pass_k_P in pass_at)]),
        limit_P=_share((n_R == most_P[problem_R]).astype(np.float64), correct_R, problem_R, n_problems),
    )
    shares = [agreeing_shares(n_R, correct_R, problem_R, n_problems, draws=draws) for draws in agreeing]
    return Control(name="answers", points=points, k=k, rate_SP=np.stack(shares))


def agreeing_pass_at_k(
    count_A: Int[np.ndarray, " answer"],
    is_correct_A: Float[np.ndarray, " answer"],
    problem_A: Int[np.ndarray, " answer"],
    n_P: Int[np.ndarray, " problem"],
    *,
    draws: int,
    k: int,
) -> tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]:
    """Return pass@1 and pass@k of the answer on which ``draws`` samples agree (jackknifed).

    m draws agree on answer a with a probability proportional to p_a^m. So the answer is correct with probability q =
    Σ_correct p_a^m / Σ p_a^m. For many distributions, the plug-in estimate of 1 − (1 − q)^k is biased by 1 to 3
    percentage points at k = n/16. The jackknife removes the bias of order 1/n. Samples with the same answer are
    exchangeable, so it needs one evaluation per distinct answer.

    ``count_A`` is the number of samples with each distinct answer. ``n_P`` is the number of all samples, including
    those without an answer, which never agree. Unit: probability. The estimate of a single problem may be below 0 or
    above 1. A problem has 0 if no answer occurs ``draws`` times. Measured errors by n, k and draws:
    benchmarks/results/agreeing.md.
    Source: Quenouille 1956 (the jackknife); unbiased p^m by falling factorials.

    >>> pass_1_P, pass_2_P = agreeing_pass_at_k(  # plug-in estimates: 380 / 512 = .742 and 1 - (132 / 512)² = .934
    ...     np.array([20, 12]), np.array([1.0, 0.0]), np.array([0, 0]), np.array([64]), draws=2, k=2)
    >>> pass_1_P.round(3).tolist(), pass_2_P.round(3).tolist()
    ([0.755], [0.962])
    """
    weight_A = _choices(count_A, draws)
    lost_A = weight_A - _choices(count_A - 1, draws)
    n_problems = len(n_P)
    all_P = np.bincount(problem_A, weight_A, n_problems)
    right_P = np.bincount(problem_A, weight_A * is_correct_A, n_problems)
    share_P = _ratio(right_P, all_P)
    share_without_A = _ratio(right_P[problem_A] - lost_A * is_correct_A, all_P[problem_A] - lost_A)
    silent_P = n_P - np.bincount(problem_A, count_A, n_problems)

    def jackknife(estimate: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        whole_P = estimate(share_P)
        without_P = (
            np.bincount(problem_A, count_A * estimate(share_without_A), n_problems) + silent_P * whole_P
        ) / np.maximum(n_P, 1)
        return np.asarray(n_P * whole_P - (n_P - 1) * without_P)

    return jackknife(lambda share: share), jackknife(lambda share: 1.0 - (1.0 - share) ** k)


def agreeing_shares(
    count_A: Int[np.ndarray, " answer"],
    is_correct_A: Float[np.ndarray, " answer"],
    problem_A: Int[np.ndarray, " answer"],
    n_problems: int,
    *,
    draws: int,
) -> Float[np.ndarray, " problem"]:
    """Return the share of correct choices among all choices of ``draws`` samples that agree.

    >>> agreeing_shares(np.array([3, 2, 1]), np.array([1.0, 0.0, 1.0]), np.array([0, 0, 1]), 2, draws=2).tolist()
    [0.75, 0.0]
    """
    return _share(_choices(count_A, draws), is_correct_A, problem_A, n_problems)


def _choices(count_A: Int[np.ndarray, " answer"], draws: int) -> Float[np.ndarray, " answer"]:
    """Return the number of ordered choices of ``draws`` samples: c (c − 1) … (c − draws + 1)."""
    return np.asarray(np.prod([np.maximum(count_A - taken, 0) for taken in range(draws)], axis=0, dtype=np.float64))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(part, 0.0) / np.where(whole > 0.0, whole, 1.0))


# ---------------------------------------------------------------- helpers


def _power_of_two(k: int) -> int:
    return 1 << (k.bit_length() - 1)


def _frame(evidence: Evidence, view: str) -> pd.DataFrame:
    return evidence.frames.get(view, pd.DataFrame())
