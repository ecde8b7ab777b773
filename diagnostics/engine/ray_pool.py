"""The engine of an audit whose jobs the workers of a Ray cluster do. The only module that imports Ray.

The process that was started, the lead, runs the stages and writes the store. It splits each job into shards (one
checkpoint, a block of problems) and gives them to workers, which are Ray actors with an ``Engine`` each. A worker that
has loaded a checkpoint gets more shards of it while there are any, so that models are loaded seldom. When a worker
dies, its shard is done again by another, and a new worker is started.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.jobs import JOB_ERRORS, Job, JobResult, count_tokens, split_job
from oversharp.diagnostics.engine.local import EngineSpec
from oversharp.diagnostics.engine.ray_worker import Worker, WorkerPlace
from oversharp.diagnostics.records.errors import ClusterError, ConfigError, OversharpError, SamplerError
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers import choose_sampler

#: Addresses that start a Ray on this machine.
HERE = ("", "local")
#: Shards per worker that a stage is split into at least: more lose less at a death, and at the end of a stage.
SHARDS_PER_WORKER = 4
#: Response tokens of one shard at most, since the lead and the worker hold all of them: up to 36 bytes each, 150 MB.
TOKENS_PER_SHARD = 1 << 22
#: Workers that may die at one shard before its checkpoint is left out, or in a row before they are ready.
MOST_DEATHS = 3
#: Seconds without a worker before the lead prints what it waits for.
_PATIENCE_S = 30.0
#: Seconds in which a cluster must answer.
_CONNECT_S = 10.0


class RayPool:
    """The cluster's room for workers: each takes one CPU, or with GPUs in the cluster as many as share one model."""

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
        """Call ``samplers.choose_sampler`` on a worker's machine: what runs there need not run on the lead's."""

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
        """Return an engine whose jobs the workers do."""
        return RayEngine(self, spec)


@contextmanager
def open_pool(address: str, config: EngineConfig, *, note: Callable[[str], None]) -> Iterator[RayPool]:
    """Join the cluster at ``address``, or start a Ray on this machine, until the block ends.

    A script that has called ``ray.init`` keeps its connection. Raises ``ConfigError`` if Ray is not installed,
    ``ClusterError`` if there is no such cluster or none of its machines has room for a worker.
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
    """Raise ``OSError`` if nothing listens at HOST:PORT, ``ValueError`` for other text: Ray retries for minutes."""
    if address in (*HERE, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "://" in address:
        raise ValueError("an address is HOST:PORT, the port being 6379 unless ray start named another")
    socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray from printing every death of a worker, which no setting does; the engine prints one line of its own."""
    module = ray._private.worker
    before = module.print_to_stdstream
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


@dataclass(eq=False)
class _JobShard:
    """Part of a job, and how many workers died at it."""

    job: Job
    deaths: int = 0

    @property
    def checkpoint(self) -> Checkpoint:
        return self.job.checkpoint


@dataclass(eq=False)
class _WorkerHandle:
    """One actor: ``place`` once it has answered, the checkpoint that it ``loaded`` last, the ``shard`` it works on."""

    actor: Any
    place: WorkerPlace | None = None
    loaded: Checkpoint | None = None
    shard: _JobShard | None = None


