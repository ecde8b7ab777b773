"""An audit by Ray's workers: equal to one process to the last bit, although workers die; errors reach the lead."""

from __future__ import annotations

import math
import os
import pickle
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from oversharp import open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.engine import ray_pool as distributed
from oversharp.diagnostics.engine import ray_worker
from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.local import EngineSpec
from oversharp.diagnostics.engine.ray_pool import HERE, RayEngine, open_pool
from oversharp.diagnostics.engine.ray_worker import (
    SampleJob,
    Unit,
    UnitResult,
    Worker,
    forced_from_parquet,
    forced_to_parquet,
    most_tokens,
    samples_from_parquet,
    samples_to_parquet,
    units_of,
)
from oversharp.diagnostics.records import errors
from oversharp.diagnostics.records.errors import CheckpointError, ClusterError, ConfigError, KernelError, SamplerError
from oversharp.diagnostics.records.shard import Shard, Task
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Sample, SamplingSettings
from oversharp.diagnostics.samplers import BatchPlan
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.tasks import load_problems
from tests.preloaded import RunningServer

ray = pytest.importorskip("ray", reason="pip install '.[ray]'")
pytestmark = pytest.mark.xdist_group("ray")

EVERYTHING = {
    "findings": "SELECT * EXCLUDE (series) FROM findings ORDER BY ALL",
    "verdict": "FROM verdicts",
    "samples": "FROM samples ORDER BY ALL",
    "scores": "FROM response_logps ORDER BY ALL",
    "tokens": "FROM response_tokens ORDER BY ALL",
    "second scores": "FROM second_logps ORDER BY ALL",
    "kernels": "FROM kernel_values ORDER BY ALL",
    "certificates": "FROM kernels ORDER BY ALL",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray on this machine with room for two workers."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def _config(out: Path, **changes: object) -> AuditConfig:
    small = {"task": "countdown", "limit": 5, "n": 16, "panel": 2, "entropy_samples": 4, "batch_size": 8}
    rest = {"kernel_problems": 1, "kernel_responses": 3, "sampler": "transformers", "device": "cpu", "name": "run"}
    return AuditConfig(**{**small, **rest, "out": out, **changes})


def _spec(**changes: Any) -> EngineSpec:
    config = EngineConfig(device="cpu", **changes)
    return EngineSpec(config=config, dtype="float32", sampler_name="transformers", why="", lora_ranks={})


def _contents(store_path: Path) -> dict[str, bytes]:
    """Every bit of what an audit computes."""
    with open_store(store_path) as store:
        tables = {name: pa.Table.from_pandas(store.frame(query)) for name, query in EVERYTHING.items()}
    contents = {}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        contents[name] = sink.getvalue().to_pybytes()
    return contents


def test_with_a_worker_killed_midway_everything_is_equal_to_one_process_and_the_command_says_our_lines_alone(
    countdown_series: Path, tmp_path: Path, commands: RunningServer
) -> None:
    # as few samples as decide a problem
    audit([countdown_series], _config(tmp_path / "alone", k=(1, 2), adaptive=True))
    flags = "--task countdown --limit 5 --n 16 --k 1,2 --adaptive --panel 2 --entropy-samples 4 --batch-size 8"
    flags += " --kernel-problems 1 --kernel-responses 3 --sampler transformers --device cpu --name run --ray --out"
    arguments = ["audit", str(countdown_series), *flags.split(), str(tmp_path / "ray")]
    code, said = commands.start(arguments, call="tests.engine.ray_command:main").communicate()
    assert code == 0, said
    of_results = r"(report|store|verdict|note) .*"
    ours = (
        r"(series|sampler) .*|(sample|panel|teacher-force|kernel) checkpoint-\d+: \d+ done"
        r"|(grade|measure|verdict): \d+ done"
        r"|checkpoint-\d+: 5 of 5 problems are decided, 4 samples each"
        r"|(warning: )?checkpoint-0: pass@1 so far .*|to draw: .*|time and disk space are unknown .*"
        r"|checkpoint \d of 3 done: .*|\d\d:\d\d .*"
    )
    died = r"checkpoint-20: a worker on \S+ died .*; another does its work again"
    lines = said.splitlines()
    assert [line for line in lines if not re.fullmatch(rf"{of_results}|{ours}|{died}|killed \d+", line)] == []
    for once in (died, r"killed \d+"):
        assert len([line for line in lines if re.fullmatch(once, line)]) == 1, said
    expected, found = (_contents(tmp_path / name / "audit.duckdb") for name in ("alone", "ray"))
    assert all(len(content) > 100 for content in expected.values())
    assert [name for name in expected if found[name] != expected[name]] == []


def test_a_checkpoint_that_kills_its_workers_or_is_not_there_fails_alone_with_the_reason(
    countdown_series: Path, tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mortal(Worker):
        def work(self, job: Any, unit: Unit) -> UnitResult:
            if job.checkpoint.label == "checkpoint-20":
                os.kill(os.getpid(), signal.SIGKILL)
            return super().work(job, unit)

    monkeypatch.setattr(distributed, "Worker", Mortal)
    spec, job = _job(countdown_series, tmp_path)
    away = replace(job.checkpoint, label="checkpoint-40", path=tmp_path / "nowhere")
    said: list[str] = []
    failed: dict[str, Exception] = {}

    def task(engine: RayEngine, checkpoint: Checkpoint) -> Task[None]:
        try:
            for _ in engine.sample(checkpoint, job.problems, job.missing, job.settings):
                yield
        except (CheckpointError, SamplerError) as error:
            failed[checkpoint.label] = error

    with open_pool("local", spec.config, note=said.append) as pool:
        engine = pool.engine(spec)
        engine.run([task(engine, job.checkpoint), task(engine, away)])
    assert isinstance(failed["checkpoint-40"], CheckpointError)
    assert "nowhere is not there on worker" in str(failed["checkpoint-40"])
    assert type(failed["checkpoint-20"]) is SamplerError
    assert str(failed["checkpoint-20"]).startswith("checkpoint-20: 3 workers died at the same part of its work (")
    assert len([note for note in said if "another does its work again" in note]) == 2


# ---------------------------------------------------------------- without Ray


def _job(series: Path, tmp_path: Path) -> tuple[EngineSpec, SampleJob]:
    problems = load_problems(None, "countdown", limit=4, seed=0)
    checkpoint = find_series([series]).checkpoints[1]
    spec = _spec(batch_size=None)
    missing = {problem.problem_id: (tuple(range(6)), True) for problem in problems}
    settings = SamplingSettings(sampler="transformers", max_tokens=8)
    return spec, SampleJob(checkpoint=checkpoint, problems=problems, settings=settings, missing=missing)


def test_parts_of_one_plan_are_the_whole_whatever_a_worker_would_have_planned(
    countdown_series: Path, tmp_path: Path
) -> None:
    spec, job = _job(countdown_series, tmp_path)
    plan = BatchPlan(n_batches=6, rows_per_batch=5)
    lead = _spec(batch_size=5)
    workers = [Worker(spec, socket.gethostname()) for _ in range(2)]
    assert Worker(lead, socket.gethostname()).work(job, Unit(part=None)).result == plan
    assert workers[0].work(job, Unit(part=None)).result == BatchPlan(n_batches=1, rows_per_batch=1024)
    units = units_of(plan, 4)
    assert [unit.part for unit in units] == [Shard(index=index, of=4) for index in range(4)]
    parts = [samples_from_parquet(workers[i % 2].work(job, unit).result) for i, unit in enumerate(units)]
    whole = samples_from_parquet(Worker(lead, socket.gethostname()).work(job, Unit(part=Shard())).result)

    def in_order(samples: list[Sample]) -> list[Sample]:
        return sorted(samples, key=lambda one: (one.problem_id, one.greedy, one.sample_index))

    assert len(whole) == 4 * 7
    assert in_order([sample for part in parts for sample in part]) == in_order(whole)


def test_a_large_job_is_cut_into_more_parts_so_that_none_fills_the_memory(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, job = _job(countdown_series, tmp_path)
    lead = RayEngine.__new__(RayEngine)  # no cluster: what it does with a plan is asked, nothing else
    lead._pool = SimpleNamespace(n_workers=1)  # type: ignore[assignment]

    def parts() -> list[Shard | None]:
        work = distributed._JobState(job=job, reference=None, waiting=deque())
        lead._works = [work]
        lead._accept(work, Unit(part=None), UnitResult(result=BatchPlan(n_batches=28, rows_per_batch=1)))
        return [unit.part for unit, _ in work.waiting]

    assert most_tokens(job) == 4 * (6 + 1) * 8
    assert len(parts()) == 4
    monkeypatch.setattr(ray_worker, "TOKENS_PER_UNIT", 16)
    assert parts() == [Shard(index=index, of=14) for index in range(14)]
    monkeypatch.setattr(ray_worker, "TOKENS_PER_UNIT", 1)
    assert len(parts()) == 28  # no batch is cut


def test_numbers_keep_all_their_bits_on_the_way() -> None:
    row = {"problem_id": "p", "greedy": False, "text": "1 + 2 − é\n", "finish_reason": "stop"}
    samples = [
        Sample(**row, sample_index=0, token_ids=(0, 151_935), logp_sum_raw=-0.1 - 2**-50, entropy_sum=None),
        Sample(**row, sample_index=1, token_ids=(), logp_sum_raw=-math.inf, entropy_sum=1 / 3),
    ]
    assert samples_from_parquet(samples_to_parquet(samples)) == samples
    assert samples_from_parquet(samples_to_parquet([])) == []
    logps = tuple(np.array([-0.1, -1e-8, -700.0], dtype=np.float32).tolist())
    score = ForcedResponse(
        problem_id="p",
        response_id="r",
        logp_sum=sum(logps),
        entropy_sum=1 / 3,
        token_logps=logps,
        token_entropies=logps,
    )
    assert forced_from_parquet(forced_to_parquet([score])) == [score]


def test_a_worker_that_has_not_the_same_checkpoints_says_which_and_where(
    countdown_series: Path, make_checkpoint: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    spec, job = _job(countdown_series, tmp_path)
    away = replace(job, checkpoint=replace(job.checkpoint, path=tmp_path / "nowhere"))
    error = Worker(spec, "lead").work(away, Unit(part=None)).error
    assert isinstance(error, CheckpointError)
    assert f"checkpoint-20: {tmp_path / 'nowhere'} is not there on worker {socket.gethostname()}" in str(error)
    other = replace(job, checkpoint=replace(job.checkpoint, path=make_checkpoint(tmp_path / "checkpoint-20", 5)))
    assert Worker(spec, socket.gethostname()).work(other, Unit(part=None)).error is None  # the lead's own disk
    error = Worker(spec, "lead").work(other, Unit(part=None)).error
    assert f"checkpoint-20: {other.checkpoint.path} holds other weights on worker" in str(error)
    assert Worker(spec, "lead").work(job, Unit(part=None)).error is None


def test_every_error_of_ours_comes_back_as_itself() -> None:
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OversharpError)
    ]
    assert {CheckpointError, SamplerError, KernelError} <= set(kinds)
    for kind in kinds:
        back = pickle.loads(pickle.dumps(UnitResult(error=kind("checkpoint-20: what")))).error
        assert (type(back), str(back)) == (kind, "checkpoint-20: what")


def test_ray_that_is_not_installed_or_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        planted.setitem(sys.modules, "ray", None)
        with (
            pytest.raises(ConfigError, match=r"--ray: Ray is not installed; pip install '\.\[ray\]'"),
            open_pool("", EngineConfig(device="cpu"), note=print),
        ):
            pass
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody_listens.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"no Ray at {address} \(.*refused.*\); start one with `ray start"):
            distributed._join(ray, address)
    with pytest.raises(ClusterError, match=r"no Ray at ray://head \(an address is HOST:PORT"):
        distributed._join(ray, "ray://head")
    with pytest.raises(ConfigError, match="--device cuda:1: a worker sees its own GPU alone"):
        _config(tmp_path, ray="auto", device="cuda:1")


def test_the_flag_takes_an_address_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def no_audit(_: object, config: AuditConfig, **__: object) -> None:
        seen.append(config.ray)
        raise ConfigError("seen")

    monkeypatch.setattr("oversharp.diagnostics.audit.audit.audit", no_audit)
    for flags in ([], ["--ray"], ["--ray", "--n", "8"], ["--ray", "auto", "--n", "8"]):
        with pytest.raises(SystemExit):
            main(["audit", "run", "--task", "countdown", *flags])
    assert seen == [None, "", "", "auto"]
    assert "" in HERE
