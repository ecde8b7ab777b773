"""Short trainings of the tiny model by TRL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Reward = Callable[..., list[float]]

#: Eight responses to one prompt at a step, on the CPU, without a checkpoint.
SETTINGS = {
    "per_device_train_batch_size": 8,
    "num_generations": 8,
    "max_completion_length": 5,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
}


def grpo_trainer(
    model_path: Path, out: Path, rewards: list[Reward], *, calibration: str | None = None, **settings: Any
) -> Any:
    """TRL's own trainer, ours with a calibration; ``settings`` are those of its configuration or of itself."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from oversharp.trainers.integrations.trl import CalibratedGRPOConfig, CalibratedGRPOTrainer

    of_trainer = {
        "train_dataset": Dataset.from_list([{"prompt": f"{first} 7 12 = 54 :"} for first in range(1, 9)]),
        **{
            name: settings.pop(name)
            for name in ("train_dataset", "processing_class", "peft_config")
            if name in settings
        },
    }
    given = {**SETTINGS, "output_dir": str(out), **settings}
    if calibration is None:
        return GRPOTrainer(model=str(model_path), reward_funcs=rewards, args=GRPOConfig(**given), **of_trainer)
    args = CalibratedGRPOConfig(calibration=calibration, **given)
    return CalibratedGRPOTrainer(model=str(model_path), reward_funcs=rewards, args=args, **of_trainer)
