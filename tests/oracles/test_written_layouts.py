"""Runs that TRL and verl themselves wrote are found, and verl's merger runs as our messages say."""

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

from diagnostics.records.errors import CheckpointError
from diagnostics.series import find_series
from trainers.countdown_base import build_model, build_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # of libraries about versions and what is not here


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "tiny"
    build_model(seed=0).save_pretrained(path)
    build_tokenizer().save_pretrained(path)
    return path


def adapter_settings() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


# ---------------------------------------------------------------- TRL


@pytest.mark.usefixtures("trl")
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_run_of_trl(kind: str, base: Path, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    run = tmp_path / "run"
    settings = GRPOConfig(
        output_dir=str(run), max_steps=4, save_steps=2, logging_steps=1, per_device_train_batch_size=8,
        num_generations=8, max_completion_length=5, learning_rate=1e-2, report_to=[], use_cpu=True, bf16=False,
        disable_tqdm=True, log_completions=True,
    )  # fmt: skip
    prompts = Dataset.from_list([{"prompt": f"{first} 7 12 = 54 :"} for first in range(1, 9)])
    trainer = GRPOTrainer(
        model=str(base),
        reward_funcs=lambda completions, **_: [float(len(set(text.split()))) for text in completions],
        args=settings,
        train_dataset=prompts,
        peft_config=adapter_settings() if kind == "lora" else None,
    )
    trainer.train()
    trainer.save_model()
    series = find_series([run], base=base)
    assert [(one.step, one.kind) for one in series.checkpoints] == [(0, "full"), (2, kind), (4, kind)]
    assert [one.path for one in series.checkpoints[1:]] == [run / "checkpoint-2", run / "checkpoint-4"]
    assert (series.layout, series.skipped) == ("trl", ())
    assert {one.step for one in series.metrics if one.name == "reward"} == {1, 2, 3, 4}


# ---------------------------------------------------------------- verl


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[Any]:
    """A mesh of one CPU."""
    from torch.distributed.device_mesh import init_device_mesh

    store = tmp_path / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    torch.distributed.destroy_process_group()


def save_with_verl(actor: Path, base: Path, mesh: Any, *, seed: int, lora: bool) -> None:
    """verl's own manager writes what its FSDP workers write."""
    from peft import get_peft_model
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    model: Any = AutoModelForCausalLM.from_pretrained(base)
    if lora:
        model = get_peft_model(model, adapter_settings())
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not lora or "lora_B" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    fully_shard(model, mesh=mesh)
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=None,
        lr_scheduler=None,
        processing_class=AutoTokenizer.from_pretrained(base),
        checkpoint_config={"save_contents": ["model"], "load_contents": ["model"]},
    )
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
def test_a_run_of_verl(lora: bool, base: Path, one_rank: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    for step in (10, 20):
        save_with_verl(run / f"global_step_{step}/actor", base, one_rank, seed=step, lora=lora)
    with pytest.raises(CheckpointError) as caught:
        find_series([run])
    commands = re.findall(r"merge them: (python [^;]+)", str(caught.value))
    assert len(commands) == 2
    for command in commands:
        run_in_here(command, monkeypatch)

    series = find_series([run], base=base)
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
            find_series([run], base=base)
