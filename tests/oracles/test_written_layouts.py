"""Runs that verl itself wrote are found, and its merger runs as our messages say."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series import find_series
from tests.oracles.verl_checkpoints import adapters, fsdp_manager, one_cpu

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries about versions and what is not here


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Any]:
    with one_cpu(tmp_path / "store") as mesh:
        yield mesh


def save_with_verl(actor: Path, base: Path, mesh: Any, *, seed: int, lora: bool) -> None:
    """verl's own manager writes what its FSDP workers write."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(base)
    if lora:
        model = get_peft_model(model, adapters())
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not lora or "lora_B" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    manager = fsdp_manager(model, base, mesh, contents=["model"])
    manager.save_checkpoint(local_path=str(actor), global_step=seed)


def run_in_here(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``python -m verl.model_merger …``, which an interpreter of its own would run without the stand-ins."""
    from verl.model_merger.__main__ import main

    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "verl.model_merger"]
    monkeypatch.setattr(sys, "argv", words[2:])
    main()


@pytest.mark.usefixtures("core_algos")
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_run_of_verl(
    lora: bool, model_path: Path, one_rank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        save_with_verl(run / f"global_step_{step}/actor", model_path, one_rank, seed=step, lora=lora)
    with pytest.raises(CheckpointError) as caught:
        find_series([run])
    commands = re.findall(r"merge them: (python [^;]+)", str(caught.value))
    assert len(commands) == 2
    for command in commands:
        run_in_here(command, monkeypatch)

    series = find_series([run], base=model_path)
    kind, inner = ("lora", "huggingface/lora_adapter") if lora else ("full", "huggingface")
    assert [(one.step, one.kind) for one in series.checkpoints] == [(0, "full"), (10, kind), (20, kind)]
    assert [one.path for one in series.checkpoints[1:]] == [
        run / f"global_step_{step}/actor/{inner}" for step in (10, 20)
    ]
    assert (series.layout, series.skipped) == ("verl", ())
    if lora:  # the trap: without the adapters, the merged weights are the base's, in bfloat16
        assert find_series([run]).base.path == run / "global_step_10/actor/huggingface"
        for step in (10, 20):
            shutil.rmtree(run / f"global_step_{step}/actor/huggingface/lora_adapter")
        shutil.rmtree(run / "global_step_20")
        with pytest.raises(CheckpointError, match=r"tiny and global_step_10 hold the same .* lora_adapter"):
            find_series([run], base=model_path)
