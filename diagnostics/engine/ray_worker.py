"""Does one part of the work on one checkpoint, as a worker of a cluster; samples go back as Parquet.

Nothing here knows Ray: ``oversharp.diagnostics.engine.ray_pool`` makes an actor of ``Worker``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from oversharp.diagnostics.engine.local import Engine, EngineSpec, Missing
from oversharp.diagnostics.records.errors import CheckpointError, OversharpError
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.shard import WHOLE, Shard
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers import BatchPlan
from oversharp.diagnostics.series import current_hash
from oversharp.diagnostics.series.weights import IncompleteCheckpointError

_SAMPLES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("sample_index", pa.int32()),
        ("greedy", pa.bool_()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("finish_reason", pa.string()),
        ("logp_sum_raw", pa.float64()),
        ("entropy_sum", pa.float64()),
    ]
)
_FORCED = pa.schema(
    [
        ("problem_id", pa.string()),
        ("response_id", pa.string()),
        ("logp_sum", pa.float64()),
        ("entropy_sum", pa.float64()),
        ("token_logps", pa.list_(pa.float32())),  # float32 is what they were computed in
        ("token_entropies", pa.list_(pa.float32())),
    ]
)


#: Response tokens of one unit, which are in the memory of the worker and of the lead at one time. A token takes up to
#: 36 bytes as Python holds it: 150 MB.
TOKENS_PER_UNIT = 1 << 22


@dataclass(frozen=True, kw_only=True)
class SampleJob:
    """Samples of one checkpoint, see ``Engine.sample``."""

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    missing: Missing


@dataclass(frozen=True, kw_only=True)
class TeacherForceJob:
    """Teacher-forced responses of one checkpoint, see ``Engine.teacher_force``."""

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    responses: pd.DataFrame
    again: bool


@dataclass(frozen=True, kw_only=True)
class KernelJob:
    """The gradient kernel of one checkpoint, see ``Engine.kernel``."""

    checkpoint: Checkpoint
    problems: Sequence[Problem]
    settings: SamplingSettings
    responses: pd.DataFrame


Job = SampleJob | TeacherForceJob | KernelJob


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One part of a job, in batches by ``plan`` where the job is one of samples.

    ``part`` None: the plan itself. It is made once, by one worker: how many rows fit in a batch differs between
    machines, and parts of different plans would not make a whole.
    """

    part: Shard | None
    plan: BatchPlan | None = None


@dataclass(frozen=True, kw_only=True)
class UnitResult:
    """What came of a unit: Parquet, a plan, kernels, or an error; and the notes for the user."""

    result: object = None
    error: OversharpError | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """A process of some machine and the version of oversharp that is installed there."""

    version: str
    host: str
    pid: int


class Worker:
    """An engine that does units, one at a time, for an audit led from ``lead_host``."""

    def __init__(self, spec: EngineSpec, lead_host: str) -> None:
        self._notes: list[str] = []
        self._engine = Engine(spec, note=self._notes.append)
        self._elsewhere = socket.gethostname() != lead_host
        self._seen: set[str] = set()

    def ready(self) -> WorkerPlace:
        """Where this worker is, and which oversharp it has."""
        return WorkerPlace(version=version(), host=socket.gethostname(), pid=os.getpid())

    def work(self, job: Job, unit: Unit) -> UnitResult:
        """Do one unit; what is meant for the user's eyes is returned, not raised."""
        self._notes.clear()
        try:
            if job.checkpoint.checkpoint_id not in self._seen:
                _require_checkpoint(job.checkpoint, hashed=self._elsewhere)
                self._seen.add(job.checkpoint.checkpoint_id)
            result = _planned(self._engine, job) if unit.part is None else _done(self._engine, job, unit)
        except OversharpError as error:
            return UnitResult(error=error, notes=tuple(self._notes))
        return UnitResult(result=result, notes=tuple(self._notes))

    def close(self) -> None:
        """Let go of the models."""
        self._engine.close()


def first_units(job: Job) -> list[Unit]:
    """What a job begins with: its plan, if it is worth dividing."""
    if isinstance(job, KernelJob) or (isinstance(job, TeacherForceJob) and job.again):
        return [Unit(part=WHOLE)]
    return [Unit(part=None)]


