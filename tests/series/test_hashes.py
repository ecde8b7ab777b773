"""Weights are hashed once, and again if their files changed."""

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
    """Return a list that gets each hashed file from now on."""
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
    file, cache = write(tmp_path / "model.safetensors", 1.0), tmp_path / "cache" / "weights.jsonl"
    first = WeightHashes(cache=cache).hash_files([file])
    assert WeightHashes(cache=cache).hash_files([file]) == first == weights_hash([file])
    assert len(reads) == 1
    assert WeightHashes(cache=cache, verify=True).hash_files([file]) == first
    assert WeightHashes(cache=cache).hash_files([file], base_hash="of another model") != first
    assert len(reads) == 3
    write(file, 2.0, age_s=61.0)  # the same size
    assert WeightHashes(cache=cache).hash_files([file]) == weights_hash([file]) != first
    assert len(reads) == 4


def test_the_hash_of_a_new_file_is_not_cached(tmp_path: Path, reads: list[Path]) -> None:
    file, cache = write(tmp_path / "model.safetensors", 1.0, age_s=0.0), tmp_path / "weights.jsonl"
    for _ in range(2):
        WeightHashes(cache=cache).hash_files([file])
    assert len(reads) == 2


def test_a_truncated_or_unwritable_cache_is_ignored(tmp_path: Path, reads: list[Path]) -> None:
    file, cache = write(tmp_path / "model.safetensors", 1.0), tmp_path / "weights.jsonl"
    cache.write_text('["half')
    assert WeightHashes(cache=cache).hash_files([file]) == weights_hash([file])
    assert WeightHashes(cache=Path(os.devnull) / "weights.jsonl").hash_files([file])


def test_models_are_hashed_in_parallel_without_those_that_cannot_be_read(tmp_path: Path) -> None:
    whole = [write(tmp_path / name / "model.safetensors", 1.0 + len(name)).parent for name in ("a", "bb")]
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"short")
    found = WeightHashes(cache=tmp_path / "cache").hash_models([*whole, tmp_path / "cut", tmp_path / "none"])
    assert found == {folder: weights_hash([folder / "model.safetensors"]) for folder in whole}
