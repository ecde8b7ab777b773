from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from tests.conftest import write_checkpoint
from tests.trainers.runs import EVENS, FinishedRun, Notes, loaded_from, problems_at


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen3 with random weights. Do not write into it."""
    return write_checkpoint(tmp_path_factory.mktemp("model") / "tiny", seed=0)


@pytest.fixture
def loaded(model_path: Path) -> LoadedModel:
    """The loaded model of ``model_path``."""
    return loaded_from(model_path)


@pytest.fixture(scope="session")
def easy_problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems that random weights sometimes solve: any single even number is correct."""
    prompts = ["1 2 3 = 6 :", "4 5 :", "7 8 9 = 24 :", "1 = 1 :", "2 3 4 = 9 :"]
    return problems_at(tmp_path_factory.mktemp("problems") / "even.jsonl", EVENS, prompts)


@pytest.fixture(scope="session")
def session_config(model_path: Path, easy_problems: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    """Settings of a run of about a second, whose rewards vary from the first step, in a directory of the session."""
    return TrainConfig(
        model=str(model_path),
        problems=easy_problems,
        output_dir=tmp_path_factory.mktemp("trained") / "run",
        max_steps=6,
        save_every=2,
        batch_prompts=3,
        group_size=6,
        max_tokens=1,
        device="cpu",
    )


@pytest.fixture
def config(session_config: TrainConfig, tmp_path: Path) -> TrainConfig:
    """The same settings with a directory of the test."""
    return replace(session_config, output_dir=tmp_path / "run")


@pytest.fixture(scope="session")
def finished(session_config: TrainConfig) -> FinishedRun:
    """A finished GRPO run."""
    notes, config = Notes(), replace(session_config, max_steps=5)
    return FinishedRun(config=config, path=train(config, notes), notes=notes.notes)
