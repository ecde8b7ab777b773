from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.run.directory import (
    MetricsLog,
    RolloutRow,
    find_resumable_step,
    open_run,
    run_parts,
    write_rollouts,
)


def claimed(config: TrainConfig | SftConfig) -> None:
    with open_run(config):
        pass


def committed(config: TrainConfig | SftConfig, step: int = 0) -> None:
    """Write the files of a run that is committed up to ``step``."""
    claimed(config)
    (config.output_dir / "state").mkdir()
    (config.output_dir / "state" / f"step-{step}.pt").write_bytes(b"")
    (config.output_dir / f"checkpoint-{step}").mkdir()


def test_settings_and_versions_are_written(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path / "a" / "run", seed=7)
    claimed(config)
    settings = tomllib.loads((config.output_dir / "config.toml").read_text())["train"]
    assert settings["seed"] == 7
    assert settings["max_steps"] == 160
    (part,) = run_parts(config.output_dir)
    assert part.after_step == 0
    assert part.started is not None
    assert part.versions["torch"] == version("torch")


def test_every_part_of_a_run_keeps_its_environment(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path, resume=True, max_steps=40)
    committed(config, 20)
    path = tmp_path / "environment.json"
    (first,) = json.loads(path.read_text())
    first["versions"]["torch"] = "1.0"
    path.write_text(json.dumps([first]))
    for _ in range(2):  # the first part is killed before it saves
        claimed(config)
    parts = run_parts(tmp_path)
    assert [part.after_step for part in parts] == [0, 20, 20]
    assert [part.versions["torch"] for part in parts] == ["1.0", version("torch"), version("torch")]
    claimed(replace(config, max_steps=20))  # nothing to do
    assert run_parts(tmp_path) == parts


@pytest.mark.parametrize("content", ["", "[1]", '[{"step": 3}]', '{"python": "3.10.0"}', "3"])
def test_invalid_environments_are_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "environment.json").write_text(content)
    with pytest.raises(
        TrainingError,
        match=r"environment\.json: cannot be read as the recorded environments .*; restore the file, or",
    ):
        run_parts(tmp_path)


def test_a_directory_with_other_settings_is_rejected_with_their_names(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path, seed=1)
    committed(config)
    with pytest.raises(TrainingError, match=r"other settings \(algorithm, limit, seed\)"):
        claimed(replace(config, seed=2, algorithm="iac", limit=5, resume=True))


def test_a_directory_with_the_same_settings_needs_resume(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path)
    committed(config)
    with pytest.raises(TrainingError, match="at step 0; pass --resume"):
        claimed(config)
    claimed(replace(config, resume=True))


def test_only_a_run_without_schedule_can_be_made_longer(tmp_path: Path) -> None:
    rl, sft = TrainConfig(output_dir=tmp_path / "rl"), SftConfig(output_dir=tmp_path / "sft")
    committed(rl, 40)
    committed(sft)
    claimed(replace(rl, max_steps=500, resume=True))
    assert tomllib.loads((tmp_path / "rl" / "config.toml").read_text())["train"]["max_steps"] == 500
    with pytest.raises(TrainingError, match=r"\(max_steps\)"):
        claimed(replace(sft, max_steps=5000, resume=True))


def test_the_recorded_max_steps_never_fall_below_the_trained_steps(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path)
    committed(config, 160)
    claimed(replace(config, max_steps=2, resume=True))
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["max_steps"] == 160


def test_a_run_that_failed_before_its_first_commit_can_be_replaced(tmp_path: Path) -> None:
    for seed in (1, 2):
        claimed(TrainConfig(output_dir=tmp_path, seed=seed))
    assert len(run_parts(tmp_path)) == 1
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["seed"] == 2


def test_two_trainers_do_not_share_a_directory(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path, resume=True)
    with open_run(config), pytest.raises(TrainingError, match="another trainer is writing here"):
        claimed(config)
    claimed(config)


