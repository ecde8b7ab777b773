"""How often the verdict is led astray by what real runs have: lenient graders, guesses, relations, losses that pass.

``python benchmarks/real_life.py`` (a part of ``make calibration``) draws series of each case in ``real_life_cases.py``
as an audit would see them, and labels them by the shipped rule (``diagnostics/verdict/rule.py``). Nulls are cases in
which a certain label would be wrong; it may be given to at most 5 % of the series. Results go into
``benchmarks/results/real_life.json`` after every case, the table into ``real_life.md``; the same command continues. It
ends with 1 where a bound is broken.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "speed"))

import numpy as np
import real_life_cases
from calibration import fingerprint as fingerprint_of_the_rule
from calibration_series import BAR, interval
from label_rates import label_table, worst_rates
from real_life_cases import CASES, Case, Outcome
from results import RESULTS, circumstances

from diagnostics.records.types import content_hash
from diagnostics.verdict.rule import MARGIN

SEED = 22
#: Series of one task of a worker; each task has its own generator, so that the workers' number changes nothing.
SERIES_AT_ONCE = 25


def _part(arguments: tuple[str, int]) -> tuple[list[Outcome], float]:
    name, first = arguments
    start = time.process_time()
    case = CASES[name]
    rng = np.random.default_rng([SEED, list(CASES).index(name), first])
    return [case.draw(rng) for _ in range(SERIES_AT_ONCE)], time.process_time() - start


def row_of(case: Case, outcomes: Sequence[Outcome], cpu_s: float) -> dict[str, Any]:
    """What is written of one case: how many series were labelled wrongly, or rightly; sums of sizes in points."""
    sizes = [one.sizes for one in outcomes if one.sizes is not None]
    return {
        "name": case.name,
        "what": case.what,
        "counted": case.counted,
        "null": case.null,
        "series": len(outcomes),
        "count": sum(case.counts(one) for one in outcomes),
        "labels": dict(Counter(one.label for one in outcomes)),
        "n_sizes": len(sizes),
        "sums_of_sizes_points": [round(100 * float(size), 3) for size in np.sum(sizes, axis=0)] if sizes else [],
        "cpu_s": round(cpu_s, 1),
    }


def joined(first: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of one case as one."""
    if first is None:
        return dict(more)
    sums = {key: first[key] + more[key] for key in ("series", "count", "n_sizes", "cpu_s")}
    pairs = zip(first["sums_of_sizes_points"] or [0] * 3, more["sums_of_sizes_points"] or [0] * 3, strict=True)
    sizes = [round(a + b, 3) for a, b in pairs] if sums["n_sizes"] else []
    labels = dict(Counter(first["labels"]) + Counter(more["labels"]))
    return {**more, **sums, "labels": labels, "sums_of_sizes_points": sizes}


def broken(row: Mapping[str, Any]) -> bool:
    """Whether a null's bound is broken."""
    return bool(row["null"]) and row["count"] > BAR * row["series"]


def fingerprint() -> str:
    """Identifies what the results rest on: the rule with its statistics, and the cases."""
    return content_hash(fingerprint_of_the_rule(), Path(real_life_cases.__file__).read_text(), SEED, SERIES_AT_ONCE)


def table(rows: Sequence[Mapping[str, Any]], calibrated: Sequence[Mapping[str, Any]] = ()) -> str:
    """The Markdown file; ``calibrated`` are the rows of the calibration, for the rates of labels over all cases."""
    missed = [row["name"] for row in rows if broken(row)]
    held = "held in every case" if not missed else f"broken in: {', '.join(missed)}"
    parts = [
        "# The verdict under the conditions of real life",
        f"Made by `make calibration` (seed {SEED}); machine, versions and counts are in `real_life.json`. The bound of "
        f"{100 * BAR:.0f} % on wrong labels is {held}.",
    ]
    if calibrated:
        parts += [
            "## How often each label is wrong",
            "The highest rate over all cases here and in [calibration.md](calibration.md): of labels of a loss where "
            "there was none, and of the others where problems were lost, or pass@k fell by more than "
            f"{100 * MARGIN:.0f} points.",
            label_table(worst_rates(rows, calibrated)),
        ]
    for null, title in ((True, "## Labels that would be wrong"), (False, "## What is found, and what is said of it")):
        lines = ["| case | counted | series | % (95 % interval) | labels, % |", "|---|---|---:|---:|---|"]
        for row in rows:
            if row["null"] != null:
                continue
            labels = ", ".join(
                f"{label} {100 * n / row['series']:.0f}"
                for label, n in sorted(row["labels"].items(), key=lambda of: -of[1])
            )
            told = ""
            if row["n_sizes"]:
                true, printed, given = (size / row["n_sizes"] for size in row["sums_of_sizes_points"])
                told = f"; true {true:.1f}, printed {printed:.1f}, given the label {given:.1f} points"
            low, high = interval(row["count"], row["series"])
            rate = f"{100 * row['count'] / row['series']:.1f} ({100 * low:.1f}–{100 * high:.1f})"
            lines.append(f"| {row['what']} | {row['counted']} | {row['series']} | {rate} | {labels}{told} |")
        parts += [title, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every bound held, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000, help="per null; a tenth of it for the other cases")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what to simulate")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=RESULTS / "real_life.json")
    given = parser.parse_args(arguments)
    held = _held(given.out)
    with ProcessPoolExecutor(max_workers=given.workers) as pool:
        for name in given.cases:
            case = CASES[name]
            wanted = given.series if case.null else max(SERIES_AT_ONCE, given.series // 10)
            starts = range(held[name]["series"] if name in held else 0, wanted, SERIES_AT_ONCE)
            if not starts:
                continue
            parts = list(pool.map(_part, [(name, first) for first in starts]))
            outcomes = [one for part, _ in parts for one in part]
            held[name] = joined(held.get(name), row_of(case, outcomes, sum(cpu_s for _, cpu_s in parts)))
            print(json.dumps(held[name]), flush=True)
            _write(given.out, held)
    _write(given.out, held)
    missed = [row["name"] for row in held.values() if broken(row)]
    for name in missed:
        print(f"{name}: more than {100 * BAR:.0f} % of its series were labelled wrongly", file=sys.stderr)
    return 1 if missed else 0


def _held(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run, if they rest on the same code."""
    if not path.is_file():
        return {}
    result = json.loads(path.read_text())
    return {row["name"]: row for row in result["rows"]} if result["fingerprint"] == fingerprint() else {}


def _write(path: Path, held: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [held[name] for name in CASES if name in held]
    result = {
        "what": "labels that the verdict's rule gives where real runs lead astray; see real_life.md",
        "seed": SEED,
        "fingerprint": fingerprint(),
        "bound_held": not any(broken(row) for row in rows),
        "cpu_s": round(sum(row["cpu_s"] for row in rows)),
        **circumstances(("oversharp", "numpy", "scipy")),
        "rows": rows,
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
    calibrated = json.loads((RESULTS / "calibration.json").read_text())["rows"]
    path.with_suffix(".md").write_text(table(rows, calibrated))


if __name__ == "__main__":
    raise SystemExit(main())
