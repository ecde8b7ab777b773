"""Count wrong verdicts on distributions that the rule was not calibrated on.

``python -m benchmarks.calibration.held_out`` (a part of ``make calibration``) samples series of each cell in
``held_out_cells.py``, computes verdicts with the shipped code, and compares them with the true rates. Results go into
``benchmarks/results/held_out.json`` after every part, and the table into ``held_out.md``. A stopped command continues.
Exit code 1 if, in more than 5 % of a cell's series, a verdict reports a loss where there is none, or no loss where
there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from benchmarks.calibration.held_out_cells import CELLS, Cell
from benchmarks.calibration.held_out_series import Judged, changes_of_law, drawn, judged, said_of
from benchmarks.calibration.in_rounds import add_until_solved, result_name
from benchmarks.calibration.reached_code import code_reached, rows_that_stand
from benchmarks.calibration.series import BAR, ENOUGH, exceeds, interval
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.verdict.counts import window_size

SEED = 77
#: Series per random generator. The generator is seeded by their position in the cell.
SERIES_AT_ONCE = 50
#: Series per cell with a loss and without one. Those with a loss take four times as long, because causes are tested.
OF_LOSSES = 0.3
#: Kinds of wrong verdicts, with their names in rows and table.
WRONG = {"loss": "a loss that is none", "no_loss": "no loss", "kept": "kept"}


def row_of(cell: Cell, series: Sequence[Judged], cpu_s: float) -> dict[str, Any]:
    """Return the row of one cell: numbers of wrong verdicts and of labels."""
    return {
        "name": cell.name,
        **described(cell),
        "fingerprint": fingerprint(cell),
        "fall_points": fall_points(cell),
        "series": len(series),
        "wrong": {name: sum(bool(getattr(one, name)) for one in series) for name in WRONG},
        "labels": dict(Counter(one.label for one in series)),
        "cpu_s": round(cpu_s, 1),
    }


def described(cell: Cell) -> dict[str, Any]:
    """Return the fields of a row that describe its cell."""
    return {"what": cell.what, "null": cell.null, "expected": cell.expected}


def fall_points(cell: Cell) -> float:
    """Return the true change of pass@k in the window, in points, at the k where it is lowest."""
    able_TK, _ = changes_of_law(cell, inference_ks(min(cell.n_S)))
    return round(100 * float(able_TK[-window_size(len(able_TK)) :].mean(axis=0).min()), 1)


def joined(first: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Join two rows of one cell."""
    if first is None:
        return dict(more)
    labels = dict(Counter(first["labels"]) + Counter(more["labels"]))
    wrong = {name: first["wrong"][name] + more["wrong"][name] for name in WRONG}
    cpu_s = round(first["cpu_s"] + more["cpu_s"], 1)
    return {**more, "labels": labels, "wrong": wrong, "series": first["series"] + more["series"], "cpu_s": cpu_s}


def broken(row: Mapping[str, Any]) -> list[str]:
    """Return the kinds of wrong verdicts that occur in more than 5 % of a cell's series.

    Empty for a cell that is known to fail.
    """
    if row["expected"] is not None:
        return []
    return [name for name in WRONG if exceeds(row["wrong"][name], row["series"])]


@cache
def fingerprint(cell: Cell, enough: int | None = None) -> str:
    """Return a hash of the code and settings that a cell's result depends on.

    It covers the distribution and the code that samples, labels and judges, but no texts.
    """
    functions = [drawn, said_of, judged]
    numbers = list(_parts(cell.law, functions))
    root = Path(__file__).parents[2]
    code = set[tuple[str, str]]().union(*(code_reached(one, root=root) for one in functions))
    return content_hash(sorted(code), numbers, cell.n_problems, cell.n_S, cell.stays, enough, SEED, SERIES_AT_ONCE)


