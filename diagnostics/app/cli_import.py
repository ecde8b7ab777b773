"""`oversharp import`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from diagnostics.app.cli_shared import LEFT_OUT_EXIT_CODE, Json, Quiet, command_line, progress_sink
from diagnostics.ingest.config import ImportConfig

if TYPE_CHECKING:
    from diagnostics.ingest.read import FileResult


def import_(
    paths: Annotated[tuple[str, ...], Parameter(negative=())],
    /,
    *,
    config: ImportConfig | None = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Audit samples that another tool drew: nothing is sampled again.

    Reads dumps of lm-eval, lighteval, inspect, verl, TRL, SkyRL, prime-rl and others, or any JSONL, Parquet or CSV with
    --map. The format is recognised by content, the step by fields, file names or folder names: look with --dry-run
    first. Writes the store and report.html beside it. A file that was imported before adds nothing.

    Parameters
    ----------
    paths
        Files, or folders that are searched through.
    """
    chosen = config or ImportConfig()
    if chosen.dry_run:
        return _preview(paths, chosen, as_json=as_json)

    from diagnostics.ingest.ingest import import_samples

    result = import_samples(paths, chosen, command=command_line(), progress=progress_sink(as_json or quiet))
    if as_json:
        print(json.dumps(_summary(result), indent=2))
    else:
        for one in result.series:
            if one.verdict is None:
                print(f"series  {one.name}: {one.why}")
            else:
                print(f"series  {one.name}: {len(one.steps)} steps, {one.n_problems} problems, {one.n} samples each")
                print(f"verdict of {one.name}: {one.verdict.sentence}")
        if result.report_path is not None:
            print(f"report  {result.report_path}")
        print(f"store   {result.store_path}")
    _warn(result.files)
    for path in result.unknown:
        print(f"note: {path}: nobody's format, not read", file=sys.stderr)
    for one in result.series:
        for label, why in one.left_out.items():
            print(f"warning: {one.name}: {label} left out: {why}", file=sys.stderr)
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def _summary(result: Any) -> dict[str, Any]:
    return {
        "store": str(result.store_path),
        "report": None if result.report_path is None else str(result.report_path),
        "files": [{**_told_of(file), "imported_before": file.known} for file in result.files],
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
                "verdict": None if one.verdict is None else json.loads(one.verdict.to_json()),
            }
            for one in result.series
        ],
    }


def _preview(paths: tuple[str, ...], config: ImportConfig, *, as_json: bool) -> int:
    from diagnostics.ingest.ingest import preview, refused
    from diagnostics.ingest.plan import plan_import

    plan = plan_import(paths, config)
    files = [(series, one) for series, results in preview(plan, config).items() for one in results]
    if as_json:
        rows = [
            {
                **_told_of(one),
                "series": series,
                "steps": [{"step": step, "samples": n, "problems": p} for step, n, p in _by_step(one)],
            }
            for series, one in files
        ]
        rows += [{**_told_of(one), "series": None, "steps": []} for one in refused(plan)]
        print(json.dumps({"files": rows, "unknown": [str(path) for path in plan.unknown]}, indent=2))
    else:
        for series, one in files:
            print(f"{one.path}  {one.format}  series {series}")
            for step, n_samples, n_problems in _by_step(one):
                print(f"  step {step}: {n_samples} samples of {n_problems} problems")
    left_out = [*(one for _, one in files), *refused(plan)]
    _warn(left_out)
    if not as_json:
        for path in plan.unknown:
            print(f"{path}  nobody's format, not read")
        print("nothing was written")
    return LEFT_OUT_EXIT_CODE if any(one.faults or one.why or one.notes for one in left_out) else 0


def _by_step(file: FileResult) -> list[tuple[int, int, int]]:
    """Step, samples, problems."""
    steps = sorted({step for step, _ in file.counted})
    of = {step: [n for (at, _), n in file.counted.items() if at == step] for step in steps}
    return [(step, sum(counts), len(counts)) for step, counts in of.items()]


def _warn(files: Iterable[FileResult]) -> None:
    for file in files:
        for note in file.notes:
            print(f"warning: {file.path} {note}", file=sys.stderr)
        if file.why:
            print(f"warning: {file.path}: left out: {file.why}", file=sys.stderr)
        for why, count in file.faults.items():
            records = "1 record" if count.n == 1 else f"{count.n} records"
            print(
                f"warning: {file.path}: {records} left out, the first in line {count.first_line}: {why}",
                file=sys.stderr,
            )


def _told_of(file: FileResult) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "format": file.format,
        "samples": file.n_samples,
        "left_out": file.why,
        "faults": {why: {"n": count.n, "first_line": count.first_line} for why, count in file.faults.items()},
        "notes": list(file.notes),
    }
