"""Small real things shared by the tests: an untrained checkpoint series of the built-in task."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def write_checkpoint(folder: Path, seed: int) -> Path:
    """A complete Countdown checkpoint with random weights."""
    from trainers.countdown_base import build_model, build_tokenizer

    folder.mkdir(parents=True)
    build_model(seed).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[[Path, int], Path]:
    """Write a Countdown checkpoint into a new folder, weights drawn from the seed."""
    return write_checkpoint


@pytest.fixture(scope="session")
def countdown_series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints with different random weights, as a run directory. Do not write into it."""
    run = tmp_path_factory.mktemp("series") / "run"
    for step in (0, 20, 40):
        write_checkpoint(run / f"checkpoint-{step}", seed=step)
    return run
