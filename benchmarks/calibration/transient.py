"""How often a loss at a few checkpoints is found, and how often single checkpoints raise a false alarm.

``python -m benchmarks.calibration.transient [--series N]`` writes ``benchmarks/results/transient.json`` and
``transient.md``. Every series has sixteen checkpoints; four of them, numbers 5 to 8, lost something. Two tests of
single checkpoints are compared: on these problems, and in the population that these problems were sampled from.

With ``--until-solved ENOUGH`` the samples of a problem are drawn in rounds until ENOUGH are correct. Results go into
``transient_until_solved.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from benchmarks.calibration.in_rounds import add_until_solved, in_rounds_lines, result_name, series_in_rounds
from benchmarks.calibration.selection import WORLDS
from benchmarks.calibration.series import interval
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.audit.config import LEAST_IN_ROUNDS
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from oversharp.diagnostics.verdict.seen import seen_counts
from oversharp.diagnostics.verdict.steps import rule_steps

SEED, N_STEPS, LOST = 23, 16, range(4, 8)
Rates = Float[np.ndarray, " problem"]


def _killed(share: float) -> Callable[[Rates, np.random.Generator], Rates]:
    """Return a change after which ``share`` of the problems, of those above .02, is never solved."""

    def change(rate_P: Rates, rng: np.random.Generator) -> Rates:
        reachable = np.flatnonzero(rate_P > 0.02)
        lost = rng.choice(reachable, min(len(reachable), round(share * len(rate_P))), replace=False)
        return np.where(np.isin(np.arange(len(rate_P)), lost), 0.0, rate_P)

    return change


def _exchanged(rate_P: Rates, rng: np.random.Generator) -> Rates:
    """Return the rates after 40 % of the problems exchanged theirs, so that no mean pass@k changed."""
    chosen = rng.choice(len(rate_P), round(0.4 * len(rate_P)), replace=False)
    late_P = rate_P.copy()
    late_P[chosen] = rate_P[rng.permutation(chosen)]
    return late_P


def _compensated(rate_P: Rates, rng: np.random.Generator) -> Rates:
    """Return the rates after 3 % of the problems died and the others rose until mean pass@k fell at no k up to 128."""
    killed_P = _killed(0.03)(rate_P, rng)
    ks = 2.0 ** np.arange(8)
    least_K = (1 - (1 - rate_P[:, None]) ** ks).mean(axis=0)
    for rise in np.linspace(0, 6, 241):
        late_P = np.where(killed_P > 0, expit(logit(np.clip(killed_P, 1e-9, 1 - 1e-9)) + rise), killed_P)
        if ((1 - (1 - late_P[:, None]) ** ks).mean(axis=0) >= least_K).all():
            return np.asarray(late_P)
    return rate_P


#: Changes without a fall of mean pass@k at any k; they last to the end. Then losses at four checkpoints.
NULLS: dict[str, Callable[[Rates, np.random.Generator], Rates]] = {
    "none": lambda rate_P, rng: rate_P,
    "40 % of problems exchanged their rates": _exchanged,
    "3 % killed, the others rose": _compensated,
}
LOSSES: dict[str, Callable[[Rates, np.random.Generator], Rates]] = {
    "3 % killed": _killed(0.03),
    "5 % killed": _killed(0.05),
    "8 % killed": _killed(0.08),
    "rates below .3 halved": lambda rate_P, rng: np.where(rate_P < 0.3, rate_P / 2, rate_P),
}
SIZES = ((30, 64), (100, 16), (100, 64), (100, 256), (300, 64))


@dataclass(frozen=True, kw_only=True)
class Row:
    """Series of a cell in which some checkpoint was lost, by both tests; ``named``: share of the lost ones named.

    ``wrong`` counts the series in which a checkpoint without a loss was named on these problems.
    """

    world: str
    change: str
    is_null: bool
    n_problems: int
    n: int
    series: int
    population: int
    here: int
    named: float
    wrong: int


def measure(world: str, change: str, n_problems: int, n: int, series: int, seed: int, enough: int | None = None) -> Row:
    """Test the checkpoints of ``series`` series of one cell."""
    is_null = change in NULLS
    changed = (NULLS | LOSSES)[change]
    population = here = named = wrong = 0
    for rng in np.random.default_rng([SEED, seed]).spawn(series):
        rate_P = WORLDS[world](rng, n_problems)
        late_P = changed(rate_P, rng)
        late = [late_P if is_null or t in LOST else rate_P for t in range(N_STEPS)]
        steps = _drawn(np.stack([rate_P, *late]), n, enough, rng)
        rulings = rule_steps(steps, ks=inference_ks(n), level=STEP_LEVEL, exact_level=KEY_LEVEL, margin=MARGIN, rng=rng)
        lost_here = [ruling.lost_here for ruling in rulings]
        # without the demand that these problems show it too
        population += any(ruling.p <= STEP_LEVEL for ruling in rulings)
        here += any(lost_here)
        named += sum(lost_here[t] for t in LOST)
        wrong += any(lost and (is_null or t not in LOST) for t, lost in enumerate(lost_here))
    return Row(
        world=world,
        change=change,
        is_null=is_null,
        n_problems=n_problems,
        n=n,
        series=series,
        population=population,
        here=here,
        named=named / (len(LOST) * series),
        wrong=wrong,
    )


def _drawn(
    rate_SP: Float[np.ndarray, "step problem"], n: int, enough: int | None, rng: np.random.Generator
) -> Sequence[PairedCounts]:
    """Return the counts of every checkpoint, paired with the base."""
    if enough is not None:
        return seen_counts(series_in_rounds([n] * len(rate_SP), enough, rate_SP, rng)).steps
    base_P, *late = (rng.binomial(n, rate_P) for rate_P in rate_SP)
    return [PairedCounts(base_P=base_P, late_P=late_P, n_base=n, n_late=n) for late_P in late]


def _share(count: int, series: int) -> str:
    low, high = interval(count, series)
    return f"{100 * count / series:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def page(rows: Sequence[Row], enough: int | None = None) -> str:
    """The tables as Markdown."""
    name = result_name("transient", enough)
    lines = [
        "# Losses at a few checkpoints",
        "",
        f"Made by `python -m benchmarks.calibration.transient`; machine and versions are in `{name}.json`. Each",
        f"series has {N_STEPS} checkpoints. Per cent of series, with 95 % intervals (Clopper–Pearson), at level",
        f"{STEP_LEVEL}.",
        "",
        *in_rounds_lines(enough),
        "## Called a loss though no mean pass@k fell",
        "",
        "| rates | change | P | n | series | population | these problems |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(
            f"| {row.world} | {row.change} | {row.n_problems} | {row.n} | {row.series} "
            f"| {_share(row.population, row.series)} | {_share(row.here, row.series)} |"
            for row in rows
            if row.is_null
        ),
        "",
        "## A loss at four of the checkpoints",
        "",
        "*Named*: share of the lost checkpoints that the test on these problems names. *Wrong*: series in which it",
        "names another checkpoint.",
        "",
        "| rates | loss | P | n | series | population | these problems | named | wrong |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {row.world} | {row.change} | {row.n_problems} | {row.n} | {row.series} "
            f"| {_share(row.population, row.series)} | {_share(row.here, row.series)} | {100 * row.named:.0f} "
            f"| {_share(row.wrong, row.series)} |"
            for row in rows
            if not row.is_null
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all cells and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=300, help="series of each null; losses a third")
    add_until_solved(parser)
    given = parser.parse_args()
    enough, rows = given.until_solved, []
    sizes = [size for size in SIZES if enough is None or size[1] >= LEAST_IN_ROUNDS]
    for seed, (world, change, (n_problems, n)) in enumerate(
        (world, change, size) for world in WORLDS for change in NULLS | LOSSES for size in sizes
    ):
        size = given.series if change in NULLS else max(1, given.series // 3)
        rows.append(measure(world, change, n_problems, n, size, seed, enough))
        print(rows[-1], flush=True)
    name = result_name("transient", enough)
    write(name, {"seed": SEED, **circumstances(["numpy", "scipy"]), "rows": [vars(row) for row in rows]})
    (RESULTS / f"{name}.md").write_text(page(rows, enough))


if __name__ == "__main__":
    main()
