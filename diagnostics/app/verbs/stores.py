"""Functions of the API that take a store: diff, lost, ship, regrade, judge, report, export, drop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import as_path_list, store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.judges.judge import JudgeResult
    from oversharp.diagnostics.audit.regrade import RegradeResult
    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import LostProblems
    from oversharp.diagnostics.export.contract import ExportResult, Format, RequestedWhat
    from oversharp.diagnostics.records.progress import ProgressSink
    from oversharp.diagnostics.store.drop import DropResult
    from oversharp.diagnostics.verdict.recommendation import Recommendation


@check_arguments
def diff(
    store: Path | str,
    *,
    steps: Sequence[int],
    series: str | None = None,
    most: int = 12,
    memory_gib: float | None = None,
) -> StepDifference:
    """Compare two checkpoints of a series: pass@k at every k, problems lost and problems gained.

    Differences of pass@k are paired over problems, with intervals and p values for all k together. Single problems are
    tested by Fisher's exact test in each direction, with Holm's correction over the problems with correct and wrong
    samples. Problems sampled until solved are tested by an exact likelihood-ratio test. Both tests assume that you
    chose the two steps before looking at the results. The store is not changed.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    steps
        Two steps, the earlier one first: --steps 80 160. The step of the base is allowed.
    series
        Name of the series; required if the store has several.
    most
        Number of significantly changed problems to print; the result has all.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        result = oversharp.diff("audit/audit.duckdb", steps=[80, 160], series="grpo")
        print(*result.sentences, sep="\\n")
    """
    from oversharp.diagnostics.changes.difference import diff as run

    return run(store_file(store), steps=steps, series=series, most=most, memory_gib=memory_gib)


@check_arguments
def lost(
    store: Path | str,
    *,
    step: int | None = None,
    since: int | None = None,
    series: str | None = None,
    answers: bool = False,
    most: int = 20,
    memory_gib: float | None = None,
) -> LostProblems:
    """List the problems that a checkpoint lost, or solves significantly less often.

    A lost problem has no correct sample. The test is Fisher's exact test, one-sided, with Holm's correction over the
    problems that have correct and wrong samples, as in the report. Problems sampled until solved are tested by an exact
    likelihood-ratio test. Significantly lost problems come first, then those that fell significantly, then the others.
    Rarely solved problems are also lost by chance. Their expected number is printed. `oversharp confirm` tests problems
    on fresh samples.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    step
        The checkpoint. Default: the last.
    since
        The checkpoint to compare with. Default: the base.
    series
        Name of the series; required if the store has several.
    answers
        Print the answers at both checkpoints with their counts, and a response of each.
    most
        Number of problems to list.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        for problem in oversharp.lost("audit/audit.duckdb", answers=True).problems:
            print(problem.change.title, problem.before[0].answer, "→", problem.after[-1].answer)
    """
    from oversharp.diagnostics.changes.lost import lost as run

    path = store_file(store)
    return run(path, step=step, since=since, series=series, answers=answers, most=most, memory_gib=memory_gib)


@check_arguments
def ship(
    store: Path | str,
    *,
    series: Sequence[str] | None = None,
    allow_loss_points: float = 0.0,
    held_out: bool = False,
    memory_gib: float | None = None,
) -> tuple[Recommendation, ...]:
    """Recommend a checkpoint: the eligible one with the highest expected pass@1, with its guarantee.

    A checkpoint is not eligible if pass@k fell significantly at some k, if the verdict tested it as lost, or if the
    expected fall at the worst k is above 2 points. In a toss-up, the base is recommended: the posterior probability
    that the best checkpoint has a higher pass@1 is then below 0.8. Control samples are also candidates: the base at a
    lower temperature, which needs no training, and checkpoints at a higher temperature. The guarantee bounds the gain
    of pass@1 and the loss of pass@k, and accounts for the choice among all checkpoints. Series with the same base,
    problems and sampling settings are compared with each other. The store is not changed. Exit code 3: no
    recommendation.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Names of the series to choose from, for example --series grpo iac. Default: all.
    allow_loss_points
        Largest fall of pass@k of an eligible checkpoint, in percentage points, from 0 to below 100.
    held_out
        Choose the checkpoint on one half of the problems and compute the guarantee on the other half. Use it with many
        checkpoints, such as repaired ones.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        (best,) = oversharp.ship("audit/audit.duckdb")
        print(best.sentence, best.recommended.path)
    """
    from oversharp.diagnostics.audit.shipping import ship as run

    return run(
        store_file(store), series=series, allow_loss_points=allow_loss_points, held_out=held_out, memory_gib=memory_gib
    )


@check_arguments
def regrade(
    store: Path | str,
    verifier: str,
    *,
    series: str | None = None,
    guess_rate: float | None = None,
    grader_timeout: float = 30.0,
    grader_memory_gib: float = 4.0,
    grader_workers: int = 1,
    allow_unsandboxed: bool = False,
    sandbox_url: str | None = None,
    command: str | None = None,
    progress: ProgressSink | None = None,
) -> RegradeResult:
    """Grade the responses of a store with another verifier, and compare the two verdicts.

    Samples nothing. Both grades are kept: a second series, "SERIES (VERIFIER)", has the same samples and a separate
    verdict. The report shows both verdicts and where the verifiers disagree. Use this to distinguish a change of answer
    style from a change of ability. If ``verifier`` already graded the series, outdated grades are recomputed in place.
    If it is interrupted, the same call continues.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    verifier
        math, math_strict, exact, choice, code, expression, modes, program, reasoning_gym, a plug-in,
        FILE.py:function, or judge:FILE.toml.
    series
        Name of the series to grade again; required if the store has several.
    guess_rate
        False-accept rate of this verifier: the share of wrong responses that it accepts, from 0 to 1. Default: the
        verifier's own, else an assumed one.
    grader_timeout
        Time limit of one call of FILE.py:function, in seconds. After it, the process is killed and the response gets
        the state timeout. For loading the file and the first call, the limit is four times as long, and at least 20 s.
    grader_memory_gib
        Memory limit of each process of FILE.py:function, in GiB.
    grader_workers
        Number of calls of FILE.py:function at a time, in at most one process per CPU core. Each process loads the file,
        and any model that the file loads. With more calls than cores, a process runs several in threads, or as tasks if
        the function is async.
    allow_unsandboxed
        Run programs of code tasks with your rights if this machine has no sandbox (see doctor). A program can then
        delete your files.
    sandbox_url
        Run programs of code tasks on this SandboxFusion server, such as http://localhost:8080.
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.regrade import regrade as run
    from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
    from oversharp.diagnostics.verifiers.sandbox import backends

    if allow_unsandboxed:
        backends.allow_unsandboxed()
    if sandbox_url is not None:
        backends.use_server(sandbox_url)
    require_report_place(store_file(store))
    rate = "" if guess_rate is None else f", guess_rate={guess_rate!r}"
    result = run(
        store_file(store),
        verifier,
        series=series,
        guess_rate=guess_rate,
        limits=GraderLimits(timeout_s=grader_timeout, memory_gib=grader_memory_gib, workers=grader_workers),
        command=command or f"oversharp.regrade({str(store)!r}, {verifier!r}, series={series!r}{rate})",
        progress=progress,
    )
    write_report(result.store_path, result.report_path)
    return result


