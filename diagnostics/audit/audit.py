"""Run a whole audit: prepare, sample, grade, compute gradient kernels, findings, verdict.

Each stage queries the store for missing rows, computes them, and commits in small transactions. The same command
continues an interrupted audit. A shard (``--shard``) ends after its grades.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.cost.estimate import announce_cost, open_pace
from oversharp.diagnostics.audit.freshness import update_verdict
from oversharp.diagnostics.audit.prepare import PreparedAudit, prepare
from oversharp.diagnostics.audit.stages import OnError, compute_kernels, draw_samples, raise_error, teacher_force
from oversharp.diagnostics.engine.grading import grade_planned, grade_responses
from oversharp.diagnostics.engine.sampler_reports import confused_checkpoints
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import EngineRefusedError, OversharpError
from oversharp.diagnostics.records.pace import Pace
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import provenance
from oversharp.diagnostics.records.shard import WHOLE, Shard
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import store_bytes
from oversharp.diagnostics.store.missing import find_ungraded
from oversharp.diagnostics.store.plan.samples import planned_controls, planned_samples
from oversharp.diagnostics.verdict.record import Verdict

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.rounds import SampleForecast

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Result of an audit: verdict, files, what was left out (label → reason), and ``confused_checkpoints``."""

    series: str
    verdict: Verdict
    store_path: Path
    report_path: Path
    left_out: Mapping[str, str]
    without_kernel: Mapping[str, str]
    samples_drawn: int
    confused: tuple[str, ...] = ()

    __repr__ = short_repr

    @property
    def has_remarks(self) -> bool:
        """Whether something was left out, checkpoints may have been confused, or there is no verdict."""
        verdict = self.verdict
        return any((self.left_out, self.without_kernel, self.confused, verdict.left_out, verdict.label == "no_verdict"))


def reload_verdicts(results: Sequence[AuditResult]) -> tuple[AuditResult, ...]:
    """Return the results with their current verdicts.

    Each audit of a store updates the recommendation in the verdicts of all series.
    """
    updated = []
    for result in results:
        with Store.open(result.store_path, read_only=True) as store:
            updated.append(replace(result, verdict=store.verdict(result.series) or result.verdict))
    return tuple(updated)


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """Result of one shard: its store, and left-out checkpoints (label → reason)."""

    series: str
    shard: Shard
    n_problems: int
    store_path: Path
    left_out: Mapping[str, str]
    samples_drawn: int

    __repr__ = short_repr


def audit(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
) -> AuditResult:
    """Audit one series of checkpoints into ``config.out``, up to the verdict.

    The caller writes the report.

    Raises:
        OversharpError: the input is invalid. Committed results stay in the store.
    """
    sink = progress or SilentProgress()

    def run(config: AuditConfig, refused: str | None) -> AuditResult:
        with ExitStack() as stack:
            prepared = prepare(stack, series_paths, config, WHOLE, sink)
            drawn = draw(prepared)
            n_controls = draw_controls_to_ship(prepared, drawn.failed)
            without_kernel = draw_kernels(prepared, drawn.failed)
            prepared.engine.close()
            verdict = update_verdict(prepared.store, prepared.key, drawn.failed, prepared.skipped, sink)
            left_out = _left_out(prepared, drawn.failed)
            prepared.store.end_audit(prepared.key, provenance(command, left_out, _record(prepared, refused)))
            return AuditResult(
                series=prepared.series.name,
                verdict=verdict,
                store_path=prepared.store.path,
                report_path=prepared.store.path.parent / "report.html",
                left_out=left_out,
                without_kernel=without_kernel,
                samples_drawn=drawn.n_samples + n_controls,
                confused=confused_checkpoints(prepared.store, prepared.key),
            )

    return _retry_with_transformers(run, config, sink)


