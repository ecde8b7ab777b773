"""Checkpoints that the sampler tests only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.samplers.tiny_models import write_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint-0", seed=0)