@check_arguments
def judge(
    store: Path | str,
    verifier: str,
    *,
    series: str | None = None,
    labels: Path | str | None = None,
    draw_labels: int | None = None,
    draw_k: int = 1,
    steps: Sequence[int] = (),
    probes: int = 50,
    progress: ProgressSink | None = None,
) -> JudgeResult:
    """Measure the judge that graded a series, or write responses to label.

    Measures repeat agreement, and the effect of planted changes: a longer response, Markdown, a confident tone, an
    instruction to accept, the order of the two verdicts. With labels it measures the judge's errors, and corrects
    pass@1, pass@k and their changes. With a second verifier (`oversharp regrade`) it tests whether the judge grew more
    lenient. The results are caveats of the verdict. docs/judges.md

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    verifier
        The judge: judge:FILE.toml, unchanged since it graded.
    series
        Name of the series; required if the judge graded several.
    labels
        JSONL file with gold labels. With --draw-labels, the file to write. Default: labels.jsonl next to the store.
    draw_labels
        Write random responses to label, about this number of labels per checkpoint, and stop.
    draw_k
        Largest k of pass@k that the drawn labels correct. Responses are drawn in sets of this size.
    steps
        Checkpoints to label, besides the base: --steps 80 160. Default: the last.
    probes
        Number of responses for planted changes and repeats; each takes 8 requests. 0: none.

    Examples
    --------
    ::

        result = oversharp.judge("audit/audit.duckdb", "judge:rubric.toml", labels="audit/labels.jsonl")
        print(*result.sentences, sep="\\n")
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.judges.judge import measure_judge

    require_report_place(store_file(store))
    result = measure_judge(
        store_file(store),
        verifier,
        series=series,
        labels=None if labels is None else Path(labels),
        draw_labels=draw_labels,
        draw_k=draw_k,
        steps=steps,
        probes=probes,
        progress=progress,
    )
    if result.drawn is None:
        write_report(result.store_path, result.report_path)
    return result


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
    what: Sequence[RequestedWhat] = ("findings", "verdicts"),
    formats: Sequence[Format] = (),
    figures: Sequence[str] = (),
    push: str | None = None,
    series: Sequence[str] | None = None,
    replace: bool = False,
    memory_gib: float | None = None,
    progress: ProgressSink | None = None,
) -> ExportResult:
    """Export findings, verdicts, samples or plots of a store, in formats that other tools read.

    findings and verdicts are tables. samples is a folder for datasets.load_dataset. every_eval_ever is a folder of
    records in the Every Eval Ever schema, version 0.3.0. atif is a folder of trajectories with their turns and tool
    calls, in Harbor's format ATIF-v1.7. plots are the report's pictures, one file each. Equal stores give equal files.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    out
        Directory to write into. Default: export next to the store.
    what
        findings, verdicts, samples, every_eval_ever, atif, plots, comma-separated, or all. Default: findings,verdicts.
    formats
        Comma-separated. Tables: csv, parquet, markdown, latex (default: csv,parquet,markdown). Plots: svg, png, pdf
        (default: svg). latex writes tables for a paper: pass@k by step and k, and the data of a picture given by
        --figure.
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


