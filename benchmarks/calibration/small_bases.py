"""Problem files with listed responses, and training of a base, for the small tasks of these benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.records.types import Problem


def write_problems(path: Path, problems: Sequence[Problem]) -> Path:
    """Write a training file in which only the listed responses are rewarded."""
    lines = [
        json.dumps(
            {
                "id": problem.problem_id,
                "prompt": problem.prompt,
                "answer": problem.gold,
                "modes": list(problem.modes),
                "verifier": "modes",
            }
        )
        for problem in problems
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def train_by_examples(
    path: Path,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    batch: Callable[[], Sequence[tuple[str, str]]],
    *,
    steps: int,
    learning_rate: float,
) -> Path:
    """Train on prompts and responses by supervision, a batch per step, and return the checkpoint's folder.

    ``model`` has random weights. Its end token is 1. The learning rate rises over 50 steps and falls to a twentieth.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * min(1, (step + 1) / 50) * (1 - 0.95 * step / steps)
        rows = [(tokenizer(one)["input_ids"], [*tokenizer(other)["input_ids"], 1]) for one, other in batch()]
        logp_BT, _ = response_logp(model, rows)
        loss = -logp_BT.sum() / sum(len(response) for _, response in rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.generation_config.eos_token_id = 1
    with quiet_transformers():
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
    return path


def response_logp(
    model: torch.nn.Module, rows: Sequence[tuple[list[int], list[int]]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log π of each response token and their mask.

    Padding is on the right, which causal attention ignores.
    """
    width = max(len(prompt) + len(response) for prompt, response in rows)
    ids_BL = torch.tensor(
        [[*prompt, *response] + [0] * (width - len(prompt) - len(response)) for prompt, response in rows]
    )
    mask_BL = torch.tensor(
        [
            [False] * len(prompt) + [True] * len(response) + [False] * (width - len(prompt) - len(response))
            for prompt, response in rows
        ]
    )
    logits_BLV = model(input_ids=ids_BL[:, :-1]).logits
    nll_BL = functional.cross_entropy(logits_BLV.flatten(0, 1), ids_BL[:, 1:].flatten(), reduction="none")
    mask_BT = mask_BL[:, 1:]
    return -nll_BL.view_as(mask_BT) * mask_BT, mask_BT
