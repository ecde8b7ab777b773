"""Whether intervals for the change of pass@k beyond the cap contain it, and how wide they are.

``python -m benchmarks.sampling.beyond [--audits N]`` (about six minutes on one core) writes
``benchmarks/results/beyond.json`` and ``beyond.md``. It simulates audits of 100 problems with the success rates of
``rates.py``, and compares the interval of ``statistics.forecast.beyond`` at twice the cap with the exact change.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

from benchmarks.sampling.errors import N_PROBLEMS, change_here
from benchmarks.sampling.rates import HELD_OUT, PAIRS, UNCHANGED, Pair
from benchmarks.sampling.until_solved import as_text
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.statistics.forecast.beyond import WIDEST, interval_beyond
from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule, draw_codes

SEED, NAME = 53, "beyond"
#: Fewest points of a fall that an interval should find.
FALL = 0.02
#: How far the rates of a window's three checkpoints have moved from the base to the last one, in log-odds.
DRIFT = (0.6, 0.8, 1.0)
_NOT_ZERO = 1e-6


@dataclass(frozen=True, kw_only=True)
class Design:
    """How audits are sampled: samples of a problem, cap, and the late checkpoints as in ``DRIFT``."""

    name: str
    samples: Samples
    cap: int
    window: tuple[float, ...] = (1.0,)
    pairs: tuple[str, ...] = tuple(PAIRS)
    n_problems: int = N_PROBLEMS


def _rule(cap: int) -> StoppingRule:
    return StoppingRule.doubling(first=16, cap=cap, enough=4)


#: The first design is simulated with all pairs and ``--audits`` audits of each, the others with 0.4 times as many.
DESIGNS = (
    Design(name="from 16, until 4", samples=_rule(256), cap=256, pairs=(*PAIRS, *HELD_OUT)),
    Design(name="from 16, until 4", samples=_rule(64), cap=64),
    Design(name="equal number", samples=64, cap=64),
    Design(name="from 16, until 4; 30 problems", samples=_rule(256), cap=256, n_problems=30),
    Design(name="from 16, until 4; window of three, rates differ", samples=_rule(256), cap=256, window=DRIFT),
)
OTHERS = 0.4


@dataclass(frozen=True, kw_only=True)
class Row:
    """Audits of one pair of rates. Numbers of audits, and points.

    ``covered`` intervals contain the change of these problems at k. Intervals up to ``WIDEST`` are ``reported``, and
    ``covered_reported`` of these contain it. ``fallen`` audits have a change below −``FALL``, and in ``found`` of them
    the interval lies below 0. ``unfallen`` audits have no negative change, and in ``false_falls`` of them it does.
    """

    design: str
    cap: int
    k: int
    pair: str
    audits: int
    change: float
    width: float
    covered: int
    reported: int
    covered_reported: int
    fallen: int
    found: int
    unfallen: int
    false_falls: int


def simulate(design: Design, name: str, pair: Pair, *, audits: int, seed: Sequence[int]) -> Row:
    """Simulate audits of one pair of rates; each has other problems."""
    problems, drawing = np.random.default_rng(seed).spawn(2)
    k = 2 * design.cap
    low_A, high_A, truth_A = np.empty((3, audits))
    for audit in range(audits):
        base_P, last_P = pair(problems, design.n_problems)
        lates = [move_rates(base_P, last_P, share) for share in design.window]
        truth_A[audit] = np.mean([change_here(base_P, late_P, [k])[0] for late_P in lates])
        base_codes_P, *late_codes = (
            draw_codes(design.samples, rate_P, rng=drawing, draws=1)[0] for rate_P in (base_P, *lates)
        )
        sides = [
            PairedCounts(base_P=base_codes_P, late_P=late_P, n_base=design.samples, n_late=design.samples)
            for late_P in late_codes
        ]
        low_A[audit], high_A[audit] = interval_beyond(sides, k)
    covered_A = (low_A <= truth_A) & (truth_A <= high_A)
    reported_A, falls_A = high_A - low_A <= WIDEST, high_A < 0
    fallen_A, unfallen_A = truth_A < -FALL, truth_A > -1e-9
    return Row(
        design=design.name,
        cap=design.cap,
        k=k,
        pair=name,
        audits=audits,
        change=100 * float(truth_A.mean()),
        width=100 * float((high_A - low_A).mean()),
        covered=int(covered_A.sum()),
        reported=int(reported_A.sum()),
        covered_reported=int((covered_A & reported_A).sum()),
        fallen=int((fallen_A & reported_A).sum()),
        found=int((fallen_A & reported_A & falls_A).sum()),
        unfallen=int((unfallen_A & reported_A).sum()),
        false_falls=int((unfallen_A & reported_A & falls_A).sum()),
    )


def move_rates(
    base_P: Float[np.ndarray, " problem"], last_P: Float[np.ndarray, " problem"], share: float
) -> Float[np.ndarray, " problem"]:
    """Return rates on the way from the base to the last checkpoint, in log-odds."""
    if share == 1.0:
        return last_P
    first_P, second_P = (logit(np.clip(rate_P, _NOT_ZERO, 1 - _NOT_ZERO)) for rate_P in (base_P, last_P))
    return np.asarray(expit((1 - share) * first_P + share * second_P))


def page(rows: Sequence[Row], audits: int) -> str:
    """Return the tables as Markdown."""
    lines = [
        _INTRODUCTION.format(audits=audits, others=round(OTHERS * audits)),
        "",
        "| design | cap | k | pairs | audits | contain the change, % (lowest pair) | width | reported, % "
        "| contain it, reported, % | falls above 2 points found, % | false falls, % |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups = list(dict.fromkeys((row.design, row.cap) for row in rows))
    for group in groups:
        own = [row for row in rows if (row.design, row.cap) == group]
        for title, part in ((group[0], own), ("– unchanged pairs", [row for row in own if row.pair in UNCHANGED])):
            lines.append(f"| {title} | {group[1]} | {own[0].k} | {_cells(part)} |")
    first = [row for row in rows if (row.design, row.cap) == groups[0]]
    lines += [
        "",
        f"## Each pair of rates: {groups[0][0]}, cap {groups[0][1]}, k = {first[0].k}",
        "",
        "| rates | change | contain it, % | width | reported, % | falls above 2 points found | false falls |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {row.pair} | {row.change:+.1f} | {100 * row.covered / row.audits:.0f} | {row.width:.1f} "
            f"| {100 * row.reported / row.audits:.0f} | {row.found} of {row.fallen} "
            f"| {row.false_falls} of {row.unfallen} |"
            for row in first
        ),
    ]
    return "\n".join(lines) + "\n"


_INTRODUCTION = (
    "# pass@k beyond the cap: coverage and width\n\n"
    f"Made by `python -m benchmarks.sampling.beyond` (seed {SEED}); machine and versions are in `{NAME}.json`. "
    "[How unbiased early stopping works](../../docs/early_stopping.md#beyond-the-cap) explains the interval.\n\n"
    f"{{audits}} simulated audits of {N_PROBLEMS} problems per pair of rates in the first design, {{others}} in the "
    "others; each audit has other problems. Widths and changes are in points. An interval should contain the change of "
    "pass@k of the audit's problems in 95 % of audits. Intervals of more than 15 points are not reported. *Found*: the "
    "interval lies below 0, of the reported ones with a fall of more than 2 points. *False falls*: the same of those "
    "without a negative change. *Unchanged pairs*: pass@k changes at no k, in the population. *Window of three*: three "
    "late checkpoints at 60, 80 and 100 % of the way from the base to the last one in log-odds, whose rates the "
    "interval takes for equal; the change is their average. The Monte Carlo error of a pair is about 2 per cent with "
    "100 audits."
)


def _cells(rows: Sequence[Row]) -> str:
    def total(column: str) -> int:
        return sum(getattr(row, column) for row in rows)

    lowest = min(100 * row.covered / row.audits for row in rows)
    cells = [
        str(len(rows)),
        f"{total('audits'):,}",
        f"{100 * total('covered') / total('audits'):.1f} ({lowest:.0f})",
        f"{np.mean([row.width for row in rows]):.1f}",
        _percent(total("reported"), total("audits")),
        _percent(total("covered_reported"), total("reported")),
        _percent(total("found"), total("fallen")),
        _percent(total("false_falls"), total("unfallen")),
    ]
    return " | ".join(cells)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "–"


def main() -> None:
    """Simulate all designs and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=100, help="simulated audits per pair of rates")
    audits = parser.parse_args().audits
    start = time.process_time()
    pairs: Mapping[str, Pair] = {**PAIRS, **HELD_OUT}
    rows = [
        simulate(
            design,
            name,
            pairs[name],
            audits=audits if index == 0 else round(OTHERS * audits),
            seed=[SEED, index, number],
        )
        for index, design in enumerate(DESIGNS)
        for number, name in enumerate(design.pairs)
    ]
    result = {
        "benchmark": NAME,
        "what": "intervals of the change of pass@k at twice the cap: coverage and width, in points",
        "seed": SEED,
        "audits": audits,
        "cpu_s": time.process_time() - start,
        "rows": rows,
        **circumstances(("numpy", "scipy")),
    }
    (RESULTS / f"{NAME}.json").write_text(as_text(result), encoding="utf-8")
    (RESULTS / f"{NAME}.md").write_text(page(rows, audits), encoding="utf-8")


if __name__ == "__main__":
    main()
