"""Check the settings, models and prompts of a run before its first step, without reading weights."""

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
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.trainers import objectives
from oversharp.trainers.config import DEFAULT_WORLD, SftConfig, TrainConfig
from oversharp.trainers.objectives.composition import off_policy_part
from oversharp.trainers.objectives.contract import GroupedRewards, Objective
from oversharp.trainers.objectives.effects import find_void_parts, uses_correctness
from oversharp.trainers.rollouts.memory_network import require_same_tokens
from oversharp.trainers.run.checkpointing import checkpoint_path, save_checkpoint
from oversharp.trainers.seeds import stream_seed
from oversharp.trainers.worlds import get_world
from oversharp.trainers.worlds.base import build_model, build_tokenizer

#: Default number of validation problems.
_VALIDATED = 100
#: Maximum number of characters of a prompt in an error message.
_MOST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Model without weights and its tokenizer (see ``outline_path``), with the folder of the model."""

    loaded: LoadedModel
    folder: Path


@dataclass(frozen=True, kw_only=True)
class RunPrompts:
    """Training and validation problems of a run, with the token ids of their prompts in the same order."""

    problems: tuple[Problem, ...]
    prompts: list[list[int]]
    validation: tuple[Problem, ...]
    validation_prompts: list[list[int]]


#: Function that opens a model without weights, by path or hub name.
Outlines = Callable[[str], Outline]


@contextmanager
def model_outlines(*, untrained: SftConfig | None = None) -> Iterator[Outlines]:
    """Yield a function that opens models without weights and caches them. Use it only inside the block.

    ``untrained`` has the settings of a world's base if that is not trained yet. A missing path in its run directory
    opens an untrained base.
    """
    with TemporaryDirectory() as folder:

        @cache
        def untrained_base() -> Outline:
            assert untrained is not None
            world = get_world(untrained.world)
            save_checkpoint(Path(folder), 0, build_model(0, world), build_tokenizer(world))
            path = checkpoint_path(Path(folder), 0)
            return Outline(loaded=outline_path(path), folder=path)

        @cache
        def outline(name: str) -> Outline:
            path = Path(name).absolute()
            is_base = untrained is not None and path.is_relative_to(untrained.output_dir.absolute())
            if is_base and not path.exists():
                return untrained_base()
            return Outline(loaded=outline_path(name), folder=model_folder(name))

        yield outline


def check_start(
    config: TrainConfig, objective: Objective, policy: str, outline: Outlines, progress: ProgressSink | None = None
) -> RunPrompts:
    """Check all models and prompts of a run, and return its problems and prompts.

    ``progress`` receives a note about duplicate problems.

    Raises:
        OversharpError: a model is missing or incomplete, a reference or memory network has another tokenizer than the
            policy, a prompt cannot be encoded or leaves no room for ``max_tokens`` in a model's context, or the engine
            does not support the model. The message has the name of the setting.
    """
    device = pick_device(config.device)
    problems = training_problems(config, progress)
    as_policy = "--model " if policy == config.model else ""
    with _prefix_errors(as_policy):
        own = outline(policy)
    with _prefix_errors("--validation: "):
        validation = validation_problems(config)
        _require_untrained(validation, problems)
    run_prompts = RunPrompts(
        problems=problems,
        prompts=[encode_prompt(own.loaded.tokenizer, problem, config) for problem in problems],
        validation=validation,
        validation_prompts=[encode_prompt(own.loaded.tokenizer, problem, config) for problem in validation],
    )
    _require_room(config, run_prompts, own)
    if config.reference is not None:
        with _prefix_errors("--reference "):
            _require_same_ids(own, outline(config.reference), config.reference)
        with _prefix_errors(f"--reference {config.reference}: "):
            _require_room(config, run_prompts, outline(config.reference))
    read = {policy: as_policy}
    if objective.decoding is not None and objective.decoding.memory != "copy":
        name = objective.decoding.memory
        with _prefix_errors("--algorithm memory="):
            require_same_tokens(own.loaded, outline(name).loaded, name)
        with _prefix_errors(f"--algorithm memory={name}: "):
            _require_room(config, run_prompts, outline(name))
        if objective.decoding.mu:
            read[name] = "--algorithm memory="
    if config.engine == "vllm":
        from oversharp.trainers.rollouts.vllm_rollout import require_temperature, require_vllm

        require_temperature(config.temperature)
        for name, prefix in read.items():
            with _prefix_errors(prefix):
                require_vllm(device, outline(name).folder, name=name)
    return run_prompts


def check_objective(config: TrainConfig) -> Objective:
    """Return the objective of a run. Raise ``ConfigError`` if it is incompatible with other settings."""
    objective = objectives.parse(config.algorithm)
    if config.correction == "none" and objective.correction is not None:
        raise ConfigError(f"--correction none: --algorithm {config.algorithm} contains importance; remove one of them")
    if config.correction == "auto" and _needs_correction(config, objective):
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
    for void in find_void_parts(
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
            "is 1; pass --updates-per-batch 2 or more (a divisor of --batch-prompts) or --epochs-per-batch 2, or "
            "remove it"
        )
    if config.reference is not None and not needs_reference(objective):
        raise ConfigError(
            f"--reference {config.reference}: no part of {config.algorithm} uses a reference; add kl, forward_kl "
            "or reference_weighting, or omit --reference"
        )
    return objective


def rounding_note(config: TrainConfig) -> str | None:
    """Return a note on rounding differences between rollouts and trainer; None if there is nothing to report."""
    objective = objectives.parse(config.algorithm)
    is_own = config.engine == "own" and config.precision == "float32" and objective.decoding is None
    if is_own and objective.correction is not None:
        return "importance has no effect: --engine own samples in the trainer's precision, so all weights are 1"
    if not _needs_correction(config, objective):
        if config.correction == "none":
            return "--correction none has no effect: only rollouts of bfloat16 runs are weighted"
        return None
    cause = "vLLM rounds differently" if config.engine == "vllm" else "the built-in decoder samples in float32"
    why = f"{cause} (sampler_logp_gap_mean in metrics.jsonl is the size of the difference)"
    if config.correction == "none":
        return f"--correction none: rollouts are treated as samples of the trainer's policy, although {why}"
    return (
        f"--engine {config.engine} --precision bfloat16: rollouts get importance weights (per token, at most 2) "
        f"because {why}; --correction none turns them off"
    )


def correct_note(config: TrainConfig) -> str | None:
    """Return a note if ``--correct-above`` changes only metrics, not the loss; else None."""
    if config.correct_above is None:
        return None
    size = {"prompts": config.batch_prompts, "group_size": config.group_size, "longest": config.used_max_tokens}
    if uses_correctness(objectives.parse(config.algorithm), **size):
        return None
    return (
        f"--correct-above {config.correct_above:g} only changes metrics: no part of {config.algorithm} uses which "
        "samples are correct"
    )


def validation_note(config: TrainConfig) -> str | None:
    """Return a note if the run ends before its first validation, else None."""
    if config.validate_every is None or config.validate_every <= config.max_steps:
        return None
    return (
        f"--validate-every {config.validate_every}: the run ends at step {config.max_steps}, before the first "
        "validation"
    )


def _needs_correction(config: TrainConfig, objective: Objective) -> bool:
    """Return whether rollouts need importance weights: sampler and trainer round differently, and no part corrects it.

    vLLM's kernels round differently from the trainer, in bfloat16 much more than in float32. The built-in decoder
    samples in float32. Its log-probabilities differed by .05 to .09 nats per token from those of a bfloat16 trainer, in
    a model of 135 million weights; this is several times the difference of vLLM. With a memory network, rollouts are
    from another distribution by design, so they are not corrected.
    """
    is_handled = objective.correction is not None or objective.decoding is not None
    return config.precision == "bfloat16" and not is_handled


def needs_reference(objective: Objective) -> bool:
    """Return whether a part uses the reference policy."""
    return objective.asks_for("reference_logp") or objective.rehearsal is not None


def base_config(config: TrainConfig) -> SftConfig:
    """Return the settings for training the world's base, which a run without ``--model`` starts from."""
    return SftConfig(
        task=None if config.world == DEFAULT_WORLD else config.world,  # None as in runs of earlier versions
        output_dir=config.output_dir / "base",
        seed=config.seed,
        resume=True,
        device=config.device,
        threads=config.threads,
    )