def audit_shard(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    shard: Shard,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
) -> ShardResult:
    """Sample, score and grade one shard of an audit's problems into ``config.out``.

    No other shard may use ``config.out``. A shard has every ``shard.of``-th problem. ``store.merge`` joins the stores
    of all shards. ``audit`` on the joined store then computes kernels, findings and verdict. It samples only the
    checkpoint to ship, at higher temperatures.

    Raises the errors of ``audit``.
    """
    sink = progress or SilentProgress()

    def run(config: AuditConfig, refused: str | None) -> ShardResult:
        with ExitStack() as stack:
            prepared = prepare(stack, series_paths, config, shard, sink)
            drawn = draw(prepared)
            left_out = _left_out(prepared, drawn.failed)
            place = {"index": shard.index + 1, "of": shard.of, "whole": prepared.whole_id}
            record = {**_record(prepared, refused), "shard": place}
            prepared.store.end_audit(prepared.key, provenance(command, left_out, record))
        return ShardResult(
            series=prepared.series.name,
            shard=shard,
            n_problems=len(prepared.problems),
            store_path=prepared.store.path,
            left_out=left_out,
            samples_drawn=drawn.n_samples,
        )

    return _retry_with_transformers(run, config, sink)


def _retry_with_transformers(
    run: Callable[[AuditConfig, str | None], Result], config: AuditConfig, progress: ProgressSink
) -> Result:
    """Call ``run``, and call it again with transformers if the chosen engine rejects the model.

    This only happens with ``--sampler auto``. The second argument of ``run`` is then the engine's reason, which the
    store records.
    """
    try:
        return run(config, None)
    except EngineRefusedError as error:
        if config.sampler != "auto":
            raise
        progress.note(f"{error}: done now")
        return run(replace(config, sampler="transformers"), str(error))


# ---------------------------------------------------------------- sampling and scoring


@dataclass(frozen=True, kw_only=True)
class DrawState:
    """Progress of sampling: samples and failures by checkpoint id, pace, initial store size.

    ``forecast`` is given for an audit with a stopping rule.
    """

    pace: Pace
    forecast: SampleForecast | None = None
    bytes_before: int = 0
    n_drawn: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def n_samples(self) -> int:
        """Number of samples drawn from all checkpoints."""
        return sum(self.n_drawn.values())

    def add_drawn(self, drawn: Mapping[str, int]) -> None:
        """Add to the number of samples of each checkpoint (id → number)."""
        for checkpoint_id, n in drawn.items():
            self.n_drawn[checkpoint_id] = self.n_drawn.get(checkpoint_id, 0) + n


def draw(prepared: PreparedAudit) -> DrawState:
    """Sample, grade and teacher-force every checkpoint, then release models and verifiers.

    The base is sampled first, because all other checkpoints score its panel. It also scores the panel before the others
    are sampled: batches, and therefore the last bits of scores, then do not depend on the speed of the others. At the
    end the base scores the samples of the others.
    """
    others = prepared.series.checkpoints[1:]
    forecast = _plan_rest(prepared)
    state = DrawState(
        pace=open_pace(prepared, forecast), forecast=forecast, bytes_before=store_bytes(prepared.store.path)
    )
    with ExitStack() as stack:
        if state.pace.total:
            announce_cost(prepared, state.pace)
            stack.enter_context(prepared.progress.overall(lambda: state.pace.line(time.monotonic())))
        _draw_base(prepared, state)
        _score_base(prepared)
        for group in prepared.engine.group(others):
            _draw_group(prepared, group, state)
        _score_base(prepared)
    prepared.engine.close()
    prepared.grader.close()
    if state.n_samples or state.failed:
        _grade_rest(prepared)
        prepared.store.plan_rounds(prepared.key)
    return state


def _score_base(prepared: PreparedAudit) -> None:
    if prepared.settings.scores_responses:
        teacher_force(prepared, [prepared.series.base], prepared.settings.sampling)


def _draw_base(prepared: PreparedAudit, state: DrawState) -> None:
    settings, base, look = prepared.settings, prepared.series.base, prepared.grader.look
    if look is not None and look.is_strict:
        look.check()  # with the samples of an earlier call, the check may already stop the audit
    state.pace.begin(base.checkpoint_id)

    def check_first_round() -> None:
        if look is not None and (state.n_drawn.get(base.checkpoint_id) or look.is_strict):
            look.check(is_last=True)

    _draw_own(prepared, [base], state, raise_error, after_round=check_first_round)
    if settings.panel:
        panel = dict.fromkeys((problem.problem_id for problem in prepared.problems), settings.panel)
        drawn = draw_samples(
            prepared,
            {base: panel},
            settings.panel_sampling,
            greedy=False,
            stage="panel",
            on_drawn=state.pace.add_drawn,
        )
        state.add_drawn(drawn)
    if settings.controls is not None:
        _draw_controls(prepared, base, settings.controls.lower, settings.controls.n, state, raise_error)
    _note_pace(prepared, [base], state)


