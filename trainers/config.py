"""Settings of the trainers. One dataclass field is the flag, the TOML key and the documentation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated as Annotated  # the command line reads inherited fields by it
from typing import Literal

from cyclopts import Parameter

from oversharp.diagnostics.records.arguments import checked_settings
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_chat_args
from oversharp.diagnostics.records.types import DEFAULT_MAX_TOKENS
from oversharp.diagnostics.tasks import suggested_max_tokens
from oversharp.diagnostics.tasks.countdown import TASK
from oversharp.diagnostics.verifiers.own_file import is_own, pinned
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER  # as Annotated
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig
from oversharp.trainers import objectives

#: Updates per batch where an objective is another one only off policy, and nobody says how many.
_MOST_UPDATES = 4

#: The highest learning rate at which a pretrained model is warmed up.
MOST_WARM_UP_RATE = 1e-3

#: What the names of generators begin with.
GENERATED = "reasoning_gym:"

Engine = Literal["own", "vllm"]
Correction = Literal["auto", "none"]
Schedule = Literal["constant", "linear", "cosine"]
Order = Literal["shuffled", "given"]
Precision = Literal["float32", "bfloat16"]
Tracker = Literal["tensorboard", "wandb", "trackio"]


@Parameter(name="*")
@checked_settings
@dataclass(frozen=True, kw_only=True)
class TrainConfig(GraderConfig):
    """On-policy RL with verifiable rewards. The defaults are those of the built-in demo.

    Attributes
    ----------
    model
        Checkpoint to start from: a directory or a hub name. Default, for countdown only: its base model, trained
        first into OUTPUT_DIR/base.
    output_dir
        Run directory: checkpoint-N/, rollouts/, metrics.jsonl, config.toml, environment.json, state/.
    algorithm
        Objective as an expression of parts: grpo, iac:alpha=0.5, rloo+iac+token_mean, dapo, dlc:mu=0.5. What is not
        named is GRPO's. `oversharp train --list` shows all parts with their settings and sources.
    problems
        JSONL or Parquet file with the fields prompt, answer and, if wanted, id, modes, verifier.
    task
        Named problem set: countdown (its 1,599 training problems), reasoning_gym:NAME, benchmark:NAME. Generated
        problems are not those that the audit generates. Default: countdown, unless --problems is given.
    limit
        Train on the first LIMIT problems only; for a generator, how many it makes.
    order
        Order of the problems: shuffled anew for every epoch, or as given, for a curriculum. Either way all of them come
        once an epoch; what an objective draws in place of constant groups comes in another order.
    max_steps
        Optimizer steps. A finished run continues when --resume comes with a larger number.
    batch_prompts
        Prompts per step.
    group_size
        Rollouts per prompt; these form the group that rewards are compared in.
    learning_rate
        AdamW learning rate (betas .9 and .999): constant, or the highest of --warmup-steps and --schedule.
    warmup_steps
        Optimizer steps in which the learning rate rises to it, in equal parts.
    schedule
        How the learning rate goes on: constant, or down to nearly 0 at --max-steps, linear or as a cosine. A run with
        such a schedule cannot be made longer.
    weight_decay
        Decoupled weight decay.
    max_grad_norm
        Gradients are clipped to this global L2 norm.
    temperature
        Sampling temperature. The loss uses the same tempered distribution, so the update stays on-policy.
    max_tokens
        Longest response in tokens, the end token included; behind the longest prompt it must fit into the model's
        context. Default: what the task asks for, else 1024.
    verifier
        Who rewards, in place of what the problems name: a verifier, or FILE.py:function, code of yours that is run.
    correct_above
        A sample is correct if its reward exceeds this: for verifiers of partial rewards, and parts that act on correct
        samples (iac, nsr, …). Default: what the verifier calls correct, a reward of 1.
    prompt_template
        Text around every prompt; must contain {prompt}. Give the audit the same one.
    system_prompt
        System turn; needs --chat.
    chat
        Wrap the prompt in the tokenizer's chat template.
    chat_args
        What else the chat template is given, a JSON object such as {"enable_thinking": false}; needs --chat.
    save_every
        Steps between checkpoints; step 0 and the last step are always saved.
    validate_every
        Steps between validations: pass@1, pass@n and entropy on problems that are not trained on, as val_… in the
        metrics. Default: none.
    validation
        JSONL or Parquet file of the problems to validate on. Default: for countdown 100 that are neither trained on nor
        audited, for a generator 100 of its own.
    validation_samples
        Samples of each of these problems, n.
    seed
        Reaches the order of shuffled problems and every sampled token.
    updates_per_batch
        Optimizer steps per batch of rollouts; above 1 the batch is split by prompts and the surrogate's clip acts.
        Default: 1, or up to 4 for an objective that is another one only then (gspo, cispo, dapo, other clips).
    epochs_per_batch
        Times that every batch of rollouts is gone through; above 1 the surrogate's clip acts from the second on.
    reference
        Reference policy, for parts that need one: a directory or a hub name, with the policy's tokens. Default: the
        model that the run started from.
    engine
        Who draws the rollouts: own (a compact decoder, any transformers model) or vllm (in this process, weights
        synced in place after every update and checked).
    correction
        Of rollouts in a run in bfloat16, which vLLM and the own decoder round otherwise than the trainer: auto weights
        them by importance unless the algorithm names it, or dlc, whose rollouts follow another law on purpose; none
        leaves them as they are.
    lora_rank
        Train low-rank adapters of this rank on all linear layers instead of the weights; 0 is off.
    lora_alpha
        Scale of the adapters, over their rank. Default: twice the rank.
    precision
        Arithmetic of forward and backward: float32, or bfloat16 autocast with float32 master weights. vLLM draws
        rollouts in it too, on a CPU as on a GPU; those of the own decoder stay float32.
    gradient_checkpointing
        Recompute activations in the backward pass: less memory, about a third more time.
    compile
        Compile the model with torch.compile; worth its start-up for long runs on a GPU.
    tracker
        Send metrics to tensorboard, wandb or trackio too; metrics.jsonl is always written.
    resume
        Continue the run in output_dir; on CPU bit-identical to a run that was never interrupted.
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    threads
        CPU threads. One is fastest for models of a few million parameters.
    micro_batch
        Responses per forward pass, against memory; the loss does not depend on it. Default: all at once, fewer where
        memory is short.
    """

    model: str | None = None
    output_dir: Path = Path("runs/train")
    algorithm: str = "grpo"
    problems: Path | None = None
    task: str | None = None
    limit: int | None = None
    order: Order = "shuffled"
    max_steps: int = 160
    batch_prompts: int = 32
    group_size: int = 8
    learning_rate: float = 2e-4
    warmup_steps: int = 0
    schedule: Schedule = "constant"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    temperature: float = 1.0
    max_tokens: int | None = None
    verifier: str | None = None
    correct_above: float | None = None
    prompt_template: str = "{prompt}"
    system_prompt: str = ""
    chat: bool = False
    chat_args: str | None = None
    save_every: int = 20
    validate_every: int | None = None
    validation: Path | None = None
    validation_samples: int = 8
    seed: int = 0
    updates_per_batch: int | None = None
    epochs_per_batch: int = 1
    reference: str | None = None
    engine: Engine = "own"
    correction: Correction = "auto"
    lora_rank: int = 0
    lora_alpha: float | None = None
    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    compile: bool = False
    tracker: Tracker | None = None
    resume: bool = False
    device: str | None = None
    threads: int = 1
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        GraderConfig.__post_init__(self)
        if self.verifier is not None and is_own(self.verifier):  # a run goes on with the code that it began with
            object.__setattr__(self, "verifier", pinned(self.verifier))
        if self.algorithm == "sft":
            raise ConfigError("--algorithm sft: not an RL objective; leave --model out and the base is trained first")
        objectives.terms(self.algorithm)
        if self.problems is not None and self.task is not None:
            raise ConfigError("pass either --problems FILE.jsonl or --task NAME, not both")
        if self.model is None and not self.trains_on_countdown:
            raise ConfigError("--model is missing: give the checkpoint to train on these problems")
        if self.verifier is not None and self.trains_on_countdown:
            raise ConfigError("--verifier: the built-in task lists what is correct; name --problems, or leave it out")
        for flag, number in (
            ("--max-steps", self.max_steps),
            ("--group-size", self.group_size),
            ("--batch-prompts", self.batch_prompts),
            ("--save-every", self.save_every),
            ("--threads", self.threads),
            ("--limit", self.limit),
            ("--max-tokens", self.max_tokens),
            ("--micro-batch", self.micro_batch),
            ("--updates-per-batch", self.updates_per_batch),
            ("--epochs-per-batch", self.epochs_per_batch),
            ("--validate-every", self.validate_every),
            ("--validation-samples", self.validation_samples),
        ):
            _at_least(flag, number, 1)
        _at_least("--seed", self.seed, 0)
        _at_least("--warmup-steps", self.warmup_steps, 0)
        if self.warmup_steps >= self.max_steps:
            raise ConfigError(f"--warmup-steps {self.warmup_steps}: must be fewer than --max-steps {self.max_steps}")
        self._require_validation()
        _positive("--learning-rate", self.learning_rate)
        _positive("--max-grad-norm", self.max_grad_norm)
        _positive("--temperature", self.temperature)
        _not_negative("--weight-decay", self.weight_decay)
        if self.correct_above is not None and not math.isfinite(self.correct_above):
            raise ConfigError(f"--correct-above {self.correct_above}: must be a number")
        _at_least("--lora-rank", self.lora_rank, 0)
        if self.lora_alpha is not None:
            _positive("--lora-alpha", self.lora_alpha)
            if not self.lora_rank:
                raise ConfigError("--lora-alpha needs --lora-rank")
        if self.updates_per_batch is not None and self.batch_prompts % self.updates_per_batch:
            raise ConfigError(
                f"--updates-per-batch {self.updates_per_batch}: does not divide --batch-prompts {self.batch_prompts}"
            )
        if "{prompt}" not in self.prompt_template:
            raise ConfigError("--prompt-template must contain {prompt}")
        if self.system_prompt and not self.chat:
            raise ConfigError("--system-prompt needs --chat")
        if self.chat_args is not None:
            require_chat_args(self.chat_args)
            if not self.chat:
                raise ConfigError("--chat-args needs --chat")

    def _require_validation(self) -> None:
        if self.validation is not None and self.validate_every is None:
            raise ConfigError(f"--validation {self.validation} needs --validate-every")
        if self.validation_samples != TrainConfig.validation_samples and self.validate_every is None:
            raise ConfigError(f"--validation-samples {self.validation_samples} needs --validate-every")
        generated = self.task is not None and self.task.startswith(GENERATED)
        if self.validate_every is not None and self.validation is None and not (self.trains_on_countdown or generated):
            raise ConfigError("--validate-every needs --validation FILE: problems that are not trained on")

    @cached_property
    def used_updates_per_batch(self) -> int:
        """As given, else by the objective: the most up to 4 that divides the batch where ratios matter. Loads torch."""
        if self.updates_per_batch is not None:
            return self.updates_per_batch
        from oversharp.trainers.objectives.composition import off_policy_part

        if self.epochs_per_batch > 1 or off_policy_part(objectives.parse(self.algorithm)) is None:
            return 1
        return max(n for n in range(1, _MOST_UPDATES + 1) if self.batch_prompts % n == 0)

    @property
    def is_off_policy(self) -> bool:
        """Whether a batch is learned from after it has moved the policy. Loads torch."""
        return self.used_updates_per_batch * self.epochs_per_batch > 1

    @property
    def trains_on_countdown(self) -> bool:
        """Whether the problems are the built-in task's: neither a file nor another task is named."""
        return self.problems is None and self.task in (None, TASK)

    @property
    def used_max_tokens(self) -> int:
        """Longest response in tokens, decided."""
        task = TASK if self.trains_on_countdown else self.task
        return self.max_tokens or suggested_max_tokens(task) or DEFAULT_MAX_TOKENS