def first_model(config: TrainConfig) -> str:
    """Return the model that a new run starts from: ``--model``, or else the base, which may not be trained yet."""
    if config.model is not None:
        return config.model
    base = base_config(config)
    return str(checkpoint_path(base.output_dir, base.max_steps))


def policy_source(config: TrainConfig, done: int | None) -> str:
    """Return the model to load the policy from. ``done`` is the step to resume after, None for a new run.

    With LoRA, it is the model that the run started from, because the adapter applies to that model.
    """
    if done is None or config.lora_rank:
        return first_model(config)
    return str(checkpoint_path(config.output_dir, done))


def training_problems(config: TrainConfig, progress: ProgressSink | None = None) -> tuple[Problem, ...]:
    """Return the training problems, without duplicates and without the held-out problems of a built-in world.

    Training skips duplicates. An audit rejects them, because they would count twice.
    """
    if config.world is not None:
        return WORLDS[config.world].problems(split="train", limit=config.limit)
    # a separate seed, because the audit generates its problems from the plain seed, and training must not use these
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
    if repeated and progress is not None:
        n = plural(len(repeated), "problem")
        progress.note(f"{config.problems}: skipped {n} that the file contains twice (the first: {repeated[0]})")
    return problems


def validation_problems(config: TrainConfig) -> tuple[Problem, ...]:
    """Return the validation problems; empty without validation.

    The default problems are neither in the training set nor in the audit. Raises an ``OversharpError`` for a file that
    cannot be read.
    """
    if config.validate_every is None:
        return ()
    if config.validation is not None:
        return load_problems(config.validation, None, limit=None, seed=0)
    if config.world is not None:
        return WORLDS[config.world].problems(split="validation")
    seed = stream_seed(config.seed, "validation problems") % 2**31
    return load_problems(None, config.task, limit=_VALIDATED, seed=seed)


