"""An audit on Ray's workers gives the results of one process, even if workers die; errors reach the lead."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.engine import ray_pool as distributed
from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.jobs import (
    ForceJob,
    Job,
    JobResult,
    KernelJob,
    SampleJob,
    count_tokens,
    split_job,
)
from oversharp.diagnostics.engine.local import EngineSpec
from oversharp.diagnostics.engine.ray_pool import HERE, RayEngine, open_pool
from oversharp.diagnostics.engine.ray_worker import Worker, WorkerAnswer
from oversharp.diagnostics.records import errors
from oversharp.diagnostics.records.errors import CheckpointError, ClusterError, ConfigError, KernelError, SamplerError
from oversharp.diagnostics.records.types import Sample, SamplingSettings
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.tasks import load_problems
from tests.preloaded import RunningServer

ray = pytest.importorskip("ray", reason="pip install '.[ray]'")
pytestmark = pytest.mark.xdist_group("ray")

#: Largest absolute and relative difference between numbers computed in batches of different shapes.
ANOTHER_BATCH_SHAPE = 1e-5
#: Query and columns that depend on the last bits of a log-probability.
EVERYTHING = {
    "samples": (
        "SELECT checkpoint_id, settings_id, problem_id, greedy, sample_index, text, token_ids, finish_reason, "
        "logp_sum_raw FROM samples ORDER BY ALL",
        ("logp_sum_raw",),
    ),
    "grades": ("SELECT problem_id, response_id, verifier, answer, reward, state FROM grades ORDER BY ALL", ()),
    "stops": ("FROM stops ORDER BY ALL", ()),
    "scores": (
        "SELECT checkpoint_id, problem_id, response_id, n_tokens, logp_sum FROM response_logps ORDER BY ALL",
        ("logp_sum",),
    ),
    "kernels": (
        "SELECT kernel_id, row_position, column_position, value FROM kernel_values ORDER BY ALL",
        ("value",),
    ),
    "findings": (
        "SELECT step, measure, scope, k, n, why, value, low, high FROM findings WHERE measure <> 'scoring_noise' "
        "ORDER BY ALL",
        ("value", "low", "high"),
    ),
    "verdict": ("SELECT series, label FROM verdicts", ()),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Start Ray on this machine with CPUs for two workers."""
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


def _require_same(actual: Path, expected: Path) -> None:
    """Check for equal rows; numbers computed from log-probabilities may differ by rounding."""
    with open_store(actual) as ours, open_store(expected) as theirs:
        for name, (query, loose) in EVERYTHING.items():
            rows, expected_rows = ours.frame(query), theirs.frame(query)
            assert len(expected_rows) or name == "stops", name
            exact = [column for column in expected_rows if column not in loose]
            pd.testing.assert_frame_equal(rows[exact], expected_rows[exact])
            for column in loose:
                np.testing.assert_allclose(
                    rows[column].astype(float),
                    expected_rows[column].astype(float),
                    rtol=ANOTHER_BATCH_SHAPE,
                    atol=ANOTHER_BATCH_SHAPE,
                    err_msg=f"{name}.{column}",
                )


@pytest.mark.slow
@pytest.mark.parametrize("rule", [{}, {"until_solved": 1, "first": 4}], ids=["all samples", "until solved"])
def test_with_a_killed_worker_the_results_equal_those_of_one_process_and_ray_prints_no_lines(
    countdown_series: Path, tmp_path: Path, commands: RunningServer, rule: dict[str, int]
) -> None:
    audit([countdown_series], _config(tmp_path / "alone", k=(1, 2), **rule))
    flags = "--task countdown --limit 5 --n 16 --k 1,2 --panel 2 --entropy-samples 4 --batch-size 8"
    flags += " --kernel-problems 1 --kernel-responses 3 --sampler transformers"
    flags += "".join(f" --{name.replace('_', '-')} {value}" for name, value in rule.items())
    flags += " --device cpu --name run --ray --out"
    arguments = ["audit", str(countdown_series), *flags.split(), str(tmp_path / "ray")]
    code, printed = commands.start(arguments, call="tests.engine.ray_command:main").communicate()
    assert code == 3, printed  # no verdict, because the base solved nothing
    results = r"[a-z@][a-z@1 ]{12} \S.*| {14,}\S.*|"  # a label and its value, and a value's other lines
    ours = (
        r"(series|sampler) .*|(sample|panel|teacher-force|kernel) (checkpoint-\d+|\d checkpoints): \d+ done"
        r"|(grade|measure|verdict): \d+ done"
        r"|checkpoint-\d+: 5 of 5 problems are decided and get 4 samples each"
        r"|(warning: )?checkpoint-0: pass@1 so far .*|to draw: .*|time and disk space are unknown .*"
        r"|checkpoint \d of 3 done: .*|\d\d:\d\d .*"
    )
    died = r"checkpoint-\d+: a worker on \S+ died .*; another worker repeats its work"
    lines = printed.splitlines()
    assert [line for line in lines if not re.fullmatch(rf"{results}|{ours}|{died}|killed \d+", line)] == []
    for once in (died, r"killed \d+"):
        assert len([line for line in lines if re.fullmatch(once, line)]) == 1, printed
    _require_same(tmp_path / "ray" / "audit.duckdb", tmp_path / "alone" / "audit.duckdb")


