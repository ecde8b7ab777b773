"""Code tasks in an audit and in training, from the problem file to the store and the rewards."""

import json
from pathlib import Path

import pytest

from oversharp import open_store
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.verifiers.sandbox.jail import backend_states
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from tests.trainers.runs import metrics, rollouts

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sandbox")]


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    """A digit is a program that prints nothing. The model's other words are no programs."""
    prompts = ["1 2 3 = 6 :", "4 5 :", "7 8 9 = 24 :", "1 = 1 :"]
    rows = [{"prompt": prompt, "tests": [{"input": "", "output": ""}]} for prompt in prompts]
    path = tmp_path / "code.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_an_audit_records_the_sandbox_with_every_grade(countdown_series: Path, problems: Path, tmp_path: Path) -> None:
    used = next(name for name, fault in backend_states() if not fault)
    small = {"n": 8, "n_base": 8, "panel": 0, "kernel_problems": 0, "max_tokens": 1, "sampler": "transformers"}
    audit([countdown_series], AuditConfig(problems=problems, out=tmp_path / "audit", **small))
    with open_store(tmp_path / "audit" / "audit.duckdb") as store:
        grades = store.frame("SELECT text, correct, state, reason FROM graded_samples WHERE NOT greedy")
    assert len(grades) == 3 * 4 * 8
    is_digit = grades["text"].str.strip().str.fullmatch(r"\d+")
    assert 0 < is_digit.sum() < len(grades)
    assert (grades["correct"] == is_digit).all()
    assert set(grades["reason"][is_digit]) == {f"ran in {used}"}


def test_training_gets_its_rewards_from_the_sandbox(countdown_series: Path, problems: Path, tmp_path: Path) -> None:
    small = {"max_steps": 2, "save_every": 2, "batch_prompts": 2, "group_size": 8, "max_tokens": 1, "device": "cpu"}
    model = str(countdown_series / "checkpoint-0")
    run = train(TrainConfig(model=model, problems=problems, output_dir=tmp_path / "run", **small))
    assert any(0 < line["reward_mean"] < 1 for line in metrics(run))
    rows = rollouts(run)
    assert [row["reward"] == 1 for row in rows] == [row["response"].strip().isdecimal() for row in rows]
