"""Prepare a run: models, optimizer and engine, new or restored from an interrupted run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch

from oversharp.diagnostics.models.devices import pick_device
from oversharp.diagnostics.models.load import LoadedModel, load_path, model_folder
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.trainers.checking import (
    checked_start,
    first_model,
    model_outlines,
    needs_reference,
    own_base,
    policy_source,
)
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.device_memory import EngineFootprint, measure_footprint, plan_device_memory
from oversharp.trainers.model.policy import forward_settings, policy_network, prepare_policy, reference_network
from oversharp.trainers.objectives.contract import Objective
from oversharp.trainers.rollouts.engine import OwnEngine, RolloutEngine
from oversharp.trainers.rollouts.memory_network import BETAS, MemoryNetwork
from oversharp.trainers.run import checkpointing, manifest
from oversharp.trainers.run.directory import run_parts
from oversharp.trainers.run.model_card import card_record, model_card
from oversharp.trainers.seeds import batch_positions, stream_seed
from oversharp.trainers.sft import train_base
from oversharp.trainers.step import Learner


def prepare(config: TrainConfig, objective: Objective, run: Path, done: int | None, says: ProgressSink) -> Learner:
    """Return the state of a run: from its first model, or restored as of step ``done``.

    Raises:
        OversharpError: see ``checked_start``; raised before anything is trained.
        TrainingError: the run does not fit the device's memory.
    """
    device = pick_device(config.device)
    untrained = own_base(config).output_dir if config.model is None else None
    with model_outlines(untrained=untrained) as outline:
        run_prompts = checked_start(config, objective, policy_source(config, done), outline, says)
    resumed = None if done is None else checkpointing.checkpoint_path(run, done)
    # an adapter always applies to the model that the run started from
    start = starting_model(config, says) if resumed is None or config.lora_rank else resumed
    # evaluation mode, because dropout would make sampler and trainer different policies
    policy = prepare_policy(config, load_path(start, device=device, dtype="float32"), adapter_path=resumed)
    if resumed is None:
        save(run, 0, policy, config, objective, metrics={})
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

    # passes of other sizes round differently: a resumed run keeps the size that it started with
    state = None if done is None else checkpointing.load_state(run, done)
    rows_per_pass = None if state is None else cast("int | None", state.get("rows_per_pass"))
    longest_prompt = max(map(len, (*run_prompts.prompts, *run_prompts.validation_prompts)))
    network = policy_network(config, policy)
    whole = forward_settings(config, rows_per_pass=None)
    plan = plan_device_memory(
        measure_footprint(network, whole),
        config,
        prompt_tokens=longest_prompt,
        device=device,
        rows_per_pass=rows_per_pass,
        memory_network=None if memory_network is None else measure_footprint(memory_network.network, whole),
        engine=engine_beside(config, policy, memory_network, first, longest_prompt=longest_prompt),
        rehearsal_samples=0 if objective.rehearsal is None else objective.rehearsal.samples_per_prompt,
    )
    says.note(plan.sentence())
    if not plan.fits:
        says.note("continuing with the original responses per pass; if memory runs out, free some and resume")

    if done is not None and state is not None:
        checkpointing.restore(run, done, optimizer, state["optimizer"])
        if memory_network is not None:
            checkpointing.restore(run, done, memory_network, state.get("memory_network"))
    elif memory_network is not None:
        warm_start(memory_network, policy, run_prompts.prompts, config, rows_per_pass=plan.rows_per_pass)
    learner = Learner(
        config=config,
        objective=objective,
        problems=run_prompts.problems,
        validation=run_prompts.validation,
        policy=policy,
        network=network,
        optimizer=optimizer,
        engine=rollout_engine(
            config,
            policy,
            memory_network,
            first,
            longest_prompt=longest_prompt,
            rows_per_part=plan.rows_per_pass,
            cache_bytes=plan.engine_cache,
        ),
        reference_network=reference_network(config, network, reference) if needs_reference(objective) else None,
        # the reference never changes, so one engine with its buffers serves the whole run
        rehearsal_engine=OwnEngine(reference or policy, rows_per_part=plan.rows_per_pass)
        if objective.rehearsal is not None
        else None,
        memory_network=memory_network,
        forward=forward_settings(config, rows_per_pass=plan.rows_per_pass),
    )
    if done is None:
        manifest.commit(run, 0, states(learner))
    return learner


def warm_start(
    memory_network: MemoryNetwork,
    policy: LoadedModel,
    prompts: Sequence[Sequence[int]],
    config: TrainConfig,
    *,
    rows_per_pass: int | None,
) -> None:
    """Train the memory network for ``warm_start_steps`` steps on samples of the policy, at the start of a run.

    Prompt order and noise come from separate random streams.
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


def save(
    run: Path,
    step: int,
    policy: LoadedModel,
    config: TrainConfig,
    objective: Objective,
    *,
    metrics: Mapping[str, float | int],
) -> None:
    """Save the checkpoint of ``step`` with its model card."""
    record = card_record(config, objective, step=step, metrics=metrics, parts=run_parts(run))
    checkpointing.save_checkpoint(run, step, policy.model, policy.tokenizer, card=model_card(record))


def engine_beside(
    config: TrainConfig, policy: LoadedModel, memory_network: MemoryNetwork | None, first: Path, *, longest_prompt: int
) -> EngineFootprint | None:
    """Return the memory of the engine of ``rollout_engine`` next to the trainer; None for the own decoder."""
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


def rollout_engine(
    config: TrainConfig,
    policy: LoadedModel,
    memory_network: MemoryNetwork | None,
    first: Path,
    *,
    longest_prompt: int,
    rows_per_part: int | None,
    cache_bytes: float | None,
) -> RolloutEngine:
    """Return the rollout engine of this run; ``first`` is the folder of a full model with the policy's architecture."""
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


def states(learner: Learner) -> dict[str, object]:
    """Return the state to save besides the policy's weights: everything that seed and step do not determine."""
    state: dict[str, object] = {
        "optimizer": learner.optimizer.state_dict(),
        "rows_per_pass": learner.forward.micro_batch,
    }
    if learner.memory_network is not None:
        state["memory_network"] = learner.memory_network.state_dict()
    return state


def starting_model(config: TrainConfig, progress: ProgressSink) -> str:
    """Return the given model, else the base of the built-in task, which is trained now if it does not exist."""
    if config.model is None:
        train_base(own_base(config), progress)
    return first_model(config)
