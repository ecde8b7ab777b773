"""The training loop: on-policy reinforcement learning with verifiable rewards, one update per batch of rollouts."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from diagnostics.errors import ConfigError
from diagnostics.models import cpu_threads
from diagnostics.progress import ProgressSink, SilentProgress
from diagnostics.verifiers import Verifiers
from trainers import checkpointing, objectives
from trainers.config import TrainConfig, settings_of
from trainers.objectives.contract import GroupedRewards, Objective
from trainers.run_directory import MetricsLog, RolloutRow, opened, write_rollouts
from trainers.starting import needs_reference, prepare, save, states
from trainers.step import train_step
from trainers.trackers import open_tracker, require_tracker
from trainers.warning_signs import course_so_far, new_signs


def train(config: TrainConfig, progress: ProgressSink | None = None) -> Path:
    """Run or continue the training that ``config`` describes and return its run directory.

    The directory is a checkpoint series: ``checkpoint-0`` (the model it started from), then one every
    ``save_every`` steps. A finished run with ``resume`` returns at once.
    """
    says = SilentProgress() if progress is None else progress
    require_tracker(config.tracker)
    objective = checked_objective(config)
    for part in objective.parts:
        if part.caution:
            says.note(f"{config.algorithm}: {part.caution}")
    with opened(config) as run, cpu_threads(config.threads), Verifiers() as verifiers:
        done = checkpointing.committed_step(run)
        if done is not None and done >= config.max_steps:
            says.note(f"{run}: finished at step {done}, nothing to do")
            return run

        learner = prepare(config, objective, run, done, says)
        done = done or 0
        metrics_log = MetricsLog(run, after_step=done)
        tracker = open_tracker(config.tracker, run, after_step=done, settings=settings_of(config))
        course = course_so_far(run, done)
        rows: list[RolloutRow] = []
        try:
            with says.stage(f"train {config.algorithm}", config.max_steps - done) as advance:
                for step in range(done + 1, config.max_steps + 1):
                    started = time.perf_counter()
                    outcome = train_step(learner, step, verifiers)
                    wall_s = time.perf_counter() - started
                    n_samples = config.batch_prompts * config.group_size
                    metrics = {**outcome.metrics, "wall_s": wall_s, "samples_per_s": n_samples / wall_s}
                    course.append(metrics)
                    for sign in new_signs(course):
                        says.note(sign.text)
                    metrics_log.append(metrics)
                    tracker.log(step, metrics)
                    rows += outcome.rows
                    if step % config.save_every == 0 or step == config.max_steps:
                        write_rollouts(run, step, rows)
                        rows = []
                        save(run, step, learner.policy, config, objective, metrics=metrics)
                        metrics_log.flush()
                        checkpointing.save_state(run, step, states(learner))
                    advance(1)
        finally:
            learner.engine.close()
            tracker.close()
        return run


def checked_objective(config: TrainConfig) -> Objective:
    """The objective of a run. Raises ``ConfigError`` where it cannot work with the run's other settings."""
    objective = objectives.parse(config.algorithm)
    alone_PG = torch.zeros(1, config.group_size, dtype=torch.float64)
    nothing_PG = torch.zeros_like(alone_PG, dtype=torch.bool)
    try:
        objective.credit(
            GroupedRewards(
                reward_PG=alone_PG,
                correct_PG=nothing_PG,
                n_tokens_PG=torch.ones_like(nothing_PG, dtype=torch.long),
                truncated_PG=nothing_PG,
                reference_logp_PG=alone_PG,
                greedy_correct_P=nothing_PG[:, 0],
            )
        )
    except ValueError as error:
        raise ConfigError(f"--algorithm {config.algorithm} with --group-size {config.group_size}: {error}") from error
    if config.reference is not None and not needs_reference(objective):
        raise ConfigError(
            f"--reference {config.reference}: no part of {config.algorithm} looks at a reference; add kl, forward_kl "
            "or reference_weighting, or leave it out"
        )
    return objective
