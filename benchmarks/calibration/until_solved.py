"""Samples drawn until solved, compared with equally many samples of every problem.

``python -m benchmarks.calibration.until_solved [--series N]`` writes ``benchmarks/results/until_solved.json`` and
``until_solved.md``: number of samples, error and coverage of the change of pass@k, false alarms and power of the tests
of a window of three checkpoints. Worlds and changes are those of ``transient.py``. Half of the problems of one more
world are impossible.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.calibration.selection import WORLDS
from benchmarks.calibration.series import interval, reach_here
from benchmarks.calibration.transient import LOSSES, NULLS, Rates
from benchmarks.speed.results import circumstances, write
from oversharp.diagnostics.statistics.keys import (
    PairedCounts,
    exact_key,
    inference_ks,
    population_p,
)
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.rule import KEY_LEVEL

PAGE = Path(__file__).parents[1] / "results" / "until_solved.md"
SEED, N_PROBLEMS, N_STEPS, CAP, K = 31, 100, 3, 256, 128
DESIGNS: dict[str, StoppingRule] = {
    "256 of each": StoppingRule(rounds=(256,), enough=1),
    "64 of each": StoppingRule(rounds=(64,), enough=1),
    "16, 32, … 256 until 4": StoppingRule(rounds=(16, 32, 64, 128, 256), enough=4),
    "8, 16, … 256 until 2": StoppingRule(rounds=(8, 16, 32, 64, 128, 256), enough=2),
}
ALL_WORLDS: dict[str, Callable[[np.random.Generator, int], Rates]] = {
    **WORLDS,
    "half impossible": lambda rng, n: np.where(np.arange(n) % 2 == 0, 0.0, rng.beta(1.0, 2.0, n)),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One design in one world with one change. Errors are in points, of the change at the largest tested k up to ``K``.

    Attributes:
        samples: Mean number of samples per problem and checkpoint, of the base and of the late ones.
        covered: Series whose 95 % interval for these problems contains the true change.
        exact: Series in which the test of these problems is significant.
        both: Series in which the test of the population is significant too.
    """

    world: str
    change: str
    is_null: bool
    design: str
    series: int
    samples: float
    k: int
    rmse: float
    bias: float
    rmse_of_pass_at_1: float
    covered: int
    exact: int
    both: int


def measure(world: str, change: str, design: str, series: int, seed: int) -> Row:
    """Draw, estimate and test ``series`` series of one cell."""
    rule, changed = DESIGNS[design], (NULLS | LOSSES)[change]
    ks = inference_ks(rule.cap)
    n_E = np.array([n for n, _ in rule.ends])
    variance_E = np.diagonal(rule.covariance_table([ks[-1]]), axis1=1, axis2=2)[:, 0]
    errors, errors_1, samples, covered, exact, both = [], [], [], 0, 0, 0
    for rng in np.random.default_rng([SEED, seed]).spawn(series):
        rate_P = ALL_WORLDS[world](rng, N_PROBLEMS)
        late_rate_P = changed(rate_P, rng)
        base_P = rule.draw(rate_P, rng=rng, draws=1)[0]
        late_TP = rule.draw(late_rate_P, rng=rng, draws=N_STEPS)
        table_EK = rule.pass_at_k_table(ks)
        change_PK = table_EK[late_TP].mean(axis=0) - table_EK[base_P]
        true_K = ((1 - rate_P[:, None]) ** ks - (1 - late_rate_P[:, None]) ** ks).mean(axis=0)
        error_K = change_PK.mean(axis=0) - true_K
        variance = variance_E[base_P].sum() + variance_E[late_TP].sum() / N_STEPS**2
        p_here = _p_here(rule, base_P, late_TP, ks, rng)
        is_here = p_here <= KEY_LEVEL
        errors.append(float(error_K[-1]))
        errors_1.append(float(error_K[0]))
        samples.append(float((n_E[base_P].mean() + n_E[late_TP].sum(axis=0).mean()) / (1 + N_STEPS)))
        covered += bool(abs(error_K[-1]) <= reach_here(variance, N_PROBLEMS))
        exact += is_here
        both += is_here and population_p(change_PK, rng=rng) <= KEY_LEVEL
    return Row(
        world=world,
        change=change,
        is_null=change in NULLS,
        design=design,
        series=series,
        samples=float(np.mean(samples)),
        k=ks[-1],
        rmse=100 * float(np.sqrt(np.mean(np.square(errors)))),
        bias=100 * float(np.mean(errors)),
        rmse_of_pass_at_1=100 * float(np.sqrt(np.mean(np.square(errors_1)))),
        covered=covered,
        exact=exact,
        both=both,
    )