@check_arguments
def drop(store: Path | str, series: str | Sequence[str], *, dry_run: bool = False, replace: bool = False) -> DropResult:
    """Remove series from a store, and keep a copy of the old store next to it.

    Removes their samples, grades, scores, findings and token files. Keeps everything that a remaining series also uses:
    the base, its samples, kernels. Findings and verdicts of the remaining series do not change. The report is written
    again. If removed series were candidates for the checkpoint to ship, it is chosen again.

    The copy is audit.before-drop.duckdb, with its token files in audit.before-drop.tokens. Remove both after checking
    the new store. To undo the drop, move both back. If the command is interrupted, the store is unchanged.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Names of the series to remove. At least one series must remain.
    dry_run
        Print what would be removed; change nothing.
    replace
        Overwrite the copy that an earlier drop kept.

    Examples
    --------
    ::

        print(oversharp.drop("audit/audit.duckdb", "grpo", dry_run=True).samples)
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.shipping import settle_left
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.store.drop import drop_preview, without_series

    path, names = store_file(store), [str(name) for name in as_path_list(series)]
    if dry_run:
        return drop_preview(path, names)
    require_report_place(path)
    with without_series(path, names, replace=replace) as (made, result):
        settle_left(made)
    with Store.open(path, read_only=True) as opened:
        is_audited = not opened.frame("FROM current_audits LIMIT 1").empty
    if is_audited:  # not if only samples without a base were imported
        write_report(path, path.parent / "report.html")
    return result
