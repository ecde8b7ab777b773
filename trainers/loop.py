"""Training loop of on-policy RL with verifiable rewards: prepare or resume a run, train, validate, save."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import torch

from oversharp.diagnostics.models.devices import cpu_threads, pick_device, slow_products_note
from oversharp.diagnostics.models.load import LoadedModel, load_path, model_folder
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.trainers.checking import (
    base_config,
    check_objective,
    check_start,
    correct_note,
    first_model,
    model_outlines,
    needs_reference,
    policy_source,
    rounding_note,
    validation_note,
)
from oversharp.trainers.config import TrainConfig, settings_of
from oversharp.trainers.model.device_memory import (
    EngineFootprint,
    MemoryNeeds,
    free_bytes,
    measure_footprint,
    plan_device_memory,
)
from oversharp.trainers.model.policy import forward_settings, policy_network, prepare_policy, reference_network
from oversharp.trainers.objectives import composition
from oversharp.trainers.objectives.contract import Objective
from oversharp.trainers.rollouts.engine import OwnEngine, RolloutEngine
from oversharp.trainers.rollouts.memory_network import BETAS, MemoryNetwork
from oversharp.trainers.run import checkpointing, manifest
from oversharp.trainers.run.directory import MetricsLog, RolloutRow, open_run, run_parts, write_rollouts
from oversharp.trainers.run.model_card import model_card
from oversharp.trainers.run.trackers import open_tracker, require_tracker
from oversharp.trainers.seeds import batch_positions, stream_seed
from oversharp.trainers.sft import train_base
from oversharp.trainers.step import Learner, grade_rollouts, is_correct, train_step
from oversharp.trainers.warning_signs import first_steps_note, new_signs


def train(config: TrainConfig, progress: ProgressSink | None = None) -> Path:
    """Run or continue the training of ``config`` and return its run directory.

    The directory is a checkpoint series: ``checkpoint-0`` (the initial model), then one checkpoint every ``save_every``
    steps. With ``resume``, a finished run returns at once.
    """
    progress = SilentProgress() if progress is None else progress
    require_tracker(config.tracker)
    objective = check_objective(config)
    for caution in composition.find_cautions(objective):
        progress.note(f"{config.algorithm}: {caution}")
    slow = slow_products_note("--precision", config.precision, pick_device(config.device))
    for note in (slow, rounding_note(config), correct_note(config), validation_note(config)):
        if note is not None:
            progress.note(note)
    with open_run(config) as run, cpu_threads(config.threads), Verifiers() as verifiers:
        done = manifest.find_resume_step(run, config.max_steps, progress)
        if done is not None and done >= config.max_steps:
            return run

        learner = prepare_run(config, objective, run, done, progress)
        done = done or 0
        metrics_log = MetricsLog(run, after_step=done)
        rows: list[RolloutRow] = []
        with (
            open_tracker(config.tracker, run, after_step=done, settings=settings_of(config)) as log_metrics,
            closing(learner.engine),
            progress.stage(f"train {config.algorithm}", config.max_steps - done) as advance,
        ):
            for step in range(done + 1, config.max_steps + 1):
                started = time.perf_counter()
                outcome = train_step(learner, step, verifiers)
                wall_s = time.perf_counter() - started
                samples_per_s = outcome.metrics["samples_drawn"] / wall_s
                metrics = {**outcome.metrics, "wall_s": wall_s, "samples_per_s": samples_per_s}
                if config.validate_every is not None and step % config.validate_every == 0:
                    metrics |= validate(learner, step, verifiers)
                metrics_log.append(metrics)
                for sign in new_signs(metrics_log.history):
                    progress.note(sign.text)
                if (note := first_steps_note(metrics_log.history)) is not None:
                    progress.note(note)
                log_metrics(step, metrics)
                rows += outcome.rows
                if step % config.save_every == 0 or step == config.max_steps:
                    write_rollouts(run, step, rows)
                    rows = []
                    save_step(run, step, learner.policy, config, objective, metrics=metrics)
                    metrics_log.flush()
                    manifest.commit(run, step, collect_state(learner))
                advance(1)
        return run


def prepare_run(
    config: TrainConfig, objective: Objective, run: Path, done: int | None, progress: ProgressSink
) -> Learner:
    """Return the state of a new run, or of a run resumed after step ``done``.

    Raises:
        OversharpError: see ``check_start``. It is raised before anything is trained.
        TrainingError: the run does not fit the device's memory.
    """
    device = pick_device(config.device)
    untrained = base_config(config) if config.model is None else None
    with model_outlines(untrained=untrained) as outline:
        run_prompts = check_start(config, objective, policy_source(config, done), outline, progress)
    resumed = None if done is None else checkpointing.checkpoint_path(run, done)
    # with LoRA, load the model that the run started from, because the adapter applies to it
    if resumed is not None and not config.lora_rank:
        start: str | Path = resumed
    else:
        if config.model is None:
            train_base(base_config(config), progress)
        start = first_model(config)
    # load_path sets evaluation mode: with dropout, sampler and trainer would be different policies
    policy = prepare_policy(config, load_path(start, device=device, dtype="float32"), adapter_path=resumed)
    if resumed is None:
        save_step(run, 0, policy, config, objective, metrics={})
    first = model_folder(start) if config.lora_rank else checkpointing.checkpoint_path(run, 0)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in policy.model.parameters() if parameter.requires_grad],
        lr=config.learning_rate,
        betas=BETAS,
        weight_decay=config.weight_decay,
        fused=True,
    )
    memory_network = None
    if objective.decoding is not None:
        memory_network = MemoryNetwork(
            objective.decoding,
            policy,
            start=first,
            learning_rate=config.learning_rate,
            recompute=config.gradient_checkpointing,
        )
    own_reference = needs_reference(objective) and (config.reference is not None or not config.lora_rank)
    reference = load_path(config.reference or first, device=device, dtype="float32") if own_reference else None

    # a resumed run keeps its number of responses per pass, because passes of another size round differently
    state = None if done is None else checkpointing.load_state(run, done)
    rows_per_pass = None if state is None else cast("int | None", state.get("rows_per_pass"))
    longest_prompt = max(map(len, (*run_prompts.prompts, *run_prompts.validation_prompts)))
    network = policy_network(config, policy)
    whole = forward_settings(config, rows_per_pass=None)
    needs = MemoryNeeds(
        footprint=measure_footprint(network, whole),
        config=config,
        prompt_tokens=longest_prompt,
        device=device,
        memory_network=None if memory_network is None else measure_footprint(memory_network.network, whole),
        engine=measure_engine(config, policy, memory_network, first, longest_prompt=longest_prompt),
        rehearsal_samples=0 if objective.rehearsal is None else objective.rehearsal.samples_per_prompt,
        free=free_bytes(device),
    )
    plan = plan_device_memory(needs, rows_per_pass=rows_per_pass)
    progress.note(plan.sentence())
    if not plan.fits:
        progress.note("continuing with the original responses per pass; if memory runs out, free memory and resume")

    if done is not None and state is not None:
        checkpointing.restore(run, done, optimizer, state["optimizer"])
        if memory_network is not None:
            checkpointing.restore(run, done, memory_network, state.get("memory_network"))
    elif memory_network is not None:
        warm_up_memory(memory_network, policy, run_prompts.prompts, config, rows_per_pass=plan.rows_per_pass)
    learner = Learner(
        config=config,
        objective=objective,
        problems=run_prompts.problems,
        validation=run_prompts.validation,
        policy=policy,
        network=network,
        optimizer=optimizer,
        engine=build_engine(
            config,
            policy,
            memory_network,
            first,
            longest_prompt=longest_prompt,
            rows_per_part=plan.rows_per_pass,
            cache_bytes=plan.engine_cache,
        ),
        reference_network=reference_network(config, network, reference) if needs_reference(objective) else None,
        # the reference never changes, so one engine is enough for the whole run
        rehearsal_engine=OwnEngine(reference or policy, rows_per_part=plan.rows_per_pass)
        if objective.rehearsal is not None
        else None,
        memory_network=memory_network,
        forward=forward_settings(config, rows_per_pass=plan.rows_per_pass),
    )
    if done is None:
        manifest.commit(run, 0, collect_state(learner))
    return learner


def warm_up_memory(
    memory_network: MemoryNetwork,
    policy: LoadedModel,
    prompts: Sequence[Sequence[int]],
    config: TrainConfig,
    *,
    rows_per_pass: int | None,
) -> None:
    """Train the memory network on samples of the policy for ``warm_start_steps`` steps, before the run's first step.

    Prompt order and sampling use separate random streams.
    """
    engine = OwnEngine(policy, rows_per_part=rows_per_pass)
    order = stream_seed(config.seed, "warm start order", 0)
    for step in range(1, memory_network.warm_start_steps + 1):
        places = batch_positions(order, step, n_problems=len(prompts), batch_prompts=config.batch_prompts)
        rollouts = engine.sample(
            [prompts[place] for place in places],
            group_size=config.group_size,
            max_tokens=config.used_max_tokens,
            temperature=config.temperature,
            seed=stream_seed(config.seed, "warm start", step),
        )
        memory_network.learn(rollouts, forward_settings(config, rows_per_pass=rows_per_pass))


def save_step(
    run: Path,
    step: int,
    policy: LoadedModel,
    config: TrainConfig,
    objective: Objective,
    *,
    metrics: Mapping[str, float | int],
) -> None:
    """Save the checkpoint of the policy after ``step``, with its model card."""
    card = model_card(config, objective, step=step, metrics=metrics, parts=run_parts(run))
    checkpointing.save_checkpoint(run, step, policy.model, policy.tokenizer, card=card)


def measure_engine(
    config: TrainConfig, policy: LoadedModel, memory_network: MemoryNetwork | None, first: Path, *, longest_prompt: int
) -> EngineFootprint | None:
    """Return the memory that the rollout engine of the run needs; None for the built-in decoder."""
    if config.engine == "own":
        return None
    from oversharp.trainers.rollouts.vllm_plan import engine_footprint

    return engine_footprint(
        policy,
        memory_network,
        start=first,
        max_model_len=longest_prompt + config.used_max_tokens,
        rows=config.batch_prompts * config.group_size,
        dtype=config.precision,
    )


def build_engine(
    config: TrainConfig,
    policy: LoadedModel,
    memory_network: MemoryNetwork | None,
    first: Path,
    *,
    longest_prompt: int,
    rows_per_part: int | None,
    cache_bytes: float | None,
) -> RolloutEngine:
    """Return the rollout engine of a run. ``first`` is the folder of a full model with the policy's architecture."""
    if config.engine == "own":
        return OwnEngine(policy, memory_network=memory_network, rows_per_part=rows_per_part)
    from oversharp.trainers.rollouts.vllm_rollout import VllmRolloutEngine

    return VllmRolloutEngine(
        policy,
        start=first,
        max_model_len=longest_prompt + config.used_max_tokens,
        rows=config.batch_prompts * config.group_size,
        memory_network=memory_network,
        dtype=config.precision,
        cache_bytes=cache_bytes,
    )


