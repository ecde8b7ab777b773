"""The engine of an audit on the workers of a Ray cluster. The only module that imports Ray.

The lead is the process that the user started. It runs the stages and writes the store. It splits each job into shards
(one checkpoint, a block of problems) and assigns them to workers. A worker is a Ray actor with an ``Engine``. It first
gets more shards of the checkpoint that it has loaded, so that models are rarely loaded. If a worker dies, another
worker runs its shard again, and a new worker is started.
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
from oversharp.diagnostics.records.errors import ClusterError, ConfigError, OversharpError, SamplerError, first_line
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers import choose_sampler

#: Values of the address for which Ray is started on this machine.
HERE = ("", "local")
#: Each stage has at least this many shards per worker. With small shards, less work is lost if a worker dies, and
#: workers are idle for a shorter time at the end.
SHARDS_PER_WORKER = 4
#: Largest number of response tokens per shard. Lead and worker keep them in memory: up to 36 bytes each, 150 MB.
TOKENS_PER_SHARD = 1 << 22
#: After this many worker deaths at one shard, its checkpoint is left out. After as many deaths in a row before any
#: worker is ready, the audit stops.
MAX_DEATHS = 3
#: If no worker has started after this many seconds, the lead prints that it waits for the cluster.
_PATIENCE_S = 30.0
#: Timeout in seconds of the connection to a cluster.
_CONNECT_S = 10.0


class RayPool:
    """Workers that fit the cluster. Each uses the GPUs of one model, or a CPU without GPUs."""

    def __init__(self, ray: Any, config: EngineConfig, *, note: Callable[[str], None]) -> None:
        self.ray = ray
        self.note = note
        on_gpu = config.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
        kind, each = ("GPU", config.tensor_parallel) if on_gpu else ("CPU", 1)
        on_nodes = [node["Resources"].get(kind, 0) for node in ray.nodes() if node["Alive"]]
        self.n_workers = sum(int(n // each) for n in on_nodes)
        if not self.n_workers:
            raise ClusterError(
                f"--ray: no machine of the cluster has {each} {kind}s; they have {list(map(int, on_nodes))}"
            )
        self.needs: dict[str, float] = {"num_gpus": each, "num_cpus": 0} if on_gpu else {"num_cpus": each}

    def choose_sampler(
        self, name: str, checkpoints: Sequence[Checkpoint], *, device: str | None, stored: str | None = None
    ) -> tuple[str, str]:
        """Call ``samplers.choose_sampler`` on a worker's machine, which may differ from the lead's."""

        def choose() -> tuple[str, str] | OversharpError:
            try:
                return choose_sampler(name, checkpoints, device=device, stored=stored)
            except OversharpError as error:
                return error

        try:
            answer = self.ray.get(self.ray.remote(choose).options(**self.needs, max_retries=MAX_DEATHS).remote())
        except self.ray.exceptions.RayError as error:
            raise _make_start_error(error) from error
        if isinstance(answer, OversharpError):
            raise answer
        return answer

    def engine(self, spec: EngineSpec) -> RayEngine:
        """Return an engine that runs jobs on the workers."""
        return RayEngine(self, spec)


@contextmanager
def open_pool(address: str, config: EngineConfig, *, note: Callable[[str], None]) -> Iterator[RayPool]:
    """Connect to the cluster at ``address``, or start Ray on this machine, until the block ends.

    If the script has called ``ray.init``, its connection is used. Raises ``ConfigError`` if Ray is not installed.
    Raises ``ClusterError`` if there is no such cluster, or no machine has enough resources for a worker.
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
            _connect(ray, address)
            yield RayPool(ray, config, note=note)
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    # otherwise Ray sends usage statistics
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    arguments = {"address": "local", "include_dashboard": False} if address in HERE else {"address": address}
    try:
        _require_listener(address)
        ray.init(**arguments, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = "this machine" if address in HERE else address
        raise ClusterError(
            f"--ray: no Ray at {where} ({first_line(error)}); start it with `ray start --head` and pass its address, "
            "or pass --ray alone to use this machine"
        ) from error


def _require_listener(address: str) -> None:
    """Raise ``OSError`` or ``ValueError`` unless a server listens at HOST:PORT.

    Ray would retry for minutes.
    """
    if address in (*HERE, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()) or "://" in address:
        raise ValueError("an address is HOST:PORT, with port 6379 unless `ray start` used another")
    socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray from printing every death of a worker. It has no setting for this."""
    module = ray._private.worker
    before = module.print_to_stdstream
    module.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


@dataclass(eq=False)
class _JobShard:
    """A shard of a job, and the number of workers that died while running it."""

    job: Job
    deaths: int = 0

    @property
    def checkpoint(self) -> Checkpoint:
        return self.job.checkpoint


@dataclass(eq=False)
class _WorkerHandle:
    """A worker: its ``place`` once known, its ``loaded`` checkpoint, and its current ``shard``."""

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
        #: Ray's object reference of a worker's running call → the worker. The first call is ``place``.
        self._running: dict[Any, _WorkerHandle] = {}
        self._idle: list[_WorkerHandle] = []
        self._printed: set[str] = set()
        self._deaths_unready = 0

    def group(self, checkpoints: Sequence[Checkpoint]) -> list[list[Checkpoint]]:
        """Return all checkpoints as one group, because workers process them in parallel."""
        return [list(checkpoints)] if checkpoints else []

    def run(self, jobs: Sequence[Job]) -> Iterator[JobResult]:
        """Run the jobs in parallel; see ``AuditEngine``. A shard's results are yielded when it ends."""
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
                    if result.error is not None:  # drop the remaining shards of its job
                        failed.add(result.checkpoint)
                        for shard in [shard for shard in waiting if shard.checkpoint == result.checkpoint]:
                            waiting.remove(shard)
                    yield result
        finally:
            self._abandon_shards()

    def close(self) -> None:
        """Release the models of all workers. The workers end with the pool."""
        for worker in (*self._idle, *self._running.values()):
            worker.actor.close.remote()
            worker.loaded = None

    def _shards(self, job: Job, n_jobs: int) -> list[Job]:
        n_for_workers = -(-SHARDS_PER_WORKER * self._pool.n_workers // n_jobs)
        n_for_memory = -(-count_tokens(job) // TOKENS_PER_SHARD)
        return split_job(job, max(n_for_workers, n_for_memory))

    def _assign(self, waiting: deque[_JobShard]) -> None:
        """Assign a shard to every idle worker.

        It is a shard of the worker's loaded checkpoint, else of the checkpoint that the fewest workers have loaded.
        """
        while waiting and self._idle:
            worker = self._idle.pop()
            n_loaded = Counter(other.loaded for other in (*self._idle, *self._running.values()))
            shard = min(waiting, key=lambda shard: (shard.checkpoint != worker.loaded, n_loaded[shard.checkpoint]))
            waiting.remove(shard)
            worker.shard, worker.loaded = shard, shard.checkpoint
            self._running[worker.actor.run.remote(shard.job)] = worker

    def _wait(self, waiting: deque[_JobShard]) -> Iterator[JobResult]:
        """Wait until a worker answers or dies. Yields the result of its shard, if there is one."""
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
                raise  # an error in our own code
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
        """Queue the shard of a dead worker again, or yield an error after too many deaths."""
        label, host = shard.checkpoint.label, worker.place.host if worker.place else "the cluster"
        shard.deaths += 1
        if shard.deaths < MAX_DEATHS:
            waiting.appendleft(shard)
            self._pool.note(f"{label}: a worker on {host} died ({_find_cause(error)}); another worker repeats its work")
            return
        yield JobResult(
            checkpoint=shard.checkpoint,
            error=SamplerError(
                f"{label}: {shard.deaths} workers died at the same part of its work ({_find_cause(error)}); give each "
                "worker more memory, or lower --batch-size"
            ),
        )

    def _abandon_shards(self) -> None:
        """Ignore the results of running shards, after an error ended the stage."""
        for worker in self._running.values():
            worker.shard = None

    def _start_worker(self) -> None:
        worker = _WorkerHandle(actor=self._actor.remote(self._spec, socket.gethostname()))
        # a new worker gets no shard before it answers, because the cluster may lack resources for it
        self._running[worker.actor.place.remote()] = worker

    def _replace_worker(self, worker: _WorkerHandle, error: Exception) -> None:
        """Start another worker, unless too many in a row died before they answered."""
        self._ray.kill(worker.actor)  # the old worker may be alive but unreachable
        self._deaths_unready += worker.place is None
        if self._deaths_unready < MAX_DEATHS:
            self._start_worker()
        elif not (self._idle or self._running):
            raise _make_start_error(error) from error

    def _note(self, text: str) -> None:
        """Print a line only once, even if several workers send it."""
        if text not in self._printed:
            self._printed.add(text)
            self._pool.note(text)


def _require_version(place: WorkerPlace) -> None:
    if place.version != version():
        versions = f"worker {place.host} has oversharp {place.version}, this machine has {version()}"
        raise ClusterError(f"--ray: {versions}; install the same version on all machines")


def _make_start_error(error: Exception) -> ClusterError:
    return ClusterError(
        f"--ray: no worker starts ({_find_cause(error)}); install the same Python and oversharp on all machines"
    )


def _find_cause(error: Exception) -> str:
    """Return the cause of a worker's death from Ray's message, in at most 120 characters."""
    text = " ".join(str(error).split())
    for prefix in ("Worker exit detail: ", "The actor died because of an error raised in its creation task, "):
        text = text.partition(prefix)[2] or text
    return text[:120].rstrip()
