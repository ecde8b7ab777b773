"""TRL trains the tiny model, full and with LoRA, and the callback audits its checkpoints meanwhile."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from diagnostics.store import Store
from trainers.integrations.callback import OversharpCallback
from trainers.integrations.trl import CalibratedGRPOConfig, CalibratedGRPOTrainer

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # TRL's, of versions and of its own future
    pytest.mark.skipif(
        find_spec("trl") is None and not os.environ.get("REQUIRE_ORACLES"),
        reason="trl 1.16 is not installed: make oracles",
    ),
]


def make_trainer(base: Path, out: Path, *, lora: bool) -> Any:
    """TRL's own trainer with LoRA, ours without."""
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    settings: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": 4,
        "save_steps": 2,
        "logging_steps": 1,
        "per_device_train_batch_size": 8,
        "num_generations": 8,
        "max_completion_length": 5,
        "learning_rate": 1e-2,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "log_completions": True,
    }
    adapters = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    prompts = Dataset.from_list([{"prompt": f"{first} 7 12 = 54 :"} for first in range(1, 9)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (GRPOTrainer if lora else CalibratedGRPOTrainer)(
            model=str(base),
            reward_funcs=lambda completions, **_: [float(len(set(text.split())) > 3) for text in completions],
            args=GRPOConfig(**settings) if lora else CalibratedGRPOConfig(**settings),
            train_dataset=prompts,
            peft_config=adapters if lora else None,
        )


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_a_run_of_trl_is_told_of_its_checkpoints_while_it_trains(
    lora: bool, make_checkpoint: Callable[[Path, int], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = make_checkpoint(tmp_path / "base", 0)
    trainer = make_trainer(base, tmp_path / "run", lora=lora)
    callback = OversharpCallback(
        trainer, task="countdown", n=4, limit=2, panel=1, max_tokens=3, budget_s=300, wait=not lora
    )
    trainer.add_callback(callback)
    trainer.train()

    assert callback.live.process_id is None
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING and one.name == "oversharp.live"]
    with Store.open(callback.live.store_path, read_only=True) as store:
        checkpoints = store.frame("SELECT step, checkpoint FROM series_checkpoints ORDER BY step")
        kinds = store.frame("SELECT DISTINCT kind FROM checkpoints ORDER BY kind")["kind"].tolist()
        values = store.frame(
            "SELECT step, value FROM findings WHERE measure = 'mass_lost' AND scope = 'all' ORDER BY step"
        )
    assert checkpoints["step"].tolist() == [0, 2, 4]
    assert checkpoints["checkpoint"].tolist()[1:] == ["checkpoint-2", "checkpoint-4"]
    assert kinds == (["full", "lora"] if lora else ["full"])

    history = trainer.state.log_history
    found = {entry["step"]: entry for entry in history if "oversharp/mass_lost" in entry}
    assert {step: entry["oversharp/mass_lost"] for step, entry in found.items()} == dict(
        zip(values["step"].tolist(), values["value"].tolist(), strict=True)
    )
    assert found[4]["oversharp/verdict"] in ("inconclusive", "no_loss", "no_verdict")
    # TRL's own metrics of every step are where they were, once each
    assert [entry["step"] for entry in history if "reward" in entry] == [1, 2, 3, 4]
    assert len(list((tmp_path / "run/completions").glob("*.parquet"))) == 4
