"""TRL's side of the benchmark of training does the work that ours does."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.speed.training import Case
from benchmarks.speed.training_models import Size, random_model, toss_problems

ROOT = Path(__file__).parents[2]
SIZE = Size(
    name="tiny",
    vocabulary=512,
    hidden=16,
    intermediate=32,
    layers=1,
    heads=2,
    key_value_heads=1,
    head=8,
    context=64,
    end_tokens=64,
)


@pytest.mark.usefixtures("trl")
@pytest.mark.parametrize("peer_micro_batch", [16, 4])
def test_trl_generates_once_per_step_and_sees_every_length(tmp_path: Path, peer_micro_batch: int) -> None:
    case = Case(
        what="tiny",
        model=str(random_model(SIZE, tmp_path)),
        problems=str(toss_problems(SIZE, tmp_path / "tiny.jsonl", prompt_tokens=5, n=16)),
        batch_prompts=4,
        group_size=4,
        prompt_tokens=5,
        max_tokens=8,
        learning_rate=1e-4,
        warm_up=1,
        steps=3,
        micro_batch=None,
        peer_micro_batch=peer_micro_batch,
    )
    path = tmp_path / "case.json"
    path.write_text(json.dumps({**asdict(case), "scratch": str(tmp_path)}))
    script = ROOT / "benchmarks" / "speed" / "training_peer.py"
    done = subprocess.run([sys.executable, str(script), str(path)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told["wall_s"]) == len(told["n_tokens"]) == 4
    assert all(16 < n_tokens < 16 * 8 for n_tokens in told["n_tokens"])
    assert 0 < sum(told["reward_mean"]) < 4
    assert told["samples_per_step"] == 16
