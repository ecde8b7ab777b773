"""Checks a run before its first step, without training anything or reading weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from oversharp.diagnostics.models.devices import pick_device
from oversharp.diagnostics.models.load import LoadedModel, model_folder, outline_path
from oversharp.diagnostics.models.tokens import encode_prompt, require_fit
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError, OversharpError, TrainingError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown, load_problems
from oversharp.trainers import objectives
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.countdown_base import build_model, build_tokenizer
from oversharp.trainers.objectives.composition import off_policy_part
from oversharp.trainers.objectives.contract import GroupedRewards, Objective
from oversharp.trainers.objectives.effects import looks_at_correct, void_in_a_run
from oversharp.trainers.rollouts.memory_network import require_same_tokens
from oversharp.trainers.run.checkpointing import checkpoint_path, save_checkpoint
from oversharp.trainers.seeds import stream_seed

#: Problems to validate on where nobody names a file.
_VALIDATED = 100
#: Of a prompt, so many characters are said.
_MOST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A model that a run will load, as ``outline_path`` opens it, and the folder that it lies in."""

    loaded: LoadedModel
    folder: Path


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The problems of a run, and the token ids that ask them, in one order; those to validate on too."""

    problems: tuple[Problem, ...]
    prompts: list[list[int]]
    validation: tuple[Problem, ...]
    validation_prompts: list[list[int]]


#: Opens a model by its path or hub name.
Outlines = Callable[[str], Outline]


@contextmanager
def model_outlines(*, untrained: Path | None = None) -> Iterator[Outlines]:
    """Opens models within the block, each once.

    ``untrained`` is the run directory of a base of the built-in task that is still to be trained: a path in it that is
    not there yet means that base.
    """
    with TemporaryDirectory() as folder:

        @cache
        def own_base() -> Outline:
            save_checkpoint(Path(folder), 0, build_model(seed=0), build_tokenizer())
            path = checkpoint_path(Path(folder), 0)
            return Outline(loaded=outline_path(path), folder=path)

        @cache
        def outline(name: str) -> Outline:
            path = Path(name).absolute()
            if untrained is not None and path.is_relative_to(untrained.absolute()) and not path.exists():
                return own_base()
            return Outline(loaded=outline_path(name), folder=model_folder(name))

        yield outline


def checked_start(
    config: TrainConfig, objective: Objective, policy: str, outline: Outlines, says: ProgressSink | None = None
) -> Asked:
    """The problems of a run and their prompts, once every model that it needs is known to fit ``policy``, its source.

    ``says`` is told of problems that the file holds twice and the run once.
    Raises an ``OversharpError`` that names the setting: a model that is not there or not whole, a reference or memory
    network of other tokens, a prompt that cannot be encoded or leaves no room for ``max_tokens`` in a model's context,
    an engine that does not run the model.
    """
    device = pick_device(config.device)
    problems = training_problems(config, says)
    as_policy = "--model " if policy == config.model else ""
    with _said_of(as_policy):
        own = outline(policy)
    with _said_of("--validation: "):
        validation = validation_problems(config)
        _require_untrained(validation, problems)
    asked = Asked(
        problems=problems,
        prompts=[encode_prompt(own.loaded.tokenizer, problem, config) for problem in problems],
        validation=validation,
        validation_prompts=[encode_prompt(own.loaded.tokenizer, problem, config) for problem in validation],
    )
    _require_room(config, asked, own)
    if config.reference is not None:
        with _said_of("--reference "):
            _require_same_ids(own, outline(config.reference), config.reference)
        with _said_of(f"--reference {config.reference}: "):
            _require_room(config, asked, outline(config.reference))
    read = {policy: as_policy}
    if objective.decoding is not None and objective.decoding.memory != "copy":
        name = objective.decoding.memory
        with _said_of("--algorithm memory="):
            require_same_tokens(own.loaded, outline(name).loaded, name)
        with _said_of(f"--algorithm memory={name}: "):
            _require_room(config, asked, outline(name))
        if objective.decoding.mu:
            read[name] = "--algorithm memory="
    if config.engine == "vllm":
        from oversharp.trainers.rollouts.vllm_rollout import require_temperature, require_vllm

        require_temperature(config.temperature)
        for name, prefix in read.items():
            with _said_of(prefix):
                require_vllm(device, outline(name).folder, name=name)
    return asked


def checked_objective(config: TrainConfig) -> Objective:
    """The objective of a run. Raises ``ConfigError`` where it cannot work with the run's other settings."""
    objective = objectives.parse(config.algorithm)
    if config.correction == "none" and objective.correction is not None:
        raise ConfigError(f"--correction none: --algorithm {config.algorithm} names importance; leave one of them out")
    if config.correction == "auto" and _rounds_otherwise(config, objective):
        objective = objectives.parse(f"{config.algorithm}+importance")
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
    for void in void_in_a_run(
        objective,
        config.algorithm,
        prompts=config.batch_prompts,
        group_size=config.group_size,
        longest=config.used_max_tokens,
    ):
        raise ConfigError(f"--algorithm {config.algorithm}: {void}")
    off_policy = off_policy_part(objective)
    if off_policy is not None and not config.is_off_policy:
        raise ConfigError(
            f"--algorithm {config.algorithm}: {off_policy} has no effect with one update per batch, where every ratio "
            "is 1; pass --updates-per-batch 2 or more, of which --batch-prompts is a multiple, or "
            "--epochs-per-batch 2, or leave it out"
        )
    if config.reference is not None and not needs_reference(objective):
        raise ConfigError(
            f"--reference {config.reference}: no part of {config.algorithm} looks at a reference; add kl, forward_kl "
            "or reference_weighting, or leave it out"
        )
    return objective