def units_of(plan: BatchPlan, most: int, n_tokens: int = 0) -> list[Unit]:
    """A planned job of so many tokens in parts of whole batches: ``most``, or more where a part would be too large.

    >>> plan = BatchPlan(n_batches=500, rows_per_batch=1)
    >>> len(units_of(plan, 4)), len(units_of(plan, 4, 100 * TOKENS_PER_UNIT)), len(units_of(plan, 4, 10**12))
    (4, 100, 500)
    """
    of = min(max(most, -(-n_tokens // TOKENS_PER_UNIT)), plan.n_batches)
    return [Unit(part=Shard(index=index, of=of), plan=plan) for index in range(of)]


def most_tokens(job: Job) -> int:
    """The most response tokens that can come of a job."""
    match job:
        case SampleJob():
            rows = sum(len(indices) + greedy for indices, greedy in job.missing.values())
        case _:
            rows = len(job.responses)
    return rows * job.settings.max_tokens


def _planned(engine: Engine, job: Job) -> BatchPlan:
    match job:
        case SampleJob():
            return engine.plan_samples(job.checkpoint, job.problems, job.missing, job.settings)
        case _:
            n = engine.count_forced_batches(job.checkpoint, job.problems, job.responses, job.settings)
            return BatchPlan(n_batches=n, rows_per_batch=1)


def _done(engine: Engine, job: Job, unit: Unit) -> object:
    part = unit.part or WHOLE
    match job:
        case SampleJob():
            batches = engine.sample(job.checkpoint, job.problems, job.missing, job.settings, part=part, plan=unit.plan)
            return samples_to_parquet([sample for batch in batches for sample in batch])
        case TeacherForceJob():
            forced = engine.teacher_force(
                job.checkpoint, job.problems, job.responses, job.settings, again=job.again, part=part
            )
            return forced_to_parquet([one for batch in forced for one in batch])
        case KernelJob():
            return next(engine.kernel(job.checkpoint, job.problems, job.responses, job.settings))


def _require_checkpoint(checkpoint: Checkpoint, *, hashed: bool) -> None:
    """Raise ``CheckpointError`` unless the checkpoint is here, and ``hashed`` if its weights are not those of the lead.

    Machines without a common disk may well have another run's checkpoint under the same path.
    """
    host = socket.gethostname()
    mend = "every worker needs the checkpoints under the paths that they have where the audit is started"
    for path in filter(None, (checkpoint.path, checkpoint.base_path)):
        if not path.is_dir():
            raise CheckpointError(f"{checkpoint.label}: {path} is not there on worker {host}; {mend}")
    if not hashed:
        return
    try:
        same = current_hash(checkpoint) == checkpoint.weights_hash
    except (OSError, IncompleteCheckpointError) as error:
        raise CheckpointError(f"{checkpoint.label}: cannot be read on worker {host} ({error}); {mend}") from error
    if not same:
        raise CheckpointError(f"{checkpoint.label}: {checkpoint.path} holds other weights on worker {host}; {mend}")


# ---------------------------------------------------------------- on the way


def samples_to_parquet(samples: Sequence[Sample]) -> bytes:
    """Samples as a Parquet file; every number keeps all its bits."""
    columns = {name: [getattr(sample, name) for sample in samples] for name in _SAMPLES.names}
    return _written(pa.table(columns, schema=_SAMPLES))


def samples_from_parquet(content: bytes) -> list[Sample]:
    """The samples of such a file."""
    rows = _read(content)
    return [Sample(**{**row, "token_ids": tuple(row["token_ids"])}) for row in rows]


def forced_to_parquet(forced: Sequence[ForcedResponse]) -> bytes:
    """Forced responses as a Parquet file, as ``samples_to_parquet``."""
    columns = {name: [getattr(one, name) for one in forced] for name in _FORCED.names}
    return _written(pa.table(columns, schema=_FORCED))


def forced_from_parquet(content: bytes) -> list[ForcedResponse]:
    """The forced responses of such a file."""
    lists = ("token_logps", "token_entropies")
    return [ForcedResponse(**{**row, **{name: tuple(row[name]) for name in lists}}) for row in _read(content)]


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _read(content: bytes) -> list[dict]:
    return parquet.read_table(pa.BufferReader(content)).to_pylist()
