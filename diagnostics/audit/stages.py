"""The stages of an audit, and of a confirmation: draw, which grades too, teacher-force, compute the gradient kernel.

Each reads what the store has, does what is missing and commits in small transactions. Those that a model computes are
tasks: they yield where other checkpoints may go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oversharp.diagnostics.engine.grading import Grader
from oversharp.diagnostics.engine.local import AuditEngine
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import CheckpointError, KernelError, KernelTooLargeError, SamplerError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.shard import Task
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, ForcedResponse, Problem, SamplingSettings
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.kernel_panel import plan_kernel, upper_triangle
from oversharp.diagnostics.store.missing import find_unforced, find_unrepeated, missing_samples

#: Scored tokens per commit and Parquet file.
TOKENS_PER_COMMIT = 1 << 18
#: Panel responses per checkpoint that are scored twice, to see how far rounding alone moves a log-probability.
REPEATED_SCORES = 64


@dataclass(frozen=True, kw_only=True)
class OpenAudit:
    """An audit whose store and engine are open; ``key`` names it in the store. ``grader`` grades what is drawn."""

    store: Store
    key: AuditKey
    engine: AuditEngine
    grader: Grader
    problems: Sequence[Problem]
    progress: ProgressSink


def draw_samples(
    audit: OpenAudit,
    checkpoint: Checkpoint,
    settings: SamplingSettings,
    planned: Mapping[str, int],
    *,
    greedy: bool,
    what: str,
    drew: Callable[[str, int], object] = lambda checkpoint_id, count: None,
) -> Task[int]:
    """Draw the samples of one checkpoint that the store lacks, and grade them; returns how many were drawn.

    ``planned``: problem id → samples wanted. ``what`` names the stage to the user and in the events of the audit.
    ``drew`` hears the checkpoint's id and how many more are in the store.
    Raises ``UnreadableError`` where a first look at the base stops the audit.
    """
    missing = missing_samples(audit.store, settings.settings_id, checkpoint.checkpoint_id, planned, greedy=greedy)
    total = sum(len(indices) + lacks_greedy for indices, lacks_greedy in missing.values())
    if not total:
        return 0
    start = time.perf_counter()
    with audit.progress.stage(f"{what} {checkpoint.label}", total) as advance:
        for batch in audit.engine.sample(checkpoint, audit.problems, missing, settings):
            if batch:
                audit.store.add_samples(settings.settings_id, checkpoint.checkpoint_id, batch)
                audit.grader.take(batch)
                advance(len(batch))
                drew(checkpoint.checkpoint_id, len(batch))
            yield
        graded_s = audit.grader.finish()
    wall_s = time.perf_counter() - start - graded_s
    audit.store.log_event(audit.key, what, wall_s=wall_s, rows=total, checkpoint_id=checkpoint.checkpoint_id)
    return total


def teacher_force(audit: OpenAudit, checkpoint: Checkpoint, settings: SamplingSettings) -> Task[None]:
    """Teacher-force what the checkpoint has not scored yet, then a few panel responses a second time."""
    store, key, checkpoint_id = audit.store, audit.key, checkpoint.checkpoint_id
    pending = find_unforced(store, key, checkpoint_id)
    if len(pending):
        start = time.perf_counter()
        with audit.progress.stage(f"teacher-force {checkpoint.label}", len(pending)) as advance:
            batches = audit.engine.teacher_force(checkpoint, audit.problems, pending, settings)
            for chunk in _chunks(_counted(batches, advance), TOKENS_PER_COMMIT):
                if chunk:
                    store.add_forced(key, checkpoint_id, chunk)
                yield
        wall_s = time.perf_counter() - start
        store.log_event(key, "teacher-force", wall_s=wall_s, rows=len(pending), checkpoint_id=checkpoint_id)
    again = find_unrepeated(store, key, checkpoint_id, REPEATED_SCORES)
    if len(again):
        forced: list[ForcedResponse] = []
        for batch in audit.engine.teacher_force(checkpoint, audit.problems, again, settings, again=True):
            forced += batch
            yield
        store.add_forced_again(key, checkpoint_id, forced)


def compute_kernel(audit: OpenAudit, checkpoint: Checkpoint, settings: SamplingSettings, kind: str) -> Task[str | None]:
    """The gradient kernel of one checkpoint; returns why it could not be computed, and the audit goes on.

    Rows that do not fit into memory are no failure: the kernel then holds fewer problems, and the user is told.
    ``kind``: what is trained in this series, a full model or an adapter.
    """
    n_problems = audit.key.kernel_problems
    while True:
        try:
            return (yield from _compute_kernel(audit, checkpoint, settings, kind, n_problems))
        except KernelTooLargeError as error:
            fewer = min(n_problems - 1, int(n_problems * error.share))
            if fewer < 1:
                why = f"{error}: not even one problem's fit"
                audit.progress.note(f"{checkpoint.label}: no gradient kernel: {why}")
                audit.store.add_missing_kernel(audit.key, checkpoint.checkpoint_id, why)
                return None
            audit.progress.note(f"{checkpoint.label}: {error}: {fewer} of {plural(n_problems, 'problem')} are taken")
            n_problems = fewer


def _compute_kernel(
    audit: OpenAudit, checkpoint: Checkpoint, settings: SamplingSettings, kind: str, n_problems: int
) -> Task[str | None]:
    store, key, checkpoint_id = audit.store, audit.key, checkpoint.checkpoint_id
    plan = plan_kernel(store, replace(key, kernel_problems=n_problems), checkpoint, settings)
    if plan is None or checkpoint.trained.kind != kind:
        why = "no panel to choose responses from; run the audit with --panel 4"
        if plan is not None:
            why = "its kernel would be over the weights of the whole model, the adapters' are over theirs alone"
        store.add_missing_kernel(key, checkpoint_id, why)
        return None  # nothing went wrong
    if store.link_kernel(key, checkpoint_id, plan.kernel_id):
        return None
    start = time.perf_counter()
    try:
        with audit.progress.stage(f"kernel {checkpoint.label}", len(plan.rows)) as advance:
            for found in audit.engine.kernel(checkpoint.trained, audit.problems, plan.rows, settings):
                for computed, n_tokens in found:
                    rows = plan.rows[["problem_id", "response_id"]].assign(
                        position=range(len(plan.rows)), logp_sum=computed.logp_sum_N, n_tokens=n_tokens
                    )
                    store.add_kernel(
                        key,
                        checkpoint_id,
                        plan.kernel_id,
                        certificate=computed.certificate,
                        rows=rows,
                        roles=plan.roles,
                        values=upper_triangle(computed.kernel_NN),
                    )
                    advance(len(plan.rows))
                yield
    except KernelTooLargeError:
        raise
    except (CheckpointError, KernelError, SamplerError) as error:
        why = str(error).removeprefix(f"{checkpoint.label}: ")
        store.add_missing_kernel(key, checkpoint_id, why)
        return why
    wall_s = time.perf_counter() - start
    store.log_event(key, "kernel", wall_s=wall_s, rows=len(plan.rows), checkpoint_id=checkpoint_id)
    return None


def _counted(
    batches: Iterable[list[ForcedResponse]], advance: Callable[[int], object]
) -> Iterator[list[ForcedResponse]]:
    """The batches, each told of when it comes: a commit of many takes minutes on a real model."""
    for batch in batches:
        advance(len(batch))
        yield batch


def _chunks(batches: Iterable[list[ForcedResponse]], n_tokens: int) -> Iterator[list[ForcedResponse]]:
    """Batches joined until they hold ``n_tokens``: one file per commit, not per batch. Empty ones are passed on."""
    chunk: list[ForcedResponse] = []
    for batch in batches:
        chunk += batch
        if sum(one.n_tokens for one in chunk) >= n_tokens:
            yield chunk
            chunk = []
        elif not batch:
            yield []
    if chunk:
        yield chunk
