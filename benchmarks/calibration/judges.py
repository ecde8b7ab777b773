"""Measure how often corrected pass@k covers the truth, and how often a judge that grows lenient is found.

``python -m benchmarks.calibration.judges`` (two minutes on one core) simulates audits of 200 problems with 16 samples
at a base and a late checkpoint, whose success rates rise on three quarters of the problems and fall on the others. A
judge errs in one of three ways. Labels are drawn as ``oversharp judge --draw-labels`` draws them. For comparison,
labels of single samples correct pass@8 by its derivative (a linearisation), which is biased. Writes
``benchmarks/results/judges.json`` and ``.md``. Exit code 1 if an interval covers less than 93 %, a lenient judge is
found in less than 90 % of the audits, or more than 5 % of the audits have a false alarm.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from scipy.special import betaincinv

from benchmarks.speed.results import RESULTS, circumstances, digits, write
from oversharp.diagnostics.statistics.labels.correction import LabelledOutcomes, corrected_pass_at_k, draw_sets
from oversharp.diagnostics.statistics.labels.leniency import JointShares, leniency_change
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

PROBLEMS, SAMPLES, K = 200, 16, 8
LABELS = (50, 100, 300)
REPETITIONS = 2000
LEAST_COVERAGE, LEAST_FOUND, MOST_ALARMS = 0.93, 0.9, 0.05
#: Kind of judge → how it errs.
JUDGES = {
    "accepts wrong responses": "15 % of the wrong ones, 45 % on a fifth of the problems",
    "refuses correct responses": "15 % of the correct ones, 45 % on a fifth of the problems",
    "likes a style": "half of the wrong ones in a style, which grows from a quarter to half of the samples",
}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Coverage of 95 % intervals of one quantity, with the judge's own error and that of the correction."""

    judge: str
    labels: int
    quantity: str
    method: str
    sets: float
    judge_error: float
    error: float
    width: float
    given: float
    covers: float


@dataclass(frozen=True, kw_only=True)
class Alarms:
    """Share of audits in which the judge counts as more lenient, and the same without the regression on accuracy."""

    change: str
    is_planted: bool
    problems: int
    samples: int
    found: float
    found_by_difference: float


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Gold and judge's grades of one checkpoint."""

    gold_PN: np.ndarray
    judge_PN: np.ndarray


