"""Importers read what TRL and verl write with their own code."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from oversharp.diagnostics.ingest.formats import trl_completions, verl
from oversharp.diagnostics.ingest.formats.contract import ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.rows import first_record
from oversharp.trainers.worlds.base import build_tokenizer
from tests.oracles.trl_runs import grpo_trainer

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's, of versions and of its own future


@pytest.mark.usefixtures("trl")
@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_completions_that_trl_logs(model_path: Path, tmp_path: Path, chat: bool) -> None:
    from datasets import Dataset

    seen: list[tuple[str, float]] = []

    def reward(completions: list[Any], **_: Any) -> list[float]:
        texts = [one[0]["content"] if chat else one for one in completions]
        seen[:] = [(text, float(len(text) % 2)) for text in texts]
        return [score for _, score in seen]

    tokenizer = build_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    prompts = [f"{first} 7 12 = 54 :" for first in range(1, 7)]
    rows = [{"prompt": [{"role": "user", "content": prompt}] if chat else prompt} for prompt in prompts]
    grpo_trainer(
        model_path,
        tmp_path / "out",
        [reward],
        max_steps=2,
        log_completions=True,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    ).train()
    path = tmp_path / "out" / "completions" / "completions_00002.parquet"
    assert trl_completions.IMPORTER.recognises(path, first_record(path))
    samples = list(trl_completions.read_samples(path, ReadOptions()))
    assert [(one.response, one.reward) for one in samples if isinstance(one, Recorded)] == seen
    assert {(one.step, len(one.prompt) > 0) for one in samples if isinstance(one, Recorded)} == {(2, True)}


@pytest.mark.parametrize("layout", ["ray_trainer.py", "v1/trainer_base.py"])
def test_generations_that_verl_writes(tmp_path: Path, layout: str, core_algos: ModuleType) -> None:
    write = _own_function(Path(core_algos.__file__ or "").parent / layout, "_write_generations")
    extras = {"acc": [True, False], "uid": ["a_0_0", "a_1_0"]}
    write(["1+1?"] * 2, ["2", "3"], ["2", "2"], [0.5, -0.5], extras, str(tmp_path), 40)
    path = tmp_path / "40.jsonl"
    assert verl.recognises(path, first_record(path))
    assert list(verl.read_samples(path, ReadOptions())) == [
        Recorded(line=1, prompt="1+1?", response="2", gold="2", reward=1.0, step=40),
        Recorded(line=2, prompt="1+1?", response="3", gold="2", reward=0.0, step=40),
    ]


def _own_function(path: Path, name: str) -> Any:
    """A function of a module that cannot be imported without a cluster."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == name)
    node.decorator_list = []
    names: dict[str, Any] = {"json": json, "os": os, "np": np}
    exec(compile(ast.Module(body=[node], type_ignores=[]), str(path), "exec"), names)
    return names[name]
