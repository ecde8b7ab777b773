"""Supervised training of a built-in world's base from random weights, or of a pretrained model as a warm-up.

A small pretrained model can do some arithmetic but rarely boxes an answer. Then no sample has a reward, and RL cannot
start. A few hundred steps on worked solutions of word problems change that. All solution methods are equally frequent
in the examples, so the base uses several methods.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from oversharp.diagnostics.models.devices import cpu_threads, pick_device, slow_products_note
from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit, response_ids
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.tasks.word_problems import TASK, draw_story
from oversharp.trainers.config import SftConfig
from oversharp.trainers.model.forward import autocast
from oversharp.trainers.run import checkpointing, manifest
from oversharp.trainers.run.directory import MetricsLog, open_run
from oversharp.trainers.worlds import get_world
from oversharp.trainers.worlds.base import build_model, build_tokenizer
from oversharp.trainers.worlds.contract import World

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Function that returns the loss of a step.
Loss = Callable[[int], Tensor]
#: Target value that ``torch.nn.functional.cross_entropy`` ignores.
_IGNORED = -100

BETAS = (0.9, 0.98)
WARMUP_STEPS = 50
FINAL_SHARE = 0.05


def train_base(config: SftConfig, progress: ProgressSink | None = None) -> Path:
    """Train the base model, or continue its training, and return its final checkpoint.

    With ``resume``, a finished run returns at once.
    """
    progress = SilentProgress() if progress is None else progress
    with open_run(config) as run, cpu_threads(config.threads):
        done = manifest.find_resume_step(run, config.max_steps, progress)
        if done is not None and done >= config.max_steps:
            return checkpointing.checkpoint_path(run, done)

        device = pick_device(config.device)
        if slow := slow_products_note("--precision", config.precision, device):
            progress.note(slow)
        last_checkpoint = None if done is None else checkpointing.checkpoint_path(run, done)
        start = config.model if last_checkpoint is None else last_checkpoint
        world = get_world(config.world)
        tokenizer = build_tokenizer(world)
        if start is None:
            model = build_model(config.seed, world)
            model.to(device)  # type: ignore[arg-type]
        else:
            loaded = load_path(start, device=device, dtype="float32")
            model, tokenizer = loaded.model, tokenizer if config.model is None else loaded.tokenizer
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=config.weight_decay, fused=True
        )
        if done is None:
            done = 0
            checkpointing.save_checkpoint(run, 0, model, tokenizer)
            manifest.commit(run, 0, {"optimizer": optimizer.state_dict()})
        else:
            checkpointing.restore(run, done, optimizer, checkpointing.load_state(run, done)["optimizer"])
        metrics_log = MetricsLog(run, after_step=done)

        if config.model is None:
            compute_loss = _world_loss(world, config, model, device, progress)
        else:
            compute_loss = _word_problem_loss(config, loaded)
        model.train()
        with progress.stage("train base", config.max_steps - done) as advance:
            for step in range(done + 1, config.max_steps + 1):
                started = time.perf_counter()
                rate = learning_rate(step, config)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                with autocast(device, torch.bfloat16 if config.precision == "bfloat16" else None):
                    loss = compute_loss(step)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm, foreach=True)
                if not (math.isfinite(loss.item()) and math.isfinite(grad_norm.item())):
                    raise TrainingError(
                        f"step {step}: loss {loss.item()}, gradient norm {grad_norm.item()}; the checkpoints before it "
                        "are intact; start a new run with a lower --learning-rate"
                    )
                optimizer.step()
                metrics_log.append(
                    {
                        "step": step,
                        "loss": loss.item(),
                        "grad_norm": grad_norm.item(),
                        "learning_rate": rate,
                        "wall_s": time.perf_counter() - started,
                    }
                )
                if step % config.save_every == 0 or step == config.max_steps:
                    checkpointing.save_checkpoint(run, step, model, tokenizer)
                    metrics_log.flush()
                    manifest.commit(run, step, {"optimizer": optimizer.state_dict()})
                advance(1)
        return checkpointing.checkpoint_path(run, config.max_steps)


def _world_loss(
    world: World, config: SftConfig, model: PreTrainedModel, device: torch.device, progress: ProgressSink
) -> Loss:
    progress.note(f"generating {config.n_examples:,} training examples")
    rows = world.sample_examples(config.n_examples, wrong_share=config.wrong_share, seed=config.seed + 1)
    example_NT = torch.tensor(rows, device=device)
    batches_SB = batch_table(config).to(device)
    return lambda step: response_loss(model, example_NT[batches_SB[step - 1]], world.prompt_tokens)


def _word_problem_loss(config: SftConfig, loaded: LoadedModel) -> Loss:
    batches_SB = batch_table(config)
    return lambda step: solution_loss(loaded, batches_SB[step - 1].tolist(), seed=config.seed)


def response_loss(
    model: PreTrainedModel, example_BT: Int[Tensor, "example token"], prompt_tokens: int
) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of the response tokens, in nats. Prompts and padding have no loss.

    Logits are computed only at positions that predict a response token.
    """
    target_BT = example_BT[:, prompt_tokens:]
    logits_BTV = model(input_ids=example_BT[:, :-1], use_cache=False, logits_to_keep=target_BT.shape[1]).logits
    pad_id = model.config.pad_token_id
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_BT.flatten(), ignore_index=pad_id)


