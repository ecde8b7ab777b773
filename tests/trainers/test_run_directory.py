from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from diagnostics.errors import TrainingError
from trainers.config import SftConfig, TrainConfig
from trainers.run_directory import MetricsLog, RolloutRow, opened, write_rollouts


def claimed(config: TrainConfig | SftConfig) -> None:
    with opened(config):
        pass


def committed(config: TrainConfig | SftConfig, step: int = 0) -> None:
    """What a run leaves that has come this far."""
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
    assert "torch" in json.loads((config.output_dir / "environment.json").read_text())


def test_a_directory_with_other_settings_is_refused_by_their_names(tmp_path: Path) -> None:
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


def test_resume_in_an_empty_directory_starts(tmp_path: Path) -> None:
    claimed(TrainConfig(output_dir=tmp_path, resume=True))


def test_only_a_run_without_schedule_can_be_made_longer(tmp_path: Path) -> None:
    rl, sft = TrainConfig(output_dir=tmp_path / "rl"), SftConfig(output_dir=tmp_path / "sft")
    committed(rl, 40)
    committed(sft)
    claimed(replace(rl, max_steps=500, resume=True))
    assert tomllib.loads((tmp_path / "rl" / "config.toml").read_text())["train"]["max_steps"] == 500
    with pytest.raises(TrainingError, match=r"\(max_steps\)"):
        claimed(replace(sft, max_steps=5000, resume=True))


def test_the_record_of_a_run_never_says_fewer_steps_than_were_trained(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path)
    committed(config, 160)
    claimed(replace(config, max_steps=2, resume=True))
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["max_steps"] == 160


def test_a_run_that_failed_before_its_first_commit_claims_nothing(tmp_path: Path) -> None:
    claimed(TrainConfig(output_dir=tmp_path, seed=1))
    claimed(TrainConfig(output_dir=tmp_path, seed=2))
    assert tomllib.loads((tmp_path / "config.toml").read_text())["train"]["seed"] == 2


def test_two_trainers_do_not_share_a_directory(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path, resume=True)
    with opened(config), pytest.raises(TrainingError, match="another trainer is writing here"):
        claimed(config)
    claimed(config)


def test_a_file_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="cannot be written"):
        claimed(TrainConfig(output_dir=tmp_path / "file"))


def test_foreign_settings_are_reported(tmp_path: Path) -> None:
    for foreign in ("seed = = 1", "[tool]\nseed = 1\n"):
        (tmp_path / "config.toml").write_text(foreign)
        with pytest.raises(TrainingError, match="not the settings of a run"):
            claimed(TrainConfig(output_dir=tmp_path))


def test_metrics_are_cut_back_to_the_resumed_step(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, after_step=0)
    for step in (1, 2, 3):
        log.append({"step": step, "loss": 0.5})
    log.flush()
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 4, "lo')  # a kill in the middle of a line
    MetricsLog(tmp_path, after_step=2).append({"step": 3, "loss": 0.25})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": 0.5},
        {"step": 3, "loss": 0.25},
    ]


@pytest.mark.parametrize("line", [b"rubbish", b"\xff\xfe", b"{}", b"[1]", b"1", b'{"step": "2"}', b"", b"[" * 100_000])
def test_metrics_that_no_trainer_wrote_are_reported_by_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(TrainingError, match=r"metrics\.jsonl line 2: not .*restore it"):
        MetricsLog(tmp_path, after_step=2)


def test_a_folder_in_the_place_of_the_metrics_is_reported(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(TrainingError, match=r"metrics\.jsonl: cannot be read"):
        MetricsLog(tmp_path, after_step=0)


def test_a_metric_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        MetricsLog(tmp_path, after_step=0).append({"step": 1, "loss": float("nan")})


def test_rollouts_survive_parquet(tmp_path: Path) -> None:
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
