"""The engine of an audit whose work is done by the workers of a Ray cluster. The only module that imports Ray.

The flow of the audit and its store stay with the process that was started, the lead. It cuts the work on a checkpoint
into units, hands them to workers, which are Ray actors with an ``Engine`` each, and takes what comes as Parquet. A
worker that holds a checkpoint gets more of it as long as there is any, so that models are loaded seldom. A worker may
die: its unit is given to another, and a new worker is started where the cluster has room.

Findings are those of one process to the last bit where a worker computes as that process would: transformers' batches
are the same, since all workers make them by one plan and each computes some of them.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pandas as pd

from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.local import EngineSpec, Missing
from oversharp.diagnostics.engine.ray_worker import (
    Job,
    KernelJob,
    SampleJob,
    TeacherForceJob,
    Unit,
    UnitResult,
    Worker,
    WorkerPlace,
    first_units,
    forced_from_parquet,
    most_tokens,
    samples_from_parquet,
    units_of,
)
from oversharp.diagnostics.records.errors import ClusterError, ConfigError, OversharpError, SamplerError
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.shard import Task, run_in_turns
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers import BatchPlan, choose_sampler

if TYPE_CHECKING:
    from oversharp.diagnostics.kernel import GradientKernel

#: What starts a Ray of its own on this machine.
HERE = ("", "local")
#: Units that a job is cut into at least, per worker: the work that one death costs, against reading it once per unit.
UNITS_PER_WORKER = 4
#: Workers that may die at one unit before its checkpoint is left out, or one after the other before they are ready.
MOST_DEATHS = 3
#: Seconds without a worker or a result after which the user is told what is waited for.
_PATIENCE_S = 30.0
#: Seconds in which a cluster has to answer.
_CONNECT_S = 10.0


class RayPool:
    """Where workers come from. Each takes one CPU, or as many GPUs as share one model where the cluster has GPUs."""

    def __init__(self, ray: Any, config: EngineConfig, *, note: Callable[[str], None]) -> None:
        self.ray = ray
        self.note = note
        on_gpu = config.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
        kind, each = ("GPU", config.tensor_parallel) if on_gpu else ("CPU", 1)
        rooms = [node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]]
        self.n_workers = sum(int(room // each) for room in rooms)
        if not self.n_workers:
            raise ClusterError(f"--ray: no machine of the cluster has {each} {kind}s; it has {list(map(int, rooms))}")
        self.needs: dict[str, float] = {"num_gpus": each, "num_cpus": 0} if on_gpu else {"num_cpus": each}

    def choose_sampler(
        self, name: str, checkpoints: Sequence[Checkpoint], *, device: str | None, held: str | None = None
    ) -> tuple[str, str]:
        """``samplers.choose_sampler`` where a worker would be: what runs there need not run here."""

        def chosen() -> tuple[str, str] | OversharpError:
            try:
                return choose_sampler(name, checkpoints, device=device, held=held)
            except OversharpError as error:
                return error

        answer = self._once(chosen)
        if isinstance(answer, OversharpError):
            raise answer
        return answer

    def _once(self, function: Callable[[], Any]) -> Any:
        try:
            return self.ray.get(self.ray.remote(function).options(**self.needs, max_retries=MOST_DEATHS).remote())
        except self.ray.exceptions.RayError as error:
            raise _no_worker(error) from error

    def engine(self, spec: EngineSpec) -> RayEngine:
        """An engine whose work the workers do."""
        return RayEngine(self, spec)


@contextmanager
def open_pool(address: str, config: EngineConfig, *, note: Callable[[str], None]) -> Iterator[RayPool]:
    """Join the cluster at ``address``, or start a Ray on this machine, for as long as the block lasts.

    A script that has joined one itself keeps it. Raises ``ConfigError`` if Ray is not installed, ``ClusterError`` if
    there is no such cluster or none of its machines can be a worker.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--ray: Ray is not installed; pip install '.[ray]' in oversharp's checkout") from error
    if ray.is_initialized():
        yield RayPool(ray, config, note=note)
        return
    with _quiet(ray):
        try:
            _join(ray, address)
            yield RayPool(ray, config, note=note)
        finally:
            ray.shutdown()


