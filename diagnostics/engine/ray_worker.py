"""A worker of a cluster: it runs jobs, and verifies that its checkpoints equal the lead's.

This module does not import Ray. ``oversharp.diagnostics.engine.ray_pool`` makes ``Worker`` an actor.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from oversharp.diagnostics.engine.jobs import Job, JobResult, KernelJob
from oversharp.diagnostics.engine.local import Engine, EngineSpec
from oversharp.diagnostics.records.errors import CheckpointError, OversharpError
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series import current_hash
from oversharp.diagnostics.series.weights import IncompleteCheckpointError


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """Process, machine and oversharp version of a worker."""

    version: str
    host: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class WorkerAnswer:
    """The joined results of a job, and the worker's notes to print."""

    result: JobResult
    notes: tuple[str, ...]


class Worker:
    """Worker that runs one job at a time, with an engine that keeps its model loaded."""

    def __init__(self, spec: EngineSpec, lead_host: str) -> None:
        self._notes: list[str] = []
        self._engine = Engine(spec, note=self._notes.append)
        self._is_elsewhere = socket.gethostname() != lead_host
        self._checked: set[str] = set()

    def place(self) -> WorkerPlace:
        """Return process, machine and version of this worker."""
        return WorkerPlace(version=version(), host=socket.gethostname(), pid=os.getpid())

    def run(self, job: Job) -> WorkerAnswer:
        """Run a job. An error of the job is returned, not raised."""
        self._notes.clear()
        needed = job.checkpoint.trained if isinstance(job, KernelJob) else job.checkpoint
        try:
            if needed.checkpoint_id not in self._checked:
                require_checkpoint(needed, hashed=self._is_elsewhere)
                self._checked.add(needed.checkpoint_id)
            result = _join(job.checkpoint, list(self._engine.run([job])))
        except OversharpError as error:
            result = JobResult(checkpoint=job.checkpoint, error=error)
        return WorkerAnswer(result=result, notes=tuple(self._notes))

    def close(self) -> None:
        """Release the models."""
        self._engine.close()


def _join(checkpoint: Checkpoint, results: Sequence[JobResult]) -> JobResult:
    return JobResult(
        checkpoint=checkpoint,
        samples=[sample for result in results for sample in result.samples],
        forced=[response for result in results for response in result.forced],
        kernel=next((result.kernel for result in results if result.kernel is not None), None),
        reports=[report for result in results for report in result.reports],
        error=next((result.error for result in results if result.error is not None), None),
    )


def require_checkpoint(checkpoint: Checkpoint, *, hashed: bool) -> None:
    """Raise ``CheckpointError`` if the checkpoint is missing or has other weights.

    ``hashed``: also compare the weights. Machines without a shared disk may have the checkpoint of another run at
    the same path.
    """
    host = socket.gethostname()
    hint = "every worker needs the checkpoints at the same paths as the machine that starts the audit"
    for path in filter(None, (checkpoint.path, checkpoint.base_path)):
        if not path.is_dir():
            raise CheckpointError(f"{checkpoint.label}: {path} does not exist on worker {host}; {hint}")
    if not hashed:
        return
    try:
        is_same = current_hash(checkpoint) == checkpoint.weights_hash
    except (OSError, IncompleteCheckpointError) as error:
        raise CheckpointError(f"{checkpoint.label}: cannot be read on worker {host} ({error}); {hint}") from error
    if not is_same:
        raise CheckpointError(f"{checkpoint.label}: {checkpoint.path} has other weights on worker {host}; {hint}")