@Parameter(name="*")
@checked_settings
@dataclass(frozen=True, kw_only=True)
class SftConfig:
    """Supervised training of a base: of the built-in task from random weights, or of a pretrained model.

    Attributes
    ----------
    model
        Warm up this checkpoint, a directory or a hub name, on worked solutions of word_problems:train. Default: train
        the base of the built-in task from random weights.
    output_dir
        Run directory: checkpoint-N/, metrics.jsonl, config.toml, environment.json, state/.
    max_steps
        Optimizer steps; part of the learning-rate schedule.
    batch_size
        Examples per step.
    learning_rate
        Peak AdamW learning rate (betas .9 and .98), reached after 50 steps, then linear down to 5 %.
    weight_decay
        Decoupled weight decay.
    max_grad_norm
        Gradients are clipped to this global L2 norm.
    wrong_share
        Share of examples whose expression uses the right numbers but misses the target. Without them the base
        would be too good for RL to change anything. Not with --model.
    precision
        Arithmetic of forward and backward: float32, or bfloat16 autocast with float32 master weights.
    n_examples
        Size of the pool that batches are drawn from, with replacement.
    save_every
        Steps between checkpoints; step 0 and the last step are always saved.
    seed
        Reaches the initial weights, the examples and their order.
    resume
        Continue the run in output_dir; on CPU bit-identical to a run that was never interrupted.
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    threads
        CPU threads. One is fastest for a model this small.
    """

    model: str | None = None
    output_dir: Path = Path("runs/base")
    max_steps: int = 1200
    batch_size: int = 128
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    wrong_share: float = 0.3
    precision: Precision = "float32"
    n_examples: int = 200_000
    save_every: int = 400
    seed: int = 0
    resume: bool = False
    device: str | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        for flag, number in (
            ("--max-steps", self.max_steps),
            ("--batch-size", self.batch_size),
            ("--n-examples", self.n_examples),
            ("--save-every", self.save_every),
            ("--threads", self.threads),
        ):
            _at_least(flag, number, 1)
        _at_least("--seed", self.seed, 0)
        _positive("--learning-rate", self.learning_rate)
        _positive("--max-grad-norm", self.max_grad_norm)
        _not_negative("--weight-decay", self.weight_decay)
        if self.model is not None and self.learning_rate > MOST_WARM_UP_RATE:
            raise ConfigError(
                f"--learning-rate {self.learning_rate:g}: is for random weights and would wreck those of --model; "
                "pass --learning-rate 5e-5"
            )
        if not 0 <= self.wrong_share <= 1:
            raise ConfigError(f"--wrong-share {self.wrong_share}: must lie in [0, 1]")