def _require_untrained(validation: Sequence[Problem], trained: Sequence[Problem]) -> None:
    ids = {problem.problem_id for problem in trained}
    seen = [problem for problem in validation if problem.problem_id in ids]
    if seen:
        raise ConfigError(
            f"{plural(len(seen), 'problem')} of {len(validation)} are also in the training set (the first: "
            f"{_shorten_prompt(seen[0].prompt)!r}); choose others, or remove them from the training set"
        )


def _shorten_prompt(prompt: str) -> str:
    line = " ".join(prompt.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}…"


def _require_room(config: TrainConfig, run_prompts: RunPrompts, model: Outline) -> None:
    every = (
        *zip(run_prompts.problems, run_prompts.prompts, strict=True),
        *zip(run_prompts.validation, run_prompts.validation_prompts, strict=True),
    )
    longest_first = sorted(every, key=lambda problem_ids: len(problem_ids[1]), reverse=True)
    for problem, prompt_ids in longest_first:
        require_fit(model.loaded, problem, prompt_ids, n_response=config.used_max_tokens)


def _require_same_ids(policy: Outline, reference: Outline, name: str) -> None:
    """Raise ``TrainingError`` if a token id is a different token in the two models. One model may have more tokens."""
    own, other = (
        {id_: token for token, id_ in model.loaded.tokenizer.get_vocab().items()} for model in (policy, reference)
    )
    if any(other.get(id_, token) != token for id_, token in own.items()):
        raise TrainingError(
            f"{name}: the reference's tokenizer assigns other ids than the policy's; choose a model of the same family"
        )


@contextmanager
def _prefix_errors(prefix: str) -> Iterator[None]:
    """Add ``prefix`` to the message of errors that are raised inside the block."""
    try:
        yield
    except OversharpError as error:
        raise type(error)(f"{prefix}{error}") from error
