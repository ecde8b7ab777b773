"""The flow of an audit: prepare → draw and grade → gradient kernels → findings → verdict.

Each stage reads what the store has, does what is missing and commits in small transactions. Running the same
command again continues where the last one ended, however it ended. The flow is the same whether this process computes
or Ray's workers do (``--ray``); a shard (``--shard``) goes through it as far as the grades.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.freshness import findings_and_verdict
from oversharp.diagnostics.audit.prepare import PreparedAudit, pace_of, prepare, tell_cost
from oversharp.diagnostics.audit.stages import OpenAudit, compute_kernel, draw_samples, teacher_force
from oversharp.diagnostics.engine.grading import grade_responses
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import CheckpointError, EngineRefusedError, SamplerError
from oversharp.diagnostics.records.pace import Pace
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import provenance
from oversharp.diagnostics.records.shard import WHOLE, Shard, Task
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import store_bytes
from oversharp.diagnostics.store.missing import find_ungraded, planned_samples
from oversharp.diagnostics.verdict.record import Verdict

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The verdict, where the files are, and what was left out (label → reason): checkpoints, or their kernels."""

    series: str
    verdict: Verdict
    store_path: Path
    report_path: Path
    left_out: Mapping[str, str]
    without_kernel: Mapping[str, str]
    samples_drawn: int

    __repr__ = short_repr


def with_last_verdicts(results: Sequence[AuditResult]) -> tuple[AuditResult, ...]:
    """The results of one store after the last of them: that told all verdicts what is shipped of all series."""
    made = []
    for one in results:
        with Store.open(one.store_path, read_only=True) as store:
            made.append(replace(one, verdict=store.verdict(one.series) or one.verdict))
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """One share of an audit, drawn, scored and graded: where it is, and checkpoints left out (label → reason)."""

    series: str
    shard: Shard
    n_problems: int
    store_path: Path
    left_out: Mapping[str, str]
    samples_drawn: int

    __repr__ = short_repr


@dataclass(frozen=True, kw_only=True)
class DrawnAudit:
    """An audit whose samples are drawn and teacher-forced.

    ``failed`` checkpoints (id → reason) could not be sampled; ``left_out`` are these and those that could not be read
    (label → reason).
    """

    prepared: PreparedAudit
    samples_drawn: int
    failed: Mapping[str, str]
    left_out: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class GradedAudit:
    """An audit whose every response has its grade: measures and kernels may rest on it."""

    drawn: DrawnAudit


def audit(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
) -> AuditResult:
    """Audit one series of checkpoints into ``config.out``, up to the verdict; the report is the caller's to write.

    Raises:
        OversharpError: bad input; what was computed before stays in the store.
    """
    progress = progress or SilentProgress()
    return _with_another_sampler(partial(_audit, series_paths, command=command, progress=progress), config, progress)


def audit_shard(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    shard: Shard,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
) -> ShardResult:
    """Draw, score and grade one share of the problems of an audit into ``config.out``, which no other shard has.

    The problems are every ``shard.of``-th in the order of the problem set. ``store.merge`` joins the stores of all
    shards; ``audit`` on the joined one then draws at most the controls of the checkpoint to ship, and comes to the
    verdict. Raises as ``audit``.
    """
    progress = progress or SilentProgress()
    run = partial(_audit_shard, series_paths, shard=shard, command=command, progress=progress)
    return _with_another_sampler(run, config, progress)


def _with_another_sampler(run: Callable[..., Result], config: AuditConfig, progress: ProgressSink) -> Result:
    """``run``, once more with transformers where ``auto`` had taken an engine that refuses the model.

    It is then told what the engine ``refused``, for the record.
    """
    try:
        return run(config)
    except EngineRefusedError as error:
        if config.sampler != "auto":
            raise
        progress.note(f"{error}: done now")
        return run(replace(config, sampler="transformers"), refused=str(error))


