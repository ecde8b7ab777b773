"""The verbs ``report`` and ``export`` of the API: what is made of a store for people and for other tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.export.contract import Asked, ExportResult, Format
    from oversharp.diagnostics.records.progress import ProgressSink


@checked_arguments
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
        The audit.duckdb file, or the directory that holds it.
    out
        Where to write the report. Default: report.html beside the store.
    series
        Names of the series to show side by side, for example --series grpo iac. Default: all.
    allow
        Compare series although they were sampled or graded differently; the report says so.
    replace
        Write over a file that is no report of oversharp. An older report is always written anew.
    brief
        Without the sections on mechanisms and methods: the decision, the verdicts, problems lost, sample health.
    memory_gib
        Most memory for queries, in GiB; default: 1, or half of what is free if that is less.
    """
    from oversharp.reports import build_report

    target = store_file(store).parent / "report.html" if out is None else Path(out)
    return build_report(
        store_file(store), target, series=series, allow=allow, replace=replace, brief=brief, memory_gib=memory_gib
    )


@checked_arguments
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
    """Take findings, verdicts, samples or plots out of a store, in formats that other tools read.

    findings and verdicts become tables; samples a folder that datasets.load_dataset reads; every_eval_ever a folder of
    records of that schema, 0.3.0; plots the report's pictures, a file for each. The same store gives the same files.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    out
        Directory to write into. Default: export beside the store.
    what
        findings, verdicts, samples, every_eval_ever, plots, comma-separated, or all. Default: findings,verdicts.
    formats
        csv, parquet, markdown, latex for the tables, svg, png, pdf for the plots, comma-separated. Default: the first
        three; svg. latex is for a paper: pass@k by step and k, and the table of data under a picture that is named.
    figures
        Only these pictures, for example --figure frontier coverage-map; a name is that of its file, or how several
        begin; frontier is the picture that says better, or only sharper.
    push
        OWNER/NAME of a dataset on the Hugging Face hub. Writes the samples alone unless --what says otherwise, with a
        dataset card, and prints the command of the hub's client that publishes them. Sends nothing itself.
    series
        Names of the series to take, for example --series grpo iac. Default: all.
    replace
        Replace what an earlier export left in OUT. Without it, what exists is an error; pictures that are named join
        others that lie there.
    memory_gib
        Most memory for queries, in GiB; default: 1, or half of what is free if that is less.

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