def _draw_group(prepared: PreparedAudit, group: Sequence[Checkpoint], state: DrawState) -> None:
    """Sample and score checkpoints after the base.

    A checkpoint that fails is left out, with the reason.
    """
    settings, last = prepared.settings, prepared.series.checkpoints[-1]

    def leave_out(checkpoint: Checkpoint, error: OversharpError) -> None:
        if checkpoint.checkpoint_id in state.failed:
            return
        why = str(error).removeprefix(f"{checkpoint.label}: ")
        state.failed[checkpoint.checkpoint_id] = why
        state.pace.leave_out(checkpoint.checkpoint_id)
        prepared.store.log_event(
            prepared.key, "failed", wall_s=0, rows=0, checkpoint_id=checkpoint.checkpoint_id, note=why
        )
        prepared.progress.note(f"left out {checkpoint.label}: {why}")

    def remaining() -> list[Checkpoint]:
        return [checkpoint for checkpoint in group if checkpoint.checkpoint_id not in state.failed]

    for checkpoint in group:
        state.pace.begin(checkpoint.checkpoint_id)
    _draw_own(prepared, group, state, leave_out)
    if settings.controls is not None and last in remaining():
        _draw_controls(prepared, last, settings.controls.higher, settings.controls.n_higher, state, leave_out)
    if settings.scores_responses:
        teacher_force(prepared, remaining(), settings.sampling, leave_out)
    _note_pace(prepared, remaining(), state)


def _draw_own(
    prepared: PreparedAudit,
    checkpoints: Sequence[Checkpoint],
    state: DrawState,
    on_error: OnError,
    *,
    after_round: Callable[[], None] = lambda: None,
) -> None:
    """Draw the samples for pass@k and the greedy responses.

    With a stopping rule, the grades of each round determine the problems of the next one. ``after_round`` is called
    after each round. All grades are then committed.
    """
    store, key = prepared.store, prepared.key
    while going := [checkpoint for checkpoint in checkpoints if checkpoint.checkpoint_id not in state.failed]:
        planned = {checkpoint: planned_samples(store, key, checkpoint.checkpoint_id) for checkpoint in going}
        drawn = draw_samples(
            prepared,
            planned,
            prepared.settings.sampling,
            greedy=True,
            stage="sample",
            on_error=on_error,
            on_drawn=state.pace.add_drawn,
        )
        state.add_drawn(drawn)
        after_round()
        if state.forecast is None or not drawn:
            return
        changes = state.forecast.update(store.plan_rounds(key, [checkpoint.checkpoint_id for checkpoint in going]))
        for checkpoint_id, change in changes.items():
            state.pace.expect(checkpoint_id, change, is_bound=state.forecast.is_bound)


def _draw_controls(
    prepared: PreparedAudit,
    checkpoint: Checkpoint,
    temperatures: Iterable[SamplingSettings],
    n: int,
    state: DrawState,
    on_error: OnError,
) -> None:
    """Draw ``n`` samples per problem of a checkpoint at each temperature; with a stopping rule, at most ``n``.

    Stops at the first failure.
    """
    store, key, failed = prepared.store, prepared.key, list[OversharpError]()

    def note_failure(checkpoint: Checkpoint, error: OversharpError) -> None:
        failed.append(error)
        on_error(checkpoint, error)

    for settings in temperatures:
        store.add_control(key, checkpoint.checkpoint_id, settings, n)
        store.plan_rounds(key, [checkpoint.checkpoint_id])
        drawn: Mapping[str, int] = {checkpoint.checkpoint_id: 0}
        while drawn and not failed:  # once, or until no problem needs another round
            planned = planned_controls(store, key, checkpoint.checkpoint_id, settings.settings_id)
            drawn = draw_samples(
                prepared,
                {checkpoint: planned},
                settings,
                greedy=False,
                stage=f"control T={settings.temperature:g}",
                on_error=note_failure,
                on_drawn=state.pace.add_drawn,
            )
            state.add_drawn(drawn)
            if drawn:
                store.plan_rounds(key, [checkpoint.checkpoint_id])


