"""Measure how often the verdict is wrong under complications of real runs.

These are lenient graders, guesses, related problems and temporary losses. ``python -m
benchmarks.calibration.real_life`` (a part of ``make calibration``) simulates series of each case in
``real_life_cases.py`` as an audit would count them, and labels them by the shipped rule
(``diagnostics/verdict/rule.py``). In a null case one label would be wrong. At most 5 % of its series may get that
label.

Results go into ``benchmarks/results/real_life.json`` after every case, and the table into ``real_life.md``. A stopped
command continues. Exit code 1 if a bound is exceeded.

With ``--until-solved ENOUGH`` the samples of a problem are drawn in rounds until ENOUGH are correct, in the cases whose
samples can be drawn in rounds. Results go into ``real_life_until_solved.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration.in_rounds import add_until_solved, in_rounds_lines, result_name
from benchmarks.calibration.label_rates import label_table, worst_rates
from benchmarks.calibration.reached_code import code_reached, rows_that_stand
from benchmarks.calibration.real_life_cases import CASES, FIRST_VERSION, Case
from benchmarks.calibration.real_life_dumps import DetectionOutcome
from benchmarks.calibration.real_life_plans import PlanOutcome
from benchmarks.calibration.real_life_series import Outcome
from benchmarks.calibration.series import BAR, ENOUGH, exceeds, interval
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.verdict.rule import MARGIN

SEED = 22
#: Series per task. Each task has its own generator, so results do not depend on the number of workers.
SERIES_AT_ONCE = 25
#: Tolerance of a plan's power above the 95 % interval of the observed one: real losses vary more than the plan's.
PROMISED_TOO_MUCH = 0.05


def _part(arguments: tuple[str, int, int | None]) -> tuple[list[Outcome], float]:
    name, first, enough = arguments
    start = time.process_time()
    case = CASES[name]
    draw = case.draw if enough is None else partial(case.draw, enough=enough)
    rng = np.random.default_rng([SEED, list(CASES).index(name), first])
    return [draw(rng) for _ in range(SERIES_AT_ONCE)], time.process_time() - start


def row_of(case: Case, outcomes: Sequence[Outcome], cpu_s: float, enough: int | None = None) -> dict[str, Any]:
    """Return the row of one case: numbers of wrong and right labels, and sums of sizes in points.

    ``n_detected`` is None if nothing was to be detected, ``sum_promised`` without a plan.
    """
    sizes = [one.sizes for one in outcomes if one.sizes is not None]
    detected = [one.detected for one in outcomes if isinstance(one, DetectionOutcome)]
    promised = [one.promised for one in outcomes if isinstance(one, PlanOutcome)]
    return {
        "name": case.name,
        "fingerprint": fingerprint(case, enough),
        **_described(case),
        "series": len(outcomes),
        "count": sum(case.counts(one) for one in outcomes),
        "labels": dict(Counter(one.label for one in outcomes)),
        "n_sizes": len(sizes),
        "sums_of_sizes_points": [round(100 * float(size), 3) for size in np.sum(sizes, axis=0)] if sizes else [],
        "n_detected": sum(detected) if detected else None,
        "sum_promised": round(sum(promised), 6) if promised else None,
        "cpu_s": round(cpu_s, 1),
    }


def _described(case: Case) -> dict[str, Any]:
    return {
        "what": case.what,
        "counted": case.counted,
        "null": case.null,
        "most": case.most,
    }


def joined(first: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Join two rows of one case."""
    if first is None:
        return dict(more)
    sums = {key: first[key] + more[key] for key in ("series", "count", "n_sizes", "cpu_s")}
    for key in ("n_detected", "sum_promised"):
        sums[key] = None if more[key] is None else first[key] + more[key]
    pairs = zip(first["sums_of_sizes_points"] or [0] * 3, more["sums_of_sizes_points"] or [0] * 3, strict=True)
    sizes = [round(a + b, 3) for a, b in pairs] if sums["n_sizes"] else []
    labels = dict(Counter(first["labels"]) + Counter(more["labels"]))
    return {**more, **sums, "labels": labels, "sums_of_sizes_points": sizes}


def broken(row: Mapping[str, Any]) -> bool:
    """Return whether a null exceeds its bound, or the observed power is significantly below the planned one."""
    if row["sum_promised"] is not None:
        return row["sum_promised"] / row["series"] > interval(row["count"], row["series"])[1] + PROMISED_TOO_MUCH
    return bool(row["null"]) and exceeds(row["count"], row["series"], row["most"])


def fingerprint(case: Case, enough: int | None = None) -> str:
    """Return a hash of the code and the generator that a case's result depends on.

    The index of a case seeds its generator, so new cases must be appended.
    """
    root = Path(__file__).parents[2]
    code = code_reached(case.draw, root=root) | code_reached(case.counts, root=root)
    return content_hash(sorted(code), list(CASES).index(case.name), enough, SEED, SERIES_AT_ONCE)


