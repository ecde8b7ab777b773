"""Print the results of the commands as text or JSON. Functions return the exit code."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_json,
    print_lines,
    print_rows,
    print_table,
    terminal,
    warn,
    warn_left_out,
)
from oversharp.diagnostics.app.console.plan import print_plan
from oversharp.diagnostics.app.console.shipping import print_shipping
from oversharp.diagnostics.app.console.verdict import load_made_of, print_verdict, verdict_summary
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import escape_controls
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

if TYPE_CHECKING:
    from oversharp.diagnostics.app.api import (
        AuditResult,
        CompareResult,
        ConfirmResult,
        DropResult,
        ExportResult,
        MergeResult,
        Plan,
        Recommendation,
        RegradeResult,
        RepairResult,
        ShardResult,
    )
    from oversharp.diagnostics.app.compare import ComparisonPlan
    from oversharp.diagnostics.models.conversion import Conversion

#: Smallest change of λ by rounding that is printed as a warning.
_NOTABLE_LAMBDA = 0.02
#: Table columns of the problems that ``confirm`` tested.
CONFIRM_COLUMNS = (
    OutputColumn(heading="problem", is_text=True, may_shorten=True),
    OutputColumn(heading="seemed", is_text=True),
    *(OutputColumn(heading=heading) for heading in ("base", "late", "p", "adjusted p", "confirmed")),
)


def show_audit(result: AuditResult, as_json: bool, *, explain: bool = False) -> int:
    """Print verdict and files. JSON also has the findings at the last checkpoint."""
    if as_json:
        print_json(
            {
                "series": result.series,
                "store": str(result.store_path),
                "report": str(result.report_path),
                "samples_drawn": result.samples_drawn,
                "left_out": dict(result.left_out),
                "without_kernel": dict(result.without_kernel),
                "verdict": verdict_summary(result.verdict),
                "made_of": load_made_of(result.store_path, result.series),
                "findings": _headline_findings(result.store_path, result.series),
            }
        )
    else:
        print_audits([result], explain=explain)
    warn_left_out(result.left_out)
    for label, reason in result.without_kernel.items():
        warn(f"no gradient kernel of {label}: {reason}")
    return LEFT_OUT_EXIT_CODE if result.has_remarks else 0


def print_audits(audits: Sequence[AuditResult], *, explain: bool = False) -> None:
    """Print a verdict for each audit of one store, then the paths of report and store."""
    for audit in audits:
        made_of = load_made_of(audit.store_path, audit.series) if explain else None
        print_verdict(audit.verdict, audit.store_path, made_of=made_of, explain=explain)
        print_lines([""])
    _print_files(audits[-1].report_path, audits[-1].store_path)


def show_shard(result: ShardResult, as_json: bool) -> int:
    """Print the store of the shard, and the command to run after all shards."""
    if as_json:
        print_json({**asdict(result), "shard": str(result.shard)})
    else:
        shard = f"{result.shard} of {result.series}: {plural(result.n_problems, 'problem')}"
        done = f"when all {result.shard.of} are done: oversharp merge STORES --out DIR, then this audit without --shard"
        print_rows(
            (
                OutputRow(label="shard", value=shard),
                OutputRow(label="store", value=str(result.store_path), is_whole=True),
                OutputRow(label="next", value=done),
            )
        )
    warn_left_out(result.left_out)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


def show_ship(result: Sequence[Recommendation], as_json: bool, *, store_path: Path, explain: bool) -> int:
    """Print the checkpoint to ship for each group of comparable series.

    Returns 3 if a group has none.
    """
    if as_json:
        print_json({"recommendations": [asdict(recommendation) for recommendation in result]})
    else:
        print_shipping(result, store_path=store_path, explain=explain)
    return LEFT_OUT_EXIT_CODE if any(recommendation.recommended is None for recommendation in result) else 0


def show_plan(result: Plan, as_json: bool) -> int:
    """Print power and cost of an audit by its size."""
    if as_json:
        print_json(asdict(result))
    else:
        print_plan(result)
    return 0


def show_confirm(result: ConfirmResult, as_json: bool) -> int:
    """Print the problems that were sampled again, and whether each is confirmed."""
    if as_json:
        print_json(
            {
                "series": result.series,
                "checkpoint": result.checkpoint,
                "step": result.step,
                "fresh": result.fresh,
                "samples_drawn": result.samples_drawn,
                "n_earlier": result.n_earlier,
                "store": str(result.store_path),
                "report": str(result.report_path),
                "problems": [{**asdict(test), "confirmed": test.confirmed} for test in result.tested],
            }
        )
    else:
        print_confirmations(result)
        _print_files(result.report_path, result.store_path)
    return 0


def show_regrade(result: RegradeResult, as_json: bool) -> int:
    """Print the label by the earlier grades, the new verdict, and the number of changed grades."""
    if as_json:
        earlier = None if result.of_verdict is None else verdict_summary(result.of_verdict)
        made_of = load_made_of(result.store_path, result.of_series)
        verdicts = {"verdict": verdict_summary(result.verdict), "of_verdict": earlier, "made_of": made_of}
        print_json({**asdict(result), **verdicts})
    else:
        print_rows([OutputRow(label="earlier", value=_earlier_text(result))])
        if result.series != result.of_series:
            differ = f"{result.n_disagreed:,} of {plural(result.n_samples, 'sample')} are graded differently"
            print_rows([OutputRow(label="grades", value=differ)])
        print_lines([""])
        print_verdict(result.verdict, result.store_path)
        print_lines([""])
        _print_files(result.report_path, result.store_path)
    if result.left_out:
        label, why = next(iter(result.left_out.items()))
        warn(f"{plural(len(result.left_out), 'problem')} left out, the first is {label}: {why}")
    return LEFT_OUT_EXIT_CODE if result.left_out or result.verdict.label == "no_verdict" else 0


def _earlier_text(result: RegradeResult) -> str:
    from oversharp.diagnostics.verifiers.names import listed_graders

    label = "no verdict yet" if result.of_verdict is None else result.of_verdict.title
    if result.series == result.of_series:
        return f"{label} ({result.series}, before {plural(result.n_graded, 'response')} were graded again)"
    return f"{label} ({result.of_series}, graded by {listed_graders(result.own_verifiers)})"


def show_repair(result: RepairResult, as_json: bool) -> int:
    """Print the path of every point.

    Warns about points that rounding moved, or that equal another one.
    """
    if as_json:
        print_json(asdict(result))
    else:
        ends = {0: f"the base, {result.base}", 100: f"the end, {_mean_of(result.checkpoints)}"}
        for point in result.points:
            name = ends.get(point.step, f"λ = {point.lambda_:g}")
            print_lines([f"{point.path}  {name}{', kept' if point.found else ''}"])
        command = f"oversharp audit {shlex.quote(str(result.out))} --problems FILE.jsonl --out DIR"
        print_rows([OutputRow(label="next", value=command, is_whole=True)])
    for point in result.points:
        if point.rounded_lambda is not None and abs(point.rounded_lambda - point.lambda_) > _NOTABLE_LAMBDA:
            warn(
                f"{point.path}: rounded to the dtype of the checkpoint, the weights are at "
                f"λ = {point.rounded_lambda:.3f}; --float32 with another --out writes them unrounded"
            )
    warn_left_out(result.left_out)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


def _mean_of(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"the mean of {', '.join(labels)}"


def show_report(path: Path, as_json: bool) -> int:
    """Print the path of the report."""
    if as_json:
        print(escape_controls(json.dumps({"report": str(path)})))
    else:
        print_rows([OutputRow(label="report", value=str(path), is_whole=True)])
    return 0


def show_conversion(result: Conversion, as_json: bool) -> int:
    """Print the converted checkpoint and its answers."""
    if as_json:
        print_json(asdict(result))
        return 0
    size = f"{result.n_parameters:,} parameters, {result.n_tokens:,} tokens"
    if result.context_tokens is not None:
        size += f", context {result.context_tokens:,}"
    print_rows(
        (
            OutputRow(label="model", value=f"{result.path}{' (kept)' if result.found else ''}", is_whole=True),
            OutputRow(label="size", value=size),
            OutputRow(label="chat", value="with a chat template" if result.chat else "without a chat template"),
            OutputRow(label="end tokens", value=" or ".join(result.end_tokens)),
        )
    )
    for question, answer in result.answers:
        print_rows(
            (OutputRow(label="question", value=question), OutputRow(label="answer", value=" ".join(answer.split()))),
        )
    return 0


def show_export(result: ExportResult, as_json: bool) -> int:
    """Print the exported files."""
    if as_json:
        print_json(asdict(result))
        return 0
    for output in result.written:
        if not output.files:
            print_lines([f"{output.what:16} {output.path}  ({output.n:,})"])
        print_lines(f"{'picture' if file.suffix != '.tex' else 'table':16} {file}" for file in output.files)
    if result.push is not None:
        print_lines([f"{'to publish':16} {result.push}"])
    return 0


def show_merge(result: MergeResult, as_json: bool) -> int:
    """Print the joined store and the next command."""
    if as_json:
        print_json(asdict(result))
    else:
        names, added = ", ".join(result.series), plural(result.samples_added, "sample")
        command = f"oversharp report {shlex.quote(str(result.store_path))}"
        if result.to_conclude:
            out = result.store_path.parent
            command = f"the audit of {', '.join(result.to_conclude)} without --shard, with --out {out}"
        print_rows(
            (
                OutputRow(label="store", value=str(result.store_path), is_whole=True),
                OutputRow(label="series", value=f"{names}: {added} added"),
                OutputRow(label="next", value=command, is_whole=True),
            )
        )
    for label, reason in result.left_out.items():
        warn(f"{label} was left out: {reason}")
    return 0


def show_drop(result: DropResult, as_json: bool) -> int:
    """Print the removed series, and the path of the old store."""
    if as_json:
        print_json(asdict(result))
        return 0
    is_preview = result.copy_path is None
    counts = f"{plural(result.checkpoints, 'checkpoint')} and {plural(result.samples, 'sample')}"
    print_rows(
        (
            OutputRow(
                label="would remove" if is_preview else "removed",
                value=f"{', '.join(result.series)}: {counts} that no remaining series uses",
            ),
            OutputRow(label="left", value=f"{', '.join(result.series_left)}: {plural(result.samples_left, 'sample')}"),
        )
    )
    if result.copy_path is None:
        print_lines(["nothing was changed"])
        return 0
    tokens = result.copy_path.with_suffix(".tokens")
    copies = f"{result.copy_path}{f' and {tokens}' if tokens.exists() else ''}"
    print_rows(
        (
            OutputRow(label="store", value=str(result.store_path), is_whole=True),
            OutputRow(label="copy", value=copies, is_whole=True),
            OutputRow(label="", value="The copy is the old store. Remove it once you have checked the new store."),
        )
    )
    return 0


def show_compare(result: ComparisonPlan | CompareResult, as_json: bool) -> int:
    """Print the comparison, or its plan."""
    print(escape_controls(json.dumps(result.summary, indent=2) if as_json else "\n".join(result.lines)))
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def _print_files(report_path: Path, store_path: Path) -> None:
    print_rows(
        (
            OutputRow(label="report", value=str(report_path), is_whole=True),
            OutputRow(label="store", value=str(store_path), is_whole=True),
        )
    )


def _headline_findings(store_path: Path, series: str) -> Sequence[Mapping[str, Any]]:
    """Return the findings on the whole problem set at the last checkpoint."""
    from oversharp.diagnostics.store import Store

    with Store.open(store_path, read_only=True) as store:
        frame = store.frame(
            """
            SELECT checkpoint, step, measure, k, value, low, high, n, unit, why, interval_over
            FROM findings
            WHERE series = $series AND scope = 'all'
            QUALIFY step = max(step) OVER ()
            ORDER BY measure, k
            """,
            series=series,
        )
    return json.loads(frame.to_json(orient="records"))


def print_confirmations(result: ConfirmResult, console: Console | None = None) -> None:
    """Print a row for each problem that was sampled again, and the number of confirmed problems."""
    out = console or terminal()
    if not result.tested:
        value = f"{result.series}: no problem seems lost or gained, so none was sampled again"
        print_rows([OutputRow(label="series", value=value)], out)
        return
    fresh = plural(result.fresh, "fresh sample")
    value = f"{result.series}: {result.checkpoint} compared with the base, {fresh} per problem and checkpoint"
    print_rows([OutputRow(label="series", value=value)], out)
    print_lines([""], out)
    rows = [
        (
            f"{problem.source_id or problem.problem_id}  {problem.prompt}",
            test.change,
            f"{test.correct_base}/{test.n_base}",
            f"{test.correct_late}/{test.n_late}",
            f"{test.p:.2g}",
            f"{test.p_adjusted:.2g}",
            "yes" if test.confirmed else "no",
        )
        for problem, test in zip(result.problems, result.tested, strict=True)
    ]
    print_table(CONFIRM_COLUMNS, rows, out)
    print_lines([""], out)
    counts = [
        f"{sum(test.confirmed for test in result.tested if test.change == change)} of "
        f"{sum(test.change == change for test in result.tested)} {change}"
        for change in ("lost", "gained")
    ]
    gone = [test for test in result.tested if test.confirmed and test.change == "lost" and not test.correct_late]
    print_rows(
        (
            OutputRow(label="confirmed", value=f"{', '.join(counts)} (Fisher's exact test, Holm over all, level 5 %)"),
            OutputRow(label="lost", value=f"{len(gone)} without a correct fresh sample at {result.checkpoint}"),
        ),
        out,
    )
    if result.n_earlier:
        value = f"{plural(result.n_earlier, 'problem')} of an earlier confirmation, tested together with these"
        print_rows([OutputRow(label="note", value=value)], out)
