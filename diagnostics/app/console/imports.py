"""Prints the results of ``import``, and with ``--dry-run`` what one would read; each returns the exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.app.console.layout import OutputRow, print_lines, print_rows
from oversharp.diagnostics.app.console.output import made_of_series, print_json, verdict_summary, warn
from oversharp.diagnostics.app.console.verdict import print_verdict
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

if TYPE_CHECKING:
    from oversharp.diagnostics.app.api import ImportConfig, ImportResult
    from oversharp.diagnostics.ingest.ingest import ImportedSeries
    from oversharp.diagnostics.ingest.plan import ImportPlan
    from oversharp.diagnostics.ingest.read import FileResult


def show_import(result: ImportResult, as_json: bool, *, explain: bool = False) -> int:
    """Print a verdict per series, and warnings of files, steps and records that were left out."""
    if as_json:
        print_json(_import_summary(result))
    else:
        for one in result.series:
            _print_series(one, result, explain)
            print_lines([""])
        if result.report_path is not None:
            print_rows([OutputRow(label="report", value=str(result.report_path), is_whole=True)])
        print_rows([OutputRow(label="store", value=str(result.store_path), is_whole=True)])
    _warn_files(result.files)
    for path in result.unknown:
        print(escape_controls(f"note: {path}: unrecognized format, not read"), file=sys.stderr)
    for one in result.series:
        for label, why in one.left_out.items():
            warn(f"{one.name}: left out {label}: {why}")
        for doubt in one.doubts:
            warn(f"{one.name}: {doubt}")
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def show_import_preview(plan: ImportPlan, config: ImportConfig, as_json: bool) -> int:
    """Print the files, steps and samples that an import would read; write nothing."""
    from oversharp.diagnostics.ingest.ingest import preview, refused_files

    series = preview(plan, config)
    files = [(one.name, file) for one in series for file in one.files]
    if as_json:
        rows = [
            {
                **_file_summary(file),
                "series": name,
                "steps": [{"step": step, "samples": n, "problems": p} for step, n, p in _counts_by_step(file)],
            }
            for name, file in files
        ]
        rows += [{**_file_summary(one), "series": None, "steps": []} for one in refused_files(plan)]
        summaries = [one.summary for one in series]
        print_json({"files": rows, "series": summaries, "unknown": [str(path) for path in plan.unknown]})
    else:
        for name, file in files:
            print_lines([f"{file.path}  {file.format}  series {name}"])
            print_lines(
                f"  step {step}: {plural(n_samples, 'sample')} of {plural(n_problems, 'problem')}"
                for step, n_samples, n_problems in _counts_by_step(file)
            )
    every = [*(file for _, file in files), *refused_files(plan)]
    _warn_files(every)
    for one in series:
        for note in one.notes:
            print(escape_controls(f"{one.name}: {note}"), file=sys.stderr)
        for warning in one.warnings:
            warn(f"{one.name}: {warning}")
    if not as_json:
        print_lines(f"{path}  unrecognized format, not read" for path in plan.unknown)
        print_lines(["nothing was written"])
    is_incomplete = any(file.faults or file.why or file.notes for file in every) or any(one.warnings for one in series)
    return LEFT_OUT_EXIT_CODE if is_incomplete else 0


def _print_series(one: ImportedSeries, result: ImportResult, explain: bool) -> None:
    if one.verdict is None:
        print_rows([OutputRow(label="series", value=f"{one.name}: {one.why}")])
        return
    made_of = made_of_series(result.store_path, one.name) if explain else None
    print_verdict(one.verdict, result.store_path, made_of=made_of, explain=explain)


def _import_summary(result: ImportResult) -> dict[str, Any]:
    return {
        "store": str(result.store_path),
        "report": None if result.report_path is None else str(result.report_path),
        "files": [{**_file_summary(file), "imported_before": file.known} for file in result.files],
        "unknown": [str(path) for path in result.unknown],
        "series": [
            {
                "series": one.name,
                "steps": list(one.steps),
                "problems": one.n_problems,
                "n": one.n,
                "why_no_verdict": one.why,
                "left_out": dict(one.left_out),
                "notes": list(one.notes),
                "doubts": list(one.doubts),
                "verdict": None if one.verdict is None else verdict_summary(one.verdict),
                "made_of": None if one.verdict is None else made_of_series(result.store_path, one.name),
            }
            for one in result.series
        ],
    }


def _file_summary(file: FileResult) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "format": file.format,
        "samples": file.n_samples,
        "left_out": file.why,
        "faults": {why: {"n": count.n, "first_line": count.first_line} for why, count in file.faults.items()},
        "notes": list(file.notes),
    }


def _counts_by_step(file: FileResult) -> list[tuple[int, int, int]]:
    """Step, samples, problems."""
    steps = sorted({step for step, _ in file.counted})
    counts = {step: [n for (at, _), n in file.counted.items() if at == step] for step in steps}
    return [(step, sum(of_step), len(of_step)) for step, of_step in counts.items()]


def _warn_files(files: Iterable[FileResult]) -> None:
    for file in files:
        for note in file.notes:
            warn(f"{file.path} {note}")
        if file.why:
            warn(f"{file.path}: left out: {file.why}")
        for why, count in file.faults.items():
            warn(f"{file.path}: {plural(count.n, 'record')} left out, the first in line {count.first_line}: {why}")
