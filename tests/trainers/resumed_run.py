"""Train in a separate process, with the arguments MODEL PROBLEMS OUT; resume the run in OUT."""

from __future__ import annotations

import sys
from pathlib import Path

from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train


def main() -> None:
    """Train to the end."""
    model, problems, out = sys.argv[1:]
    train(
        TrainConfig(
            model=model,
            problems=Path(problems),
            output_dir=Path(out),
            max_steps=18,
            save_every=3,
            batch_prompts=3,
            group_size=6,
            max_tokens=1,
            device="cpu",
            resume=True,
        )
    )
