"""Training loop: on-policy reinforcement learning with verifiable rewards."""

from __future__ import annotations

import time
from pathlib import Path

from oversharp.diagnostics.models.devices import cpu_threads, pick_device, slow_products_note
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.trainers.checking import checked_objective, correct_note, never_validated, rounding_note
from oversharp.trainers.config import TrainConfig, settings_of
from oversharp.trainers.objectives import composition
from oversharp.trainers.run import checkpointing, manifest
from oversharp.trainers.run.directory import MetricsLog, RolloutRow, open_run, write_rollouts
from oversharp.trainers.run.trackers import open_tracker, require_tracker
from oversharp.trainers.starting import prepare, save, states
from oversharp.trainers.step import train_step
from oversharp.trainers.validation import validate
from oversharp.trainers.warning_signs import first_steps_note, new_signs


def train(config: TrainConfig, progress: ProgressSink | None = None) -> Path:
    """Run or continue the training of ``config`` and return its run directory.

    The directory is a checkpoint series: ``checkpoint-0`` (the initial model), then one checkpoint every ``save_every``
    steps. A finished run with ``resume`` returns at once.
    """
    says = SilentProgress() if progress is None else progress
    require_tracker(config.tracker)
    objective = checked_objective(config)
    for caution in composition.cautions(objective):
        says.note(f"{config.algorithm}: {caution}")
    slow = slow_products_note("--precision", config.precision, pick_device(config.device))
    for note in (slow, rounding_note(config), correct_note(config), never_validated(config)):
        if note is not None:
            says.note(note)
    with open_run(config) as run, cpu_threads(config.threads), Verifiers() as verifiers:
        done = checkpointing.committed_step(run)
        if done is not None:
            for line in manifest.require_intact(run, done, finished=done >= config.max_steps):
                says.note(line)
        if done is not None and done >= config.max_steps:
            says.note(f"{run}: finished at step {done}, nothing to do")
            return run

        learner = prepare(config, objective, run, done, says)
        done = done or 0
        metrics_log = MetricsLog(run, after_step=done)
        tracker = open_tracker(config.tracker, run, after_step=done, settings=settings_of(config))
        rows: list[RolloutRow] = []
        try:
            with says.stage(f"train {config.algorithm}", config.max_steps - done) as advance:
                for step in range(done + 1, config.max_steps + 1):
                    started = time.perf_counter()
                    outcome = train_step(learner, step, verifiers)
                    wall_s = time.perf_counter() - started
                    samples_per_s = outcome.metrics["samples_drawn"] / wall_s
                    metrics = {**outcome.metrics, "wall_s": wall_s, "samples_per_s": samples_per_s}
                    if config.validate_every is not None and step % config.validate_every == 0:
                        metrics |= validate(learner, step, verifiers)
                    metrics_log.append(metrics)
                    for sign in new_signs(metrics_log.course):
                        says.note(sign.text)
                    if (note := first_steps_note(metrics_log.course)) is not None:
                        says.note(note)
                    tracker.log(step, metrics)
                    rows += outcome.rows
                    if step % config.save_every == 0 or step == config.max_steps:
                        write_rollouts(run, step, rows)
                        rows = []
                        save(run, step, learner.policy, config, objective, metrics=metrics)
                        metrics_log.flush()
                        manifest.commit(run, step, states(learner))
                    advance(1)
        finally:
            learner.engine.close()
            tracker.close()
        return run