def _p_here(
    rule: StoppingRule, base_P: np.ndarray, late_TP: np.ndarray, ks: Sequence[int], rng: np.random.Generator
) -> float:
    """Return the p value for these problems: of pooled counts, or by the stopping rule."""
    if len(rule.rounds) > 1:
        return exact_key(PairedCounts(base_P=base_P, late_P=late_TP, n_base=rule, n_late=rule), ks=ks, rng=rng)
    pooled = PairedCounts(base_P=base_P, late_P=late_TP.sum(axis=0), n_base=rule.cap, n_late=rule.cap * len(late_TP))
    return exact_key(pooled, ks=ks, rng=rng)


def page(rows: Sequence[Row]) -> str:
    """The tables as Markdown."""
    lines = [
        "# Samples drawn until solved",
        "",
        "Made by `python -m benchmarks.calibration.until_solved`; machine and versions are in `until_solved.json`. A",
        f"base and {N_STEPS} late checkpoints with equal rates, {N_PROBLEMS} problems. The design *16, 32, … 256 until",
        "4* draws up to 16, 32, … samples of a problem and stops after the round that leaves it with 4 correct ones.",
        f"Errors are of the change of pass@{K} of these problems (pass@32 with 64 samples), in points. *Covered*: 95 %",
        "intervals that contain the true change. *Here*, *both*: per cent of series with a significant fall at level",
        f"{KEY_LEVEL}, by the test of these problems, and by that of the population too (95 % interval,",
        "Clopper–Pearson).",
    ]
    head = [
        "",
        "| rates | change | design | samples | RMSE | bias | RMSE, pass@1 | covered, % | here, % | both, % |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for title, is_null in (("Without a fall of mean pass@k", True), ("With a loss", False)):
        lines += ["", f"## {title}", *head, *(_cells(row) for row in rows if row.is_null == is_null)]
    lines += ["", "## All worlds", "", "| design | samples | covered, % | false alarms, here, % | power, both, % |"]
    lines += ["|---|---:|---:|---:|---:|"]
    for design in DESIGNS:
        own = [row for row in rows if row.design == design]
        n_null, n_loss = (sum(row.series for row in own if row.is_null == is_null) for is_null in (True, False))
        lines.append(
            f"| {design} | {np.mean([row.samples for row in own]):.0f} "
            f"| {100 * sum(row.covered for row in own) / (n_null + n_loss):.1f} "
            f"| {_share(sum(row.exact for row in own if row.is_null), n_null)} "
            f"| {_share(sum(row.both for row in own if not row.is_null), n_loss)} |"
        )
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> str:
    return (
        f"| {row.world} | {row.change} | {row.design} | {row.samples:.0f} | {row.rmse:.2f} | {row.bias:+.2f} "
        f"| {row.rmse_of_pass_at_1:.2f} | {100 * row.covered / row.series:.0f} | {_share(row.exact, row.series)} "
        f"| {_share(row.both, row.series)} |"
    )


def _share(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{100 * count / of:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def main() -> None:
    """Run all cells and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=300, help="series of each null; losses a third")
    series = parser.parse_args().series
    cells = [(world, change) for world in ALL_WORLDS for change in NULLS | LOSSES]
    rows = []
    for seed, (world, change) in enumerate(cells):
        for design in DESIGNS:
            size = series if change in NULLS else max(1, series // 3)
            rows.append(measure(world, change, design, size, seed))
            print(rows[-1], flush=True)
    write("until_solved", {"seed": SEED, **circumstances(["numpy", "scipy"]), "rows": [asdict(row) for row in rows]})
    PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
