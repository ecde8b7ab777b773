"""Problems that are not trained on are sampled while a run trains, and change nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.trainers.checking import validation_problems
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from tests.trainers.runs import FinishedRun, metrics, weights

VALIDATION = {"val_pass_at_1", "val_pass_at_4", "val_token_entropy_nats", "val_truncation_rate"}


@pytest.fixture
def other_problems(tmp_path: Path) -> Path:
    path = tmp_path / "validation.jsonl"
    path.write_text("".join(f'{{"prompt": "{n} + {n} =", "answer": "{2 * n}"}}\n' for n in range(1, 4)))
    return path


def test_a_run_with_validation_is_the_run_without_it(
    finished: FinishedRun, other_problems: Path, tmp_path: Path
) -> None:
    asked = {"validate_every": 2, "validation": other_problems, "validation_samples": 4}
    run = train(replace(finished.config, output_dir=tmp_path / "validated", **asked))
    assert weights(run, 5) == weights(finished.path, 5)
    lines = metrics(run)
    assert [line.keys() >= VALIDATION for line in lines] == [False, True, False, True, False]
    told = lines[1]
    assert 0 <= told["val_pass_at_1"] <= told["val_pass_at_4"] <= 1
    assert told["val_token_entropy_nats"] > 0


def test_the_built_in_task_validates_on_problems_that_are_neither_trained_on_nor_audited() -> None:
    from oversharp.diagnostics.tasks import countdown

    found = {problem.problem_id for problem in validation_problems(TrainConfig(validate_every=10))}
    assert len(found) == 100
    others = (*countdown.problems(split="train"), *countdown.problems(split="audit"))
    assert not found & {problem.problem_id for problem in others}
    assert validation_problems(TrainConfig()) == ()


def test_problems_that_are_trained_on_are_refused(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(
        OversharpError, match=r"--validation: \d+ problems of \d+ are also in the training set \(the first:"
    ):
        train(replace(config, output_dir=tmp_path / "run", validate_every=1, validation=config.problems))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"validation": Path("held_out.jsonl")}, "--validation held_out.jsonl needs --validate-every"),
        ({"validate_every": 0}, "--validate-every 0: must be at least 1"),
        ({"validate_every": 5, "problems": Path("p.jsonl"), "model": "m"}, "--validate-every needs --validation FILE"),
        ({"warmup_steps": 160}, "--warmup-steps 160: must be fewer than --max-steps 160"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TrainConfig(**given)


def test_a_schedule_is_followed_and_cannot_be_made_longer(config: TrainConfig, tmp_path: Path) -> None:
    asked = replace(
        config, output_dir=tmp_path / "run", learning_rate=8e-4, warmup_steps=1, schedule="linear", max_steps=3
    )
    run = train(asked)
    assert [line["learning_rate"] for line in metrics(run)] == [8e-4, 8e-4, 4e-4]
    with pytest.raises(OversharpError, match=r"other settings \(max_steps\)"):
        train(replace(asked, max_steps=5, resume=True))
