"""Weights are read once, and again where their files changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from oversharp.diagnostics.series import hashes
from oversharp.diagnostics.series.hashes import WeightHashes
from oversharp.diagnostics.series.weights import weights_hash


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read from now on."""
    seen: list[Path] = []

    def read(files: list[Path], *, base_hash: str = "") -> str:
        seen.extend(files)
        return weights_hash(files, base_hash=base_hash)

    monkeypatch.setattr(hashes, "weights_hash", read)
    return seen


def write(path: Path, value: float, *, age_s: float = 60.0) -> Path:
    path.parent.mkdir(exist_ok=True)
    save_file({"w": torch.full((3,), value)}, path)
    then = path.stat().st_mtime - age_s
    os.utime(path, (then, then))
    return path


def test_a_file_is_read_once_and_again_when_it_changed(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_SETTLED_S", -1.0)
    file, kept = write(tmp_path / "model.safetensors", 1.0), tmp_path / "cache" / "weights.jsonl"
    first = WeightHashes(kept=kept).hash_of([file])
    assert WeightHashes(kept=kept).hash_of([file]) == first == weights_hash([file])
    assert len(reads) == 1
    assert WeightHashes(kept=kept, verify=True).hash_of([file]) == first
    assert WeightHashes(kept=kept).hash_of([file], base_hash="of another model") != first
    assert len(reads) == 3
    write(file, 2.0, age_s=61.0)  # the same size
    assert WeightHashes(kept=kept).hash_of([file]) == weights_hash([file]) != first
    assert len(reads) == 4


def test_what_was_written_just_now_is_not_kept(tmp_path: Path, reads: list[Path]) -> None:
    file, kept = write(tmp_path / "model.safetensors", 1.0, age_s=0.0), tmp_path / "weights.jsonl"
    for _ in range(2):
        WeightHashes(kept=kept).hash_of([file])
    assert len(reads) == 2


def test_a_cache_that_is_cut_short_or_cannot_be_written_costs_a_reading_and_no_more(
    tmp_path: Path, reads: list[Path]
) -> None:
    file, kept = write(tmp_path / "model.safetensors", 1.0), tmp_path / "weights.jsonl"
    kept.write_text('["half')
    assert WeightHashes(kept=kept).hash_of([file]) == weights_hash([file])
    assert WeightHashes(kept=Path(os.devnull) / "weights.jsonl").hash_of([file])


def test_models_are_hashed_side_by_side_and_what_cannot_be_read_is_left_to_its_turn(tmp_path: Path) -> None:
    whole = [write(tmp_path / name / "model.safetensors", 1.0 + len(name)).parent for name in ("a", "bb")]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"short")
    found = WeightHashes(kept=tmp_path / "kept").hash_models([*whole, tmp_path / "cut", tmp_path / "none"])
    assert found == {one: weights_hash([one / "model.safetensors"]) for one in whole}