def settings_of(config: TrainConfig | SftConfig) -> dict[str, str | int | float | bool]:
    """The settings that are given, by name; unset ones are absent, paths are strings.

    >>> settings_of(SftConfig(output_dir=Path("runs/base")))["output_dir"]
    'runs/base'
    """
    return {
        name: str(setting) if isinstance(setting, Path) else setting
        for name, setting in asdict(config).items()
        if setting is not None
    }


def to_toml(settings: Mapping[str, str | int | float | bool]) -> str:
    """TOML text of flat settings.

    >>> print(to_toml({"chat": False, "learning_rate": 2e-4, "model": "a \\\\ b"}), end="")
    chat = false
    learning_rate = 0.0002
    model = "a \\\\ b"
    """
    return "".join(f"{name} = {_toml_value(setting)}\n" for name, setting in settings.items())


def _toml_value(setting: str | int | float | bool) -> str:
    # JSON strings, booleans and integers are TOML as they stand; floats need a point or an exponent with digits around
    return repr(setting) if isinstance(setting, float) else json.dumps(setting, ensure_ascii=False)


def _at_least(flag: str, number: int | None, least: int) -> None:
    if number is not None and number < least:
        raise ConfigError(f"{flag} {number}: must be at least {least}")


def _positive(flag: str, number: float) -> None:
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(f"{flag} {number}: must be a finite number above 0")


def _not_negative(flag: str, number: float) -> None:
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f"{flag} {number}: must be a finite number of 0 or more")