def test_a_file_in_place_of_the_directory_is_reported_before_and_on_opening(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/run"):
        config = TrainConfig(output_dir=tmp_path / place)
        for look in (claimed, find_resumable_step):
            with pytest.raises(TrainingError, match=rf"{place}: cannot be written \(.*\); choose another --output-dir"):
                look(config)


def test_find_resumable_step_writes_nothing(tmp_path: Path) -> None:
    assert find_resumable_step(TrainConfig(output_dir=tmp_path / "a" / "run")) is None
    assert not (tmp_path / "a").exists()
    config = TrainConfig(output_dir=tmp_path / "b", resume=True)
    committed(config, 20)
    before = {path: path.stat().st_mtime_ns for path in config.output_dir.rglob("*")}
    assert find_resumable_step(config) == 20
    with pytest.raises(TrainingError, match=r"other settings \(seed\)"):
        find_resumable_step(replace(config, seed=2))
    assert {path: path.stat().st_mtime_ns for path in config.output_dir.rglob("*")} == before


def test_foreign_settings_are_reported(tmp_path: Path) -> None:
    for foreign in ("seed = = 1", "[tool]\nseed = 1\n"):
        (tmp_path / "config.toml").write_text(foreign)
        with pytest.raises(TrainingError, match="not the settings of a run"):
            claimed(TrainConfig(output_dir=tmp_path))


def test_metrics_after_the_resumed_step_are_removed(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, after_step=0)
    for step in (1, 2, 3):
        log.append({"step": step, "loss": 0.5})
    log.flush()
    assert [metrics["step"] for metrics in log.history] == [1, 2, 3]
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "lo')  # killed while writing a line
    again = MetricsLog(tmp_path, after_step=2)
    again.append({"step": 3, "loss": 0.25})
    assert again.history == [json.loads(line) for line in path.read_text().splitlines()]
    assert again.history == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}, {"step": 3, "loss": 0.25}]


@pytest.mark.parametrize("line", [b"rubbish", b"\xff\xfe", b"{}", b"[1]", b"1", b'{"step": "2"}', b"", b"[" * 100_000])
def test_invalid_metrics_are_reported_with_their_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(TrainingError, match=r"metrics\.jsonl line 2: not .*restore it"):
        MetricsLog(tmp_path, after_step=2)


def test_a_folder_instead_of_the_metrics_is_reported(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(TrainingError, match=r"metrics\.jsonl: cannot be read"):
        MetricsLog(tmp_path, after_step=0)


def test_a_metric_that_is_not_a_number_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        MetricsLog(tmp_path, after_step=0).append({"step": 1, "loss": float("nan")})


def test_rollouts_are_equal_after_reading_them_from_parquet(tmp_path: Path) -> None:
    row = RolloutRow(
        step=3,
        problem_id="ab",
        sample_index=1,
        prompt="1 2 3 = 6 :",
        response='"ü" \n',
        reward=0.5,
        correct=False,
        state="parse_fail",
        advantage=-0.25,
        n_tokens=4,
        truncated=True,
        logp_sum=-1.5,
    )
    write_rollouts(tmp_path, 3, [row, row])
    table = parquet.read_table(tmp_path / "rollouts" / "step_000003.parquet")
    assert [RolloutRow(**line) for line in table.to_pylist()] == [row, row]


@pytest.mark.parametrize(
    ("run", "where"),
    [("model", "is the folder of the model"), (".", "contains the model"), ("model/run", "is inside the folder")],
)
def test_a_run_directory_must_not_overlap_the_model(tmp_path: Path, run: str, where: str) -> None:
    (tmp_path / "model").mkdir()
    config = TrainConfig(model=str(tmp_path / "model"), output_dir=tmp_path / run)
    with pytest.raises(TrainingError, match=rf"--output-dir .*: {where}.*, .*model; choose another"):
        claimed(config)
    assert [path.name for path in tmp_path.rglob("*")] == ["model"], "nothing was written"
    claimed(replace(config, output_dir=tmp_path / "model-2"))


def test_the_base_that_the_run_trained_may_be_its_model(tmp_path: Path) -> None:
    (tmp_path / "base" / "checkpoint-1").mkdir(parents=True)
    claimed(TrainConfig(model=str(tmp_path / "base" / "checkpoint-1"), output_dir=tmp_path))
