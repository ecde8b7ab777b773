"""Supervised training: the base of Countdown-mini from random weights, or a pretrained model on word problems."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from oversharp.diagnostics.models.devices import cpu_threads, pick_device, slow_products_note
from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers import countdown_base
from oversharp.trainers.config import SftConfig
from oversharp.trainers.model.forward import autocast
from oversharp.trainers.run import checkpointing, manifest
from oversharp.trainers.run.directory import MetricsLog, open_run
from oversharp.trainers.warm_start import WarmStart

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Function (model, step) → loss.
Loss = Callable[["PreTrainedModel", int], Tensor]

BETAS = (0.9, 0.98)
WARMUP_STEPS = 50
FINAL_SHARE = 0.05


def train_base(config: SftConfig, progress: ProgressSink | None = None) -> Path:
    """Train the base model, or continue its training, and return its final checkpoint.

    A finished run with ``resume`` returns at once.
    """
    says = SilentProgress() if progress is None else progress
    with open_run(config) as run, cpu_threads(config.threads):
        done = checkpointing.committed_step(run)
        if done is not None:
            for line in manifest.require_intact(run, done, finished=done >= config.max_steps):
                says.note(line)
        if done is not None and done >= config.max_steps:
            says.note(f"{run}: finished at step {done}, nothing to do")
            return checkpointing.checkpoint_path(run, done)

        device = pick_device(config.device)
        if slow := slow_products_note("--precision", config.precision, device):
            says.note(slow)
        last_checkpoint = None if done is None else checkpointing.checkpoint_path(run, done)
        start = config.model if last_checkpoint is None else last_checkpoint
        tokenizer = countdown_base.build_tokenizer()
        if start is None:
            model = countdown_base.build_model(config.seed)
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

        loss_of = _own_loss(config, device, says) if config.model is None else _worded_loss(config, loaded)
        model.train()
        with says.stage("train base", config.max_steps - done) as advance:
            for step in range(done + 1, config.max_steps + 1):
                started = time.perf_counter()
                rate = learning_rate(step, config)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                with autocast(device, torch.bfloat16 if config.precision == "bfloat16" else None):
                    loss = loss_of(model, step)
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


def _own_loss(config: SftConfig, device: torch.device, says: ProgressSink) -> Loss:
    says.note(f"generating {config.n_examples:,} training examples")
    train_queries, _ = countdown.split_queries()
    rows = countdown_base.examples(
        train_queries, config.n_examples, wrong_share=config.wrong_share, seed=config.seed + 1
    )
    example_NT = torch.tensor(rows, device=device)
    batches_SB = batch_table(config).to(device)
    return lambda model, step: response_loss(model, example_NT[batches_SB[step - 1]])


def _worded_loss(config: SftConfig, loaded: LoadedModel) -> Loss:
    batches_SB = batch_table(config)
    pool = WarmStart(loaded, seed=config.seed)
    return lambda model, step: pool.loss(model, batches_SB[step - 1].tolist())


def response_loss(model: PreTrainedModel, example_BT: Int[Tensor, "example token"]) -> Float[Tensor, ""]:
    """Return the mean negative log-probability of the response tokens, in nats; prompts have no loss.

    The head only runs at positions that predict a response token.
    """
    target_BT = example_BT[:, countdown_base.PROMPT_TOKENS :]
    logits_BTV = model(input_ids=example_BT[:, :-1], use_cache=False, logits_to_keep=target_BT.shape[1]).logits
    return functional.cross_entropy(logits_BTV.flatten(0, 1).float(), target_BT.flatten())


def learning_rate(step: int, config: SftConfig) -> float:
    """Return the learning rate: linear warm-up over 50 steps times linear decay to 5 % of the peak.

    >>> config = SftConfig(output_dir=Path("x"), max_steps=100, learning_rate=1.0)
    >>> round(learning_rate(1, config), 3), round(learning_rate(51, config), 3), round(learning_rate(100, config), 4)
    (0.02, 0.525, 0.0595)
    """
    warm_up = min(1.0, step / WARMUP_STEPS)
    return config.learning_rate * warm_up * (1 - (1 - FINAL_SHARE) * (step - 1) / config.max_steps)


def batch_table(config: SftConfig) -> Int[Tensor, "step example"]:
    """Return the example indices of all steps at once, so that a resumed run uses the same ones."""
    generator = torch.Generator().manual_seed(config.seed)
    return torch.randint(config.n_examples, (config.max_steps, config.batch_size), generator=generator)