def rates(u_P: np.ndarray, rises_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return success rates at the base and at the late checkpoint."""
    base_P = betaincinv(0.5, 1.0, u_P)
    return base_P, np.where(rises_P, np.sqrt(base_P), base_P / 5)


def truths() -> dict[str, float]:
    """Return the population values of each quantity."""
    u_P = (np.arange(400_000) + 0.5) / 400_000
    base_P, rise_P = rates(u_P, np.ones(len(u_P), dtype=bool))
    _, fall_P = rates(u_P, np.zeros(len(u_P), dtype=bool))
    values = {}
    for k in (1, K):
        base, rise, fall = (float((1 - (1 - rate_P) ** k).mean()) for rate_P in (base_P, rise_P, fall_P))
        late = 0.75 * rise + 0.25 * fall
        values |= {f"pass@{k}": late, f"change of pass@{k}": late - base}
    return values


def draw_audit(rng: np.random.Generator, judge: str) -> tuple[Drawn, Drawn]:
    hard_P1 = (rng.random(PROBLEMS) < 0.2)[:, None]
    rate_TP = rates(rng.random(PROBLEMS), rng.random(PROBLEMS) < 0.75)
    drawn = []
    for time, rate_P in enumerate(rate_TP):
        gold_PN = rng.random((PROBLEMS, SAMPLES)) < rate_P[:, None]
        much_P1 = np.where(hard_P1, 0.45, 0.15)
        if judge == "accepts wrong responses":
            error_PN = np.where(gold_PN, 0.02, much_P1)
        elif judge == "refuses correct responses":
            error_PN = np.where(gold_PN, much_P1, 0.02)
        else:
            styled_PN = rng.random(gold_PN.shape) < np.where(hard_P1, 0.9, (0.1, 0.4)[time])
            error_PN = np.where(gold_PN, np.where(styled_PN, 0.01, 0.08), np.where(styled_PN, 0.5, 0.03))
        drawn.append(Drawn(gold_PN=gold_PN, judge_PN=gold_PN ^ (rng.random(gold_PN.shape) < error_PN)))
    return drawn[0], drawn[1]


def outcomes(drawn: Drawn, order_P: np.ndarray, n_labels: int, k: int, rng: np.random.Generator) -> LabelledOutcomes:
    problem_S, sample_SK = draw_sets(drawn.judge_PN, order_P, n_labels=n_labels, k=k, rng=rng)
    table_C = pass_at_k_table(SAMPLES, [k])[:, 0]
    return LabelledOutcomes(
        judged_P=table_C[drawn.judge_PN.sum(axis=1)],
        problem_S=problem_S,
        gold_S=drawn.gold_PN[problem_S[:, None], sample_SK].any(axis=1),
        judge_S=drawn.judge_PN[problem_S[:, None], sample_SK].any(axis=1),
    )


def linear_correction(
    drawn: Drawn, order_P: np.ndarray, n_labels: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Correct pass@K by single labels and the derivative of pass@K; return estimate and standard error."""
    problem_S, sample_S1 = draw_sets(drawn.judge_PN, order_P, n_labels=n_labels, k=1, rng=rng)
    table_C = pass_at_k_table(SAMPLES, [K])[:, 0]
    count_S = drawn.judge_PN[problem_S].sum(axis=1)
    judge_S = drawn.judge_PN[problem_S, sample_S1[:, 0]]
    gold_S = drawn.gold_PN[problem_S, sample_S1[:, 0]]
    moved_S = SAMPLES * (table_C[np.clip(count_S - judge_S + gold_S, 0, SAMPLES)] - table_C[count_S])
    judged_P = table_C[drawn.judge_PN.sum(axis=1)]
    variance = moved_S.var(ddof=1) / len(moved_S) + judged_P.var(ddof=1) / PROBLEMS
    return float(judged_P.mean() + moved_S.mean()), float(np.sqrt(variance))


def coverage_rows(judge: str, n_labels: int, repetitions: int, seed: int) -> Iterator[Coverage]:
    rng, truth = np.random.default_rng(seed), truths()
    seen: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for _ in range(repetitions):
        base, late = draw_audit(rng, judge)
        order_P = rng.permutation(PROBLEMS)
        for k in (1, K):
            of_base, of_late = (outcomes(one, order_P, n_labels, k, rng) for one in (base, late))
            judged = {
                f"pass@{k}": (corrected_pass_at_k(of_late), of_late.judged_P.mean()),
                f"change of pass@{k}": (
                    corrected_pass_at_k(of_late, of_base),
                    of_late.judged_P.mean() - of_base.judged_P.mean(),
                ),
            }
            for quantity, (interval, by_judge) in judged.items():
                low, high = (np.nan, np.nan) if interval.low is None else (interval.low, interval.high)
                seen.setdefault((quantity, "sets"), []).append(
                    (len(of_late.gold_S), by_judge, interval.mean, low, high)
                )
        value, error = linear_correction(late, order_P, n_labels, rng)
        by_judge = float(pass_at_k_table(SAMPLES, [K])[late.judge_PN.sum(axis=1), 0].mean())
        seen.setdefault((f"pass@{K}", "single labels, linearised"), []).append(
            (n_labels, by_judge, value, value - 1.97 * error, value + 1.97 * error)
        )
    for (quantity, method), values in seen.items():
        sets, by_judge_R, mean_R, low_R, high_R = np.array(values).T
        given_R = np.isfinite(low_R)
        inside_R = (low_R <= truth[quantity]) & (truth[quantity] <= high_R)
        yield Coverage(
            judge=judge,
            labels=n_labels,
            quantity=quantity,
            method=method,
            sets=digits(float(sets.mean())),
            judge_error=digits(float(by_judge_R.mean()) - truth[quantity]),
            error=digits(float(mean_R.mean()) - truth[quantity]),
            width=digits(float((high_R - low_R)[given_R].mean())),
            given=float(given_R.mean()),
            covers=float(inside_R[given_R].mean()),
        )


#: Change between base and late checkpoint → whether it is a more lenient judge.
CHANGES = {
    "none": False,
    "error rates differ between problems by difficulty": False,
    "the style grows, the judge ignores it": False,
    "none; the second grader refuses 15 % of correct responses": False,
    "the judge begins to accept 40 % of wrong responses in the style": True,
    "the judge accepts 30 % of wrong responses in the style, which grows": True,
}


def draw_joint(rng: np.random.Generator, change: str, problems: int, samples: int) -> tuple[JointShares, JointShares]:
    u_P = rng.random(problems)
    rate_TP = rates(u_P, rng.random(problems) < 0.75)
    styled_P = rng.beta(1, 3, problems)
    hard_P = u_P < 0.3 if "difficulty" in change else rng.random(problems) < 0.2
    refused = 0.15 if "refuses 15 %" in change else 0.03
    shares = []
    for is_late, rate_P in zip((False, True), rate_TP, strict=True):
        gold_PN = rng.random((problems, samples)) < rate_P[:, None]
        grown = 0.45 if is_late and "grows" in change else 0.0
        style_PN = rng.random(gold_PN.shape) < np.minimum(styled_P + grown, 1.0)[:, None]
        accepts_PN = np.broadcast_to(np.where(hard_P, 0.15, 0.05)[:, None], gold_PN.shape)
        if "accepts 30 %" in change:
            accepts_PN = np.where(style_PN, 0.3, accepts_PN)
        if is_late and "begins" in change:
            accepts_PN = np.where(style_PN, 0.4, accepts_PN)
        judge_PN = rng.random(gold_PN.shape) < np.where(gold_PN, 0.96, accepts_PN)
        other_PN = rng.random(gold_PN.shape) < np.where(gold_PN, 1.0 - refused, 0.01)
        shares.append(
            JointShares(n=samples, extra_P=(judge_PN & ~other_PN).mean(axis=1), other_P=other_PN.mean(axis=1))
        )
    return shares[0], shares[1]


def alarm_row(change: str, problems: int, samples: int, repetitions: int, seed: int) -> Alarms:
    rng, found, by_difference = np.random.default_rng(seed), 0, 0
    for _ in range(repetitions):
        base, late = draw_joint(rng, change, problems, samples)
        tested = leniency_change(base, late)
        assert not isinstance(tested, str)
        found += tested.is_found
        moved_P = late.extra_P - base.extra_P
        by_difference += moved_P.mean() > 1.9 * moved_P.std(ddof=1) / np.sqrt(problems)
    return Alarms(
        change=change,
        is_planted=CHANGES[change],
        problems=problems,
        samples=samples,
        found=found / repetitions,
        found_by_difference=by_difference / repetitions,
    )


def failures(rows: list[Coverage], alarms: list[Alarms]) -> list[str]:
    """Return the cells that miss a bound."""
    too_low = [row for row in rows if row.method == "sets" and row.covers < LEAST_COVERAGE]
    wrong = [row for row in alarms if (row.found < LEAST_FOUND if row.is_planted else row.found > MOST_ALARMS)]
    return [str(row) for row in (*too_low, *wrong)]


def text(rows: list[Coverage], alarms: list[Alarms]) -> str:
    lines = [
        "# Judges: corrected pass@k, and judges that grow lenient",
        "",
        f"{REPETITIONS:,} simulated audits a row: {PROBLEMS} problems, {SAMPLES} samples, base and late checkpoint.",
        "Written by `python -m benchmarks.calibration.judges`.",
        "",
        *(f"- *{judge}*: {how}." for judge, how in JUDGES.items()),
        "",
        "Coverage of the 95 % intervals. The errors are means over the audits, in probability.",
        "",
        "| judge | labels per checkpoint | quantity | method | sets | judge's error | error | width | covers |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row.judge} | {row.labels} | {row.quantity} | {row.method} | {row.sets:g} | {row.judge_error:+.3f} | "
            f"{row.error:+.3f} | {row.width:.3f} | {row.covers:.3f} |"
            for row in rows
        ),
        "",
        "Share of audits in which the test finds that the judge grew more lenient. *By the difference*: a test of the",
        "extra accepts alone, without the regression on accuracy.",
        "",
        "| change | problems | samples | found | by the difference |",
        "|---|---|---|---|---|",
        *(
            f"| {row.change} | {row.problems} | {row.samples} | {row.found:.3f} | {row.found_by_difference:.3f} |"
            for row in alarms
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    rows = [
        row
        for seed, (judge, n_labels) in enumerate(product(JUDGES, LABELS))
        for row in coverage_rows(judge, n_labels, REPETITIONS, seed)
    ]
    sizes = ((60, 16), (200, 8), (200, 32))
    alarms = [
        alarm_row(change, *size, REPETITIONS, seed) for seed, (change, size) in enumerate(product(CHANGES, sizes))
    ]
    failed = failures(rows, alarms)
    write(
        "judges",
        {
            "benchmark": "judges",
            "what": "coverage of corrected pass@k, and share of audits in which a lenient judge is found",
            "repetitions": REPETITIONS,
            "failed": failed,
            "coverage": [asdict(row) for row in rows],
            "alarms": [asdict(row) for row in alarms],
            **circumstances(["numpy", "scipy"]),
        },
    )
    (RESULTS / "judges.md").write_text(text(rows, alarms), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
