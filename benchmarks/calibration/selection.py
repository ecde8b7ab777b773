"""How often a verdict is wrong on problems that the base's own samples chose, and by the assumed rate of false accepts.

``python -m benchmarks.calibration.selection [--series N]`` writes ``benchmarks/results/selection.json`` and
``selection.md``. Every series has six checkpoints; the verdict pools the last two. *Before* is the same rule without
the test of the choice. Nothing is lost in the first table, so that every loss is a false alarm.

With ``--until-solved ENOUGH`` the samples of a problem are drawn in rounds until ENOUGH are correct, and the filters
see only these. Results go into ``selection_until_solved.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit, logit

from benchmarks.calibration.in_rounds import (
    add_until_solved,
    draw_in_rounds,
    in_rounds_lines,
    result_name,
    series_in_rounds,
    series_of,
    stopping_rule,
)
from benchmarks.calibration.series import interval, rule
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.audit.config import LEAST_IN_ROUNDS
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.selection import find_selection
from oversharp.diagnostics.verdict.counts import ASSUMED_GUESS_RATE, RoundCounts
from oversharp.diagnostics.verdict.headings import HEADINGS
from oversharp.diagnostics.verdict.seen import SeenCounts, seen_counts

SEED, N_STEPS, N_WINDOW, LARGEST_POOL = 11, 6, 2, 400_000
Rates = Float[np.ndarray, " problem"]
#: Distributions of success rates.
WORLDS: dict[str, Callable[[np.random.Generator, int], Rates]] = {
    "mixed": lambda rng, n: rng.beta(0.4, 0.8, n),
    "hard (AIME-like)": lambda rng, n: rng.beta(0.25, 1.5, n),
    "log-odds": lambda rng, n: expit(rng.normal(-0.5, 2.0, n)),
}
#: Change of the rates by training.
CHANGES: dict[str, Callable[[Rates, np.random.Generator], Rates]] = {
    "none": lambda rate_P, rng: rate_P,
    "rises": lambda rate_P, rng: expit(logit(rate_P.clip(1e-9, 1 - 1e-9)) + 0.6 + rng.normal(0, 0.3, len(rate_P))),
    "10 % of problems killed": lambda rate_P, rng: np.where(rng.random(len(rate_P)) < 0.1, 0.0, rate_P),
}
#: Filters: which problems are kept, given the base's samples (correct or not) and the hits of an 8-sample pilot.
FILTERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "honest": lambda right_PN, pilot_P: np.ones(len(right_PN), dtype=bool),
    "honest, mixed in 8 samples of a pilot": lambda right_PN, pilot_P: (pilot_P > 0) & (pilot_P < 8),
    "solved": lambda right_PN, pilot_P: right_PN.any(axis=1),
    "solved, not always": lambda right_PN, pilot_P: _is_mixed(right_PN),
    "pass rate .1 to .9": lambda right_PN, pilot_P: np.abs(right_PN.mean(axis=1) - 0.5) <= 0.4 + 1e-12,
    "mixed in the first 8 samples": lambda right_PN, pilot_P: _is_mixed(right_PN[:, :8]),
    "mixed in half of the samples": lambda right_PN, pilot_P: _is_mixed(right_PN[:, : right_PN.shape[1] // 2]),
}
SIZES = ((16, 60), (64, 60))
#: With a stopping rule: no n at which an audit has none by default.
STOPPED_SIZES = (*(size for size in SIZES if size[0] >= LEAST_IN_ROUNDS), (256, 60))


@dataclass(frozen=True, kw_only=True)
class Row:
    """How often series of a cell got each heading, before and after; ``false_loss`` counts coverage_lost."""

    world: str
    filter: str
    change: str
    n: int
    n_problems: int
    series: int
    lost_before: int
    explained_before: int
    lost: int
    no_verdict: int
    explained: int


def _is_mixed(right_PN: np.ndarray) -> np.ndarray:
    """Return whether some samples of each problem are correct and some are not."""
    return np.asarray(right_PN.any(axis=1) & ~right_PN.all(axis=1))


def draw_series(
    world: str, kept: str, change: str, n: int, n_problems: int, rng: np.random.Generator, enough: int | None = None
) -> tuple[SeenCounts, Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
    """Counts of a series, and the indices of the first correct and the first wrong base sample of each problem."""
    pool_P = WORLDS[world](rng, 30 * n_problems)
    right_PN = rng.random((len(pool_P), n)) < pool_P[:, None]
    if enough is not None:
        stopping = stopping_rule(n, enough, of=n, has_modes=False)
        correct_RP = right_PN.cumsum(axis=1)[:, np.array(stopping.rounds) - 1].T
        n_P = stopping.hits(stopping.stop(correct_RP))[0]
        right_PN = np.ma.array(right_PN, mask=np.arange(n) >= n_P[:, None])
    chosen = np.flatnonzero(FILTERS[kept](right_PN, rng.binomial(8, pool_P)))[:n_problems]
    right_PN, rate_P = right_PN[chosen], pool_P[chosen]
    first_correct_P = np.where(right_PN.any(axis=1), right_PN.argmax(axis=1), n)
    first_wrong_P = np.where((~right_PN).any(axis=1), (~right_PN).argmax(axis=1), n)
    late_P = CHANGES[change](rate_P, rng)
    if enough is not None:
        base = RoundCounts(rule=stopping, correct_RP=correct_RP[:, chosen])
        late = draw_in_rounds([stopping] * N_STEPS, np.stack([late_P] * N_STEPS)[:, :, None], None, rng).rounds
        return seen_counts(series_of([base, *late], selected_by="none")), first_correct_P, first_wrong_P
    return _seen(right_PN.sum(axis=1), late_P, n, rng), first_correct_P, first_wrong_P


def _seen(base_P: Int[np.ndarray, " problem"], late_P: Rates, n: int, rng: np.random.Generator) -> SeenCounts:
    """Return the counts of a series whose checkpoints have the success rates ``late_P``."""
    steps = [PairedCounts(base_P=base_P, late_P=rng.binomial(n, late_P), n_base=n, n_late=n) for _ in range(N_STEPS)]
    ks = inference_ks(n)
    window = steps[-N_WINDOW:]
    total = PairedCounts(
        base_P=base_P, late_P=np.sum([step.late_P for step in window], axis=0), n_base=n, n_late=N_WINDOW * n
    )
    return SeenCounts(total=total, window=window, steps=steps, ks=ks, step_ks=ks, guess_share=ASSUMED_GUESS_RATE)


def measure(
    world: str, kept: str, change: str, n: int, n_problems: int, series: int, seed: int, enough: int | None = None
) -> Row:
    """Judge ``series`` series of one cell, with and without the test of the choice."""
    before, after = Counter[str](), Counter[str]()
    for rng in np.random.default_rng([SEED, seed]).spawn(series):
        seen, first_correct_P, first_wrong_P = draw_series(world, kept, change, n, n_problems, rng, enough)
        before[rule(seen, rng=np.random.default_rng(0))[0]] += 1
        tested = replace(seen, selection=find_selection(seen.total, first_correct_P, first_wrong_P))
        after[rule(tested, rng=np.random.default_rng(0))[0]] += 1
    return Row(
        world=world,
        filter=kept,
        change=change,
        n=n,
        n_problems=n_problems,
        series=series,
        lost_before=_with_heading(before, "coverage_lost"),
        explained_before=before["guessing"],
        lost=_with_heading(after, "coverage_lost"),
        no_verdict=_with_heading(after, "no_verdict"),
        explained=after["guessing"],
    )


def _with_heading(labels: Counter[str], heading: str) -> int:
    return sum(n for label, n in labels.items() if HEADINGS[label] == heading)  # type: ignore[index]


@dataclass(frozen=True, kw_only=True)
class GuessRow:
    """How often a cell is called a loss, by the allowed rate of false accepts."""

    name: str
    series: int
    lost: dict[str, int]


def guess_rows(series: int, enough: int | None = None) -> Iterator[GuessRow]:
    """Measure real losses of rarely solved problems, and vanishing false accepts, by the allowed rate."""
    for name, accepted, quartered in (
        ("rarely solved problems (p < .1) quartered", 0.0, True),
        ("nothing lost; 0.11 % of the base's wrong answers accepted, none later", 0.0011, False),
        ("nothing lost; 0.5 % of the base's wrong answers accepted, none later", 0.005, False),
    ):
        lost = dict.fromkeys(("0.5 %", "0.11 %", "0 %"), 0)
        for rng in np.random.default_rng([SEED, len(name)]).spawn(series):
            rate_P = rng.beta(0.4, 0.8, 100)
            late_P = np.where((rate_P < 0.1) & quartered, rate_P / 4, rate_P)
            base_P = rate_P + accepted * (1 - rate_P)
            if enough is None:
                seen = _seen(rng.binomial(128, base_P), late_P, 128, rng)
            else:
                rate_SP = np.stack([base_P, *[late_P] * N_STEPS])
                seen = seen_counts(series_in_rounds([128] * len(rate_SP), enough, rate_SP, rng, selected_by="none"))
            for allowed, share in (("0.5 %", 0.005), ("0.11 %", 0.0011), ("0 %", 0.0)):
                label = rule(replace(seen, guess_share=share), rng=np.random.default_rng(0))[0]
                lost[allowed] += HEADINGS[label] == "coverage_lost"
        yield GuessRow(name=name, series=series, lost=lost)


def _share(count: int, series: int) -> str:
    low, high = interval(count, series)
    return f"{100 * count / series:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def page(rows: Sequence[Row], guesses: Sequence[GuessRow], enough: int | None = None) -> str:
    """The tables as Markdown."""
    name = result_name("selection", enough)
    heads = ("rates", "problems kept", "change", "n", "series", "lost, before", "lost", "no verdict")
    heads = (*heads, "false accepts, before", "false accepts")
    lines = [
        "# Problems that the base's own samples chose",
        "",
        f"Made by `python -m benchmarks.calibration.selection`; machine and versions are in `{name}.json`. Per cent",
        "of the series of a cell, with 95 % intervals (Clopper–Pearson). *Lost*: the heading is Coverage lost.",
        "*Before*: the same rule without the test of the choice. *False accepts*: not shown, because false accepts may",
        "explain a fall. Nothing is lost where the change is none or rises.",
        "",
        *in_rounds_lines(enough),
        f"| {' | '.join(heads)} |",
        f"|---|---|---|{'---:|' * (len(heads) - 3)}",
    ]
    lines += [
        f"| {row.world} | {row.filter} | {row.change} | {row.n} | {row.series} "
        f"| {_share(row.lost_before, row.series)} | {_share(row.lost, row.series)} "
        f"| {_share(row.no_verdict, row.series)} | {_share(row.explained_before, row.series)} "
        f"| {_share(row.explained, row.series)} |"
        for row in rows
    ]
    lines += [
        "",
        "## The rate of false accepts that is allowed for",
        "",
        "Per cent called Coverage lost, of 100 problems with n = 128, by the rate that the verdict allows for. 0.11 %",
        "is the bound measured for `math`, 0.5 % is assumed of graders that were not measured.",
        "",
        "| series | n | 0.5 % | 0.11 % | 0 % |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.name} | {row.series} | {' | '.join(_share(n, row.series) for n in row.lost.values())} |"
        for row in guesses
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all cells and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=300, help="series of each cell")
    add_until_solved(parser)
    given = parser.parse_args()
    series, enough = given.series, given.until_solved
    rows = []
    cells = [(world, kept, "none") for world in WORLDS for kept in FILTERS]
    cells += [(world, "honest", change) for world in WORLDS for change in CHANGES if change != "none"]
    cells += [("mixed", kept, "10 % of problems killed") for kept in ("solved, not always", "pass rate .1 to .9")]
    for number, (world, kept, change) in enumerate(cells):
        for n, n_problems in SIZES if enough is None else STOPPED_SIZES:
            rows.append(measure(world, kept, change, n, n_problems, series, 100 * number + n, enough))
            print(rows[-1], flush=True)
    guesses = list(guess_rows(series, enough))

    name = result_name("selection", enough)
    result = {"series": series, "seed": SEED, **circumstances(["numpy", "scipy"])}
    result |= {"rows": [vars(row) for row in rows], "guesses": [vars(row) for row in guesses]}
    write(name, result)
    (RESULTS / f"{name}.md").write_text(page(rows, guesses, enough))


if __name__ == "__main__":
    main()
