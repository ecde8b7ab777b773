"""The training loop: on-policy reinforcement learning with verifiable rewards, one update per batch of rollouts."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from diagnostics.errors import TrainingError
from diagnostics.models import LoadedModel, cpu_threads, encode_prompt, left_padded, load_path, pick_device
from diagnostics.progress import ProgressSink, SilentProgress
from diagnostics.tasks import countdown, load_problems
from diagnostics.types import Grade, Problem
from diagnostics.verifiers import Verifiers
from trainers import checkpointing, objectives
from trainers.config import SftConfig, TrainConfig
from trainers.objectives.contract import NORMALISATION_PRESETS, AdvantageSettings, is_constant
from trainers.rollout import RolloutBatch, generate_in_parts, uniform_noise
from trainers.run_directory import MetricsLog, RolloutRow, opened, write_rollouts
from trainers.seeds import batch_positions, stream_seed
from trainers.sft import train_base
from trainers.update import backward

BETAS = (0.9, 0.999)


def train(config: TrainConfig, progress: ProgressSink | None = None) -> Path:
    """Run or continue the training that ``config`` describes and return its run directory.

    The directory is a checkpoint series: ``checkpoint-0`` (the model it started from), then one every
    ``save_every`` steps. A finished run with ``resume`` returns at once.
    """
    says = SilentProgress() if progress is None else progress
    with opened(config) as run, cpu_threads(config.threads), Verifiers() as verifiers:
        done = checkpointing.committed_step(run)
        if done is not None and done >= config.max_steps:
            says.note(f"{run}: finished at step {done}, nothing to do")
            return run

        device = pick_device(config.device)
        problems = training_problems(config)
        start = starting_model(config, says) if done is None else checkpointing.checkpoint_path(run, done)
        # stays in evaluation mode: dropout would make the sampler and the trainer two different policies
        policy = load_path(start, device=device, dtype="float32")
        optimizer = torch.optim.AdamW(
            policy.model.parameters(),
            lr=config.learning_rate,
            betas=BETAS,
            weight_decay=config.weight_decay,
            fused=True,
        )
        if done is None:
            done = 0
            checkpointing.save_checkpoint(run, 0, policy.model, policy.tokenizer)
            checkpointing.save_state(run, 0, optimizer)
        else:
            checkpointing.load_state(run, done, optimizer)
        metrics_log = MetricsLog(run, after_step=done)
        rows: list[RolloutRow] = []

        with says.stage(f"train {config.algorithm}", config.max_steps - done) as advance:
            for step in range(done + 1, config.max_steps + 1):
                started = time.perf_counter()
                outcome = train_step(config, step, problems, policy, optimizer, verifiers)
                wall_s = time.perf_counter() - started
                n_samples = config.batch_prompts * config.group_size
                metrics_log.append({**outcome.metrics, "wall_s": wall_s, "samples_per_s": n_samples / wall_s})
                rows += outcome.rows
                if step % config.save_every == 0 or step == config.max_steps:
                    write_rollouts(run, step, rows)
                    rows = []
                    checkpointing.save_checkpoint(run, step, policy.model, policy.tokenizer)
                    metrics_log.flush()
                    checkpointing.save_state(run, step, optimizer)
                advance(1)
        return run


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """What one step leaves behind: a line of ``metrics.jsonl`` and its rollouts."""

    metrics: dict[str, float | int]
    rows: list[RolloutRow]


def train_step(
    config: TrainConfig,
    step: int,
    problems: Sequence[Problem],
    policy: LoadedModel,
    optimizer: torch.optim.Optimizer,
    verifiers: Verifiers,
) -> StepOutcome:
    """Rollouts, rewards, advantages, one optimizer step. Raises ``TrainingError`` if the loss is not finite."""
    chosen = [
        problems[position]
        for position in batch_positions(config.seed, step, n_problems=len(problems), batch_prompts=config.batch_prompts)
    ]
    rollouts = sample(config, step, chosen, policy)
    texts = policy.tokenizer.batch_decode(_unpadded(rollouts), skip_special_tokens=True)
    asked = [problem for problem in chosen for _ in range(config.group_size)]
    grades = verifiers.grade(list(zip(asked, texts, strict=True)))

    reward_PG, correct_PG = as_groups(grades, config.group_size)
    ddof, eps = NORMALISATION_PRESETS[config.advantage_normalisation]
    settings = AdvantageSettings(
        ddof=ddof, eps=eps, iac_alpha=config.iac_alpha, iac_scale_matched=config.iac_scale_matched
    )
    advantage_PG = objectives.get(config.algorithm).advantages(reward_PG, correct_PG, settings)
    advantage_B = advantage_PG.flatten()

    optimizer.zero_grad(set_to_none=True)
    loss = backward(
        policy.model,
        rollouts,
        advantage_B.float().to(policy.device),
        temperature=config.temperature,
        micro_batch=config.micro_batch,
    )
    grad_norm = float(torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.max_grad_norm, foreach=True))
    entropy_sum = float(rollouts.entropy_sum_B.double().sum())
    if not all(map(math.isfinite, (loss, grad_norm, entropy_sum))):
        raise TrainingError(
            f"step {step}: loss {loss}, gradient norm {grad_norm}, summed entropy {entropy_sum}; "
            f"the checkpoints before it are intact, start anew with a lower --learning-rate"
        )
    n_used = int((advantage_B != 0).sum())
    if n_used:  # a step of zero gradient would still move the weights by Adam's momentum
        optimizer.step()

    n_tokens = int(rollouts.n_tokens_B.sum())
    metrics: dict[str, float | int] = {
        "step": step,
        "reward_mean": float(reward_PG.mean()),
        "correct_rate": float(correct_PG.double().mean()),
        "frac_zero_std": float(is_constant(reward_PG).double().mean()),
        "advantage_abs_mean": float(advantage_PG.abs().mean()),
        "samples_skipped": len(advantage_B) - n_used,
        "loss": loss,
        "grad_norm": grad_norm,
        "learning_rate": config.learning_rate,
        "token_entropy_nats": entropy_sum / n_tokens,
        "response_tokens_mean": n_tokens / len(advantage_B),
        "truncation_rate": float(rollouts.truncated_B.double().mean()),
        "ungraded_rate": sum(grade.state != "ok" for grade in grades) / len(grades),
    }
    return StepOutcome(metrics=metrics, rows=rollout_rows(step, asked, texts, grades, advantage_B, rollouts))


def sample(config: TrainConfig, step: int, chosen: Sequence[Problem], policy: LoadedModel) -> RolloutBatch:
    """``group_size`` rollouts of each problem, with the noise that belongs to this step."""
    prompt_rows = [encode_prompt(policy.tokenizer, problem, config) for problem in chosen]
    prompt_ids_PL, prompt_mask_PL = left_padded(prompt_rows, policy)
    n_rows = len(chosen) * config.group_size
    noise_BT = uniform_noise(stream_seed(config.seed, "rollouts", step), rows=n_rows, max_tokens=config.used_max_tokens)
    rows_per_part = config.micro_batch or n_rows
    return generate_in_parts(
        policy.model,
        prompt_ids_PL,
        prompt_mask_PL,
        noise_BT,
        prompts_per_part=max(1, rows_per_part // config.group_size),
        temperature=config.temperature,
        end_ids=policy.end_ids,
        pad_id=policy.pad_id,
    )


def as_groups(
    grades: Sequence[Grade], group_size: int
) -> tuple[Float[Tensor, "prompt group"], Bool[Tensor, "prompt group"]]:
    """Rewards and verdicts of prompt-major grades, one row per prompt."""
    reward_B = torch.tensor([grade.reward for grade in grades], dtype=torch.float64)
    correct_B = torch.tensor([grade.correct for grade in grades])
    return reward_B.view(-1, group_size), correct_B.view(-1, group_size)


def rollout_rows(
    step: int,
    asked: Sequence[Problem],
    texts: Sequence[str],
    grades: Sequence[Grade],
    advantage_B: Float[Tensor, " row"],
    rollouts: RolloutBatch,
) -> list[RolloutRow]:
    """The rollouts of one step as rows of the Parquet file."""
    id_of = {id(problem): problem.problem_id for problem in asked}
    columns = zip(
        asked,
        texts,
        grades,
        advantage_B.tolist(),
        rollouts.n_tokens_B.tolist(),
        rollouts.truncated_B.tolist(),
        rollouts.logp_sum_B.tolist(),
        strict=True,
    )
    return [
        RolloutRow(
            step=step,
            problem_id=id_of[id(problem)],
            sample_index=position % rollouts.group_size,
            prompt=problem.prompt,
            response=text,
            reward=grade.reward,
            correct=grade.correct,
            state=grade.state,
            advantage=advantage,
            n_tokens=n_tokens,
            truncated=truncated,
            logp_sum=logp_sum,
        )
        for position, (problem, text, grade, advantage, n_tokens, truncated, logp_sum) in enumerate(columns)
    ]


def starting_model(config: TrainConfig, progress: ProgressSink) -> str | Path:
    """The model named, else the base of the built-in task, trained now unless it lies there already."""
    if config.model is not None:
        return config.model
    return train_base(
        SftConfig(
            output_dir=config.output_dir / "base",
            seed=config.seed,
            resume=True,
            device=config.device,
            threads=config.threads,
        ),
        progress,
    )


def training_problems(config: TrainConfig) -> tuple[Problem, ...]:
    """The problems to train on; never the held-out ones of the built-in task."""
    if config.trains_on_countdown:
        return countdown.problems(split="train", limit=config.limit)
    # a stream of its own: problems generated for the audit come from its plain seed and stay unseen
    seed = stream_seed(config.seed, "problems") % 2**31
    return load_problems(config.problems, config.task, limit=config.limit, seed=seed)


def _unpadded(rollouts: RolloutBatch) -> list[list[int]]:
    ids, lengths = rollouts.response_ids_BT.tolist(), rollouts.n_tokens_B.tolist()
    return [row[:length] for row, length in zip(ids, lengths, strict=True)]
