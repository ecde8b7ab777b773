"""Measure false alarms and power of the verdict's rule on simulated series.

``python -m benchmarks.calibration.rule`` (``make calibration``) simulates series by ``planted.py`` as an audit would
count them: nine checkpoints after the base, n samples of each problem from each of the last three, 2n from the base.
Half of the base's samples choose the dominant mode. The shipped rule (``diagnostics/verdict/rule.py``) labels each
series.

Counts per label go into ``benchmarks/results/calibration.json`` after every row, and the tables into
``calibration.md``. A stopped command continues. Exit code 1 if a strict null was called a loss in more than 5 % of the
series.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.calibration.in_rounds import add_until_solved, result_name
from benchmarks.calibration.planted import Kind
from benchmarks.calibration.reached_code import code_reached
from benchmarks.calibration.series import (
    ALTERNATIVES,
    BAR,
    N_CHECKPOINTS,
    SIMULATED,
    STRICT_NULLS,
    WINDOW,
    Cell,
    Row,
    interval,
    joined,
    simulate,
)
from benchmarks.calibration.table import tables
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL

PROBLEMS, SAMPLES = (30, 100, 500), (64, 256, 1024)
SEED = 21
#: Series per task. Each task has its own generator, so results do not depend on the number of workers.
SERIES_AT_ONCE = 25


def _part(arguments: tuple[Cell, int, int]) -> Row:
    cell, series, first = arguments
    return simulate(cell, series=series, first=first, seed=SEED)


def rows_of(cells: Sequence[tuple[Cell, int, int]], *, workers: int) -> Iterator[Row]:
    """Yield the row of each (cell, first series, end) in order, over ``workers`` processes."""
    with ProcessPoolExecutor(max_workers=workers) as pool:
        waiting = []
        for cell, first, end in cells:
            starts = range(first, end, SERIES_AT_ONCE)
            waiting.append(pool.map(_part, [(cell, min(SERIES_AT_ONCE, end - start), start) for start in starts]))
        for parts in waiting:
            yield joined(list(parts))


def fingerprint() -> str:
    """Return a hash of the code and seeds that the results depend on."""
    return content_hash(sorted(code_reached(simulate, root=Path(__file__).parents[2])), SEED, SERIES_AT_ONCE)


def _as_json(row: Row) -> dict[str, Any]:
    low, high = interval(row.positives, row.series)
    return {
        **asdict(row.cell),
        "series": row.series,
        "positives": row.positives,
        "positive_rate": round(row.positives / row.series, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "labels": row.labels,
        "rejected_by": {"exact": row.exact, "population": row.population, "minority": row.minority},
        "true_change_points": round(100 * row.change, 3),
        "true_minority_change_points": round(100 * row.minority_change, 3),
        "cpu_s": round(row.cpu_s, 2),
        **({} if row.samples is None else {"samples": round(row.samples, 1)}),
    }


def _from_json(row: dict[str, Any]) -> Row:
    return Row(
        cell=Cell(kind=row["kind"], n_problems=row["n_problems"], n=row["n"], enough=row.get("enough")),
        series=row["series"],
        labels=row["labels"],
        **row["rejected_by"],
        change=row["true_change_points"] / 100,
        minority_change=row["true_minority_change_points"] / 100,
        cpu_s=row["cpu_s"],
        samples=row.get("samples"),
    )


def planned(
    *, series: int, quick: bool, kinds: Sequence[Kind] = SIMULATED, enough: int | None = None
) -> list[tuple[Cell, int]]:
    """Return every cell with its number of series, small and fast ones first.

    Nulls get ``series``, alternatives a tenth.
    """
    grid = [(64, 30)] if quick else list(product(SAMPLES, PROBLEMS))
    of_kind = {kind: max(1, series // 10) if kind in ALTERNATIVES else series for kind in SIMULATED}
    if enough is not None:
        grid = [(64, 30), (64, 100), (256, 30), (256, 100)]
    return [
        (Cell(kind=kind, n_problems=n_problems, n=n, enough=enough), of_kind[kind])
        for n, n_problems in grid
        for kind in kinds
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every strict null is within the bound in every cell, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=2000, help="per cell and null; alternatives a tenth")
    parser.add_argument("--cells", nargs="+", choices=SIMULATED, default=SIMULATED, help="what to simulate")
    parser.add_argument("--quick", action="store_true", help="30 problems, n = 64 only")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    add_until_solved(parser)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    enough = given.until_solved
    given.out = given.out or RESULTS / f"{result_name('calibration', enough)}.json"
    of = fingerprint()
    held = _held(given.out, of)
    wanted = planned(series=given.series, quick=given.quick, kinds=given.cells, enough=enough)
    # a longer run repeats the same series only if tasks are complete
    whole = {cell: row.series for cell, row in held.items() if row.series % SERIES_AT_ONCE == 0}
    missing = [(cell, whole.get(cell, 0), series) for cell, series in wanted if _series(held, cell) < series]
    for row in rows_of(missing, workers=given.workers):
        held[row.cell] = joined([held[row.cell], row]) if row.cell in whole else row
        print(json.dumps(_as_json(held[row.cell])), flush=True)
        _write(given.out, list(held.values()), of)
    rows = [held[cell] for cell, _ in planned(series=1, quick=False, enough=enough) if cell in held]
    _write(given.out, rows, of)
    given.out.with_suffix(".md").write_text(tables(rows, seed=SEED))
    missed = [row.cell for row in rows if not row.bar_held]
    for cell in missed:
        print(f"{cell}: more than {100 * BAR:.0f} % of its series were called a loss", file=sys.stderr)
    return 1 if missed else 0


def _series(held: Mapping[Cell, Row], cell: Cell) -> int:
    return held[cell].series if cell in held else 0


def _held(path: Path, of: str) -> dict[Cell, Row]:
    """Return the rows of an earlier run with the same code."""
    if not path.is_file():
        return {}
    result = json.loads(path.read_text())
    rows = [_from_json(row) for row in result["rows"]] if result["fingerprint"] == of else []
    return {row.cell: row for row in rows}


def _write(path: Path, rows: Sequence[Row], of: str) -> None:
    result = {
        "what": "labels that the verdict's rule gives to simulated series; see calibration.md",
        "checkpoints": f"{N_CHECKPOINTS} after the base, the last {WINDOW} pooled; the base has 2n samples",
        "levels": {"keys": KEY_LEVEL, "minority": MINORITY_LEVEL, "steps": STEP_LEVEL},
        "bar": f"at most {100 * BAR:.0f} % false positives for {', '.join(STRICT_NULLS)}",
        "bar_held": all(row.bar_held for row in rows),
        "seed": SEED,
        "fingerprint": of,
        "cpu_s": round(sum(row.cpu_s for row in rows)),
        **circumstances(("oversharp", "numpy", "scipy")),
        "rows": [_as_json(row) for row in rows],
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n")
    partial.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