class RayEngine:
    """An ``AuditEngine`` that splits jobs into shards for the workers of a cluster."""

    def __init__(self, pool: RayPool, spec: EngineSpec) -> None:
        self._pool, self._ray = pool, pool.ray
        self._actor = self._ray.remote(Worker).options(**pool.needs, max_restarts=0, max_task_retries=0)
        self._spec = spec
        #: Ray's reference to what a worker does now → the worker; first that is to answer where it is.
        self._running: dict[Any, _WorkerHandle] = {}
        self._idle: list[_WorkerHandle] = []
        self._printed: set[str] = set()
        self._deaths_unready = 0

    def group(self, checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
        """Return all checkpoints as one group: they are worked on side by side."""
        return [list(checkpoints)] if checkpoints else []

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Do the jobs side by side, see ``AuditEngine``; results come as shards end."""
        waiting = deque(_JobShard(job=part) for job in jobs for part in self._shards(job, len(jobs)))
        failed: set[Checkpoint] = set()
        while len(self._running) + len(self._idle) < self._pool.n_workers and waiting:
            self._start_worker()
        try:
            while waiting or any(worker.shard for worker in self._running.values()):
                self._assign(waiting)
                for result in self._wait(waiting):
                    if result.checkpoint in failed:
                        continue
                    if result.error is not None and not isinstance(result.error, JOB_ERRORS):
                        raise result.error
                    if result.error is not None:  # the rest of its job is not worth doing
                        failed.add(result.checkpoint)
                        for shard in [shard for shard in waiting if shard.checkpoint == result.checkpoint]:
                            waiting.remove(shard)
                    yield result
        finally:
            self._abandon_shards()

    def close(self) -> None:
        """Have the workers free their models; the workers end with the pool."""
        for worker in (*self._idle, *self._running.values()):
            worker.actor.close.remote()
            worker.loaded = None

    def _shards(self, job: Job, n_jobs: int) -> list[Job]:
        n_for_workers = -(-SHARDS_PER_WORKER * self._pool.n_workers // n_jobs)
        n_for_memory = -(-count_tokens(job) // TOKENS_PER_SHARD)
        return split_job(job, max(n_for_workers, n_for_memory))

    def _assign(self, waiting: deque[_JobShard]) -> None:
        """Give every idle worker a shard: of the checkpoint that it has loaded, else of the one that fewest have."""
        while waiting and self._idle:
            worker = self._idle.pop()
            n_loaded = Counter(other.loaded for other in (*self._idle, *self._running.values()))
            shard = min(waiting, key=lambda one: (one.checkpoint != worker.loaded, n_loaded[one.checkpoint]))
            waiting.remove(shard)
            worker.shard, worker.loaded = shard, shard.checkpoint
            self._running[worker.actor.run.remote(shard.job)] = worker

    def _wait(self, waiting: deque[_JobShard]) -> Iterator[JobResult]:
        """Wait for one worker to answer or die, and yield the result of its shard, if there is one."""
        done, _ = self._ray.wait(list(self._running), num_returns=1, timeout=_PATIENCE_S)
        if not done and not any(worker.place for worker in (*self._idle, *self._running.values())):
            needs = ", ".join(f"{name} {number:g}" for name, number in self._pool.needs.items())
            self._note(f"waiting for the cluster to start a worker ({needs})")
        for reference in done:
            worker = self._running.pop(reference)
            shard, worker.shard = worker.shard, None
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise  # a fault in our own code
            except self._ray.exceptions.RayError as error:
                self._replace_worker(worker, error)
                if shard is not None:
                    yield from self._repeat(shard, waiting, worker, error)
                continue
            self._idle.append(worker)
            if isinstance(answer, WorkerPlace):
                _require_version(answer)
                worker.place, self._deaths_unready = answer, 0
                continue
            for note in answer.notes:
                self._note(note)
            if shard is not None:
                yield answer.result

    def _repeat(
        self, shard: _JobShard, waiting: deque[_JobShard], worker: _WorkerHandle, error: Exception
    ) -> Iterator[JobResult]:
        """Put a shard whose worker died back, or yield an error where too many have died at it."""
        label, host = shard.checkpoint.label, worker.place.host if worker.place else "the cluster"
        shard.deaths += 1
        if shard.deaths < MOST_DEATHS:
            waiting.appendleft(shard)
            self._pool.note(f"{label}: a worker on {host} died ({_cause(error)}); another does its work again")
            return
        yield JobResult(
            checkpoint=shard.checkpoint,
            error=SamplerError(
                f"{label}: {shard.deaths} workers died at the same part of its work ({_cause(error)}); give each more "
                "memory, or lower --batch-size"
            ),
        )

    def _abandon_shards(self) -> None:
        """Ignore the results of shards that still run, after an error ended the stage."""
        for worker in self._running.values():
            worker.shard = None

    def _start_worker(self) -> None:
        worker = _WorkerHandle(actor=self._actor.remote(self._spec, socket.gethostname()))
        # it gets no shard before it answers: the cluster may have no room for it
        self._running[worker.actor.place.remote()] = worker

    def _replace_worker(self, worker: _WorkerHandle, error: Exception) -> None:
        """Start another worker, unless too many in a row died before they answered."""
        self._ray.kill(worker.actor)  # it may be unreachable and alive
        self._deaths_unready += worker.place is None
        if self._deaths_unready < MOST_DEATHS:
            self._start_worker()
        elif not (self._idle or self._running):
            raise _no_worker(error) from error

    def _note(self, text: str) -> None:
        """Print a line once, however many workers send it."""
        if text not in self._printed:
            self._printed.add(text)
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