def _join(ray: Any, address: str) -> None:
    # Ray would report every cluster that we start
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    started = {"address": "local", "include_dashboard": False} if address in HERE else {"address": address}
    try:
        _require_listener(address)
        ray.init(**started, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = "this machine" if address in HERE else address
        raise ClusterError(
            f"--ray: no Ray at {where} ({_first_line(error)}); start one with `ray start --head` and give its address, "
            "or pass --ray alone to use this machine"
        ) from error


def _require_listener(address: str) -> None:
    """Raise ``OSError`` if nobody listens at HOST:PORT, or ``ValueError``: Ray itself would try for many minutes."""
    if address in (*HERE, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "://" in address:
        raise ValueError("an address is HOST:PORT, the port being 6379 unless ray start named another")
    socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray tells of every death of a worker on the console, and no setting keeps it from that; we say it in a line."""
    module = ray._private.worker
    before = module.print_to_stdstream
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


@dataclass(eq=False)
class _WorkerHandle:
    """One worker and the checkpoint that it holds; ``place`` once it has answered, ``busy`` with a unit."""

    actor: Any
    place: WorkerPlace | None = None
    busy: bool = False
    holds: str | None = None


@dataclass(eq=False)
class _JobState:
    """One job on its way: units to be given out, units at work, results that nobody has taken yet."""

    job: Job
    reference: Any
    waiting: deque[tuple[Unit, int]]  # with the workers that died at it
    n_at_work: int = 0
    results: deque[Any] = field(default_factory=deque)
    error: OversharpError | None = None

    @property
    def checkpoint_id(self) -> str:
        return self.job.checkpoint.checkpoint_id

    @property
    def ended(self) -> bool:
        return self.error is not None or not (self.waiting or self.n_at_work or self.results)

    def fail(self, error: OversharpError) -> None:
        """Give out no more of it; what is at work is not waited for."""
        self.error = error
        self.waiting.clear()


class RayEngine:
    """An ``AuditEngine`` whose jobs are cut into units and done by workers, several checkpoints side by side."""

    def __init__(self, pool: RayPool, spec: EngineSpec) -> None:
        self._pool, self._ray = pool, pool.ray
        self._actor = self._ray.remote(Worker).options(**pool.needs, max_restarts=0, max_task_retries=0)
        self._spec = spec
        self._workers: list[_WorkerHandle] = []
        self._works: list[_JobState] = []
        self._at_work: dict[Any, tuple[_WorkerHandle, _JobState | None, Unit | None, int]] = {}
        self._said: set[str] = set()
        self._deaths_unready = 0

    # ---------------------------------------------------------------- what an audit asks for

    def sample(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], missing: Missing, settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Draw what is missing, see ``AuditEngine``."""
        job = SampleJob(checkpoint=checkpoint, problems=problems, settings=settings, missing=missing)
        return self._results(self._submit(job), samples_from_parquet)

    def teacher_force(
        self,
        checkpoint: Checkpoint,
        problems: Sequence[Problem],
        responses: pd.DataFrame,
        settings: SamplingSettings,
        *,
        again: bool = False,
    ) -> Iterator[list[ForcedResponse]]:
        """Teacher-force responses, see ``AuditEngine``."""
        job = TeacherForceJob(
            checkpoint=checkpoint, problems=problems, settings=settings, responses=responses, again=again
        )
        return self._results(self._submit(job), forced_from_parquet)

    def kernel(
        self, checkpoint: Checkpoint, problems: Sequence[Problem], responses: pd.DataFrame, settings: SamplingSettings
    ) -> Iterator[list[tuple[GradientKernel, list[int]]]]:
        """The gradient kernel over ``responses``, see ``AuditEngine``."""
        job = KernelJob(checkpoint=checkpoint, problems=problems, settings=settings, responses=responses)
        return self._results(self._submit(job), lambda kernels: kernels)

    def run(self, tasks: Sequence[Task[None]]) -> None:
        """Do all tasks side by side."""
        run_in_turns(tasks)

    def close(self) -> None:
        """Have the workers let go of their models; they end with the pool."""
        for worker in self._workers:
            worker.actor.close.remote()
            worker.holds = None

    # ---------------------------------------------------------------- giving out and taking in

    def _submit(self, job: Job) -> _JobState:
        work = _JobState(job=job, reference=self._ray.put(job), waiting=deque((unit, 0) for unit in first_units(job)))
        self._works.append(work)
        while len(self._workers) < self._pool.n_workers:
            self._start_worker()
        self._dispatch()
        return work

    def _results(self, work: _JobState, decode: Callable[[Any], list[Any]]) -> Iterator[list[Any]]:
        try:
            while not work.ended:
                if work.results:
                    yield decode(work.results.popleft())
                    continue
                self._wait()
                if not (work.results or work.ended):
                    yield []  # there is news of another job
            if work.error is not None:
                raise work.error
        finally:
            work.waiting.clear()
            self._works.remove(work)

    def _wait(self) -> None:
        """Return when some job has results that nobody has taken yet, or has ended."""
        patience = count()
        while not any(work.results or work.ended for work in self._works):
            done, _ = self._ray.wait(list(self._at_work), num_returns=1, timeout=_PATIENCE_S)
            if not done and next(patience) == 0 and not any(worker.place for worker in self._workers):
                needs = ", ".join(f"{name} {number:g}" for name, number in self._pool.needs.items())
                self._note(f"waiting for the cluster to start a worker ({needs})")
            for reference in done:
                self._receive(reference)
            self._dispatch()

    def _receive(self, reference: Any) -> None:
        worker, work, unit, deaths = self._at_work.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError:
            raise  # a fault in our own code
        except self._ray.exceptions.RayError as error:
            self._replace_worker(worker, error)
            if work is not None and unit is not None:
                work.n_at_work -= 1
                self._retry(work, unit, deaths + 1, worker, error)
            return
        worker.busy = False
        if work is None:
            _require_version(answer)
            worker.place, self._deaths_unready = answer, 0
            return
        work.n_at_work -= 1
        self._accept(work, unit, answer)

    def _accept(self, work: _JobState, unit: Unit | None, outcome: UnitResult) -> None:
        for note in outcome.notes:
            self._note(note)
        if work.error is not None or work not in self._works:
            return  # it failed or was broken off meanwhile
        if outcome.error is not None:
            work.fail(outcome.error)
        elif isinstance(outcome.result, BatchPlan):
            most = UNITS_PER_WORKER * self._pool.n_workers
            work.waiting.extend((part, 0) for part in units_of(outcome.result, most, most_tokens(work.job)))
        else:
            work.results.append(outcome.result)

    def _dispatch(self) -> None:
        for worker in self._workers:
            if worker.place is None or worker.busy:
                continue
            work = self._next_for(worker)
            if work is None:
                return
            unit, deaths = work.waiting.popleft()
            worker.busy, worker.holds = True, work.checkpoint_id
            work.n_at_work += 1
            reference = worker.actor.work.remote(work.reference, unit)
            self._at_work[reference] = (worker, work, unit, deaths)

    def _next_for(self, worker: _WorkerHandle) -> _JobState | None:
        """A job of the checkpoint that the worker holds, else one of whose checkpoint the fewest workers hold."""
        waiting = [work for work in self._works if work.waiting]
        holders = [other.holds for other in self._workers if other is not worker]
        return min(
            waiting,
            key=lambda work: (work.checkpoint_id != worker.holds, holders.count(work.checkpoint_id)),
            default=None,
        )

    # ---------------------------------------------------------------- workers and their deaths

    def _start_worker(self) -> None:
        worker = _WorkerHandle(actor=self._actor.remote(self._spec, socket.gethostname()))
        self._workers.append(worker)
        # until it answers it gets no work: the cluster may have no room for it
        self._at_work[worker.actor.ready.remote()] = (worker, None, None, 0)

    def _replace_worker(self, worker: _WorkerHandle, error: Exception) -> None:
        """Start another worker in the place of one that died, unless too many in a row died before they were ready."""
        self._workers.remove(worker)
        self._ray.kill(worker.actor)  # it may be cut off and not dead
        self._deaths_unready += worker.place is None
        if self._deaths_unready < MOST_DEATHS:
            self._start_worker()
        elif not self._workers:
            raise _no_worker(error) from error

    def _retry(self, work: _JobState, unit: Unit, deaths: int, worker: _WorkerHandle, error: Exception) -> None:
        label, where = work.job.checkpoint.label, worker.place.host if worker.place else "the cluster"
        if work.error is not None:
            return
        if deaths == MOST_DEATHS:
            work.fail(
                SamplerError(
                    f"{label}: {deaths} workers died at the same part of its work ({_cause(error)}); give each more "
                    "memory, or lower --batch-size"
                )
            )
            return
        work.waiting.appendleft((unit, deaths))
        self._pool.note(f"{label}: a worker on {where} died ({_cause(error)}); another does its work again")

    def _note(self, text: str) -> None:
        """Say it once, however many workers do."""
        if text not in self._said:
            self._said.add(text)
            self._pool.note(text)


def _require_version(place: WorkerPlace) -> None:
    if place.version != version():
        theirs = f"worker {place.host} has oversharp {place.version}"
        raise ClusterError(f"--ray: {theirs}, this is {version()}; install the same on all machines")


def _no_worker(error: Exception) -> ClusterError:
    return ClusterError(
        f"--ray: no worker starts ({_cause(error)}); install the same Python and oversharp on all machines"
    )


def _cause(error: Exception) -> str:
    """What Ray says of a death, in a few words: its last line that says anything about why."""
    text = " ".join(str(error).split())
    for said in ("Worker exit detail: ", "The actor died because of an error raised in its creation task, "):
        text = text.partition(said)[2] or text
    return text[:120].rstrip()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
