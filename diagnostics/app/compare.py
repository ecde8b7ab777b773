"""``oversharp compare``: train several objectives and seeds from one base, and audit them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from oversharp.diagnostics.app.compare_config import ComparedRun, Comparison
from oversharp.diagnostics.audit.audit import AuditResult, audit, reload_verdicts
from oversharp.diagnostics.audit.settings import sampling_settings
from oversharp.diagnostics.models.devices import pick_device
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, OversharpError, TrainingError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers import choose_sampler
from oversharp.diagnostics.tasks import load_problems
from oversharp.trainers.checking import (
    Outlines,
    check_objective,
    check_start,
    first_model,
    model_outlines,
    policy_source,
)
from oversharp.trainers.run.checkpointing import committed_step
from oversharp.trainers.run.directory import find_resumable_step
from oversharp.trainers.run.trackers import require_tracker


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Remaining work of one run: ``done_steps`` of ``steps`` are done.

    ``most_rollouts`` is the upper bound of the rollouts if prompts are resampled.
    """

    name: str
    algorithm: str
    steps: int
    done_steps: int
    rollouts: int
    most_rollouts: int


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """Remaining work of a comparison: missing rollouts, and the samples of a new audit.

    With ``is_stopping``, the audit draws fewer samples as problems are solved.
    """

    out: Path
    base: str
    runs: tuple[RunPlan, ...]
    n_checkpoints: int
    n_problems: int
    audit_samples: int
    is_stopping: bool = False

    #: Always False: a plan has no left-out runs.
    incomplete: ClassVar[bool] = False

    @property
    def summary(self) -> dict[str, object]:
        """Fields of the plan for JSON."""
        return {**asdict(self), "out": str(self.out)}

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of text that the command prints."""
        width = max(8, *(len(run.name) for run in self.runs))
        missing = _rollouts(sum(run.rollouts for run in self.runs), sum(run.most_rollouts for run in self.runs))
        return (
            f"{'base':{width}}  {self.base}",
            *(f"{run.name:{width}}  {_run_text(run)}" for run in self.runs),
            f"{'training':{width}}  {missing}",
            f"{'audit':{width}}  {len(self.runs)} series, {plural(self.n_checkpoints, 'different checkpoint')}, "
            f"{plural(self.n_problems, 'problem')}, {'at most ' if self.is_stopping else ''}"
            f"{plural(self.audit_samples, 'sample')} "
            "without controls (samples in the store are kept)",
            f"{'out':{width}}  {self.out}",
        )


@dataclass(frozen=True, kw_only=True)
class CompareResult:
    """Result of a comparison: audits in the order of the runs, files, failed runs with reasons."""

    audits: tuple[AuditResult, ...]
    store_path: Path
    report_path: Path
    left_out: Mapping[str, str]

    __repr__ = short_repr

    @property
    def incomplete(self) -> bool:
        """Whether a run was left out, or an audit has remarks."""
        return bool(self.left_out) or any(audit.has_remarks for audit in self.audits)

    @property
    def summary(self) -> dict[str, object]:
        """Fields of the result for JSON."""
        return {
            "store": str(self.store_path),
            "report": str(self.report_path),
            "verdicts": {audit.series: audit.verdict.label for audit in self.audits},
            "left_out": dict(self.left_out),
        }

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines of text that the command prints."""
        return (
            f"report  {self.report_path}",
            f"store   {self.store_path}",
            *(f"verdict of {audit.series}: {audit.verdict.title}" for audit in self.audits),
            *(f"left out {name}: {reason}" for name, reason in self.left_out.items()),
        )


def plan_comparison(comparison: Comparison) -> ComparisonPlan:
    """Check all settings and models, and count the remaining work, without loading weights.

    Raises ``ConfigError`` with a line for each run, base or audit that would fail. Examples: a model is missing or does
    not fit, a prompt is too long for its response, an engine does not support the model, a directory has other
    contents, a run has more steps than its settings.
    """
    config, base = comparison.audit, comparison.base
    faults = _Faults(comparison.path)
    runs: list[RunPlan] = []
    n_problems = 0
    untrained = base
    if base is not None:
        with faults.collect("[base]"):
            untrained = None if find_resumable_step(base) == base.max_steps else untrained
    with model_outlines(untrained=untrained) as outline:
        for run in comparison.runs:
            with faults.collect(f"[[run]] {run.objective}", seed=run.seed):
                runs.append(_run_plan(run, outline))
        with faults.collect("[audit]"):
            n_problems = _checked_audit(comparison, outline)
    faults.raise_any()
    trained = sum(math.ceil(run.config.max_steps / run.config.save_every) for run in comparison.runs)
    return ComparisonPlan(
        out=comparison.out,
        base=_base_text(comparison),
        runs=tuple(runs),
        n_checkpoints=trained + 1,
        n_problems=n_problems,
        audit_samples=n_problems * (trained * config.n + config.used_n_base),
        is_stopping=config.is_stopping,
    )