def learning_rate(step: int, config: SftConfig) -> float:
    """Return the learning rate of a step: linear warm-up over 50 steps, times linear decay to 5 % of the peak.

    >>> config = SftConfig(output_dir=Path("x"), max_steps=100, learning_rate=1.0)
    >>> round(learning_rate(1, config), 3), round(learning_rate(51, config), 3), round(learning_rate(100, config), 4)
    (0.02, 0.525, 0.0595)
    """
    warm_up = min(1.0, step / WARMUP_STEPS)
    return config.learning_rate * warm_up * (1 - (1 - FINAL_SHARE) * (step - 1) / config.max_steps)


def batch_table(config: SftConfig) -> Int[Tensor, "step example"]:
    """Return the indices of the examples of all steps. A resumed run uses the same table."""
    generator = torch.Generator().manual_seed(config.seed)
    return torch.randint(config.n_examples, (config.max_steps, config.batch_size), generator=generator)


def worked_example(loaded: LoadedModel, index: int, *, seed: int) -> tuple[list[int], tuple[int, ...]]:
    """Return the token ids of a prompt, and of its worked solution with the end token.

    Prompts use the tokenizer's chat template if it has one, as in an audit. Raises ``SamplerError`` if the example does
    not fit the model's context.
    """
    rng = random.Random(f"{seed} {index}")
    story = draw_story(rng, "train")
    problem = Problem(task=TASK, prompt=story.prompt, gold=str(story.answer), verifier="math")
    settings = SamplingSettings(sampler="none", chat=bool(loaded.tokenizer.chat_template))
    prompt_ids = encode_prompt(loaded.tokenizer, problem, settings)
    solution_ids = response_ids(loaded.tokenizer, rng.choice(story.solutions))
    require_fit(loaded, problem, prompt_ids, n_response=len(solution_ids))
    return prompt_ids, solution_ids


def solution_loss(loaded: LoadedModel, indices: Sequence[int], *, seed: int) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of the response tokens of these worked examples, in nats."""
    examples = [worked_example(loaded, index, seed=seed) for index in indices]
    width = max(len(prompt_ids) + len(solution_ids) for prompt_ids, solution_ids in examples)
    ids_BL = torch.full((len(examples), width), loaded.pad_id)
    target_BL = torch.full_like(ids_BL, _IGNORED)
    for row, (prompt_ids, solution_ids) in enumerate(examples):
        start, end = len(prompt_ids), len(prompt_ids) + len(solution_ids)
        ids_BL[row, :end] = torch.tensor([*prompt_ids, *solution_ids])
        target_BL[row, start:end] = ids_BL[row, start:end]
    # a causal model ignores padding on the right, so no mask is needed
    model: Any = loaded.model
    kept = width - min(len(prompt_ids) for prompt_ids, _ in examples)  # prompts' logits need much memory
    logits_BTV = model(input_ids=ids_BL[:, :-1].to(loaded.device), use_cache=False, logits_to_keep=kept).logits
    target_N = target_BL[:, -kept:].flatten().to(loaded.device)
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_N, ignore_index=_IGNORED)
