"""Prints the results of the commands, as text or as JSON; each function returns the command's exit code."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import visible
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

if TYPE_CHECKING:
    from oversharp.diagnostics.app.api import (
        AuditResult,
        CompareResult,
        ConfirmResult,
        DropResult,
        ExportResult,
        ImportConfig,
        ImportResult,
        MergeResult,
        Plan,
        Recommendation,
        RegradeResult,
        RepairResult,
        ShardResult,
        Verdict,
    )
    from oversharp.diagnostics.app.compare import ComparisonPlan
    from oversharp.diagnostics.ingest.plan import ImportPlan
    from oversharp.diagnostics.ingest.read import FileResult
    from oversharp.diagnostics.models.conversion import Conversion

#: A λ that rounding moved by more than this is told.
_NOTABLE_LAMBDA = 0.02


def show_audit(result: AuditResult, as_json: bool) -> int:
    """Files and verdict; as JSON with the findings at the last checkpoint."""
    if as_json:
        _print_json(
            {
                "series": result.series,
                "store": str(result.store_path),
                "report": str(result.report_path),
                "samples_drawn": result.samples_drawn,
                "left_out": dict(result.left_out),
                "without_kernel": dict(result.without_kernel),
                "verdict": _verdict(result.verdict),
                "made_of": made_of_series(result.store_path, result.series),
                "findings": _headline_findings(result.store_path, result.series),
            }
        )
    else:
        _say(f"report  {result.report_path}\nstore   {result.store_path}")
        print_verdict(result.verdict, "verdict ", made_of_series(result.store_path, result.series))
    _warn_left_out(result.left_out)
    for label, reason in result.without_kernel.items():
        _warn(f"no gradient kernel of {label}: {reason}")
    return LEFT_OUT_EXIT_CODE if result.left_out or result.without_kernel or result.verdict.left_out else 0


def show_shard(result: ShardResult, as_json: bool) -> int:
    """Where the share is, and what to do when all are done."""
    if as_json:
        _print_json({**asdict(result), "shard": str(result.shard)})
    else:
        _say(
            f"shard   {result.shard} of {result.series}: {plural(result.n_problems, 'problem')}\n"
            f"store   {result.store_path}"
        )
        _say(
            f"next    when all {result.shard.of} are done: oversharp merge STORES --out DIR, then this audit "
            "without --shard"
        )
    _warn_left_out(result.left_out)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


def show_import(result: ImportResult, as_json: bool) -> int:
    """A verdict per series; warnings of files, steps and records that were left out."""
    if as_json:
        _print_json(_import_summary(result))
    else:
        for one in result.series:
            if one.verdict is None:
                _say(f"series  {one.name}: {one.why}")
            else:
                held = f"{plural(len(one.steps), 'step')}, {plural(one.n_problems, 'problem')}"
                is_greedy = any(of_step.greedy for of_step in one.verdict.accuracies)
                _say(f"series  {one.name}: {held}, {plural(one.n, 'greedy response' if is_greedy else 'sample')} each")
                print_verdict(one.verdict, f"verdict of {one.name}:", made_of_series(result.store_path, one.name))
        if result.report_path is not None:
            _say(f"report  {result.report_path}")
        _say(f"store   {result.store_path}")
    _warn_files(result.files)
    for path in result.unknown:
        print(visible(f"note: {path}: unrecognized format, not read"), file=sys.stderr)
    for one in result.series:
        for label, why in one.left_out.items():
            _warn(f"{one.name}: {label} left out: {why}")
        for doubt in one.doubts:
            _warn(f"{one.name}: {doubt}")
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def show_import_preview(plan: ImportPlan, config: ImportConfig, as_json: bool) -> int:
    """What an import would read, by file and step; nothing is written."""
    from oversharp.diagnostics.ingest.ingest import preview, refused_files

    series = preview(plan, config)
    files = [(one.name, file) for one in series for file in one.files]
    if as_json:
        rows = [
            {
                **_file_summary(file),
                "series": name,
                "steps": [{"step": step, "samples": n, "problems": p} for step, n, p in _by_step(file)],
            }
            for name, file in files
        ]
        rows += [{**_file_summary(one), "series": None, "steps": []} for one in refused_files(plan)]
        summaries = [one.summary for one in series]
        _print_json({"files": rows, "series": summaries, "unknown": [str(path) for path in plan.unknown]})
    else:
        for name, file in files:
            _say(f"{file.path}  {file.format}  series {name}")
            for step, n_samples, n_problems in _by_step(file):
                _say(f"  step {step}: {plural(n_samples, 'sample')} of {plural(n_problems, 'problem')}")
    every = [*(file for _, file in files), *refused_files(plan)]
    _warn_files(every)
    for one in series:
        for note in one.notes:
            print(visible(f"{one.name}: {note}"), file=sys.stderr)
        for warning in one.warnings:
            _warn(f"{one.name}: {warning}")
    if not as_json:
        for path in plan.unknown:
            _say(f"{path}  unrecognized format, not read")
        _say("nothing was written")
    is_incomplete = any(file.faults or file.why or file.notes for file in every) or any(one.warnings for one in series)
    return LEFT_OUT_EXIT_CODE if is_incomplete else 0


def show_ship(result: Sequence[Recommendation], as_json: bool) -> int:
    """Which checkpoint to ship, of each group of series that can be compared; 3 where one has no answer."""
    if as_json:
        _print_json({"recommendations": [asdict(one) for one in result]})
    else:
        from oversharp.diagnostics.app.console_tables import print_shipping

        print_shipping(result)
    return LEFT_OUT_EXIT_CODE if any(one.recommended is None for one in result) else 0


def show_plan(result: Plan, as_json: bool) -> int:
    """Power and cost of every size that was considered."""
    if as_json:
        _print_json(asdict(result))
    else:
        from oversharp.diagnostics.app.console_tables import print_plan

        print_plan(result)
    return 0


def show_confirm(result: ConfirmResult, as_json: bool) -> int:
    """The problems that were drawn again, and which are confirmed."""
    if as_json:
        _print_json(
            {
                "series": result.series,
                "checkpoint": result.checkpoint,
                "step": result.step,
                "fresh": result.fresh,
                "samples_drawn": result.samples_drawn,
                "n_earlier": result.n_earlier,
                "store": str(result.store_path),
                "report": str(result.report_path),
                "problems": [{**asdict(one), "confirmed": one.confirmed} for one in result.tested],
            }
        )
    else:
        from oversharp.diagnostics.app.console_tables import print_confirmations

        print_confirmations(result)
        _say(f"report  {result.report_path}\nstore   {result.store_path}")
    return 0


def show_regrade(result: RegradeResult, as_json: bool) -> int:
    """The verdict under each verifier, and where they disagree."""
    from oversharp.diagnostics.verifiers.names import listed_graders

    made_of = made_of_series(result.store_path, result.of_series)
    if as_json:
        of_verdict = None if result.of_verdict is None else _verdict(result.of_verdict)
        said = {"verdict": _verdict(result.verdict), "of_verdict": of_verdict, "made_of": made_of}
        _print_json({**asdict(result), **said})
    else:
        first = "none yet" if result.of_verdict is None else result.of_verdict.sentence
        if result.series == result.of_series:
            _say(f"verdict of {result.series}, before {plural(result.n_graded, 'response')} were graded again: {first}")
            _say(f"verdict of {result.series}, by today's rules: {result.verdict.sentence}")
        else:
            _say(f"verdict of {result.of_series}, by {listed_graders(result.own_verifiers)}: {first}")
            _say(f"verdict of {result.series}: {result.verdict.sentence}")
            if made_of:
                _say(f"why     {made_of}")
            _say(f"they disagree on {result.n_disagreed:,} of {plural(result.n_samples, 'sample')}")
        for warning in result.verdict.warnings:
            _say(f"note    {warning}")
        _say(f"report  {result.report_path}\nstore   {result.store_path}")
    if result.left_out:
        label, why = next(iter(result.left_out.items()))
        _warn(f"{plural(len(result.left_out), 'problem')} left out, the first is {label}: {why}")
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


def show_repair(result: RepairResult, as_json: bool) -> int:
    """Every point with its folder; a warning where rounding left one elsewhere, or made it one of the others."""
    if as_json:
        _print_json(asdict(result))
    else:
        ends = {0: f"the base, {result.base}", 100: f"the end, {_mean_of(result.checkpoints)}"}
        for one in result.points:
            what = ends.get(one.step, f"λ = {one.lambda_:g}")
            _say(f"{one.path}  {what}{', kept' if one.found else ''}")
        _say(f"next    oversharp audit {shlex.quote(str(result.out))} --problems FILE.jsonl --out DIR")
    for one in result.points:
        if one.rounded_lambda is not None and abs(one.rounded_lambda - one.lambda_) > _NOTABLE_LAMBDA:
            _warn(
                f"{one.path}: rounded to the dtype of the checkpoint, the weights lie at λ = {one.rounded_lambda:.3f}; "
                "--float32 into another --out keeps what lies between"
            )
    _warn_left_out(result.left_out)
    return LEFT_OUT_EXIT_CODE if result.left_out else 0


def _mean_of(labels: Sequence[str]) -> str:
    return labels[0] if len(labels) == 1 else f"the mean of {', '.join(labels)}"


def show_report(path: Path, as_json: bool) -> int:
    """Where the report is."""
    _say(json.dumps({"report": str(path)}) if as_json else f"report  {path}")
    return 0


def show_conversion(result: Conversion, as_json: bool) -> int:
    """The checkpoint, and what it answered."""
    if as_json:
        _print_json(asdict(result))
        return 0
    context = "" if result.context_tokens is None else f", context {result.context_tokens:,}"
    template = "with a chat template" if result.chat else "without a chat template"
    print(
        f"model   {result.path}{', kept' if result.found else ''}: {result.n_parameters:,} parameters, "
        f"{result.n_tokens:,} tokens{context}, {template}; a response ends with {' or '.join(result.end_tokens)}"
    )
    for question, answer in result.answers:
        print(f"asked   {question}\nsaid    {visible(' '.join(answer.split()))}")
    return 0


def show_export(result: ExportResult, as_json: bool) -> int:
    """What was written."""
    if as_json:
        written = [
            {"what": one.what, "path": str(one.path), "n": one.n, "files": [str(file) for file in one.files]}
            for one in result.written
        ]
        _print_json({"series": result.series, "written": written, "push": result.push})
    else:
        for one in result.written:
            if not one.files:
                _say(f"{one.what:16} {one.path}  ({one.n:,})")
            for file in one.files:
                _say(f"{'picture' if file.suffix != '.tex' else 'table':16} {file}")
        if result.push is not None:
            _say(f"{'to publish':16} {result.push}")
    return 0


def show_merge(result: MergeResult, as_json: bool) -> int:
    """What was joined, and what comes next."""
    if as_json:
        _print_json(asdict(result))
    else:
        _say(f"store   {result.store_path}: {', '.join(result.series)}; {plural(result.samples_added, 'sample')} added")
        if result.to_conclude:
            out = result.store_path.parent
            _say(f"next    the audit of {', '.join(result.to_conclude)} without --shard, with --out {out}")
        else:
            _say(f"next    oversharp report {result.store_path}")
    for label, reason in result.left_out.items():
        _warn(f"{label} was left out: {reason}")
    return 0


def show_drop(result: DropResult, as_json: bool) -> int:
    """What was removed, where the old store is, and how to undo it."""
    if as_json:
        _print_json(asdict(result))
        return 0
    gone = f"{plural(result.checkpoints, 'checkpoint')} and {plural(result.samples, 'sample')}"
    verb = "would remove" if result.copy_path is None else "removed"
    _say(f"{verb} {', '.join(result.series)}: {gone} that no other series uses")
    _say(f"left    {', '.join(result.series_left)}: {plural(result.samples_left, 'sample')}")
    if result.copy_path is None:
        _say("nothing was changed")
        return 0
    tokens = result.copy_path.with_suffix(".tokens")
    kept = f"{result.copy_path}{f' and {tokens}' if tokens.exists() else ''}"
    _say(f"store   {result.store_path}\ncopy    {kept}: the store as it was; remove it when the rest is as expected")
    return 0


def show_compare(result: ComparisonPlan | CompareResult, as_json: bool) -> int:
    """The comparison, or the plan of it."""
    _say(json.dumps(result.summary, indent=2) if as_json else "\n".join(result.lines))
    return LEFT_OUT_EXIT_CODE if result.incomplete else 0


def _print_json(summary: Mapping[str, Any]) -> None:
    _say(json.dumps(summary, indent=2, default=str))


def _say(text: str) -> None:
    """Names of files and series may hold what a terminal would obey."""
    print(visible(text))


def _warn(text: str) -> None:
    print(visible(f"warning: {text}"), file=sys.stderr)


def _warn_left_out(left_out: Mapping[str, str]) -> None:
    for label, reason in left_out.items():
        _warn(f"left out {label}: {reason}")


def print_verdict(verdict: Verdict, head: str, made_of: str | None) -> None:
    """The verdict after ``head``; what the change is made of, better or only sharper, which to ship, what of each."""
    from oversharp.diagnostics.verdict.sentence import accuracy_lines, checkpoints_text, sharpening_text

    _say(f"{head} {verdict.sentence}")
    said = verdict.shipping  # without a recommendation the verdict's own sentence says why
    shipping = None if said is None or said.recommended is None else said.sentence
    lines = (
        ("why", made_of),
        ("sharper", sharpening_text(verdict)),
        ("ship", shipping),
        ("steps", checkpoints_text(verdict)),
        *(("steps", line) for line in accuracy_lines(verdict)),
    )
    for name, told in lines:
        if told:
            _say(f"{name:7} {told}")
    for warning in verdict.warnings:
        _say(f"note    {warning}")


def made_of_series(store_path: Path, series: str) -> str | None:
    """What the change of a series is made of, in one sentence; None where nothing is sure."""
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.store.load import made_of

    with Store.open(store_path, read_only=True) as store:
        return made_of(store, series)


def _verdict(verdict: Verdict) -> Any:
    return json.loads(verdict.to_json())


def _headline_findings(store_path: Path, series: str) -> Sequence[Mapping[str, Any]]:
    """The findings for the whole problem set at the last checkpoint: what a script wants to read."""
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
                "verdict": None if one.verdict is None else _verdict(one.verdict),
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


def _by_step(file: FileResult) -> list[tuple[int, int, int]]:
    """Step, samples, problems."""
    steps = sorted({step for step, _ in file.counted})
    of = {step: [n for (at, _), n in file.counted.items() if at == step] for step in steps}
    return [(step, sum(counts), len(counts)) for step, counts in of.items()]


def _warn_files(files: Iterable[FileResult]) -> None:
    for file in files:
        for note in file.notes:
            _warn(f"{file.path} {note}")
        if file.why:
            _warn(f"{file.path}: left out: {file.why}")
        for why, count in file.faults.items():
            _warn(f"{file.path}: {plural(count.n, 'record')} left out, the first in line {count.first_line}: {why}")
