"""Settings of the trainers. Each dataclass field defines a flag, a TOML key and their documentation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated as Annotated  # exported, because the command line evaluates annotations of base classes
from typing import Literal

from cyclopts import Parameter

from oversharp.diagnostics.records.arguments import check_settings
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.settings import require_chat_args
from oversharp.diagnostics.records.types import DEFAULT_MAX_TOKENS
from oversharp.diagnostics.tasks import suggested_max_tokens
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.diagnostics.verifiers import pinned_verifier
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER  # same reason
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig
from oversharp.trainers import objectives

#: Maximum default of ``updates_per_batch``, for objectives that equal REINFORCE with one update per batch.
_MOST_UPDATES = 4

#: Maximum learning rate for supervised training of a pretrained model.
MOST_WARM_UP_RATE = 1e-3

#: Prefix of the names of tasks that generate their problems.
GENERATED = "reasoning_gym:"
#: World that is trained on if neither a task nor a problem file is given.
DEFAULT_WORLD = next(iter(WORLDS))

Engine = Literal["own", "vllm"]
Correction = Literal["auto", "none"]
Schedule = Literal["constant", "linear", "cosine"]
Order = Literal["shuffled", "given"]
Precision = Literal["float32", "bfloat16"]
Tracker = Literal["tensorboard", "wandb", "trackio"]


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class TrainConfig(GraderConfig):
    """Settings of on-policy RL with verifiable rewards. The defaults are those of the built-in demo.

    Attributes
    ----------
    model
        Checkpoint to start from: a directory or a hub name. Default, for countdown and programs only: the task's base
        model, which is first trained in OUTPUT_DIR/base.
    output_dir
        Run directory: checkpoint-N/, rollouts/, metrics.jsonl, config.toml, environment.json, state/.
    algorithm
        Objective as an expression of parts: grpo, iac:alpha=0.5, rloo+iac+token_mean, dapo, dlc:mu=0.5. The default
        parts are those of GRPO. `oversharp train --list` prints all parts with their settings and sources.
    problems
        JSONL or Parquet file with the fields prompt and answer, and optionally id, modes, verifier.
    task
        Named problem set: countdown (its 1,599 training problems), programs (its 708), reasoning_gym:NAME,
        benchmark:NAME. Problems that a task generates for training differ from those it generates for an audit.
        Default: countdown, unless --problems is given.
    limit
        Train on the first LIMIT problems only. For tasks that generate problems: the number of problems.
    order
        Order of the problems: reshuffled every epoch, or as given (for a curriculum). Every problem is used once per
        epoch. Prompts that dynamic_sampling adds are in a separate order.
    max_steps
        Number of optimizer steps. A finished run continues with --resume and a larger number.
    batch_prompts
        Prompts per step.
    group_size
        Rollouts per prompt. Their rewards are compared with each other.
    learning_rate
        AdamW learning rate (betas .9 and .999). It is the peak if --warmup-steps or --schedule change it.
    warmup_steps
        Number of optimizer steps in which the learning rate rises linearly to --learning-rate.
    schedule
        Learning rate after the warm-up: constant, or linear or cosine decay to nearly 0 at --max-steps. A run with
        decay cannot be extended.
    weight_decay
        Decoupled weight decay.
    max_grad_norm
        Maximum global L2 norm of the gradient. Larger gradients are clipped.
    temperature
        Sampling temperature. The loss uses the distribution at this temperature too, so that updates are on-policy.
    max_tokens
        Maximum response length in tokens, including the end token. Together with the longest prompt it must fit the
        model's context. Default: the task's value, else 1024.
    verifier
        Verifier that computes rewards, instead of those named in the problems: a name, FILE.py:function (your
        code, which is executed), or judge:FILE.toml.
    correct_above
        A sample is correct if its reward exceeds this value. Use it for verifiers with partial rewards, together with
        parts that act on correct samples (iac, nsr, …). Default: the verifier's own criterion, a reward of 1.
    prompt_template
        Text around every prompt; must contain {prompt}. Use the same template in the audit.
    system_prompt
        System message; needs --chat.
    chat
        Wrap the prompt in the tokenizer's chat template.
    chat_args
        Further arguments of the chat template, a JSON object such as {"enable_thinking": false}; needs --chat.
    save_every
        Steps between checkpoints. Step 0 and the last step are always saved.
    validate_every
        Steps between validations, which log pass@1, pass@n and entropy on problems outside the training set as val_…
        in the metrics. Default: no validation.
    validation
        JSONL or Parquet file of validation problems. Default: for countdown and programs, up to 100 problems that are
        in neither the training set nor the audit; for tasks that generate problems, 100 separately generated ones.
    validation_samples
        Samples per validation problem (n of pass@n).
    seed
        Seed of the problem order and of every sampled token.
    updates_per_batch
        Optimizer steps per batch of rollouts. Above 1, the batch is split by prompts, and ratios are clipped.
        Default: 1, or up to 4 for objectives that only then differ from REINFORCE (gspo, cispo, dapo, other clips).
    epochs_per_batch
        Passes over every batch of rollouts. From the second pass on, ratios are clipped.
    reference
        Reference policy for parts that need one: a directory or a hub name of a model with the policy's tokenizer.
        Default: the model that the run started from.
    engine
        Rollout engine: own (a compact decoder for any transformers model) or vllm (in this process; weights are
        synced in place and verified after every update).
    correction
        Importance weights for rollouts of bfloat16 runs, because vLLM and the built-in decoder round differently from
        the trainer. auto: use them unless the algorithm contains importance, or dlc, which samples from a different
        distribution by design. none: no weights.
    lora_rank
        Rank of LoRA adapters on all linear layers, which are trained instead of the weights. 0: no adapters.
    lora_alpha
        LoRA alpha: the adapters' output is multiplied by alpha / rank. Default: twice the rank.
    precision
        Precision of forward and backward passes: float32, or bfloat16 autocast with float32 master weights. vLLM
        samples in the same precision, on CPU and GPU. The built-in decoder always samples in float32.
    gradient_checkpointing
        Recompute activations in the backward pass. Needs less memory and about one third more time.
    compile
        Compile the model with torch.compile. Worthwhile for long GPU runs.
    tracker
        Also send metrics to tensorboard, wandb or trackio. metrics.jsonl is always written.
    resume
        Continue the run in output_dir. On CPU, the result is bit-identical to an uninterrupted run.
    device
        cpu, cuda, cuda:1, … Default: cuda if available.
    threads
        CPU threads. One is fastest for models of a few million parameters.
    micro_batch
        Responses per forward pass, to limit memory. The loss does not depend on it. Default: all, or as many as fit
        in memory.
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
        if self.verifier is not None:  # so that a resumed run uses the same file
            object.__setattr__(self, "verifier", pinned_verifier(self.verifier))
        if self.algorithm == "sft":
            raise ConfigError("--algorithm sft: not an RL objective; omit --model to train the base first")
        objectives.terms(self.algorithm)
        if self.problems is not None and self.task is not None:
            raise ConfigError("pass --problems FILE.jsonl or --task NAME, not both")
        if self.model is None and self.world is None:
            raise ConfigError("--model is missing; pass the checkpoint to train on these problems")
        if self.verifier is not None and self.world is not None:
            raise ConfigError("--verifier: built-in tasks have their own verifier; pass --problems, or omit --verifier")
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
        if self.validate_every is not None and self.validation is None and self.world is None and not generated:
            raise ConfigError("--validate-every needs --validation FILE with problems outside the training set")

    @cached_property
    def used_updates_per_batch(self) -> int:
        """Updates per batch: the setting, or else a default. Loads torch.

        The default is 1. For objectives that equal REINFORCE with one update, it is the largest divisor of
        ``batch_prompts`` up to 4.
        """
        if self.updates_per_batch is not None:
            return self.updates_per_batch
        from oversharp.trainers.objectives.composition import off_policy_part

        if self.epochs_per_batch > 1 or off_policy_part(objectives.parse(self.algorithm)) is None:
            return 1
        return max(n for n in range(1, _MOST_UPDATES + 1) if self.batch_prompts % n == 0)

    @property
    def is_off_policy(self) -> bool:
        """Whether a batch of rollouts is used after the policy has changed. Loads torch."""
        return self.used_updates_per_batch * self.epochs_per_batch > 1

    @property
    def world(self) -> str | None:
        """Name of the built-in world whose problems are trained on; None for other problems."""
        if self.problems is not None:
            return None
        return DEFAULT_WORLD if self.task is None else self.task if self.task in WORLDS else None

    @property
    def used_max_tokens(self) -> int:
        """Maximum response length in tokens: the setting, else the task's value, else the default."""
        task = self.world or self.task
        return self.max_tokens or suggested_max_tokens(task) or DEFAULT_MAX_TOKENS


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class SftConfig:
    """Settings of supervised training: a built-in task's base from random weights, or a pretrained model.

    Attributes
    ----------
    model
        Checkpoint (directory or hub name) to warm up on worked solutions of word_problems:train. Default: train the
        base of --task from random weights.
    task
        Built-in task whose base is trained: countdown or programs. Default: countdown. Not used with --model.
    output_dir
        Run directory: checkpoint-N/, metrics.jsonl, config.toml, environment.json, state/.
    max_steps
        Optimizer steps. The learning rate depends on this number.
    batch_size
        Examples per step.
    learning_rate
        Peak AdamW learning rate (betas .9 and .98). It is reached after 50 steps and then falls linearly to 5 %.
    weight_decay
        Decoupled weight decay.
    max_grad_norm
        Maximum global L2 norm of the gradient. Larger gradients are clipped.
    wrong_share
        Share of examples with a wrong response: for countdown an expression of the right numbers that misses the
        target, for programs a program of another function. Without such examples, the base is so good that RL changes
        nothing. Not used with --model.
    precision
        Precision of forward and backward passes: float32, or bfloat16 autocast with float32 master weights.
    n_examples
        Number of training examples. Batches are sampled from them with replacement.
    save_every
        Steps between checkpoints. Step 0 and the last step are always saved.
    seed
        Seed of the initial weights, the examples and their order.
    resume
        Continue the run in output_dir. On CPU, the result is bit-identical to an uninterrupted run.
    device
        cpu, cuda, cuda:1, … Default: cuda if available.
    threads
        CPU threads. One is fastest for a model this small.
    """

    model: str | None = None
    task: str | None = None
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
                f"--learning-rate {self.learning_rate:g}: too high for the pretrained weights of --model; "
                "pass --learning-rate 5e-5"
            )
        if self.world not in WORLDS:
            raise ConfigError(f"--task {self.task}: has no base to train; {nearest_names(self.world, tuple(WORLDS))}")
        if not 0 <= self.wrong_share <= 1:
            raise ConfigError(f"--wrong-share {self.wrong_share}: must be in [0, 1]")

    @property
    def world(self) -> str:
        """Name of the built-in world whose base is trained without ``model``."""
        return self.task or DEFAULT_WORLD


def settings_of(config: TrainConfig | SftConfig) -> dict[str, str | int | float | bool]:
    """Return name → value of the settings that are not None. Paths are strings.

    >>> settings_of(SftConfig(output_dir=Path("runs/base")))["output_dir"]
    'runs/base'
    """
    return {
        name: str(setting) if isinstance(setting, Path) else setting
        for name, setting in asdict(config).items()
        if setting is not None
    }


def to_toml(settings: Mapping[str, str | int | float | bool]) -> str:
    """Return settings as TOML without tables.

    >>> print(to_toml({"chat": False, "learning_rate": 2e-4, "model": "a \\\\ b"}), end="")
    chat = false
    learning_rate = 0.0002
    model = "a \\\\ b"
    """
    return "".join(f"{name} = {_toml_value(setting)}\n" for name, setting in settings.items())


def _toml_value(setting: str | int | float | bool) -> str:
    # JSON strings, booleans and integers are valid TOML; TOML floats need digits around the point or an exponent
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
