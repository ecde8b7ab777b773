"""Damaged and replaced files of a run are reported before it resumes, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.run.manifest import NAME, commit, require_intact

WEIGHTS = bytes(range(256)) * 16


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with steps 0, 2 and 4 committed; step 6 has weights and a line of metrics, but no commit."""
    for step in (0, 2, 4, 6):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(WEIGHTS + bytes([step]))
        (folder / "README.md").write_text("a card")
        (tmp_path / "rollouts").mkdir(exist_ok=True)
        (tmp_path / "rollouts" / f"step_{step:06d}.parquet").write_bytes(WEIGHTS[step:])
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(f'{{"step": {step}}}\n')
        if step < 6:
            commit(tmp_path, step, {"optimizer": {}})
    return tmp_path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)


def test_files_since_the_last_commit_and_the_card_are_not_checked(run: Path) -> None:
    (run / "checkpoint-4" / "README.md").write_text("mine")
    flip(run / "checkpoint-6" / "model.safetensors")
    assert require_intact(run, 4) == ()
    with pytest.raises(TrainingError, match=r"metrics\.jsonl: damaged or replaced since this run wrote it"):
        require_intact(run, 4, finished=True)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("checkpoint-4/model.safetensors", "start a new run in another --output-dir"),
        ("checkpoint-0/model.safetensors", "start a new run in another --output-dir"),
        ("checkpoint-2/model.safetensors", "or move checkpoint-2 away to continue without it"),
        ("rollouts/step_000002.parquet", "or move step_000002.parquet away to continue without it"),
        ("metrics.jsonl", "or move metrics.jsonl away to continue without it"),
        (NAME, "move it away to continue without checking the run's files"),
    ],
)
def test_a_flipped_bit_is_a_one_line_error_with_the_file(run: Path, name: str, hint: str) -> None:
    flip(run / name)
    with pytest.raises(TrainingError) as raised:
        require_intact(run, 4)
    assert str(raised.value).startswith(f"{run / name}: ")
    assert str(raised.value).endswith(hint)


def test_missing_files_are_reported_and_missing_required_files_raise(run: Path) -> None:
    (run / "checkpoint-2" / "model.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"checkpoint-2/model\.safetensors: cannot be read \(No such file"):
        require_intact(run, 4)
    (run / "checkpoint-2" / "README.md").unlink()
    (run / "checkpoint-2").rmdir()
    (run / "metrics.jsonl").unlink()
    gone = [f"{run / name}: missing; the run continues without it" for name in ("checkpoint-2", "metrics.jsonl")]
    assert list(require_intact(run, 4)) == gone
    (run / "checkpoint-4" / "model.safetensors").unlink()
    with pytest.raises(TrainingError, match=r"checkpoint-4/model\.safetensors"):
        require_intact(run, 4)


def test_a_run_without_checksums_is_not_checked_and_changed_checksums_are_detected(run: Path) -> None:
    path = run / NAME
    written = json.loads(path.read_text())
    written["steps"]["0"]["checkpoint-0/model.safetensors"][0] += 1
    path.write_text(json.dumps(written))
    with pytest.raises(TrainingError, match="its checksum does not match its content"):
        require_intact(run, 4)
    path.unlink()
    flip(run / "checkpoint-4" / "model.safetensors")
    assert require_intact(run, 4) == ()