def rounding_note(config: TrainConfig) -> str | None:
    """What is to be known of rollouts whose arithmetic is, or is not, another than the trainer's; None for nothing."""
    objective = objectives.parse(config.algorithm)
    is_own = config.engine == "own" and config.precision == "float32" and objective.decoding is None
    if is_own and objective.correction is not None:
        return "importance changes nothing here: --engine own draws in the trainer's own arithmetic, so weights are 1"
    if not _rounds_otherwise(config, objective):
        if config.correction == "none":
            return "--correction none changes nothing here: only rollouts of a run in bfloat16 are weighted"
        return None
    who = "vLLM rounds otherwise than the trainer" if config.engine == "vllm" else "the own decoder draws in float32"
    why = f"{who} (sampler_logp_gap_mean in metrics.jsonl says by how much)"
    if config.correction == "none":
        return f"--correction none: rollouts are learned from as if the trainer had drawn them, though {why}"
    return (
        f"--engine {config.engine} --precision bfloat16: rollouts are weighted by importance (per token, at most 2), "
        f"for {why}; --correction none leaves it out"
    )


def correct_note(config: TrainConfig) -> str | None:
    """That --correct-above changes metrics alone; None where a part acts on correct samples, or nobody gives it."""
    if config.correct_above is None or _looks_at_correct(config):
        return None
    return (
        f"--correct-above {config.correct_above:g} changes the metrics alone: no part of {config.algorithm} looks at "
        "which samples are correct"
    )


def _looks_at_correct(config: TrainConfig) -> bool:
    size = {"prompts": config.batch_prompts, "group_size": config.group_size, "longest": config.used_max_tokens}
    return looks_at_correct(objectives.parse(config.algorithm), **size)


def never_validated(config: TrainConfig) -> str | None:
    """That no step of the run is one to validate at; None where there is one, or nobody asks for it."""
    if config.validate_every is None or config.validate_every <= config.max_steps:
        return None
    return (
        f"--validate-every {config.validate_every}: the run ends at step {config.max_steps}, before it validates "
        "anything"
    )


def _rounds_otherwise(config: TrainConfig, objective: Objective) -> bool:
    """Whether rollouts are drawn in another arithmetic than the trainer's, and no part answers for that.

    vLLM's kernels round otherwise, in bfloat16 by far more than in float32. The own decoder stays in float32: with 135
    million weights that was .05 to .09 nats a token off what a trainer in bfloat16 learns from, several times vLLM's
    gap. A memory network draws by another law on purpose.
    """
    is_told = objective.correction is not None or objective.decoding is not None
    return config.precision == "bfloat16" and not is_told