def draw_controls_to_ship(prepared: PreparedAudit, failed: Mapping[str, str]) -> int:
    """Sample the checkpoint to ship at higher temperatures, unless it is the base or the last.

    ``failed`` maps the ids of checkpoints without samples to reasons. Returns the number of samples.
    """
    controls = prepared.settings.controls
    if controls is None:
        return 0
    from oversharp.diagnostics.audit.counts.series import judge  # brings scipy

    shipping = judge(prepared.store, prepared.key, failed, prepared.skipped).shipping
    chosen = None if shipping is None else shipping.best_trained
    state = DrawState(pace=Pace({}, began=time.monotonic()))  # ``open_pace`` counted these samples as possible ones

    def note_failure(_: Checkpoint, error: OversharpError) -> None:
        prepared.progress.note(f"not sampled at a higher temperature: {error}")

    for checkpoint in prepared.series.checkpoints[1:-1]:
        if chosen is not None and checkpoint.step == chosen.step:
            _draw_controls(prepared, checkpoint, controls.higher, controls.n_higher, state, note_failure)
    if state.n_samples:
        prepared.engine.close()
        prepared.grader.close()
        _grade_rest(prepared)
    return state.n_samples


def draw_kernels(prepared: PreparedAudit, failed: Mapping[str, str]) -> Mapping[str, str]:
    """Compute the gradient kernel of every checkpoint. Returns the failures (label → reason)."""
    if not prepared.settings.kernel_problems:
        return {}
    series = prepared.series.checkpoints
    sampled = [checkpoint for checkpoint in series if checkpoint.checkpoint_id not in failed]
    return compute_kernels(prepared, sampled, prepared.settings.sampling, series[-1].kind)


def _note_pace(prepared: PreparedAudit, checkpoints: Sequence[Checkpoint], state: DrawState) -> None:
    """Print the progress of the audit, in one line for all of these checkpoints."""
    grown_bytes, now = store_bytes(prepared.store.path) - state.bytes_before, time.monotonic()
    lines = (state.pace.done_line(checkpoint.checkpoint_id, now, grown_bytes) for checkpoint in checkpoints)
    for line in list(filter(None, lines))[-1:]:
        prepared.progress.note(line)


def _plan_rest(prepared: PreparedAudit) -> SampleForecast | None:
    """Grade committed responses of earlier calls, and plan the next round of each problem.

    Returns None without a stopping rule.
    """
    _, planned = grade_planned(prepared.store, prepared.problems, prepared.key, progress=prepared.progress)
    if prepared.key.enough is None:
        return None
    from oversharp.diagnostics.audit.cost.rounds import SampleForecast  # loads scipy

    forecast = SampleForecast(prepared.key, prepared.series.base.checkpoint_id)
    forecast.update(planned)
    return forecast


def _grade_rest(prepared: PreparedAudit) -> None:
    """Grade committed responses that have no grade by the current rules, such as those of a failed checkpoint."""
    pending = find_ungraded(prepared.store, prepared.key)
    grade_responses(prepared.store, prepared.problems, pending, key=prepared.key, progress=prepared.progress)


def _left_out(prepared: PreparedAudit, failed: Mapping[str, str]) -> dict[str, str]:
    """Return the checkpoints that could not be read or sampled (label → reason)."""
    labels = {checkpoint.checkpoint_id: checkpoint.label for checkpoint in prepared.series.checkpoints}
    return {**prepared.skipped, **{labels[identity]: failed[identity] for identity in labels if identity in failed}}


def _record(prepared: PreparedAudit, refused: str | None) -> dict[str, object]:
    """Return the preset's settings, and why the chosen engine rejected the model, for the store."""
    preset: dict[str, object] = {"preset": prepared.settings.preset} if prepared.settings.preset else {}
    return preset if refused is None else {**preset, "engine_refused": refused}
