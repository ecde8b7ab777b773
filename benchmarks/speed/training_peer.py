"""Run TRL's GRPOTrainer on one case in TRL's interpreter: ``python -m benchmarks.speed.training_peer CASE.json``.

Does not import oversharp. Prints one line of JSON: the clock after each step, samples, tokens, rewards, peak memory.
TRL has its fastest settings with its own generation: no logging, saving or gradient checkpointing, one generation per
optimizer step, no reference model, fused AdamW, its own tokenization of prompts, cached answers as the reward.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.simplefilter("ignore")

import torch  # noqa: E402
from datasets import Dataset, disable_progress_bars  # noqa: E402
from transformers import TrainerCallback, TrainerControl, TrainerState  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from benchmarks.speed.training_toss import is_even  # noqa: E402


class Clock(TrainerCallback):
    """Wall and CPU time after each optimizer step."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    def on_step_end(self, args: GRPOConfig, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Record the clocks after the device has finished."""
        if self.device != "cpu":
            torch.cuda.synchronize()
        self.wall_s.append(time.perf_counter())
        self.cpu_s.append(time.process_time())


class Reward:
    """The case's reward, with a record of tokens and rewards by generation."""

    __name__ = "is_right"

    def __init__(self, modes: dict[str, set[str]]) -> None:
        self.modes = modes
        self.n_tokens: list[int] = []
        self.mean: list[float] = []

    def __call__(
        self, prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any
    ) -> list[float]:
        """Return 1 for a listed answer. Without listed answers use the toss."""
        pairs = zip(prompts, completions, strict=True)
        right = [
            float(text.strip() in self.modes[asked] if self.modes[asked] else is_even(text)) for asked, text in pairs
        ]
        self.n_tokens.append(sum(map(len, completion_ids)))
        self.mean.append(sum(right) / len(right))
        return right


def adapter(rank: int) -> Any:
    """Return a LoRA of all linear layers, as in ours."""
    from peft import LoraConfig

    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM")


def main() -> None:
    """Train the case and print its cost."""
    case = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(case["threads"])
    disable_progress_bars()
    problems = [json.loads(line) for line in Path(case["problems"]).read_text().splitlines()]
    rows = case["batch_prompts"] * case["group_size"]
    micro = case["peer_micro_batch"]
    cuda, half = case["device"] != "cpu", case["precision"] == "bfloat16"
    settings = GRPOConfig(
        output_dir=case["scratch"],
        max_steps=case["warm_up"] + case["steps"],
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=rows // micro,
        steps_per_generation=rows // micro,
        num_generations=case["group_size"],
        max_completion_length=case["max_tokens"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        loss_type="grpo",
        scale_rewards="group",
        learning_rate=case["learning_rate"],
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        weight_decay=0.0,
        max_grad_norm=1.0,
        gradient_checkpointing=False,
        bf16=cuda or half,
        use_cpu=not cuda,
        model_init_kwargs={"dtype": "bfloat16" if half else "float32"},
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=case["seed"],
    )
    clock, reward = Clock(case["device"]), Reward({row["prompt"]: set(row.get("modes") or ()) for row in problems})
    trainer = GRPOTrainer(
        model=case["model"],
        reward_funcs=[reward],
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": row["prompt"]} for row in problems]),
        callbacks=[clock],
        peft_config=adapter(case["lora_rank"]) if case["lora_rank"] else None,
    )
    trainer.train()
    told = {
        "wall_s": clock.wall_s,
        "cpu_s": clock.cpu_s,
        "samples_per_step": rows,
        "n_tokens": reward.n_tokens,
        "reward_mean": reward.mean,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