@pytest.mark.slow
def test_only_the_checkpoint_that_kills_its_workers_or_is_missing_fails_with_the_reason(
    countdown_series: Path, tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mortal(Worker):
        def run(self, job: Job) -> WorkerAnswer:
            if job.checkpoint.label == "checkpoint-20":
                os.kill(os.getpid(), signal.SIGKILL)
            return super().run(job)

    monkeypatch.setattr(distributed, "Worker", Mortal)
    monkeypatch.setattr(distributed, "SHARDS_PER_WORKER", 1)
    job = _job(countdown_series)
    away = replace(job, checkpoint=replace(job.checkpoint, label="checkpoint-40", path=tmp_path / "nowhere"))
    whole = replace(job, checkpoint=replace(job.checkpoint, label="checkpoint-60"))
    notes: list[str] = []
    with open_pool("local", EngineConfig(device="cpu"), note=notes.append) as pool:
        engine = pool.engine(_spec())
        assert engine.group([job.checkpoint, away.checkpoint]) == [[job.checkpoint, away.checkpoint]]
        results = list(engine.run([job, away, whole]))
    failed = {result.checkpoint.label: result.error for result in results if result.error is not None}
    assert failed.keys() == {"checkpoint-20", "checkpoint-40"}
    assert isinstance(failed["checkpoint-40"], CheckpointError)
    assert "nowhere does not exist on worker" in str(failed["checkpoint-40"])
    assert type(failed["checkpoint-20"]) is SamplerError
    assert str(failed["checkpoint-20"]).startswith("checkpoint-20: 3 workers died at the same part of its work (")
    assert len([note for note in notes if "another worker repeats its work" in note]) == 2
    assert sum(len(result.samples) for result in results) == 4 * (6 + 1)
    assert {result.checkpoint.label for result in results if result.samples} == {"checkpoint-60"}


# ---------------------------------------------------------------- without Ray


def _job(series: Path) -> SampleJob:
    problems = load_problems(None, "countdown", limit=4, seed=0)
    missing = {problem.problem_id: (tuple(range(6)), True) for problem in problems}
    settings = SamplingSettings(sampler="transformers", max_tokens=8)
    return SampleJob(
        checkpoint=find_series([series]).checkpoints[1], problems=problems, settings=settings, missing=missing
    )


def _responses(problem_ids: Sequence[str]) -> pd.DataFrame:
    """Return two responses to the first and third problem, and one to the second."""
    first, second, third = problem_ids
    return pd.DataFrame({"problem_id": [first, first, second, third, third], "response_id": list("vwxyz")})


def _place(sample: Sample) -> tuple[str, bool, int]:
    return sample.problem_id, sample.greedy, sample.sample_index


@pytest.mark.slow
def test_any_number_of_shards_gives_the_samples_of_the_whole_job(countdown_series: Path) -> None:
    job = _job(countdown_series)
    worker = Worker(_spec(batch_size=5), socket.gethostname())
    whole = worker.run(job).result
    assert whole.error is None
    assert len(whole.samples) == 4 * 7
    for n_shards in (3, 100):
        shards = split_job(job, n_shards)
        assert len(shards) == min(n_shards, 28)
        parts = [sample for shard in shards for sample in worker.run(shard).result.samples]
        for ours, theirs in zip(sorted(parts, key=_place), sorted(whole.samples, key=_place), strict=True):
            assert replace(ours, logp_sum_raw=0.0) == replace(theirs, logp_sum_raw=0.0)
            assert ours.logp_sum_raw == pytest.approx(theirs.logp_sum_raw, abs=ANOTHER_BATCH_SHAPE)


def test_shards_of_scores_have_separate_problems_and_repeats_and_kernels_are_not_split(countdown_series: Path) -> None:
    sampling = _job(countdown_series)
    problems = sampling.problems[:3]
    ids = [problem.problem_id for problem in problems]
    fields = {"checkpoint": sampling.checkpoint, "problems": problems, "settings": sampling.settings}
    job = ForceJob(**fields, responses=_responses(ids))
    shards = split_job(job, 2)
    assert [shard.responses["response_id"].tolist() for shard in shards] == [["v", "w"], ["x", "y", "z"]]
    assert [[problem.problem_id for problem in shard.problems] for shard in shards] == [ids[:1], ids[1:]]
    assert split_job(replace(job, is_repeat=True), 2)[0].responses is job.responses
    kernel = KernelJob(**fields, responses=_responses(ids))
    assert split_job(kernel, 2) == [kernel]


def test_a_large_job_is_split_into_more_shards_to_limit_their_memory(
    countdown_series: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(countdown_series)
    lead = RayEngine.__new__(RayEngine)  # without a cluster, to test only how it splits a job
    lead._pool = SimpleNamespace(n_workers=2)  # type: ignore[assignment]
    assert count_tokens(job) == 4 * (6 + 1) * 8
    assert [len(lead._shards(job, n_jobs)) for n_jobs in (1, 2, 8, 100)] == [8, 4, 1, 1]
    monkeypatch.setattr(distributed, "TOKENS_PER_SHARD", 16)
    assert len(lead._shards(job, 100)) == 14
    monkeypatch.setattr(distributed, "TOKENS_PER_SHARD", 1)
    assert len(lead._shards(job, 100)) == 28  # no response is split


def test_the_error_for_a_missing_or_different_checkpoint_has_checkpoint_and_worker(
    countdown_series: Path, make_checkpoint: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    job = _job(countdown_series)
    job = replace(job, missing=dict(list(job.missing.items())[:1]))

    def error_on(host: str, job: SampleJob) -> Exception | None:
        return Worker(_spec(), host).run(job).result.error

    away = replace(job, checkpoint=replace(job.checkpoint, path=tmp_path / "nowhere"))
    error = error_on("lead", away)
    assert isinstance(error, CheckpointError)
    assert f"checkpoint-20: {tmp_path / 'nowhere'} does not exist on worker {socket.gethostname()}" in str(error)
    other = replace(job, checkpoint=replace(job.checkpoint, path=make_checkpoint(tmp_path / "checkpoint-20", 5)))
    assert error_on(socket.gethostname(), other) is None  # the lead's own disk
    error = error_on("lead", other)
    assert f"checkpoint-20: {other.checkpoint.path} has other weights on worker" in str(error)
    assert error_on("lead", job) is None


def test_every_error_can_be_sent_by_a_worker(countdown_series: Path) -> None:
    checkpoint = _job(countdown_series).checkpoint
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.OversharpError)
    ]
    assert {CheckpointError, SamplerError, KernelError} <= set(kinds)
    for kind in kinds:
        answer = WorkerAnswer(
            result=JobResult(checkpoint=checkpoint, error=kind("checkpoint-20: what")), notes=("note",)
        )
        back = pickle.loads(pickle.dumps(answer)).result
        assert (type(back.error), str(back.error)) == (kind, "checkpoint-20: what")
        assert back.checkpoint == checkpoint


def test_the_error_for_a_missing_ray_or_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        planted.setitem(sys.modules, "ray", None)
        with (
            pytest.raises(ConfigError, match=r"--ray: Ray is not installed; pip install '\.\[ray\]'"),
            open_pool("", EngineConfig(device="cpu"), note=print),
        ):
            pass
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(ClusterError, match=rf"no Ray at {address} \(.*refused.*\); start it with `ray start"):
            distributed._connect(ray, address)
    with pytest.raises(ClusterError, match=r"no Ray at ray://head \(an address is HOST:PORT"):
        distributed._connect(ray, "ray://head")
    with pytest.raises(ConfigError, match="--device cuda:1: each worker has only one GPU"):
        _config(tmp_path, ray="auto", device="cuda:1")


def test_the_flag_has_an_optional_address(monkeypatch: pytest.MonkeyPatch) -> None:
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