def _parts(held: object, functions: list[FunctionType]) -> Iterator[str]:
    """Yield the arguments of a distribution as text.

    Functions among them are added to ``functions``, with the values that they hold.
    """
    if isinstance(held, FunctionType):
        # the function itself: its values follow as text, without the addresses of other functions
        functions.append(getattr(sys.modules[held.__module__], held.__qualname__.partition(".")[0]))
        yield held.__qualname__
        for cell in held.__closure__ or ():
            yield from _parts(cell.cell_contents, functions)
    elif isinstance(held, tuple):
        for one in held:
            yield from _parts(one, functions)
    else:
        yield repr(held)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as Markdown."""
    missed = [f"{row['name']} ({', '.join(WRONG[name] for name in broken(row))})" for row in rows if broken(row)]
    held = "held in every other cell" if not missed else f"broken in: {'; '.join(missed)}"
    parts = [
        "# The verdict under laws that it was not calibrated on",
        f"Made by `make calibration` (seed {SEED}); machine, versions and counts are in `held_out.json`. The laws are "
        "those of test theory, of skills, drifts and graders, written without a look at the rule or its calibration. "
        "What a verdict says is held against the rates that the counts were drawn from. *A loss that is none*: the "
        "label, or a checkpoint told as lost, is false of these problems or, where it speaks of those, of problems "
        "like them. *No loss* and *kept* are false where more than 2 points were lost. The bound of "
        f"{100 * BAR:.0f} % on each is {held}, but for the cells that are known to go wrong. Of a cell with fewer than "
        f"{ENOUGH} series it counts as broken where the 95 % interval lies above it.",
    ]
    for title, own in _sections(rows):
        if own:
            parts += [title, "\n".join([*_HEAD, *map(_cells, own)])]
    return "\n\n".join(parts) + "\n"


_HEAD = (
    "| cell | series | wrong: a loss that is none, % (95 %) | no loss, % | kept, % | true change, points | labels, % |",
    "|---|---:|---:|---:|---:|---:|---|",
)


def _sections(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Mapping[str, Any]]]]:
    known = [row for row in rows if row["expected"] is not None]
    return [
        ("## Nothing is lost", [row for row in rows if row["null"] and row not in known]),
        ("## Something is lost", [row for row in rows if not row["null"] and row not in known]),
        ("## Known to go wrong", known),
    ]


def _cells(row: Mapping[str, Any]) -> str:
    ranked = sorted(row["labels"].items(), key=lambda of: -of[1])
    labels = ", ".join(f"{label} {100 * n / row['series']:.0f}" for label, n in ranked)
    rates = [_rate(row["wrong"][name], row["series"]) for name in WRONG]
    what = row["what"] if row["expected"] is None else f"{row['what']}: {row['expected']}"
    return f"| {what} | {row['series']} | {' | '.join(rates)} | {row['fall_points']} | {labels} |"


def _rate(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{100 * count / of:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the bound holds, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=ENOUGH, help="of every cell without a loss; less of others")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS), help="what to simulate")
    add_until_solved(parser)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    enough = given.until_solved
    given.out = given.out or RESULTS / f"{result_name('held_out', enough)}.json"
    held = rows_that_stand(given.out, CELLS, partial(fingerprint, enough=enough))
    for wanted in range(SERIES_AT_ONCE, given.series + SERIES_AT_ONCE, SERIES_AT_ONCE):
        for name in given.cells:
            if enough is not None and len(set(CELLS[name].n_S[1:])) > 1:
                continue  # all checkpoints of an audit have the same rule
            done = held[name]["series"] if name in held else 0
            if done < wanted * (1.0 if CELLS[name].null else OF_LOSSES):
                held[name] = joined(held.get(name), _part(CELLS[name], done, enough))
                print(json.dumps(held[name], ensure_ascii=False), flush=True)
                _write(given.out, held)
    _write(given.out, held)
    missed = [row["name"] for row in held.values() if broken(row)]
    for name in missed:
        print(f"{name}: more than {100 * BAR:.0f} % of its series were told something false", file=sys.stderr)
    return 1 if missed else 0


def _part(cell: Cell, first: int, enough: int | None) -> dict[str, Any]:
    rng = np.random.default_rng([SEED, zlib.crc32(cell.name.encode()), first])
    start = time.process_time()
    series = [drawn(cell, rng, enough) for _ in range(SERIES_AT_ONCE)]
    told = [judged(cell, one, said_of(one.counts)) for one in series]
    row = row_of(cell, told, time.process_time() - start)
    samples = [np.mean([one.hits[0].mean() for one in (of.counts.base, *of.counts.trained)]) for of in series]
    return row | {"fingerprint": fingerprint(cell, enough), "samples": round(float(np.mean(samples)), 1)}


def _write(path: Path, held: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [{**held[name], **described(CELLS[name])} for name in CELLS if name in held]
    result = {
        "what": "what the verdict says of series by laws that it was not calibrated on; see held_out.md",
        "seed": SEED,
        "bound_held": not any(broken(row) for row in rows),
        "cpu_s": round(sum(row["cpu_s"] for row in rows)),
        **circumstances(("oversharp", "numpy", "scipy")),
        "rows": rows,
    }
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    partial.replace(path)
    path.with_suffix(".md").write_text(table(rows))


if __name__ == "__main__":
    raise SystemExit(main())