def table(
    rows: Sequence[Mapping[str, Any]], calibrated: Sequence[Mapping[str, Any]] = (), enough: int | None = None
) -> str:
    """Return the page as Markdown.

    ``calibrated`` are the rows of ``rule``, for the rates of labels over all cases.
    """
    name, calibration = result_name("real_life", enough), f"{result_name('calibration', enough)}.md"
    missed = [row["name"] for row in rows if broken(row)]
    held = "held in every case" if not missed else f"broken in: {', '.join(missed)}"
    parts = [
        "# The verdict under the conditions of real life",
        f"Made by `make calibration` (seed {SEED}); machine, versions and counts are in `{name}.json`. The bound of "
        f"{100 * BAR:.0f} % on wrong labels, and those named below, are {held}. {_FIRST_VERSION}",
    ]
    if enough is not None:
        few = f"With fewer than {ENOUGH} series, a bound is broken if the 95 % interval is above it."
        parts.append("\n".join([*in_rounds_lines(enough)[:-1], few]))
    if calibrated:
        parts += [
            "## How often each label is wrong",
            f"The highest rate over all cases here and in [{calibration}]({calibration}): of labels of a loss where "
            "there was none, and of the others where problems were lost, or pass@k fell by more than "
            f"{100 * MARGIN:.0f} points.",
            label_table(worst_rates(rows, calibrated)),
        ]
    labelled = [row for row in rows if row["sum_promised"] is None]
    for null, title in ((True, "## Labels that would be wrong"), (False, "## What is found, and what is said of it")):
        own = [row for row in labelled if row["null"] == null]
        parts += [title, "\n".join([*_LABELS_HEAD, *map(_cells, own)])]
    plans = [row for row in rows if row["sum_promised"] is not None]
    if plans:
        title = "## What `oversharp plan` promises, and what comes true"
        parts += [title, _PLANS, "\n".join([*_PLANS_HEAD, *map(_plan_cells, plans)])]
    return "\n\n".join(parts) + "\n"


_LABELS_HEAD = (
    "| case | counted | first version, % | series | % (95 % interval) | labels, % |",
    "|---|---|---:|---:|---:|---|",
)
_PLANS_HEAD = (
    "| case | promised, % | first version, % | series | found, % (95 % interval) |",
    "|---|---:|---:|---:|---:|",
)
_FIRST_VERSION = (
    "Under *first version* stands what the rule did before any of these cases was known, as its users measured it on "
    "50 to 1,400 series of simulators of their own."
)
_PLANS = (
    "Each series has a pilot of its own, from which its plan learns the base's success rates and plants the loss; what "
    "comes true is an audit of the planned size, on problems of its own, that lost as much of the true rates. Promised "
    f"is the mean over series; it may lie at most {100 * PROMISED_TOO_MUCH:.0f} points above the interval of what came "
    "true."
)


def _cells(row: Mapping[str, Any]) -> str:
    labels = ", ".join(
        f"{label} {100 * n / row['series']:.0f}" for label, n in sorted(row["labels"].items(), key=lambda of: -of[1])
    )
    if row["n_sizes"]:
        true, printed, given = (size / row["n_sizes"] for size in row["sums_of_sizes_points"])
        labels += f"; true {true:.1f}, printed {printed:.1f}, given the label {given:.1f} points"
    if row["n_detected"] is not None:
        labels += f"; detected {_rate(row['n_detected'], row['series'])}"
    bound = f", at most {100 * row['most']:g} %" if row["null"] and row["most"] != BAR else ""
    rate = _rate(row["count"], row["series"])
    first = FIRST_VERSION.get(row["name"], "–")
    return f"| {row['what']} | {row['counted']}{bound} | {first} | {row['series']} | {rate} | {labels} |"


def _plan_cells(row: Mapping[str, Any]) -> str:
    promised = f"{100 * row['sum_promised'] / row['series']:.0f}"
    first = FIRST_VERSION.get(row["name"], "–")
    return f"| {row['what']} | {promised} | {first} | {row['series']} | {_rate(row['count'], row['series'])} |"


def _rate(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{100 * count / of:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000, help="per null; less of the other cases")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what to simulate")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    add_until_solved(parser)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    enough = given.until_solved
    given.out = given.out or RESULTS / f"{result_name('real_life', enough)}.json"
    held = rows_that_stand(given.out, CASES, partial(fingerprint, enough=enough))
    with ProcessPoolExecutor(max_workers=given.workers) as pool:
        for name in given.cases:
            case = CASES[name]
            if enough is not None and not case.is_in_rounds:
                continue
            wanted = max(SERIES_AT_ONCE, round(given.series * case.share_drawn))
            starts = range(held[name]["series"] if name in held else 0, wanted, SERIES_AT_ONCE)
            if not starts:
                continue
            parts = list(pool.map(_part, [(name, first, enough) for first in starts]))
            outcomes = [one for part, _ in parts for one in part]
            held[name] = joined(held.get(name), row_of(case, outcomes, sum(cpu_s for _, cpu_s in parts), enough))
            print(json.dumps(held[name]), flush=True)
            _write(given.out, held, enough)
    _write(given.out, held, enough)
    missed = [row["name"] for row in held.values() if broken(row)]
    for name in missed:
        print(f"{name}: more than {100 * BAR:.0f} % of its series were labelled wrongly", file=sys.stderr)
    return 1 if missed else 0


def _write(path: Path, held: Mapping[str, Mapping[str, Any]], enough: int | None) -> None:
    rows = [{**held[name], **_described(CASES[name])} for name in CASES if name in held]
    result = {
        "what": "labels that the verdict's rule gives where real runs lead astray; see real_life.md",
        "seed": SEED,
        "bound_held": not any(broken(row) for row in rows),
        "cpu_s": round(sum(row["cpu_s"] for row in rows)),
        **circumstances(("oversharp", "numpy", "scipy")),
        "rows": rows,
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
    calibrated = json.loads((RESULTS / f"{result_name('calibration', enough)}.json").read_text())["rows"]
    path.with_suffix(".md").write_text(table(rows, calibrated, enough))


if __name__ == "__main__":
    raise SystemExit(main())