def collect_state(learner: Learner) -> dict[str, object]:
    """Return the state to save in addition to the policy's weights. Seed and step determine all other state."""
    state: dict[str, object] = {
        "optimizer": learner.optimizer.state_dict(),
        "rows_per_pass": learner.forward.micro_batch,
    }
    if learner.memory_network is not None:
        state["memory_network"] = learner.memory_network.state_dict()
    return state


def validate(learner: Learner, step: int, verifiers: Verifiers) -> dict[str, float | int]:
    """Return validation metrics: pass@1, pass@n, token entropy (nats) and the share of truncated responses.

    pass@k is the unbiased estimate, averaged over problems. Sampling is as in training, but with a separate random
    stream, so that validation does not affect training. Each call to the engine samples at most as many responses as a
    training step.
    """
    config, n = learner.config, learner.config.validation_samples
    at_once = max(1, config.batch_prompts * config.group_size // n)
    correct_P: list[int] = []
    n_tokens, entropy_sum, n_truncated = 0, 0.0, 0
    for first in range(0, len(learner.validation), at_once):
        chosen = learner.validation[first : first + at_once]
        rollouts = learner.engine.sample(
            [encode_prompt(learner.policy.tokenizer, problem, config) for problem in chosen],
            group_size=n,
            max_tokens=config.used_max_tokens,
            temperature=config.temperature,
            seed=stream_seed(config.seed, f"validation {first}", step),
        )
        grades = grade_rollouts(learner, chosen, rollouts, verifiers).grades
        right = np.array([is_correct(grade, config.correct_above) for grade in grades])
        correct_P += right.reshape(-1, n).sum(axis=1).tolist()
        n_tokens += int(rollouts.n_tokens_B.sum())
        entropy_sum += float(rollouts.entropy_sum_B.double().sum())
        n_truncated += int(rollouts.truncated_B.sum())
    ks = sorted({1, n})
    passed = pass_at_k_table(n, ks)[correct_P].mean(axis=0).tolist()
    return {
        **{f"val_pass_at_{k}": value for k, value in zip(ks, passed, strict=True)},
        "val_token_entropy_nats": entropy_sum / n_tokens,
        "val_truncation_rate": n_truncated / (n * len(learner.validation)),
    }
