"""``report`` and ``export``: outputs of a store for people and for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.export.contract import Asked, ExportResult, Format
    from oversharp.diagnostics.records.progress import ProgressSink


@check_arguments
def report(
    store: Path | str,
    out: Path | str | None = None,
    *,
    series: Sequence[str] | None = None,
    allow: bool = False,
    replace: bool = False,
    brief: bool = False,
    memory_gib: float | None = None,
) -> Path:
    """Write the HTML report of a store again.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    out
        Path of the report. Default: report.html next to the store.
    series
        Names of the series to compare, for example --series grpo iac. Default: all.
    allow
        Compare series that were sampled or graded differently; the report has a note.
    replace
        Overwrite a file that is not an oversharp report. An older report is always overwritten.
    brief
        Leave out the sections on mechanisms and methods; keep decision, verdicts, lost problems and sample health.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.
    """
    from oversharp.reports import build_report

    target = store_file(store).parent / "report.html" if out is None else Path(out)
    return build_report(
        store_file(store), target, series=series, allow=allow, replace=replace, brief=brief, memory_gib=memory_gib
    )


@check_arguments
def export(
    store: Path | str,
    out: Path | str | None = None,
    *,
    what: Sequence[Asked] = ("findings", "verdicts"),
    formats: Sequence[Format] = (),
    figures: Sequence[str] = (),
    push: str | None = None,
    series: Sequence[str] | None = None,
    replace: bool = False,
    memory_gib: float | None = None,
    progress: ProgressSink | None = None,
) -> ExportResult:
    """Export findings, verdicts, samples or plots of a store, in formats that other tools read.

    findings and verdicts are tables; samples is a folder for datasets.load_dataset; every_eval_ever is a folder of
    records of that schema, 0.3.0; plots are the report's pictures, one file each. Equal stores give equal files.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    out
        Directory to write into. Default: export next to the store.
    what
        findings, verdicts, samples, every_eval_ever, plots, comma-separated, or all. Default: findings,verdicts.
    formats
        csv, parquet, markdown, latex for the tables, svg, png, pdf for the plots, comma-separated. Default: the first
        three; svg. latex writes tables for a paper: pass@k by step and k, and the data of a picture given by --figure.
    figures
        Only these pictures, for example --figure frontier coverage-map: file names without suffix, or prefixes of them.
        frontier is the picture of pass@1 against pass@k.
    push
        OWNER/NAME of a dataset on the Hugging Face hub. Writes the samples with a dataset card (--what adds more) and
        prints the hub client's command that publishes them. Uploads nothing.
    series
        Names of the series to export, for example --series grpo iac. Default: all.
    replace
        Replace the files of an earlier export in OUT. Without it, an existing file is an error; pictures given by
        --figure are added to those in OUT.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        oversharp.export("audit/audit.duckdb", "out", what=["samples", "plots"], formats=["png"])
    """
    from oversharp.diagnostics.app.plots import write_plots
    from oversharp.diagnostics.export.export import export as run

    return run(
        store_file(store),
        None if out is None else Path(out),
        what=what,
        formats=formats,
        figures=figures,
        push=push,
        series=series,
        replace=replace,
        memory_gib=memory_gib,
        write_plots=write_plots,
        progress=progress,
    )