def _audit(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    *,
    command: str,
    progress: ProgressSink,
    refused: str | None = None,
) -> AuditResult:
    with ExitStack() as stack:
        prepared = prepare(stack, series_paths, config, WHOLE, progress)
        _grade_left(prepared.open, with_errors=True)
        drawn = draw(prepared)
        graded = grade(drawn)
        n_hotter = draw_the_one_to_ship(graded)
        without_kernel = compute_kernels(graded) if prepared.settings.kernel_problems else {}
        store, key = prepared.open.store, prepared.open.key
        prepared.open.engine.close()
        verdict = findings_and_verdict(store, key, drawn.failed, prepared.skipped, progress)
        store.end_audit(key, provenance(command, drawn.left_out, _more(prepared, refused)))
    return AuditResult(
        series=prepared.series.name,
        verdict=verdict,
        store_path=store.path,
        report_path=store.path.parent / "report.html",
        left_out=drawn.left_out,
        without_kernel=without_kernel,
        samples_drawn=drawn.samples_drawn + n_hotter,
    )


def _audit_shard(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    *,
    shard: Shard,
    command: str,
    progress: ProgressSink,
    refused: str | None = None,
) -> ShardResult:
    with ExitStack() as stack:
        prepared = prepare(stack, series_paths, config, shard, progress)
        _grade_left(prepared.open, with_errors=True)
        drawn = draw(prepared)
        graded = grade(drawn)
        place = {"index": shard.index + 1, "of": shard.of, "whole": prepared.whole_id}
        more = {**_more(prepared, refused), "shard": place}
        prepared.open.store.end_audit(prepared.open.key, provenance(command, graded.drawn.left_out, more))
    return ShardResult(
        series=prepared.series.name,
        shard=shard,
        n_problems=len(prepared.open.problems),
        store_path=prepared.open.store.path,
        left_out=drawn.left_out,
        samples_drawn=drawn.samples_drawn,
    )


def draw(prepared: PreparedAudit) -> DrawnAudit:
    """Sample, grade and teacher-force every checkpoint; models and verifiers are let go of in the end."""
    opened = prepared.open
    outcome = _Outcome(pace=pace_of(prepared), bytes_before=store_bytes(opened.store.path))
    with ExitStack() as stack:
        if outcome.pace.total:
            tell_cost(prepared, outcome.pace)
            stack.enter_context(opened.progress.overall(lambda: outcome.pace.line(time.monotonic())))
        for tasks in _waves(prepared, outcome):
            opened.engine.run(tasks)
    prepared.open.engine.close()
    prepared.open.grader.close()
    failed = {
        checkpoint.label: outcome.failed[checkpoint.checkpoint_id]
        for checkpoint in prepared.series.checkpoints
        if checkpoint.checkpoint_id in outcome.failed
    }
    return DrawnAudit(
        prepared=prepared,
        samples_drawn=sum(outcome.drawn.values()),
        failed=outcome.failed,
        left_out={**prepared.skipped, **failed},
    )


def grade(drawn: DrawnAudit) -> GradedAudit:
    """Grade what was drawn and not yet graded, of a checkpoint whose sampling broke off."""
    if drawn.samples_drawn or drawn.failed:
        _grade_left(drawn.prepared.open)
    return GradedAudit(drawn=drawn)


