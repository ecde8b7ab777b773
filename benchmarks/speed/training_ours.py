"""Run ``oversharp train`` on one case: ``python -m benchmarks.speed.training_ours CASE.json``.

It prints the same fields as the peer. Its other work is included: rollouts and metrics are stored, and every response
is graded by its verifier. Checkpoints are written outside the measured steps.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.speed.training_toss import announce
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train


class Clock:
    """A progress sink that records the clocks at every step."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.wall_s: list[float] = []
        self.cpu_s: list[float] = []

    def note(self, text: str) -> None:
        """Print the line on stderr."""
        print(text, file=sys.stderr)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Time every step of a stage."""
        yield self._advance

    def _advance(self, count: int) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize()
        self.wall_s.append(time.perf_counter())
        self.cpu_s.append(time.process_time())


def main() -> None:
    """Train the case and print its cost."""
    case = json.loads(Path(sys.argv[1]).read_text())
    cuda = case["device"] != "cpu"
    with tempfile.TemporaryDirectory(prefix="oversharp-training-", dir=case["scratch"]) as folder:
        announce(Path(folder))
        sys.path.append(folder)
        config = TrainConfig(
            model=case["model"],
            output_dir=Path(folder) / "run",
            problems=Path(case["problems"]),
            # one step more than measured, because the last one ends with a checkpoint
            max_steps=case["warm_up"] + case["steps"] + 1,
            save_every=10**6,
            batch_prompts=case["batch_prompts"],
            group_size=case["group_size"],
            max_tokens=case["max_tokens"],
            learning_rate=case["learning_rate"],
            precision="bfloat16" if cuda else case["precision"],
            engine=case["engine"],
            lora_rank=case["lora_rank"],
            micro_batch=case["micro_batch"],
            device=case["device"],
            threads=case["threads"],
            seed=case["seed"],
        )
        clock = Clock(case["device"])
        run = train(config, clock)
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][:-1]
    rows = config.batch_prompts * config.group_size
    told = {
        "wall_s": clock.wall_s[:-1],
        "cpu_s": clock.cpu_s[:-1],
        "samples_per_step": rows,
        "n_tokens": [round(step["response_tokens_mean"] * rows) for step in steps],
        "reward_mean": [step["reward_mean"] for step in steps],
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if cuda else None,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
