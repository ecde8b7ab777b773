"""Stages of audits and confirmations: sample and grade, teacher-force, compute kernels.

Each stage queries the store for missing rows, runs the engine, and commits in small transactions. It works on one or
several checkpoints. ``OnError`` handles the failure of one checkpoint.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from oversharp.diagnostics.engine.grading import Grader
from oversharp.diagnostics.engine.jobs import ComputedKernel, ForceJob, Job, KernelJob, SampleJob
from oversharp.diagnostics.engine.local import AuditEngine
from oversharp.diagnostics.engine.sampler_reports import log_reports
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import KernelTooLargeError, OversharpError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, ForcedResponse, Problem, SamplingSettings
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.kernel_panel import KernelPlan, plan_kernel, upper_triangle
from oversharp.diagnostics.store.missing import find_unforced, find_unrepeated, missing_samples

#: Number of scored tokens per commit and Parquet file.
TOKENS_PER_COMMIT = 1 << 18
#: Number of panel responses per checkpoint that are scored twice, to measure the rounding error of a log-probability.
REPEATED_SCORES = 64

#: Callback for a checkpoint whose job failed. The stage continues with the other checkpoints unless the callback
#: raises.
OnError = Callable[[Checkpoint, OversharpError], None]


@dataclass(frozen=True, kw_only=True)
class OpenAudit:
    """An open store and engine.

    ``key`` identifies the audit in the store. ``grader`` grades samples while others are drawn.
    """

    store: Store
    key: AuditKey
    engine: AuditEngine
    grader: Grader
    problems: Sequence[Problem]
    progress: ProgressSink


def raise_error(_: Checkpoint, error: OversharpError) -> None:
    """Raise the error. For checkpoints that a stage needs."""
    raise error


def draw_samples(
    audit: OpenAudit,
    planned: Mapping[Checkpoint, Mapping[str, int]],
    settings: SamplingSettings,
    *,
    greedy: bool,
    stage: str,
    on_error: OnError = raise_error,
    on_drawn: Callable[[str, int], object] = lambda checkpoint_id, count: None,
) -> Mapping[str, int]:
    """Draw the samples that the store lacks, and grade them.

    Args:
        planned: checkpoint → problem id → number of samples.
        greedy: whether to also draw the greedy response of each problem.
        stage: name of the stage in progress lines and events.
        on_drawn: called with the checkpoint's id and the number of newly committed samples.

    Returns:
        Checkpoint id → samples drawn.

    Raises:
        UnreadableError: the check of the base's first grades stops the audit.
    """
    jobs, n_missing = [], 0
    for checkpoint, wanted in planned.items():
        missing = missing_samples(audit.store, settings.settings_id, checkpoint.checkpoint_id, wanted, greedy=greedy)
        if missing:
            n_missing += sum(len(indices) + lacks_greedy for indices, lacks_greedy in missing.values())
            jobs.append(SampleJob(checkpoint=checkpoint, problems=audit.problems, settings=settings, missing=missing))
    drawn = Counter[str]()
    if not jobs:
        return drawn
    start = time.perf_counter()
    with audit.progress.stage(_title(stage, jobs), n_missing) as advance:
        for result in audit.engine.run(jobs):
            checkpoint_id, samples = result.checkpoint.checkpoint_id, result.samples
            if samples:
                audit.store.add_samples(settings.settings_id, checkpoint_id, samples)
                audit.grader.add(samples)
                advance(len(samples))
                drawn[checkpoint_id] += len(samples)
                on_drawn(checkpoint_id, len(samples))
            if result.reports:
                log_reports(audit.store, audit.key, result.checkpoint, result.reports, audit.progress.note)
            if result.error is not None:
                on_error(result.checkpoint, result.error)
        graded_s = audit.grader.finish()
    _log(audit, stage, drawn, wall_s=time.perf_counter() - start - graded_s)
    return drawn


def teacher_force(
    audit: OpenAudit,
    checkpoints: Sequence[Checkpoint],
    settings: SamplingSettings,
    on_error: OnError = raise_error,
) -> None:
    """Teacher-force the responses that the checkpoints have not scored.

    Then scores some panel responses a second time.
    """
    jobs = _force_jobs(audit, checkpoints, settings)
    failed: set[Checkpoint] = set()

    def note_failure(checkpoint: Checkpoint, error: OversharpError) -> None:
        failed.add(checkpoint)
        on_error(checkpoint, error)

    if jobs:
        start, scored = time.perf_counter(), Counter[str]()
        with audit.progress.stage(_title("teacher-force", jobs), sum(len(job.responses) for job in jobs)) as advance:
            waiting: dict[str, list[ForcedResponse]] = defaultdict(list)
            for result in audit.engine.run(jobs):
                advance(len(result.forced))  # advance before the commit, which takes minutes on a real model
                chunk = waiting[result.checkpoint.checkpoint_id]
                chunk += result.forced
                if sum(response.n_tokens for response in chunk) >= TOKENS_PER_COMMIT:
                    _commit_scores(audit, waiting, result.checkpoint.checkpoint_id, scored)
                if result.reports:
                    log_reports(audit.store, audit.key, result.checkpoint, result.reports, audit.progress.note)
                if result.error is not None:
                    note_failure(result.checkpoint, result.error)
            for checkpoint_id in list(waiting):
                _commit_scores(audit, waiting, checkpoint_id, scored)
        _log(audit, "teacher-force", scored, wall_s=time.perf_counter() - start)
    _score_again(audit, [checkpoint for checkpoint in checkpoints if checkpoint not in failed], settings, on_error)


def _force_jobs(
    audit: OpenAudit, checkpoints: Sequence[Checkpoint], settings: SamplingSettings, *, is_repeat: bool = False
) -> list[ForceJob]:
    jobs = []
    for checkpoint in checkpoints:
        if is_repeat:
            responses = find_unrepeated(audit.store, audit.key, checkpoint.checkpoint_id, REPEATED_SCORES)
        else:
            responses = find_unforced(audit.store, audit.key, checkpoint.checkpoint_id)
        if len(responses):
            jobs.append(
                ForceJob(
                    checkpoint=checkpoint,
                    problems=audit.problems,
                    settings=settings,
                    responses=responses,
                    is_repeat=is_repeat,
                )
            )
    return jobs


def _commit_scores(
    audit: OpenAudit, waiting: dict[str, list[ForcedResponse]], checkpoint_id: str, scored: Counter[str]
) -> None:
    chunk = waiting.pop(checkpoint_id)
    if chunk:
        audit.store.add_forced(audit.key, checkpoint_id, chunk)
        scored[checkpoint_id] += len(chunk)


def _score_again(
    audit: OpenAudit, checkpoints: Sequence[Checkpoint], settings: SamplingSettings, on_error: OnError
) -> None:
    """Score some panel responses of each checkpoint a second time, in batches of another shape."""
    jobs = _force_jobs(audit, checkpoints, settings, is_repeat=True)
    scores: dict[str, list[ForcedResponse]] = {job.checkpoint.checkpoint_id: [] for job in jobs}
    for result in audit.engine.run(jobs):
        if result.error is not None:
            del scores[result.checkpoint.checkpoint_id]
            on_error(result.checkpoint, result.error)
        else:
            scores[result.checkpoint.checkpoint_id] += result.forced
    for checkpoint_id, forced in scores.items():
        audit.store.add_forced_again(audit.key, checkpoint_id, forced)


def compute_kernels(
    audit: OpenAudit, checkpoints: Sequence[Checkpoint], settings: SamplingSettings, kind: str
) -> Mapping[str, str]:
    """Compute the gradient kernels, one group of the engine after the other. Returns the failures (label → reason).

    If the rows do not fit into memory, the kernel has fewer problems. That is printed, but is no failure. ``kind`` is
    the kind of weights that this series trains: a full model or an adapter.
    """
    without_kernel: dict[str, str] = {}
    for group in audit.engine.group(checkpoints):
        _compute_group(audit, group, settings, kind, without_kernel)
    return without_kernel


def _compute_group(
    audit: OpenAudit,
    group: Sequence[Checkpoint],
    settings: SamplingSettings,
    kind: str,
    without_kernel: dict[str, str],
) -> None:
    """Compute the kernels of a group. Failures are added to ``without_kernel``."""
    n_problems = dict.fromkeys(group, audit.key.kernel_problems)
    while n_problems:
        plans = {
            checkpoint: plan
            for checkpoint, n in n_problems.items()
            if (plan := _kernel_plan(audit, checkpoint, settings, kind, n)) is not None
        }
        fewer = _compute_planned(audit, plans, settings, without_kernel)
        n_problems = {
            checkpoint: n
            for checkpoint, error in fewer.items()
            if (n := _affordable_problems(audit, checkpoint, n_problems[checkpoint], error))
        }


def _kernel_plan(
    audit: OpenAudit, checkpoint: Checkpoint, settings: SamplingSettings, kind: str, n_problems: int
) -> KernelPlan | None:
    """Return the planned rows of a kernel.

    None if the kernel exists, or if it cannot be computed; the reason is then recorded.
    """
    store, key, checkpoint_id = audit.store, audit.key, checkpoint.checkpoint_id
    plan = plan_kernel(store, replace(key, kernel_problems=n_problems), checkpoint, settings)
    if plan is None:
        store.add_missing_kernel(key, checkpoint_id, "no panel to choose responses from; run the audit with --panel 4")
        return None
    if checkpoint.trained.kind != kind:
        why = "its kernel would use the weights of the whole model, but those of the adapters use only adapter weights"
        store.add_missing_kernel(key, checkpoint_id, why)
        return None
    return None if store.link_kernel(key, checkpoint_id, plan.kernel_id) else plan


def _compute_planned(
    audit: OpenAudit,
    plans: Mapping[Checkpoint, KernelPlan],
    settings: SamplingSettings,
    without_kernel: dict[str, str],
) -> dict[Checkpoint, KernelTooLargeError]:
    """Compute and commit kernels. Returns those that are too large for memory.

    Other failures are added to ``without_kernel``.
    """
    jobs = [
        KernelJob(checkpoint=checkpoint, problems=audit.problems, settings=settings, responses=plan.rows)
        for checkpoint, plan in plans.items()
    ]
    too_large: dict[Checkpoint, KernelTooLargeError] = {}
    if not jobs:
        return too_large
    with audit.progress.stage(_title("kernel", jobs), sum(len(job.responses) for job in jobs)) as advance:
        start = time.perf_counter()
        for result in audit.engine.run(jobs):
            checkpoint, error = result.checkpoint, result.error
            if isinstance(error, KernelTooLargeError):
                too_large[checkpoint] = error
            elif error is not None:
                why = str(error).removeprefix(f"{checkpoint.label}: ")
                audit.store.add_missing_kernel(audit.key, checkpoint.checkpoint_id, why)
                without_kernel[checkpoint.label] = why
            elif result.kernel is not None:
                _commit_kernel(audit, checkpoint, plans[checkpoint], result.kernel)
                n_rows = len(plans[checkpoint].rows)
                advance(n_rows)
                _log(audit, "kernel", {checkpoint.checkpoint_id: n_rows}, wall_s=time.perf_counter() - start)
            start = time.perf_counter()
    return too_large


def _commit_kernel(audit: OpenAudit, checkpoint: Checkpoint, plan: KernelPlan, computed: ComputedKernel) -> None:
    kernel = computed.kernel
    rows = plan.rows[["problem_id", "response_id"]].assign(
        position=range(len(plan.rows)), logp_sum=kernel.logp_sum_N, n_tokens=computed.n_tokens
    )
    audit.store.add_kernel(
        audit.key,
        checkpoint.checkpoint_id,
        plan.kernel_id,
        certificate=kernel.certificate,
        rows=rows,
        roles=plan.roles,
        values=upper_triangle(kernel.kernel_NN),
    )


def _affordable_problems(audit: OpenAudit, checkpoint: Checkpoint, n_problems: int, error: KernelTooLargeError) -> int:
    """Return the number of problems whose rows fit into memory.

    If it is 0, the reason is recorded.
    """
    fewer = min(n_problems - 1, int(n_problems * error.share))
    if fewer < 1:
        why = f"{error}, not even those of one problem"
        audit.progress.note(f"{checkpoint.label}: no gradient kernel: {why}")
        audit.store.add_missing_kernel(audit.key, checkpoint.checkpoint_id, why)
        return 0
    audit.progress.note(f"{checkpoint.label}: {error}: {fewer} of {plural(n_problems, 'problem')} used")
    return fewer


def _title(stage: str, jobs: Sequence[Job]) -> str:
    """Return the title of a stage for progress lines.

    >>> from pathlib import Path
    >>> checkpoint = Checkpoint(step=20, label="checkpoint-20", path=Path("."), kind="full", weights_hash="")
    >>> job = SampleJob(checkpoint=checkpoint, problems=(), settings=SamplingSettings(sampler="vllm"), missing={})
    >>> _title("sample", [job]), _title("sample", [job, job])
    ('sample checkpoint-20', 'sample 2 checkpoints')
    """
    return f"{stage} {jobs[0].checkpoint.label if len(jobs) == 1 else plural(len(jobs), 'checkpoint')}"


def _log(audit: OpenAudit, stage: str, rows: Mapping[str, int], *, wall_s: float) -> None:
    """Log the number of rows of each checkpoint (id → rows), and its share of the stage's time."""
    n_rows = sum(rows.values())
    for checkpoint_id, n in rows.items():
        audit.store.log_event(audit.key, stage, wall_s=wall_s * n / n_rows, rows=n, checkpoint_id=checkpoint_id)