def needs_reference(objective: Objective) -> bool:
    """Whether a part looks at the reference policy."""
    return objective.asks_for("reference_logp") or objective.rehearsal is not None


def own_base(config: TrainConfig) -> SftConfig:
    """The training of the built-in task's base, for a run that names no model."""
    return SftConfig(
        output_dir=config.output_dir / "base",
        seed=config.seed,
        resume=True,
        device=config.device,
        threads=config.threads,
    )


def first_model(config: TrainConfig) -> str:
    """The model that a new run starts from: the one named, else its own base, which may have to be trained first."""
    if config.model is not None:
        return config.model
    base = own_base(config)
    return str(checkpoint_path(base.output_dir, base.max_steps))


def policy_source(config: TrainConfig, done: int | None) -> str:
    """The model that the policy is loaded from when a run goes on after step ``done``, None where it starts.

    A LoRA adapter lies on the model that the run started from, whatever the step.
    """
    if done is None or config.lora_rank:
        return first_model(config)
    return str(checkpoint_path(config.output_dir, done))


def training_problems(config: TrainConfig, says: ProgressSink | None = None) -> tuple[Problem, ...]:
    """The problems to train on, each once; never the held-out ones of the built-in task.

    An audit refuses a problem that comes again, as it would count twice; a training only meets it more often.
    """
    if config.trains_on_countdown:
        return countdown.problems(split="train", limit=config.limit)
    # a stream of its own: problems generated for the audit come from its plain seed and stay unseen
    seed = stream_seed(config.seed, "problems") % 2**31
    repeated: list[str] = []
    problems = load_problems(
        config.problems,
        config.task,
        limit=config.limit,
        seed=seed,
        repeated=repeated,
        verifier=config.verifier,
        limits=config.grader_limits,
    )
    if repeated and says is not None:
        n = plural(len(repeated), "problem")
        says.note(f"{config.problems}: left out {n} that the file holds already (the first: {repeated[0]})")
    return problems


def validation_problems(config: TrainConfig) -> tuple[Problem, ...]:
    """The problems to validate on: none unless the run validates, and neither trained on nor audited by default.

    Raises an ``OversharpError`` for a file that cannot be read.
    """
    if config.validate_every is None:
        return ()
    if config.validation is not None:
        return load_problems(config.validation, None, limit=None, seed=0)
    if config.trains_on_countdown:
        audited = countdown.problems(split="audit")
        return countdown.problems(split="held_out", limit=len(audited) + _VALIDATED)[len(audited) :]
    seed = stream_seed(config.seed, "validation problems") % 2**31
    return load_problems(None, config.task, limit=_VALIDATED, seed=seed)


def _require_untrained(validation: Sequence[Problem], trained: Sequence[Problem]) -> None:
    ids = {problem.problem_id for problem in trained}
    seen = [problem for problem in validation if problem.problem_id in ids]
    if seen:
        raise ConfigError(
            f"{plural(len(seen), 'problem')} of {len(validation)} are trained on too (the first asks "
            f"{_shown(seen[0].prompt)!r}); name others, or leave them out of the training"
        )


def _shown(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"


def _require_room(config: TrainConfig, asked: Asked, model: Outline) -> None:
    every = (
        *zip(asked.problems, asked.prompts, strict=True),
        *zip(asked.validation, asked.validation_prompts, strict=True),
    )
    longest_first = sorted(every, key=lambda problem_ids: len(problem_ids[1]), reverse=True)
    for problem, prompt_ids in longest_first:
        require_fit(model.loaded, problem, prompt_ids, n_response=config.used_max_tokens)


def _require_same_ids(policy: Outline, reference: Outline, name: str) -> None:
    """Token ids that both know must mean the same; either may know more."""
    own, other = (
        {id_: token for token, id_ in one.loaded.tokenizer.get_vocab().items()} for one in (policy, reference)
    )
    if any(other.get(id_, token) != token for id_, token in own.items()):
        raise TrainingError(
            f"{name}: the reference's tokenizer numbers tokens otherwise than the policy's; name a model of the same "
            "family"
        )


@contextmanager
def _said_of(prefix: str) -> Iterator[None]:
    """Put the setting before what is said of it."""
    try:
        yield
    except OversharpError as error:
        raise type(error)(f"{prefix}{error}") from error