def compare(comparison: Comparison, *, command: str = "", progress: ProgressSink | None = None) -> CompareResult:
    """Train the missing steps, audit all runs into one store, and write one report.

    The base is trained once. Finished runs are kept and interrupted ones continue. A run is left out if it fails or its
    checkpoints cannot be read.

    Raises:
        OversharpError: bad input, a base that cannot be trained, no run that can be compared, or an audit that stopped.
    """
    from oversharp.reports import build_report
    from oversharp.trainers.loop import train
    from oversharp.trainers.sft import train_base

    progress = progress or SilentProgress()
    plan_comparison(comparison)
    if comparison.base is not None:
        train_base(comparison.base, progress)
    left_out: dict[str, str] = {}
    for place, run in enumerate(comparison.runs, start=1):
        progress.note(f"run {place} of {len(comparison.runs)}: {run.name}")
        try:
            train(run.config, progress)
        except OversharpError as error:
            left_out[run.name] = str(error)
            progress.note(f"left out {run.name}: {error}")
    audits: list[AuditResult] = []
    for run in comparison.runs:
        if run.name in left_out:
            continue
        series = replace(comparison.audit, name=run.name)
        try:
            audits.append(audit([run.config.output_dir], series, command=command, progress=progress))
        except CheckpointError as error:
            left_out[run.name] = str(error)
            progress.note(f"left out {run.name}: {error}")
    if not audits:
        raise TrainingError(
            f"{comparison.out}: no run can be compared; fix the first fault: {next(iter(left_out.values()))}"
        )
    names = tuple(result.series for result in audits)
    report = build_report(audits[0].store_path, audits[0].report_path, series=names)
    return CompareResult(
        audits=reload_verdicts(audits), store_path=audits[0].store_path, report_path=report, left_out=left_out
    )


class _Faults:
    """Collection of errors that are raised together.

    Seeds of a run with the same error share a line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seeds: dict[tuple[str, str], list[int]] = {}

    @contextmanager
    def collect(self, table: str, *, seed: int | None = None) -> Iterator[None]:
        """Catch an ``OversharpError`` of the block."""
        try:
            yield
        except OversharpError as error:
            message = str(error).replace("--output-dir", "--out")
            self._seeds.setdefault((table, message), []).extend([] if seed is None else [seed])

    def raise_any(self) -> None:
        """Raise ``ConfigError`` with a line per collected error, if there is any."""
        lines = []
        for (table, message), seeds in self._seeds.items():
            listed = f", seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
            lines.append(f"{self._path} {table}{listed}: {message}")
        if lines:
            raise ConfigError("\n".join(lines))


def _run_plan(run: ComparedRun, outline: Outlines) -> RunPlan:
    """Return the remaining work of a run.

    Raises ``OversharpError`` if it would fail before its first step.
    """
    config = run.config
    require_tracker(config.tracker)
    objective = check_objective(config)
    last_step = find_resumable_step(config)
    done = last_step or 0
    if done > config.max_steps:
        raise ConfigError(
            f"{config.output_dir} is at step {done}, beyond max_steps = {config.max_steps}; raise it to {done} "
            "or pass another --out"
        )
    if done < config.max_steps:
        check_start(config, objective, policy_source(config, last_step), outline)
    rounds = 1 if objective.resampling is None else objective.resampling.max_rounds
    rollouts = (config.max_steps - done) * config.batch_prompts * config.group_size
    return RunPlan(
        name=run.name,
        algorithm=config.algorithm,
        steps=config.max_steps,
        done_steps=done,
        rollouts=rollouts,
        most_rollouts=rollouts * rounds,
    )


def _checked_audit(comparison: Comparison, outline: Outlines) -> int:
    """Return the number of problems of the audit.

    Raises ``OversharpError`` if the base cannot be sampled.
    """
    config = comparison.audit
    problems = load_problems(
        config.problems,
        config.task,
        limit=config.limit,
        seed=config.seed,
        verifier=config.verifier,
        limits=config.grader_limits,
    )
    try:
        first = outline(first_model(comparison.runs[0].config))
    except CheckpointError:
        return len(problems)  # the check of the runs already raised this error
    base = Checkpoint(step=0, label="base", path=first.folder, kind="full", weights_hash="")
    pick_device(config.device)
    sampler, _ = choose_sampler(config.sampler, [base], device=config.device)
    chat = bool(config.chat)
    settings = sampling_settings(
        config,
        base,
        sampler=sampler,
        chat=chat,
        chat_args=config.chat_args if chat else None,
        dtype=config.dtype,
    )
    for problem in problems:
        prompt_ids = encode_prompt(first.loaded.tokenizer, problem, settings)
        require_fit(first.loaded, problem, prompt_ids, n_response=settings.max_tokens)
    return len(problems)


def _base_text(comparison: Comparison) -> str:
    base = comparison.base
    if base is None:
        return f"{comparison.runs[0].config.model}"
    done = committed_step(base.output_dir) or 0
    return f"{base.output_dir}: supervised fine-tuning, {_steps(done, base.max_steps)}"


def _run_text(run: RunPlan) -> str:
    return f"{run.algorithm}: {_steps(run.done_steps, run.steps)}, {_rollouts(run.rollouts, run.most_rollouts)}"


def _steps(done: int, wanted: int) -> str:
    state = ", all done" if done == wanted else f", {done} done" if done else ""
    return f"{plural(wanted, 'step')}{state}"


def _rollouts(least: int, most: int) -> str:
    return f"{least:,} rollouts to sample" if most == least else f"{least:,} to {most:,} rollouts to sample"
