"""Compare the demo's runs with the exact frontier of their base, and test the sampled estimates.

On Countdown-mini every correct response is known. So pass@1 and pass@k of a base have no sampling noise at any
temperature, nor have those of a checkpoint at a higher temperature or mixed with the base's weights. ``make frontier``
scores them with transformers and compares every checkpoint with the exact temperature frontier. Then it simulates
audits with controls from these exact rates, as ``oversharp audit`` would sample them. It counts how often the 95 %
intervals of ``frontier_gain``, ``frontier_loss`` and ``sharpening_share`` contain the exact value, and how often a base
at a lower temperature is called better or worse. The controls without samples, power and answers, are compared with
their own exact values (``free_controls.py``). ``agreeing.py`` measures the bias of answers.

    python -m benchmarks.frontier.demo_frontier                        # runs/demo/grpo and runs/demo/iac
    python -m benchmarks.frontier.demo_frontier --runs A B --series 500

Results go into ``benchmarks/results/frontier.json`` and ``frontier.md``. Exit code 1 if an interval contains the exact
value in fewer than 93 % of series, or if more than 5 % of sharpened bases are called better, or worse.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.frontier.exact_frontier import (
    FINE,
    PARTS,
    Coverage,
    ExactFrontier,
    ExactTask,
    Rates,
    load,
    mixed,
    pass_at,
    tokenizer_of,
)  # fmt: skip
from benchmarks.frontier.free_controls import N_BASE, SMALLER, N, biases, cost, free_controls, law_of
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.statistics.frontier import FrontierPoints, against_frontier
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.tasks import countdown

SEED = 23
K = 128
#: Default temperatures of an audit, and temperatures between them, at which a base is sharpened and nothing else.
DRAWN = (1.0, 0.6, 0.3, 0.15)
BETWEEN = (0.8, 0.5, 0.4, 0.25, 0.2)
HOTTER = (1.2, 1.5)
WEIGHTS = (0.25, 0.5, 0.75)
#: Samples of the base per problem at each lower temperature.
N_CONTROL = 128
LEAST_COVERAGE, MOST_WRONG = 0.93, 0.05
#: Fewest intervals for which coverage is judged.
LEAST_GIVEN = 100


@dataclass(frozen=True, kw_only=True)
class Point:
    """One distribution with the exact success rate of every problem."""

    name: str
    rate_P: Rates

    @property
    def x(self) -> float:
        """pass@1."""
        return pass_at(self.rate_P, 1)

    @property
    def y(self) -> float:
        """pass@K."""
        return pass_at(self.rate_P, K)


def laws_of(run: Path, frontier: Mapping[float, Rates] | None) -> tuple[Mapping[float, Rates], list[Point]]:
    """Return the base's rates at the fine temperatures, and every distribution of the run.

    The rates are computed unless ``frontier`` has them.
    """
    series = find_series([run], base=None, name=None)
    problems, base = countdown.problems(), load(series.base.path)
    task = ExactTask(tokenizer_of(series.base.path), problems, [one.modes for one in problems])
    fine = frontier or dict(zip(FINE, task.rates(base, FINE), strict=True))
    points, name = [], run.name
    for checkpoint in series.checkpoints[1:]:
        late, last = load(checkpoint.path), checkpoint is series.checkpoints[-1]
        temperatures = (1.0, *HOTTER) if last else (1.0,)
        for temperature, rate_P in zip(temperatures, task.rates(late, temperatures), strict=True):
            drawn = "" if temperature == 1.0 else f", T = {temperature:g}"
            points.append(Point(name=f"{name} step {checkpoint.step}{drawn}", rate_P=rate_P))
        for share in WEIGHTS if last else ():
            [rate_P] = task.rates(mixed(base, late, share), [1.0])
            points.append(Point(name=f"{name} base + {share:g} (step {checkpoint.step} − base)", rate_P=rate_P))
    return fine, points


def simulated(
    fine: Mapping[float, Rates], points: Sequence[Point], series: int, *, on_it: bool
) -> list[dict[str, float | None]]:
    """Simulate ``series`` audits: coverage of each point's intervals, and rates of its labels.

    ``on_it``: the points are on the frontier, so their gain and loss are 0.
    """
    rng = np.random.default_rng(SEED)
    frontier_of_all = ExactFrontier.of(fine, K)
    exact = [
        {"gain": 0.0, "loss": 0.0, "share": 1.0} if on_it else frontier_of_all.matched(one.x, one.y) for one in points
    ]
    coverage = [Coverage(one) for one in exact]
    table: Callable[[int], np.ndarray] = lambda n: pass_at_k_table(n, [1, K])  # noqa: E731
    tables = {n: table(n) for n in {N_BASE, N, N_CONTROL}}
    better, worse = (np.zeros(len(points)) for _ in range(2))
    n_problems = len(fine[1.0])
    for _ in range(series):
        chosen_P = rng.integers(0, n_problems, n_problems)
        drawn = [
            tables[n][rng.binomial(n, fine[temperature][chosen_P])]
            for temperature, n in zip(DRAWN, (N_BASE, *[N_CONTROL] * (len(DRAWN) - 1)), strict=True)
        ]
        late = [tables[N][rng.binomial(N, point.rate_P[chosen_P])] for point in points]
        frontier = FrontierPoints(
            sharpness_S=1.0 - np.array(DRAWN),
            x_SP=np.array([one[:, 0] for one in drawn]),
            y_SP=np.array([one[:, 1] for one in drawn]),
            limit_P=(fine[FINE[-1]][chosen_P] > 0.5).astype(np.float64),
        )
        found = against_frontier(
            frontier,
            np.array([one[:, 0] for one in late]),
            np.array([one[:, 1] for one in late]),
            groups=[[place] for place in range(len(points))],
            rng=rng,
            draws=399,
        )
        for place, one in enumerate(found):
            coverage[place].count(one)
            better[place] += one.above >= 0.975
            worse[place] += one.below >= 0.975
    return [
        {
            **{f"exact_{part}": own.exact[part] for part in PARTS},
            **{f"held_{part}": share for part, share in own.shares().items()},
            **{f"given_{part}": own.given[part] for part in PARTS},
            "better": better[i] / series,
            "worse": worse[i] / series,
        }
        for i, own in enumerate(coverage)
    ]


def measured(runs: Sequence[Path], series: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return one row per distribution, and the results of the free controls.

    A row has its pass@1 and pass@k, its exact gain, and the results of sampled audits.
    """
    fine: Mapping[float, Rates] | None = None
    points: list[Point] = []
    for run in runs:
        fine, made = laws_of(run, fine)
        points += made
    assert fine is not None
    sharpened = [Point(name=f"base, T = {temperature:g}", rate_P=fine[temperature]) for temperature in FINE]
    between = [one for one, temperature in zip(sharpened, FINE, strict=True) if temperature in BETWEEN]
    rows = [{"law": one.name, "kind": "frontier", "pass_at_1": one.x, f"pass_at_{K}": one.y} for one in sharpened]
    for kind, group in (("sharpening", between), ("run", points)):
        for point, said in zip(group, simulated(fine, group, series, on_it=kind == "sharpening"), strict=True):
            place = {"law": point.name, "kind": kind, "pass_at_1": point.x, f"pass_at_{K}": point.y}
            rows.append({**place, **said})
    path = find_series([runs[0]], base=None, name=None).base.path
    law = law_of(load(path), tokenizer_of(path), countdown.problems(), countdown.RESPONSE_TOKENS)
    late, audits = {one.name: one.rate_P for one in points}, max(1, series // 2)
    sizes = [(N, N_BASE, audits), *((n, n, 2 * series) for n in SMALLER)]
    free = {
        "listed_mass": law.mass,
        "audits": audits,
        "sizes": [free_controls(law, late, drawn, n=n, n_base=n_base) for n, n_base, drawn in sizes],
        "bias": biases(law, audits),
        "cost": cost(),
    }
    return rows, free


def broken(row: Mapping[str, Any]) -> bool:
    """Return whether an interval covers too rarely, or a sharpened base gets another label too often."""
    if row["kind"] == "frontier":
        return False
    wrong = max(row["better"], row["worse"]) if row["kind"] == "sharpening" else 0.0
    return uncovered(row) or wrong > MOST_WRONG


def uncovered(row: Mapping[str, Any]) -> bool:
    """Return whether an interval covers too rarely. Intervals with too few audits do not count."""
    told = [row[f"held_{part}"] for part in PARTS if row[f"given_{part}"] >= LEAST_GIVEN]
    return any(one < LEAST_COVERAGE for one in told)


def free_table(free: Mapping[str, Any]) -> str:
    """Return the controls without samples as Markdown."""
    first, *smaller = free["sizes"]
    k, names = first["k"], list(first["k"])
    by_law: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in first["rows"]:
        by_law.setdefault(row["law"], {})[row["control"]] = row
    head = " | ".join(f"{name}, k = {k[name]}: gain | held, % | has a value, %" for name in names)
    lines = [
        "## Against the frontiers that cost no samples",
        "",
        "*Power*: the base's different samples reweighted to p^α; *answers*: the answers of m draws that agree. Their "
        "exact values come from the base's law, listed by following every prefix above 3e-5 "
        f"({100 * free['listed_mass']:.1f} % of its probability). {free['audits']} audits drawn from it, problems "
        "drawn again; gain in points, *held*: how often the 95 % intervals of gain / loss / share hold what is exact.",
        "",
        f"| law | {head} |",
        "|---" + "|---:" * 3 * len(names) + "|",
    ]
    for law, own in by_law.items():
        cells = []
        for name in names:
            row = own[name]
            cells += [_points(row["exact_gain"]), _held(row), f"{100 * row['known']:.0f}"]
        lines.append(f"| {law} | {' | '.join(cells)} |")
    lines += [
        "",
        "Audits of fewer samples, of the base as of the checkpoints: the least that these intervals hold over the same "
        "laws, and how often the gain has a value, in the mean.",
        "",
        "| samples | audits | control | k | gain, % | loss, % | share, % | has a value, % |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for size in (first, *smaller):
        for name in size["k"]:
            rows = [row for row in size["rows"] if row["control"] == name]
            least = [_least(rows, part) for part in PARTS]
            known = float(np.mean([row["known"] for row in rows]))
            of = f"| {size['n']} | {size['audits']} | {name} | {size['k'][name]}"
            lines.append(f"{of} | {' | '.join(least)} | {100 * known:.0f} |")
    lines += [
        "",
        "What the points of these frontiers are off by, in the mean over audits of all the problems, in points.",
        "",
        "| control | α or m | k | pass@1 | off by | pass@k | off by |\n|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in free["bias"]:
        lines.append(
            f"| {one['control']} | {one['knob']:g} | {one['k']} | {one['pass_at_1']:.3f} "
            f"| {_off(one['bias_pass_at_1'])} | {one['pass_at_k']:.3f} | {_off(one['bias_pass_at_k'])} |"
        )
    cost_of = free["cost"]
    lines += [
        "",
        f"Both controls and every checkpoint against them take {cost_of['cpu_s']:.2f} CPU seconds for "
        f"{cost_of['problems']} problems, {cost_of['checkpoints']} checkpoints and {cost_of['n']} samples.",
    ]
    return "\n".join(lines) + "\n"


def _held(row: Mapping[str, Any]) -> str:
    cells = ["–" if row[f"held_{part}"] is None else f"{100 * row[f'held_{part}']:.0f}" for part in PARTS]
    return " / ".join(cells)


def _least(rows: Sequence[Mapping[str, Any]], part: str) -> str:
    held = [row[f"held_{part}"] for row in rows if row[f"given_{part}"] >= LEAST_GIVEN]
    return f"{100 * min(held):.1f}" if held else "–"


def _off(bias: float) -> str:
    return f"{100 * bias:+.2f}".replace("-", "−")


def _points(gain: float | None) -> str:
    return "beyond" if gain is None else f"{100 * gain:+.1f}".replace("-", "−")


def table(rows: Sequence[Mapping[str, Any]], series: int, runs: Sequence[Path]) -> str:
    """Return the page as Markdown."""
    lines = [
        "# Against the sharpening frontier",
        f"Made by `make frontier` (seed {SEED}) from {', '.join(f'`{run}`' for run in runs)}; machine and versions "
        f"are in `frontier.json`. pass@1 and pass@{K} are exact, over every correct response. *Gain*: pass@1 beyond "
        f"that of the base at the temperature with the same pass@{K}, in points. The last columns are {series} audits "
        f"sampled from the exact rates, with problems drawn again, as `oversharp audit` samples them ({N} a "
        f"checkpoint, {N_BASE} of the base, {N_CONTROL} at each of T = {', '.join(f'{t:g}' for t in DRAWN[1:])}): how "
        "often the 95 % intervals of gain / loss / share hold what is exact, and what is said.",
        f"| law | pass@1 | pass@{K} | gain | held, % | better, % | worse, % |\n|---|---:|---:|---:|---:|---:|---:|",
    ]
    body = []
    for row in rows:
        cells = [row["law"], f"{row['pass_at_1']:.3f}", f"{row[f'pass_at_{K}']:.3f}"]
        if row["kind"] == "frontier":
            cells += ["", "", "", ""]
        else:
            cells += [_points(row["exact_gain"])]
            cells += [_held(row)]
            cells += [f"{100 * row[name]:.1f}" for name in ("better", "worse")]
        body.append(f"| {' | '.join(cells)} |")
    return "\n\n".join(lines) + "\n" + "\n".join(body) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="+", type=Path, default=[Path("runs/demo/grpo"), Path("runs/demo/iac")])
    parser.add_argument("--series", type=int, default=300, help="sampled audits per law")
    parser.add_argument("--out", type=Path, default=RESULTS / "frontier.json")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, free = measured(given.runs, given.series)
    covered = [row for size in free["sizes"] for row in size["rows"]]
    result = {
        "what": "checkpoints against the temperature frontier of their base; see frontier.md",
        "seed": SEED,
        "k": K,
        "series": given.series,
        "bounds_held": not any(map(broken, rows)) and not any(map(uncovered, covered)),
        **circumstances(("oversharp", "torch", "transformers", "scikit-learn")),
        "rows": rows,
        "free_controls": free,
    }
    given.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    given.out.with_suffix(".md").write_text(table(rows, given.series, given.runs) + "\n" + free_table(free))
    for row in filter(broken, rows):
        print(f"{row['law']}: held {_held(row)}, better {row['better']:.3f}, worse {row['worse']:.3f}", file=sys.stderr)
    for row in filter(uncovered, covered):
        print(f"{row['law']} against {row['control']}: held {_held(row)}", file=sys.stderr)
    return 0 if result["bounds_held"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
