"""Settings of the audit. One dataclass field is the flag, the TOML key and the documentation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, Token

from diagnostics.records.errors import ConfigError
from diagnostics.records.names import nearest_names
from diagnostics.records.types import make_paths
from diagnostics.tasks.presets import PRESET_SETTINGS, PRESETS, PromptPreset

#: A response with a fenced code block is of the "code" strategy, any other of the "prose" strategy ([C] App I).
CODE_BLOCK = "```"

DEFAULT_SAMPLES = 256


def comma_separated(_type: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    """``--k 1,8,64`` and ``--k 1 --k 8`` and the TOML list ``k = [1, 8]`` all mean the same."""
    parts = [part for token in tokens for part in token.value.split(",") if part.strip()]
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError(f"{','.join(parts)!r} is not a list of whole numbers such as 1,8,64") from None


def one_or_none(_type: Any, tokens: Sequence[Token]) -> str:
    """The value of a flag that may stand alone; then it is empty."""
    return tokens[0].value if tokens else ""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """What to audit and how to sample it.

    Attributes
    ----------
    base
        Model before RLVR: a checkpoint directory. Default: the lowest step of the series, or the model under its
        LoRA adapters.
    problems
        JSONL or Parquet file with the fields prompt, answer and, if wanted, id, modes, verifier.
    task
        Named problem set: countdown, reasoning_gym:NAME, benchmark:NAME.
    preset
        Ask and sample as a paper did: sets prompt template, temperature, top-p and max tokens where you do not. See
        oversharp explain.
    limit
        Use only the first LIMIT problems; of the benchmarks arc_c, math and mmlu_pro as many at random, by the seed.
    n
        Samples per problem and checkpoint.
    n_base
        Samples per problem from the base: its noise enters every comparison. Default: twice n.
    top_up
        Add this many samples per problem to what the last finished audit of the series drew; base and k grow with it.
    adaptive
        Draw fewer samples, but at least twice the largest k, of problems that every earlier checkpoint solved always or
        never. Earlier checkpoints alone decide, so that the estimates stay unbiased.
    k
        Values of k for pass@k, comma-separated, none larger than n. Default: powers of two up to n.
    out
        Directory for audit.duckdb and report.html. The same directory continues an earlier audit.
    name
        Name of the series in the store and the report. Default: the name of its directory.
    sampler
        Engine that draws the responses: transformers, vllm, or one of another package. auto takes vLLM where it runs.
    temperature
        Sampling temperature. Default: the preset's, else 1.
    top_p
        Nucleus mass; 1 switches it off. Default: the preset's, else 1.
    top_k
        Keep only the top_k likeliest tokens; 0 switches it off.
    max_tokens
        Longest response in tokens. Default: the preset's, else what the task asks for, else 1024.
    prompt_template
        Text around every prompt; must contain {prompt}. Default: the preset's, else the prompt alone.
    system_prompt
        System turn; needs --chat.
    chat
        Wrap the prompt in the tokenizer's chat template.
    seed
        Seeds every random draw of the audit.
    entropy_samples
        Samples per problem that the token entropy is taken from.
    panel
        Responses per problem sampled once from the base and scored under every checkpoint; 0 for none. As many of each
        checkpoint's own samples are scored under the base.
    panel_temperature
        Temperature of those responses.
    kernel_problems
        Problems whose responses go into the gradient kernel of each checkpoint; 0 switches it off.
    kernel_responses
        Responses of each of these problems, from the panel and the modes, and as many own samples of the checkpoint.
    kernel_memory_gib
        Most memory for gradients while a kernel is computed, beside the model's own pass.
    strategy_regex
        A response that matches is counted as strategy "code", any other as "prose".
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    dtype
        Precision of the model.
    batch_size
        Responses generated at a time. Default: chosen from the model's size.
    tensor_parallel
        GPUs that share one model, vLLM only.
    gpu_memory_share
        Share of each GPU's memory that vLLM takes; the rest is for the model that scores.
    max_model_len
        Longest sequence vLLM plans for, prompt and response. Default: as long as the longest prompt needs.
    cpu_cache_gib
        Most memory for vLLM's KV cache where there is no GPU; a small model takes what it can fill.
    trust_remote_code
        Run the code that lies beside the weights of a model that transformers does not know, with your rights on this
        machine: only of people you trust.
    ray
        Let the workers of a Ray cluster draw, score and compute kernels: its address, or auto for the one that this
        machine belongs to. Without an address, use all of this machine. A worker may die; its work is done again.
    """

    base: Path | None = None
    problems: Path | None = None
    task: str | None = None
    preset: str | None = None
    limit: int | None = None
    n: int = DEFAULT_SAMPLES
    n_base: int | None = None
    top_up: int | None = None
    adaptive: Annotated[bool, Parameter(negative=())] = False
    k: Annotated[
        tuple[int, ...], Parameter(converter=comma_separated, n_tokens=1, negative=(), show_default=False)
    ] = ()
    out: Path = Path("audit")
    name: str | None = None
    sampler: str = "auto"
    temperature: float | None = None
    top_p: float | None = None
    top_k: int = 0
    max_tokens: int | None = None
    prompt_template: str | None = None
    system_prompt: str = ""
    chat: bool = False
    seed: int = 0
    entropy_samples: int = 16
    panel: int = 4
    panel_temperature: float = 0.9
    kernel_problems: int = 8
    kernel_responses: int = 6
    kernel_memory_gib: float = 1.0
    strategy_regex: str = CODE_BLOCK
    device: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    batch_size: int | None = None
    tensor_parallel: int = 1
    gpu_memory_share: float = 0.6
    max_model_len: int | None = None
    cpu_cache_gib: int = 2
    trust_remote_code: Annotated[bool, Parameter(negative=())] = False
    ray: Annotated[str | None, Parameter(converter=one_or_none, n_tokens=-1, consume_multiple=(0, 1), negative=())] = (
        None
    )

    def __post_init__(self) -> None:
        make_paths(self)
        if (self.problems is None) == (self.task is None):
            raise ConfigError("pass either --problems FILE.jsonl or --task NAME (for example --task countdown)")
        self._require_preset()
        at_least("--n", self.n, 1)
        at_least("--limit", self.limit, 1)
        at_least("--max-tokens", self.max_tokens, 1)
        at_least("--batch-size", self.batch_size, 1)
        at_least("--top-k", self.top_k, 0)
        at_least("--seed", self.seed, 0)
        at_least("--entropy-samples", self.entropy_samples, 0)
        at_least("--panel", self.panel, 0)
        at_least("--kernel-problems", self.kernel_problems, 0)
        at_least("--kernel-responses", self.kernel_responses, 2)
        if self.top_up is not None:
            self._require_top_up_alone()
        else:
            self._require_samples_enough()
        at_least("--top-up", self.top_up, 1)
        at_least("--tensor-parallel", self.tensor_parallel, 1)
        at_least("--max-model-len", self.max_model_len, 2)
        at_least("--cpu-cache-gib", self.cpu_cache_gib, 1)
        for k in self.k:
            at_least("--k", k, 1)
        for flag, temperature in (
            ("--temperature", self.used_temperature),
            ("--panel-temperature", self.panel_temperature),
        ):
            if not 0 < temperature < math.inf:
                raise ConfigError(f"{flag} {temperature}: must be a number above 0 (greedy is always sampled besides)")
        if not 0 < self.kernel_memory_gib < 2**20:
            raise ConfigError(f"--kernel-memory-gib {self.kernel_memory_gib}: must be above 0 and below 1048576")
        if not 0 < self.gpu_memory_share <= 1:
            raise ConfigError(f"--gpu-memory-share {self.gpu_memory_share}: must lie in (0, 1]")
        if not 0 < self.used_top_p <= 1:
            raise ConfigError(f"--top-p {self.used_top_p}: must lie in (0, 1]")
        for flag, value in (
            ("--seed", self.seed),
            ("--max-tokens", self.max_tokens),
            ("--top-k", self.top_k),
            ("--n", self.used_n_base),
            ("--top-up", self.top_up),
            ("--kernel-problems", self.kernel_problems),
            ("--kernel-responses", self.kernel_responses),
        ):
            if value is not None and value >= 2**31:
                raise ConfigError(f"{flag} {value}: must be below 2147483648")
        if self.ray is not None and self.device not in (None, "cpu", "cuda"):
            raise ConfigError(f"--device {self.device}: a worker sees its own GPU alone; with --ray pass cpu or cuda")
        if self.name is not None and (not self.name or not self.name.isprintable()):
            raise ConfigError(f"--name {self.name!r}: must be printable text")
        if "{prompt}" not in self.used_prompt_template:
            raise ConfigError("--prompt-template must contain {prompt}")
        if self.system_prompt and not self.chat:
            raise ConfigError("--system-prompt needs --chat")
        try:
            re.compile(self.strategy_regex)
        except re.error as error:
            raise ConfigError(f"--strategy-regex {self.strategy_regex!r}: {error}") from None

    def _require_preset(self) -> None:
        if self.preset is None:
            return
        if self.preset not in PRESETS:
            raise ConfigError(f"--preset {self.preset!r} is unknown; {nearest_names(self.preset, PRESETS)}")
        if self.chat and self.prompt_template is None:
            raise ConfigError(
                f"--chat: the template of --preset {self.preset} holds the turns of a chat already; leave --chat out, "
                "or give --prompt-template too"
            )

    def _require_top_up_alone(self) -> None:
        if self.n != DEFAULT_SAMPLES or self.n_base is not None:
            raise ConfigError("--top-up adds to the samples that are there: leave --n and --n-base out")

    def _require_samples_enough(self) -> None:
        at_least("--n-base", self.n_base, self.n)
        if self.k and max(self.k) > self.n:
            raise ConfigError(
                f"--k {max(self.k)} is larger than --n {self.n}: pass@k is not defined for k > n; "
                f"raise --n to {max(self.k)} or drop that k"
            )
        if self.adaptive and 2 * max(self.ks) >= self.n:
            raise ConfigError(
                f"--adaptive saves nothing with --k up to {max(self.ks)} and --n {self.n}: decided problems still get "
                f"twice the largest k; name a smaller --k, for example --k {max(1, self.n // 8)}"
            )

    @property
    def ks(self) -> tuple[int, ...]:
        """The values of k in ascending order; powers of two up to n where none were named."""
        if self.k:
            return tuple(sorted(set(self.k)))
        return tuple(2**power for power in range(self.n.bit_length()))

    @property
    def used_n_base(self) -> int:
        """Samples per problem from the base; twice ``n`` where no number was named."""
        return 2 * self.n if self.n_base is None else self.n_base

    @property
    def _preset(self) -> PromptPreset | None:
        return None if self.preset is None else PRESETS[self.preset]

    @property
    def set_by_preset(self) -> dict[str, str | float | int]:
        """The settings that the preset decides: those that nothing else names."""
        named = () if self._preset is None else PRESET_SETTINGS
        return {name: getattr(self._preset, name) for name in named if getattr(self, name) is None}

    @property
    def used_temperature(self) -> float:
        """``temperature``; the preset's, else 1, where none was named."""
        if self.temperature is not None:
            return self.temperature
        return 1.0 if self._preset is None else self._preset.temperature

    @property
    def used_top_p(self) -> float:
        """``top_p``; the preset's, else 1, where none was named."""
        if self.top_p is not None:
            return self.top_p
        return 1.0 if self._preset is None else self._preset.top_p

    @property
    def used_prompt_template(self) -> str:
        """``prompt_template``; the preset's, else the bare prompt, where none was named."""
        if self.prompt_template is not None:
            return self.prompt_template
        return "{prompt}" if self._preset is None else self._preset.prompt_template

    @property
    def asked_max_tokens(self) -> int | None:
        """``max_tokens``, else the preset's; None leaves it to the task and the model."""
        return self.max_tokens if self.max_tokens is not None or self._preset is None else self._preset.max_tokens

    @property
    def used_entropy_samples(self) -> int:
        """``entropy_samples``, which cannot be more than there are samples."""
        return min(self.entropy_samples, self.n)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConfirmConfig:
    """What to draw again, and where its checkpoints lie now.

    Attributes
    ----------
    series
        Name of the series in the store; needed where there are several.
    most
        Draw at most this many problems that seem lost, and as many that seem gained: first those that lost every
        correct sample, then the largest falls.
    fresh
        Fresh samples per problem, from the base and from the late checkpoint each; settled by the first test. Default:
        as many as then, at first as many as the audit drew from the base.
    path
        Where the run directory lies now, if it was moved after the audit.
    base
        Where the base model lies now, if it was moved after the audit and is not in the run directory.
    out
        Where to write the report. Default: report.html beside the store.
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    batch_size
        Responses generated at a time. Default: chosen from the model's size.
    tensor_parallel
        GPUs that share one model, vLLM only.
    gpu_memory_share
        Share of each GPU's memory that vLLM takes.
    max_model_len
        Longest sequence vLLM plans for, prompt and response. Default: as long as the longest prompt needs.
    cpu_cache_gib
        Most memory for vLLM's KV cache where there is no GPU; a small model takes what it can fill.
    trust_remote_code
        Run the code that lies beside the weights of a model that transformers does not know, with your rights on this
        machine: only of people you trust.
    """

    series: str | None = None
    most: int = 20
    fresh: int | None = None
    path: Path | None = None
    base: Path | None = None
    out: Path | None = None
    device: str | None = None
    batch_size: int | None = None
    tensor_parallel: int = 1
    gpu_memory_share: float = 0.6
    max_model_len: int | None = None
    cpu_cache_gib: int = 2
    trust_remote_code: Annotated[bool, Parameter(negative=())] = False

    def __post_init__(self) -> None:
        make_paths(self)
        at_least("--most", self.most, 1)
        at_least("--fresh", self.fresh, 1)
        if self.fresh is not None and self.fresh >= 2**31:
            raise ConfigError(f"--fresh {self.fresh}: must be below 2147483648")
        self.engine_config("transformers", "float32")  # refuses what no engine can work with

    def engine_config(self, sampler: str, dtype: Literal["float32", "bfloat16", "float16"]) -> AuditConfig:
        """What an engine reads: the machine's part of an audit's configuration. The problems come from the store."""
        return AuditConfig(
            task="stored",
            sampler=sampler,
            dtype=dtype,
            device=self.device,
            batch_size=self.batch_size,
            tensor_parallel=self.tensor_parallel,
            gpu_memory_share=self.gpu_memory_share,
            max_model_len=self.max_model_len,
            cpu_cache_gib=self.cpu_cache_gib,
            trust_remote_code=self.trust_remote_code,
        )


def at_least(flag: str, value: int | None, least: int) -> None:
    """Raise ``ConfigError`` for a value of ``flag`` that is too small."""
    if value is not None and value < least:
        raise ConfigError(f"{flag} {value}: must be at least {least}")
