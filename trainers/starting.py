"""What a run starts with: models, optimizer, engine; new, or as an interrupted run left them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch

from diagnostics.models import LoadedModel, encode_prompt, load_path, pick_device
from diagnostics.progress import ProgressSink
from diagnostics.tasks import countdown, load_problems
from diagnostics.types import Problem
from trainers import checkpointing
from trainers.config import SftConfig, TrainConfig
from trainers.memory import BETAS, Memory, warm_start
from trainers.memory_estimate import measure, note_memory, plan_memory
from trainers.model_card import card_record, model_card
from trainers.objectives.contract import Objective
from trainers.policy import forward_settings, policy_network, prepare_policy, reference_network
from trainers.rollout import OwnEngine, RolloutEngine
from trainers.run_directory import environment
from trainers.seeds import stream_seed
from trainers.sft import train_base
from trainers.step import Learner


def prepare(config: TrainConfig, objective: Objective, run: Path, done: int | None, says: ProgressSink) -> Learner:
    """All that a run works on: from its first model, or as it stood after step ``done``.

    Raises ``TrainingError`` for a run that cannot fit the device's memory.
    """
    device = pick_device(config.device)
    problems = training_problems(config)
    resumed = None if done is None else checkpointing.checkpoint_path(run, done)
    # an adapter lies on the model that the run started from, whatever the step
    start = starting_model(config, says) if resumed is None or config.lora_rank else resumed
    # stays in evaluation mode: dropout would make the sampler and the trainer two different policies
    policy = prepare_policy(config, load_path(start, device=device, dtype="float32"), adapter_path=resumed)
    if resumed is None:
        save(run, 0, policy, config, objective, metrics={})
    first = Path(start) if config.lora_rank else checkpointing.checkpoint_path(run, 0)
    optimizer = torch.optim.AdamW(
        [parameter for parameter in policy.model.parameters() if parameter.requires_grad],
        lr=config.learning_rate,
        betas=BETAS,
        weight_decay=config.weight_decay,
        fused=True,
    )
    memory = None
    if objective.decoding is not None:
        memory = Memory(objective.decoding, policy, start=first, learning_rate=config.learning_rate)
    own_reference = needs_reference(objective) and (config.reference is not None or not config.lora_rank)
    reference = load_path(config.reference or first, device=device, dtype="float32") if own_reference else None

    # passes that hold other rows round otherwise: a run that goes on takes the size that it began with
    state = None if done is None else checkpointing.load_state(run, done)
    rows_per_pass = config.micro_batch if state is None else cast("int | None", state.get("rows_per_pass"))
    prompts = [encode_prompt(policy.tokenizer, problem, config) for problem in problems]
    network = policy_network(config, policy)
    plan = plan_memory(
        measure(network, forward_settings(config, rows_per_pass=None)),
        replace(config, micro_batch=rows_per_pass),
        prompt_tokens=max(map(len, prompts)),
        # gradients and two moments of the memory network are still to come
        other_weights=0 if memory is None else 3 * sum(weight.nbytes for weight in memory.model.parameters()),
        device=device,
    )
    note_memory(plan, says)

    if done is not None and state is not None:
        checkpointing.restore(run, done, optimizer, state["optimizer"])
        if memory is not None:
            checkpointing.restore(run, done, memory, state.get("memory"))
    elif memory is not None:
        warm_start(
            memory,
            policy,
            prompts,
            batch_prompts=config.batch_prompts,
            group_size=config.group_size,
            max_tokens=config.used_max_tokens,
            temperature=config.temperature,
            seed=config.seed,
        )
    learner = Learner(
        config=config,
        objective=objective,
        problems=problems,
        policy=policy,
        network=network,
        optimizer=optimizer,
        engine=rollout_engine(
            config, policy, memory, first, longest_prompt=max(map(len, prompts)), rows_per_part=plan.rows_per_pass
        ),
        reference=reference,
        reference_network=reference_network(config, network, reference) if needs_reference(objective) else None,
        memory=memory,
        forward=forward_settings(config, rows_per_pass=plan.rows_per_pass),
    )
    if done is None:
        checkpointing.save_state(run, 0, states(learner))
    return learner


def save(
    run: Path,
    step: int,
    policy: LoadedModel,
    config: TrainConfig,
    objective: Objective,
    *,
    metrics: Mapping[str, float | int],
) -> None:
    """The checkpoint of ``step`` with its model card."""
    record = card_record(config, objective, step=step, metrics=metrics, versions=environment())
    checkpointing.save_checkpoint(run, step, policy.model, policy.tokenizer, card=model_card(record))


def needs_reference(objective: Objective) -> bool:
    """Whether a part looks at the reference policy."""
    return objective.asks_for("reference_logp") or objective.rehearsal is not None


def rollout_engine(
    config: TrainConfig,
    policy: LoadedModel,
    memory: Memory | None,
    first: Path,
    *,
    longest_prompt: int,
    rows_per_part: int | None,
) -> RolloutEngine:
    """Who draws the rollouts of this run; ``first`` holds a whole model of the policy's architecture."""
    if config.engine == "own":
        return OwnEngine(policy, memory=memory, rows_per_part=rows_per_part)
    from trainers.vllm_rollout import VllmEngine

    return VllmEngine(
        policy,
        start=first,
        max_model_len=longest_prompt + config.used_max_tokens,
        rows=config.batch_prompts * config.group_size,
        memory=memory,
    )


def states(learner: Learner) -> dict[str, object]:
    """All of a run that is neither weights of the policy nor a function of seed and step."""
    found: dict[str, object] = {
        "optimizer": learner.optimizer.state_dict(),
        "rows_per_pass": learner.forward.micro_batch,
    }
    if learner.memory is not None:
        found["memory"] = learner.memory.state_dict()
    return found


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
