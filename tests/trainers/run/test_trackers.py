"""Trackers with the real packages if installed, else their one-line error."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.run.trackers import TrackerName, open_tracker, require_tracker

SETTINGS = {"algorithm": "grpo", "learning_rate": 2e-4, "chat": False}
NAMES: tuple[TrackerName, ...] = ("tensorboard", "wandb", "trackio")


def installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")


def interrupted_run(name: TrackerName, run: Path) -> None:
    """Log steps 1 to 3, then, as after a kill with step 2 committed, steps 3 and 4."""
    run.mkdir(parents=True, exist_ok=True)
    for after_step, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        with open_tracker(name, run, after_step=after_step, settings=SETTINGS) as log:
            for step in steps:
                log(step, {"step": step, "reward_mean": step / 2, "samples_skipped": 3})


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_reported_before_the_run(name: TrackerName, tmp_path: Path) -> None:
    if find_spec(name) is not None:
        require_tracker(name)
        return
    with pytest.raises(ConfigError, match=rf"^--tracker {name}: .* pip install {name}, or omit --tracker"):
        require_tracker(name)
    with (
        pytest.raises(ConfigError, match="is not installed"),
        open_tracker(name, tmp_path, after_step=0, settings=SETTINGS),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_without_a_tracker_nothing_is_written(tmp_path: Path) -> None:
    with open_tracker(None, tmp_path, after_step=0, settings=SETTINGS) as log:
        log(1, {"step": 1, "loss": 0.5})
    assert list(tmp_path.iterdir()) == []


@installed("tensorboard")
def test_tensorboard_shows_each_step_once_after_a_resume(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    interrupted_run("tensorboard", tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward_mean")] == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]
    assert sorted(events.Tags()["scalars"]) == ["reward_mean", "samples_skipped"]


@installed("wandb")
def test_wandb_continues_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    interrupted_run("wandb", tmp_path / "grpo-seed-0")
    identity = json.loads((tmp_path / "grpo-seed-0" / "tracker.json").read_text())["id"]
    parts = sorted((tmp_path / "grpo-seed-0").glob("wandb/offline-run-*"))
    assert parts
    assert {part.name.rsplit("-", 1)[1] for part in parts} == {identity}


@installed("trackio")
def test_trackio_continues_the_same_run(tmp_path: Path) -> None:
    """In a separate process: trackio reads the path of its files on import."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import test_trackers as t;"
        "t.interrupted_run('trackio', Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "grpo")],
        env={"TRACKIO_DIR": str(tmp_path / "trackio"), "PATH": "", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""  # stdout is for the command's result
    with sqlite3.connect(tmp_path / "trackio" / "oversharp.db") as database:
        rows = database.execute("SELECT DISTINCT run_name, step, CAST(metrics AS TEXT) FROM metrics ORDER BY step")
        logged = [(name, step, json.loads(metrics)["reward_mean"]) for name, step, metrics in rows]
    (name,) = {row[0] for row in logged}
    assert name.startswith("grpo-")
    assert [row[1:] for row in logged] == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]


def test_a_damaged_run_id_is_reported_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oversharp.trainers.run import trackers

    (tmp_path / "tracker.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"tracker\.json: contains no id of .* delete it to start a new chart"):
        trackers._run_id(tmp_path)


def test_a_restarted_directory_is_another_run(tmp_path: Path) -> None:
    from oversharp.trainers.run import trackers

    first = trackers._run_id(tmp_path)
    assert trackers._run_id(tmp_path) == first
    (tmp_path / "tracker.json").unlink()
    assert trackers._run_id(tmp_path) != first
