"""Print the result of ``import`` or its ``--dry-run``. Functions return the exit code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.app.console.layout import OutputRow, print_json, print_lines, print_rows, warn
from oversharp.diagnostics.app.console.verdict import load_made_of, print_verdict, verdict_summary
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

if TYPE_CHECKING:
    from oversharp.diagnostics.app.api import ImportConfig, ImportResult
    from oversharp.diagnostics.ingest.ingest import ImportedSeries
    from oversharp.diagnostics.ingest.plan import ImportPlan
    from oversharp.diagnostics.ingest.read import FileResult


def show_import(result: ImportResult, as_json: bool, *, explain: bool = False) -> int:
    """Print a verdict per series. Also prints warnings about left-out files, steps and records."""
    if as_json:
        print_json(_import_summary(result))
    else:
        for series in result.series:
            _print_series(series, result, explain)
            print_lines([""])
        if result.report_path is not None:
            print_rows([OutputRow(label="report", value=str(result.report_path), is_whole=True)])
        print_rows([OutputRow(label="store", value=str(result.store_path), is_whole=True)])
    _warn_files(result.files)
    for path in result.unknown:
        print(escape_controls(f"note: {path}: unrecognized format, not read"), file=sys.stderr)
    for series in result.series:
        for label, why in series.left_out.items():
            warn(f"{series.name}: left out {label}: {why}")
        for doubt in series.doubts:
            warn(f"{series.name}: {doubt}")
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def show_import_preview(plan: ImportPlan, config: ImportConfig, as_json: bool) -> int:
    """Print the files, steps and samples that an import would read."""
    from oversharp.diagnostics.ingest.ingest import preview, refused_files

    previews, refused = preview(plan, config), refused_files(plan)
    files = [(series.name, file) for series in previews for file in series.files]
    if as_json:
        rows = [
            {
                **_file_summary(file),
                "series": name,
                "steps": [{"step": step, "samples": n, "problems": p} for step, n, p in _counts_by_step(file)],
            }
            for name, file in files
        ]
        rows += [{**_file_summary(file), "series": None, "steps": []} for file in refused]
        summaries = [series.summary for series in previews]
        print_json({"files": rows, "series": summaries, "unknown": [str(path) for path in plan.unknown]})
    else:
        for name, file in files:
            print_lines([f"{file.path}  {file.format}  series {name}"])
            print_lines(
                f"  step {step}: {plural(n_samples, 'sample')} of {plural(n_problems, 'problem')}"
                for step, n_samples, n_problems in _counts_by_step(file)
            )
    every = [*(file for _, file in files), *refused]
    _warn_files(every)
    for series in previews:
        for note in series.notes:
            print(escape_controls(f"{series.name}: {note}"), file=sys.stderr)
        for warning in series.warnings:
            warn(f"{series.name}: {warning}")
    if not as_json:
        print_lines(f"{path}  unrecognized format, not read" for path in plan.unknown)
        print_lines(["nothing was written"])
    is_incomplete = any(file.faults or file.why or file.notes for file in every)
    return LEFT_OUT_EXIT_CODE if is_incomplete or any(series.warnings for series in previews) else 0


def _print_series(series: ImportedSeries, result: ImportResult, explain: bool) -> None:
    if series.verdict is None:
        print_rows([OutputRow(label="series", value=f"{series.name}: {series.why}")])
        return
    made_of = load_made_of(result.store_path, series.name) if explain else None
    print_verdict(series.verdict, result.store_path, made_of=made_of, explain=explain)


def _import_summary(result: ImportResult) -> dict[str, Any]:
    return {
        "store": str(result.store_path),
        "report": None if result.report_path is None else str(result.report_path),
        "files": [{**_file_summary(file), "imported_before": file.known} for file in result.files],
        "unknown": [str(path) for path in result.unknown],
        "series": [
            {
                "series": series.name,
                "steps": list(series.steps),
                "problems": series.n_problems,
                "n": series.n,
                "why_no_verdict": series.why,
                "left_out": dict(series.left_out),
                "notes": list(series.notes),
                "doubts": list(series.doubts),
                "verdict": None if series.verdict is None else verdict_summary(series.verdict),
                "made_of": None if series.verdict is None else load_made_of(result.store_path, series.name),
            }
            for series in result.series
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
    """Return step, number of samples and number of problems, ordered by step."""
    samples, problems = Counter[int](), Counter[int]()
    for (step, _), n in file.counted.items():
        samples[step] += n
        problems[step] += 1
    return [(step, samples[step], problems[step]) for step in sorted(samples)]


def _warn_files(files: Iterable[FileResult]) -> None:
    for file in files:
        for note in file.notes:
            warn(f"{file.path} {note}")
        if file.why:
            warn(f"{file.path}: left out: {file.why}")
        for why, count in file.faults.items():
            warn(f"{file.path}: {plural(count.n, 'record')} left out, the first in line {count.first_line}: {why}")
