"""How often ``oversharp diff`` finds a change of pass@k between two equal checkpoints, and how often it finds a loss.

``python -m benchmarks.calibration.differences`` (about 15 minutes on one core) samples two checkpoints with known
success rates and calls ``compare_runs``. *Before* is Holm's correction of the separate p values over all k, which
``diff`` used earlier; *now* is the distribution of the largest statistic. Both use the same paired t.

Rows without a change: equal success rates, or rates that are sampled again for 3 problems in 10 (churn), so that
problems change and no mean does. Every significant k is then a false alarm. Rows with a loss: a significant fall at
some k counts. *Coverage*: the share of series in which the intervals of all k contain the true changes of the
population.

Writes ``benchmarks/results/differences.json`` and ``.md``; ends with 1 if the false alarms of a row without a change
are not compatible with 5 %. ``--series`` prints the page and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from jaxtyping import Float
from scipy.special import expit
from scipy.stats import binom

from benchmarks.calibration.shipping import CHOICES, COURSES, problems
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.statistics.comparison import CONFIDENCE, compare_runs
from oversharp.diagnostics.statistics.confirmation import holm
from oversharp.diagnostics.statistics.keys import inference_ks

SEED, SERIES, POPULATION = 20_261_127, 400, 200_000
LEVEL = 1.0 - CONFIDENCE
CHURN = 0.3

Rates = Float[np.ndarray, " problem"]
#: Success rates of both checkpoints.
World = Callable[[int, np.random.Generator], tuple[Rates, Rates]]


def _equal(n_problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    success_P, _ = problems(n_problems, rng)
    return success_P, success_P


def _churn(n_problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    (before_P, _), (other_P, _) = problems(n_problems, rng), problems(n_problems, rng)
    return before_P, np.where(rng.random(n_problems) < CHURN, other_P, before_P)


def _end_of(course: str) -> World:
    change = CHOICES[course][0] if course in CHOICES else COURSES[course]

    def world(n_problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
        success_P, own_PU = problems(n_problems, rng)
        return success_P, change(success_P, own_PU, 1.0)

    return world


def _some_die(n_problems: int, rng: np.random.Generator) -> tuple[Rates, Rates]:
    success_P, own_PU = problems(n_problems, rng)
    return success_P, np.where(own_PU[:, 0] < 1 / 10, expit(-40.0), success_P)


NULLS: Mapping[str, World] = {"equal checkpoints": _equal, "churn without a change of the mean": _churn}
LOSSES: Mapping[str, World] = {
    "1 problem in 10 dies": _some_die,
    "the tail is halved, the others rise": _end_of("the tail is halved, the others rise"),
    "sharpened (GRPO)": _end_of("sharpened from the start (GRPO)"),
}
PROBLEMS, SAMPLES, LOSS_SAMPLES = (30, 100, 300), (16, 64, 256), 64


@dataclass(frozen=True, kw_only=True)
class Cell:
    """World, number of problems, and samples of each at both checkpoints."""

    world: str
    problems: int
    n: int

    @property
    def is_null(self) -> bool:
        """Whether nothing changes."""
        return self.world in NULLS


@dataclass(frozen=True, kw_only=True)
class Row:
    """Counts of series of a cell.

    ``before`` and ``now`` have a significant change (for losses: a fall); ``ks_before`` and ``ks_now`` are the numbers
    of significant k, ``ks`` of all. ``disagree`` counts k with p ≤ 5 % and an interval with values of both signs, or
    the reverse.
    """

    cell: Cell
    series: int
    before: int
    now: int
    ks_before: int
    ks_now: int
    ks: int
    covered: int
    disagree: int


def true_changes(cell: Cell) -> Float[np.ndarray, " k"]:
    """Return the change of pass@k in the population."""
    before_P, after_P = {**NULLS, **LOSSES}[cell.world](POPULATION, np.random.default_rng(SEED))
    if cell.is_null:
        return np.zeros(len(inference_ks(cell.n)))
    return np.array([((1 - before_P) ** k - (1 - after_P) ** k).mean() for k in inference_ks(cell.n)])


def simulate(cell: Cell, *, series: int, seed: Sequence[int]) -> Row:
    """Compare two checkpoints in each of ``series`` series."""
    rng, truth_K, ks = np.random.default_rng(seed), true_changes(cell), inference_ks(cell.n)
    world, task_P = {**NULLS, **LOSSES}[cell.world], ["planted"] * cell.problems
    before = now = ks_before = ks_now = covered = disagree = 0
    for _ in range(series):
        rate_P, late_rate_P = world(cell.problems, rng)
        rows = compare_runs(
            rng.binomial(cell.n, rate_P),
            rng.binomial(cell.n, late_rate_P),
            n_first=cell.n,
            n_second=cell.n,
            task_P=task_P,
            ks=ks,
        )
        counts_K = np.array([cell.is_null or row.difference < 0 for row in rows])
        before_K = (holm(np.array([row.p for row in rows])) <= LEVEL) & counts_K
        significant_K = np.array([row.p_adjusted <= LEVEL for row in rows])
        now_K = significant_K & counts_K
        before, now = before + bool(before_K.any()), now + bool(now_K.any())
        ks_before, ks_now = ks_before + int(before_K.sum()), ks_now + int(now_K.sum())
        low_K, high_K = (np.array([getattr(row, end) for row in rows]) for end in ("low", "high"))
        covered += bool(((low_K <= truth_K) & (truth_K <= high_K)).all())
        disagree += int((significant_K == ((low_K < 0) & (high_K > 0))).sum())
    return Row(
        cell=cell,
        series=series,
        before=before,
        now=now,
        ks_before=ks_before,
        ks_now=ks_now,
        ks=series * len(ks),
        covered=covered,
        disagree=disagree,
    )


def cells() -> Iterator[Cell]:
    """Yield the rows without a change, then the losses."""
    for world, n_problems, n in product(NULLS, PROBLEMS, SAMPLES):
        yield Cell(world=world, problems=n_problems, n=n)
    for world, n_problems in product(LOSSES, PROBLEMS):
        yield Cell(world=world, problems=n_problems, n=LOSS_SAMPLES)


def is_calibrated(row: Row) -> bool:
    """Return whether the false alarms are compatible with 5 % (one-sided binomial test at 0.1 %)."""
    return bool(binom.sf(row.now - 1, row.series, LEVEL) > 0.001)


def text(rows: Sequence[Row]) -> str:
    """Return the page."""
    lines = [
        "# Two checkpoints: how often is a change significant?",
        "",
        f"{rows[0].series} simulated pairs of checkpoints a row. *Before*: Holm's correction over all k. *Now*: the "
        "largest statistic",
        "over all k. *Coverage*: the intervals of all k contain the true changes. Written by",
        "`python -m benchmarks.calibration.differences`.",
        "",
        "## Without a change",
        "",
        "Share of pairs with a significant change at some k. All of them are false alarms. The standard error of 5 % "
        f"is {(LEVEL * (1 - LEVEL) / rows[0].series) ** 0.5:.1%}.",
        "",
        "| | problems | n | before | now | coverage |",
        "|---|---|---|---|---|---|",
        *(_line(row) for row in rows if row.cell.is_null),
        "",
        "## With a loss",
        "",
        "Share of pairs with a significant fall at some k, and of all k the share with one.",
        "",
        "| | problems | n | before | now | coverage | k, before | k, now |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"{_line(row)} {row.ks_before / row.ks:.1%} | {row.ks_now / row.ks:.1%} |"
            for row in rows
            if not row.cell.is_null
        ),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    shares = " | ".join(f"{count / row.series:.1%}" for count in (row.before, row.now, row.covered))
    return f"| {row.cell.world} | {row.cell.problems} | {row.cell.n} | {shares} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, help="series a row; print the result and write nothing")
    options = parser.parse_args(arguments)
    start = time.process_time()
    rows = [simulate(cell, series=options.series or SERIES, seed=[SEED, number]) for number, cell in enumerate(cells())]
    if options.series is None:
        result = {
            "what": "false alarms and power of `oversharp diff`, counts of series",
            "rows": [asdict(row) for row in rows],
            "cpu_s": round(time.process_time() - start),
            **circumstances(["numpy", "scipy"]),
        }
        write("differences", result)
        (RESULTS / "differences.md").write_text(text(rows), encoding="utf-8")
    else:
        print(text(rows))
    return 0 if all(is_calibrated(row) for row in rows if row.cell.is_null) else 1


if __name__ == "__main__":
    sys.exit(main())
