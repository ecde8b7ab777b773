"""Trackers: the real package where it is installed, the one-line error where it is not."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.run.trackers import NoTracker, TrackerName, open_tracker, require_tracker

SETTINGS = {"algorithm": "grpo", "learning_rate": 2e-4, "chat": False}
NAMES: tuple[TrackerName, ...] = ("tensorboard", "wandb", "trackio")


def installed(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed")


def interrupted_run(name: TrackerName, run: Path) -> None:
    """Steps 1 to 3, a kill after step 2 was committed, then steps 3 and 4."""
    run.mkdir(parents=True, exist_ok=True)
    for after_step, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        tracker = open_tracker(name, run, after_step=after_step, settings=SETTINGS)
        for step in steps:
            tracker.log(step, {"step": step, "reward_mean": step / 2, "samples_skipped": 3})
        tracker.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_before_anything_runs(name: TrackerName, tmp_path: Path) -> None:
    if find_spec(name) is not None:
        require_tracker(name)
        return
    with pytest.raises(ConfigError, match=rf"^--tracker {name}: .* pip install {name}, or leave --tracker out"):
        require_tracker(name)
    with pytest.raises(ConfigError, match="is not installed"):
        open_tracker(name, tmp_path, after_step=0, settings=SETTINGS)
    assert list(tmp_path.iterdir()) == []


def test_without_a_tracker_nothing_is_written(tmp_path: Path) -> None:
    tracker = open_tracker(None, tmp_path, after_step=0, settings=SETTINGS)
    tracker.log(1, {"step": 1, "loss": 0.5})
    tracker.close()
    assert isinstance(tracker, NoTracker)
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
    """In a process of its own: trackio reads where its files go when it is imported."""
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
    assert done.stdout == ""  # stdout belongs to the command's result
    with sqlite3.connect(tmp_path / "trackio" / "oversharp.db") as database:
        rows = database.execute("SELECT DISTINCT run_name, step, CAST(metrics AS TEXT) FROM metrics ORDER BY step")
        found = [(name, step, json.loads(metrics)["reward_mean"]) for name, step, metrics in rows]
    (name,) = {row[0] for row in found}
    assert name.startswith("grpo-")
    assert [row[1:] for row in found] == [(1, 0.5), (2, 1.0), (3, 1.5), (4, 2.0)]


def test_a_damaged_identity_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from oversharp.trainers.run import trackers

    (tmp_path / "tracker.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"tracker\.json: not the identity .* delete it to start a new chart"):
        trackers._identity(tmp_path)


def test_a_directory_that_is_started_anew_is_another_run(tmp_path: Path) -> None:
    from oversharp.trainers.run import trackers

    first = trackers._identity(tmp_path)
    assert trackers._identity(tmp_path) == first
    (tmp_path / "tracker.json").unlink()
    assert trackers._identity(tmp_path) != first