def draw_the_one_to_ship(graded: GradedAudit) -> int:
    """The checkpoint that would be shipped, hotter, where it is neither the base nor the last; samples drawn."""
    drawn, prepared = graded.drawn, graded.drawn.prepared
    if prepared.settings.controls is None:
        return 0
    from oversharp.diagnostics.audit.counts import judge  # brings scipy

    said = judge(prepared.open.store, prepared.open.key, drawn.failed, prepared.skipped).shipping
    chosen = None if said is None else said.best_trained
    between = [one for one in prepared.series.checkpoints[1:-1] if chosen is not None and one.step == chosen.step]
    outcome = _Outcome(pace=Pace({}, began=time.monotonic()))  # told before as what may come

    def task(checkpoint: Checkpoint) -> Task[None]:
        try:
            outcome.drawn[checkpoint.checkpoint_id] = yield from _draw_hotter(prepared, checkpoint, outcome)
        except (CheckpointError, SamplerError) as error:
            prepared.open.progress.note(f"not drawn hotter: {error}")

    prepared.open.engine.run([task(one) for one in between])
    if sum(outcome.drawn.values()):
        prepared.open.engine.close()
        prepared.open.grader.close()
        _grade_left(prepared.open)
    return sum(outcome.drawn.values())


def compute_kernels(graded: GradedAudit) -> Mapping[str, str]:
    """The gradient kernel of every checkpoint; returns those that could not be computed (label → reason)."""
    drawn, without_kernel = graded.drawn, dict[str, str]()
    prepared = drawn.prepared
    kind = prepared.series.checkpoints[-1].kind

    def task(checkpoint: Checkpoint) -> Task[None]:
        why_none = yield from compute_kernel(prepared.open, checkpoint, prepared.settings.sampling, kind)
        if why_none is not None:
            without_kernel[checkpoint.label] = why_none

    whole = [one for one in prepared.series.checkpoints if one.checkpoint_id not in drawn.failed]
    prepared.open.engine.run([task(checkpoint) for checkpoint in whole])
    return without_kernel


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What the tasks of the checkpoints came to, by checkpoint id, samples drawn and why one failed; and their pace.

    ``bytes_before``: what the store's files took before anything was drawn.
    """

    pace: Pace
    bytes_before: int = 0
    drawn: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def _waves(prepared: PreparedAudit, outcome: _Outcome) -> Iterator[list[Task[None]]]:
    """What can be done side by side, and what after that.

    The others score the panel, so that the base is drawn from first. What the base scores then is settled before any
    sample of the others is there, and so is the same however long their sampling takes; it scores them in the end.
    """
    base, *others = prepared.series.checkpoints
    tasks = [_draw_checkpoint(prepared, one, outcome) for one in others]
    yield [_draw_base(prepared, outcome)]
    if prepared.settings.is_adaptive:  # who comes later is given samples by what the earlier ones solved
        yield [teacher_force(prepared.open, base, prepared.settings.sampling)]
        yield from ([task] for task in tasks)
    else:
        yield [teacher_force(prepared.open, base, prepared.settings.sampling), *tasks]
    yield [teacher_force(prepared.open, base, prepared.settings.sampling)]


def _draw_base(prepared: PreparedAudit, outcome: _Outcome) -> Task[None]:
    opened, base, n_panel = prepared.open, prepared.series.base, prepared.settings.panel
    look = opened.grader.look
    if look is not None and look.strict:
        look.take()  # what an earlier call drew may be enough to stop
    planned, drew = planned_samples(opened.store, opened.key, base.checkpoint_id), outcome.pace.add_drawn
    outcome.pace.begin(base.checkpoint_id)
    n = yield from draw_samples(
        opened, base, prepared.settings.sampling, planned, greedy=True, what="sample", drew=drew
    )
    if look is not None and (n or look.strict):
        look.take(whole=True)
    if n_panel:
        panel = dict.fromkeys((problem.problem_id for problem in opened.problems), n_panel)
        n += yield from draw_samples(
            opened, base, prepared.settings.panel_sampling, panel, greedy=False, what="panel", drew=drew
        )
    controls = prepared.settings.controls
    for settings in () if controls is None else controls.colder:
        n += yield from _draw_control(prepared, base, settings, controls.n if controls else 0, outcome)
    outcome.drawn[base.checkpoint_id] = n
    _tell_pace(opened, outcome, base)


def _draw_control(
    prepared: PreparedAudit, checkpoint: Checkpoint, settings: SamplingSettings, n: int, outcome: _Outcome
) -> Task[int]:
    opened = prepared.open
    opened.store.add_control(opened.key, checkpoint.checkpoint_id, settings, n)
    planned = dict.fromkeys((problem.problem_id for problem in opened.problems), n)
    what, drew = f"control T={settings.temperature:g}", outcome.pace.add_drawn
    return (yield from draw_samples(opened, checkpoint, settings, planned, greedy=False, what=what, drew=drew))


def _draw_hotter(prepared: PreparedAudit, checkpoint: Checkpoint, outcome: _Outcome) -> Task[int]:
    n, controls = 0, prepared.settings.controls
    for settings in () if controls is None else controls.hotter:
        n += yield from _draw_control(prepared, checkpoint, settings, controls.n_hot if controls else 0, outcome)
    return n


def _draw_checkpoint(prepared: PreparedAudit, checkpoint: Checkpoint, outcome: _Outcome) -> Task[None]:
    """Draw and score one checkpoint after the base; one that fails is left out, with the reason."""
    opened, checkpoint_id = prepared.open, checkpoint.checkpoint_id
    try:
        if prepared.settings.is_adaptive:
            _allocate(prepared, checkpoint)
        planned, drew = planned_samples(opened.store, opened.key, checkpoint_id), outcome.pace.add_drawn
        outcome.pace.begin(checkpoint_id)
        outcome.drawn[checkpoint_id] = yield from draw_samples(
            opened, checkpoint, prepared.settings.sampling, planned, greedy=True, what="sample", drew=drew
        )
        if checkpoint is prepared.series.checkpoints[-1]:
            outcome.drawn[checkpoint_id] += yield from _draw_hotter(prepared, checkpoint, outcome)
        yield from teacher_force(opened, checkpoint, prepared.settings.sampling)
        _tell_pace(opened, outcome, checkpoint)
    except (CheckpointError, SamplerError) as error:
        why = str(error).removeprefix(f"{checkpoint.label}: ")
        outcome.failed[checkpoint_id] = why
        outcome.pace.leave_out(checkpoint_id)
        opened.store.log_event(opened.key, "failed", wall_s=0, rows=0, checkpoint_id=checkpoint_id, note=why)
        opened.progress.note(f"left out {checkpoint.label}: {why}")


def _tell_pace(opened: OpenAudit, outcome: _Outcome, checkpoint: Checkpoint) -> None:
    grown_bytes = store_bytes(opened.store.path) - outcome.bytes_before
    line = outcome.pace.done_line(checkpoint.checkpoint_id, time.monotonic(), grown_bytes)
    if line is not None:
        opened.progress.note(line)


def _allocate(prepared: PreparedAudit, checkpoint: Checkpoint) -> None:
    """Plan the samples of one checkpoint from what the earlier ones solved, which has to be graded for that."""
    opened, settings = prepared.open, prepared.settings
    _grade_left(opened)
    least = max(2 * max(settings.ks), settings.entropy_samples, settings.panel)
    decided = opened.store.allocate(opened.key, checkpoint.checkpoint_id, least)
    opened.progress.note(
        f"{checkpoint.label}: {decided} of {len(opened.problems)} problems are decided, {least} samples each"
    )


def _grade_left(opened: OpenAudit, *, with_errors: bool = False) -> None:
    """Grade what was committed and has no grade by today's rules: a run was killed, or other rules graded it."""
    pending = find_ungraded(opened.store, opened.key, with_errors=with_errors)
    grade_responses(opened.store, opened.problems, pending, key=opened.key, progress=opened.progress)


def _more(prepared: PreparedAudit, refused: str | None) -> dict[str, object]:
    """Return what a preset set, and why an engine that was chosen refused the model, for the record."""
    preset: dict[str, object] = {"preset": prepared.settings.preset} if prepared.settings.preset else {}
    return preset if refused is None else {**preset, "engine_refused": refused}
