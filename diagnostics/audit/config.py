"""Settings of audits.

Each dataclass field defines a flag, a TOML key and its documentation. ``AuditConfig`` is flat, so users write
``AuditConfig(n=64)`` and ``n = 64``. Its base classes are groups of settings that other commands also have.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from oversharp.diagnostics.audit.controls import ControlRequest, require_control_temperatures

# cyclopts looks up the groups of inherited fields here
from oversharp.diagnostics.audit.terms import VERDICT as VERDICT
from oversharp.diagnostics.audit.terms import VerdictConfig, require_base_or_none
from oversharp.diagnostics.engine.config import ENGINE, EngineConfig
from oversharp.diagnostics.records.arguments import check_settings
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.records.settings import (
    comma_separated,
    comma_separated_numbers,
    parse_optional,
    require_at_least,
    require_chat_args,
    require_in_first_round,
    require_name,
    require_rounds,
    require_storable,
)
from oversharp.diagnostics.samplers.agents.config import AgentConfig
from oversharp.diagnostics.samplers.endpoint.config import ENDPOINT as ENDPOINT  # see VERDICT above
from oversharp.diagnostics.tasks.presets import PRESET_SETTINGS, PRESETS
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER  # see VERDICT above
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig
from oversharp.diagnostics.verifiers.reading.golds import GoldList

#: A response that contains this has the strategy "code", any other response "prose" ([C] App I).
CODE_BLOCK = "```"

DEFAULT_SAMPLES = 256
#: Default of ``--until-solved`` from this number of samples. Below, rounds save little.
DEFAULT_ENOUGH, LEAST_IN_ROUNDS = 4, 64
#: Default of ``--first``: at most this many samples, and at most a quarter of n.
DEFAULT_FIRST = 32
DEFAULT_ENTROPY_SAMPLES = 16
DEFAULT_PANEL, DEFAULT_KERNEL_PROBLEMS = 4, 8

# headings of ``oversharp audit --help``
PROBLEMS = Parameter(group=Group("Problems", sort_key=1))
SERIES = Parameter(group=Group("Series and report", sort_key=2))
SAMPLING = Parameter(group=Group("Sampling", sort_key=3))
PANEL = Parameter(group=Group("Panel", sort_key=4))
CONTROLS = Parameter(group=Group("Controls", sort_key=5))
KERNEL = Parameter(group=Group("Kernel", sort_key=5))
#: Fields with a list of temperatures or values of k.
TEMPERATURES = Parameter(converter=comma_separated_numbers, n_tokens=1, negative=(), show_default=False)
VALUES_OF_K = Parameter(converter=comma_separated, n_tokens=1, negative=(), show_default=False)


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class AuditConfig(EngineConfig, AgentConfig, GraderConfig, VerdictConfig):
    """Problems, checkpoints, sampling and verdict of an audit.

    Attributes
    ----------
    problems
        JSONL or Parquet file with the fields prompt and answer, and optionally id, modes and verifier.
    task
        Problem set: countdown, programs, reasoning_gym:NAME, benchmark:NAME.
    limit
        Use only the first LIMIT problems. For the benchmarks arc_c, math and mmlu_pro: a random sample, by the seed.
    cluster
        Field that has the cluster of a problem. Problems of a cluster are related, such as variants of a template or
        questions on one document. none: problems are independent. Default: cluster, else group.
    verifier
        Grader to use in place of the problems' own: a verifier, FILE.py:function (runs your code) or judge:FILE.toml.
    gold
        For answers that are lists: whether a response must contain any or all of the members.
    answer_in_thoughts
        Accept a boxed answer in the model's thoughts if no answer follows the thoughts.
    strict
        Stop if nearly no response of the base has a parsed answer, or nearly all are wrong and truncated. Samples are
        kept. Default: print a warning and continue.
    base
        Model before RLVR: a checkpoint directory. Default: the lowest step of the series, or the model of its LoRA
        adapters.
    out
        Directory for audit.duckdb and report.html. The same directory continues an earlier audit.
    name
        Name of the series in the store and the report. Default: the name of its directory.
    verify_weights
        Hash all weights again. Default: a file with unchanged path, size and modification time is not hashed again.
    n
        Samples per problem and checkpoint.
    n_base
        Samples per problem from the base. Its sampling error affects every comparison. Default: twice n.
    top_up
        Add this many samples per problem to the last finished audit of the series. n_base and k also increase.
    until_solved
        Sample each problem in rounds of FIRST, 2 FIRST, 4 FIRST, … up to n, and stop it at a checkpoint after the first
        round that leaves it with UNTIL_SOLVED correct samples. pass@k stays unbiased for every k up to n. What needs
        equally many samples of every problem uses the first round. 0: always n samples. Default: 4 if n is 64 or more,
        else 0.
    first
        Samples per problem in the first round of until_solved. Default: a quarter of n, at most 32; half of n, at most
        64, if the grader distinguishes modes.
    k
        Values of k for pass@k, comma-separated, none larger than n. Default: powers of two up to n.
    sampler
        Sampler: transformers, vllm, endpoint, or the name of a plug-in. auto uses a server if --endpoint, --serve or
        --endpoints gives one, else vLLM if it can run here.
    preset
        Prompt and sampling settings of a paper: prompt template, temperature, top-p and max tokens. Settings that you
        give override it. See oversharp explain.
    temperature
        Sampling temperature. Default: the preset's, else 1.
    top_p
        Probability mass of nucleus sampling; 1 disables it. Default: the preset's, else 1.
    top_k
        Sample only from the top_k most likely tokens; 0 disables this.
    max_tokens
        Token limit of a response. Default: the preset's, else the task's, else 1024.
    prompt_template
        Text around every prompt; must contain {prompt}. Default: the preset's, else the prompt alone.
    system_prompt
        System prompt; needs a chat template.
    chat
        Insert the prompt as the user turn into the tokenizer's chat template; --no-chat uses the bare prompt. Default:
        as for the samples in the store, else as in training. Else the template is used if the tokenizer has one and
        neither --prompt-template nor the problems contain turns. The choice is printed.
    chat_args
        Additional arguments of the chat template, as a JSON object such as {"enable_thinking": false}.
    seed
        Random seed of the audit.
    dtype
        Floating-point type of the model. auto: as for the samples in the store. Else float32 for small models, the type
        of the base's weights on a GPU or on a CPU with instructions for it, and float32 otherwise. The choice is
        printed.
    strategy_regex
        Regular expression. A matching response has the strategy "code", any other "prose".
    panel
        Responses per problem in the panel: sampled once from the base, and teacher-forced under every checkpoint. 0: no
        panel. The same number of each checkpoint's own samples is teacher-forced under the base. Default: 4, or 0 with
        a server, because teacher forcing loads the model here.
    panel_temperature
        Temperature of the panel's responses.
    entropy_samples
        Number of samples per problem from which token entropy is computed. Default: 16, or 0 with a server.
    controls
        Sample the base at lower temperatures, and the last checkpoint and the one to ship at higher ones. Default: only
        if this adds at most a quarter of the audit's samples.
    control_n
        Samples per problem at each of these temperatures. Default: n, or fewer so that they add at most a quarter.
    control_temperatures
        Lower temperatures for the base, comma-separated. Default: 0.6, 0.3 and 0.15 times the audit's.
    hot_temperatures
        Higher temperatures for checkpoints, comma-separated. Default: 1.2 and 1.5 times the audit's.
    kernel_problems
        Number of problems whose responses are in the gradient kernel of each checkpoint; 0: no kernel. Default: 8, or 0
        with a server.
    kernel_responses
        Number of panel responses and modes of each of these problems in the kernel, and also of own samples.
    kernel_memory_gib
        Memory limit for gradients while a kernel is computed, without the memory of the forward and backward pass.
        Default: 1, or more if that memory is free and saves time. If the rows do not fit, the kernel has fewer
        problems.
    ray
        Sample, teacher-force and compute kernels on the workers of a Ray cluster. Give its address, or auto for the
        cluster of this machine. Without an address, a cluster is started on this machine. If a worker dies, another one
        repeats its work.
    """

    problems: Annotated[Path | None, PROBLEMS] = None
    task: Annotated[str | None, PROBLEMS] = None
    limit: Annotated[int | None, PROBLEMS] = None
    cluster: Annotated[str | None, PROBLEMS] = None
    verifier: Annotated[str | None, PROBLEMS] = None
    gold: Annotated[GoldList, PROBLEMS] = "any"
    answer_in_thoughts: Annotated[bool, PROBLEMS, Parameter(negative=())] = False
    strict: Annotated[bool, PROBLEMS, Parameter(negative=())] = False
    base: Annotated[Path | None, SERIES] = None
    out: Annotated[Path, SERIES] = Path("audit")
    name: Annotated[str | None, SERIES] = None
    verify_weights: Annotated[bool, SERIES, Parameter(negative=())] = False
    n: Annotated[int, SAMPLING] = DEFAULT_SAMPLES
    n_base: Annotated[int | None, SAMPLING] = None
    top_up: Annotated[int | None, SAMPLING] = None
    until_solved: Annotated[int | None, SAMPLING] = None
    first: Annotated[int | None, SAMPLING] = None
    k: Annotated[tuple[int, ...], SAMPLING, VALUES_OF_K] = ()
    sampler: Annotated[str, SAMPLING] = "auto"
    preset: Annotated[str | None, SAMPLING] = None
    temperature: Annotated[float | None, SAMPLING] = None
    top_p: Annotated[float | None, SAMPLING] = None
    top_k: Annotated[int, SAMPLING] = 0
    max_tokens: Annotated[int | None, SAMPLING] = None
    prompt_template: Annotated[str | None, SAMPLING] = None
    system_prompt: Annotated[str, SAMPLING] = ""
    chat: Annotated[bool | None, SAMPLING] = None
    chat_args: Annotated[str | None, SAMPLING] = None
    seed: Annotated[int, SAMPLING] = 0
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], SAMPLING] = "auto"
    strategy_regex: Annotated[str, SAMPLING] = CODE_BLOCK
    panel: Annotated[int | None, PANEL] = None
    panel_temperature: Annotated[float, PANEL] = 0.9
    entropy_samples: Annotated[int | None, PANEL] = None
    controls: Annotated[bool | None, CONTROLS] = None
    control_n: Annotated[int | None, CONTROLS] = None
    control_temperatures: Annotated[tuple[float, ...] | None, CONTROLS, TEMPERATURES] = None
    hot_temperatures: Annotated[tuple[float, ...] | None, CONTROLS, TEMPERATURES] = None
    kernel_problems: Annotated[int | None, KERNEL] = None
    kernel_responses: Annotated[int, KERNEL] = 6
    kernel_memory_gib: Annotated[float | None, KERNEL] = None
    ray: Annotated[
        str | None, ENGINE, Parameter(converter=parse_optional, n_tokens=-1, consume_multiple=(0, 1), negative=())
    ] = None

    def __post_init__(self) -> None:
        if (self.problems is None) == (self.task is None):
            raise ConfigError("pass either --problems FILE.jsonl or --task NAME (for example --task countdown)")
        require_at_least("--limit", self.limit, 1)
        require_name(self.name)
        self._require_preset()
        self._require_counts()
        self._require_distribution()
        self._require_prompt()
        try:
            re.compile(self.strategy_regex)
        except re.error as error:
            raise ConfigError(f"--strategy-regex {self.strategy_regex!r}: {error}") from None
        self._require_panel()
        self._require_controls()
        self._require_kernel()
        VerdictConfig.__post_init__(self)
        require_base_or_none(self.selected_by)
        GraderConfig.__post_init__(self)
        EngineConfig.__post_init__(self)
        self.require_endpoint(self.sampler, uses_ray=self.ray is not None)
        if self.ray is not None and self.device not in (None, "cpu", "cuda"):
            raise ConfigError(f"--device {self.device}: each worker has only one GPU; with --ray pass cpu or cuda")

    def _require_preset(self) -> None:
        if self.preset is None:
            return
        if self.preset not in PRESETS:
            raise ConfigError(f"--preset {self.preset!r} is unknown; {nearest_names(self.preset, PRESETS)}")
        if self.chat and self.prompt_template is None:
            raise ConfigError(
                f"--chat: the template of --preset {self.preset} already contains chat turns; remove --chat, or also "
                "pass --prompt-template"
            )

    def _require_counts(self) -> None:
        require_at_least("--n", self.n, 1)
        for k in self.k:
            require_at_least("--k", k, 1)
        if self.top_up is None:
            self._require_samples_enough()
        elif self.n != DEFAULT_SAMPLES or self.n_base is not None:
            raise ConfigError("--top-up adds to the existing samples: remove --n and --n-base")
        self._require_rounds()
        require_at_least("--top-up", self.top_up, 1)
        require_storable("--n", self.used_n_base)
        require_storable("--top-up", self.top_up)

    def _require_samples_enough(self) -> None:
        require_at_least("--n-base", self.n_base, self.n)
        if self.k and max(self.k) > self.n:
            raise ConfigError(
                f"--k {max(self.k)} is larger than --n {self.n}: pass@k is not defined for k > n; "
                f"raise --n to {max(self.k)} or remove that k"
            )

    def _require_rounds(self) -> None:
        enough = self.until_solved if self.top_up else self.used_until_solved
        require_rounds(enough, self.first, self.used_first, None if self.top_up else self.n)
        if self.is_stopping:
            require_in_first_round(self._users_of_single_samples, self.used_first)

    def _require_distribution(self) -> None:
        require_temperature("--temperature", self.used_temperature)
        if not 0 < self.used_top_p <= 1:
            raise ConfigError(f"--top-p {self.used_top_p}: must be in (0, 1]")
        for flag, value, least in (
            ("--top-k", self.top_k, 0),
            ("--max-tokens", self.max_tokens, 1),
            ("--seed", self.seed, 0),
        ):
            require_at_least(flag, value, least)
            require_storable(flag, value)

    def _require_prompt(self) -> None:
        if "{prompt}" not in self.used_prompt_template:
            raise ConfigError("--prompt-template must contain {prompt}")
        for flag, given in (("--system-prompt", self.system_prompt), ("--chat-args", self.chat_args)):
            if given and self.chat is False:
                raise ConfigError(f"{flag}: needs a chat template, but --no-chat disables it; remove one of the two")
        if self.chat_args is not None:
            require_chat_args(self.chat_args)

    def _require_panel(self) -> None:
        require_at_least("--panel", self.panel, 0)
        require_at_least("--entropy-samples", self.entropy_samples, 0)
        require_temperature("--panel-temperature", self.panel_temperature)

    def _require_controls(self) -> None:
        require_at_least("--control-n", self.control_n, 2)
        require_storable("--control-n", self.control_n)
        request = self.control_request
        if self.controls is False and request.named:
            raise ConfigError(f"{request.named[0]}: --no-controls disables controls; remove one of the two")
        require_control_temperatures(request, self.used_temperature)
        if self.control_n is not None and self.top_up is None and self.control_n > self.used_n_base:
            raise ConfigError(
                f"--control-n {self.control_n}: a control cannot have more samples than the base, "
                f"{self.used_n_base} (--n-base); pass at most {self.used_n_base}"
            )

    def _require_kernel(self) -> None:
        require_at_least("--kernel-problems", self.kernel_problems, 0)
        require_at_least("--kernel-responses", self.kernel_responses, 2)
        require_storable("--kernel-problems", self.kernel_problems)
        require_storable("--kernel-responses", self.kernel_responses)
        if self.kernel_memory_gib is not None and not 0 < self.kernel_memory_gib < 2**20:
            raise ConfigError(f"--kernel-memory-gib {self.kernel_memory_gib}: must be above 0 and below 1048576")

    @property
    def ks(self) -> tuple[int, ...]:
        """Values of k in ascending order; by default powers of two up to n."""
        if self.k:
            return tuple(sorted(set(self.k)))
        return tuple(2**power for power in range(self.n.bit_length()))

    @property
    def used_n_base(self) -> int:
        """Samples per problem from the base; by default twice ``n``."""
        return 2 * self.n if self.n_base is None else self.n_base

    @property
    def set_by_preset(self) -> dict[str, str | float | int]:
        """Settings of the preset, without those that the user gives."""
        if self.preset is None:
            return {}
        return {name: getattr(PRESETS[self.preset], name) for name in PRESET_SETTINGS if getattr(self, name) is None}

    def _resolve(self, name: str, default: Any) -> Any:
        """Return the user's value of a setting, else the preset's, else ``default``."""
        given = getattr(self, name)
        return self.set_by_preset.get(name, default) if given is None else given

    @property
    def used_temperature(self) -> float:
        """``temperature``; by default the preset's, else 1."""
        return float(self._resolve("temperature", 1.0))  # 1 and 1.0 must give the same settings id

    @property
    def used_top_p(self) -> float:
        """``top_p``; by default the preset's, else 1."""
        return float(self._resolve("top_p", 1.0))

    @property
    def used_prompt_template(self) -> str:
        """``prompt_template``; by default the preset's, else the bare prompt."""
        return str(self._resolve("prompt_template", "{prompt}"))

    @property
    def asked_max_tokens(self) -> int | None:
        """``max_tokens``, else the preset's; None if it depends on task and model."""
        return None if (tokens := self._resolve("max_tokens", None)) is None else int(tokens)

    @property
    def is_stopping(self) -> bool:
        """Whether problems are sampled in rounds until they are solved."""
        return self.used_until_solved > 0

    @property
    def used_until_solved(self) -> int:
        """Correct samples after which a problem is not sampled further; 0 for equally many samples of every problem."""
        if self.until_solved is not None:
            return self.until_solved
        is_large = self.top_up is None and self.n >= LEAST_IN_ROUNDS
        saves = self.used_first < self.n or self.first is not None  # a given first round that saves nothing is an error
        return DEFAULT_ENOUGH if is_large and saves and self.used_temperature > 0 else 0

    @property
    def used_first(self) -> int:
        """Samples per problem in the first round. The default is as many as the measures of single samples need."""
        if self.first is not None:
            return self.first
        return max(1, min(DEFAULT_FIRST, self.n // 4), *self._users_of_single_samples.values())

    @property
    def _users_of_single_samples(self) -> Mapping[str, int]:
        """Flags whose measures use that many single samples of every problem."""
        return {
            "--panel": self.used_panel,
            "--kernel-responses": self.kernel_responses if self.used_kernel_problems else 0,
            "--entropy-samples": 0 if self.entropy_samples == DEFAULT_ENTROPY_SAMPLES else self.entropy_samples or 0,
        }

    @property
    def used_entropy_samples(self) -> int:
        """``entropy_samples``, at most ``n``, and at most the first round."""
        asked = self._with_model(self.entropy_samples, DEFAULT_ENTROPY_SAMPLES)
        return min(asked, self.n, self.used_first if self.is_stopping else self.n)

    @property
    def used_sampler(self) -> str:
        """``sampler``; endpoint for auto if a server is given."""
        return "endpoint" if self.sampler == "auto" and self.has_endpoint else self.sampler

    @property
    def used_panel(self) -> int:
        """``panel``, or its default for the sampler."""
        return self._with_model(self.panel, DEFAULT_PANEL)

    @property
    def used_kernel_problems(self) -> int:
        """``kernel_problems``, or its default for the sampler."""
        return self._with_model(self.kernel_problems, DEFAULT_KERNEL_PROBLEMS)

    def _with_model(self, given: int | None, default: int) -> int:
        """Return the value of a setting whose measures load the model on this machine, which a server replaces."""
        return given if given is not None else 0 if self.used_sampler == "endpoint" else default

    @property
    def control_request(self) -> ControlRequest:
        """Settings of the controls."""
        return ControlRequest(
            wanted=self.controls,
            n=self.control_n,
            lower=self.control_temperatures,
            higher=self.hot_temperatures,
        )


def require_temperature(flag: str, temperature: float) -> None:
    """Raise ``ConfigError`` for a temperature that is not finite and above 0."""
    if not 0 < temperature < math.inf:
        raise ConfigError(f"{flag} {temperature}: must be a number above 0 (a greedy response is sampled in any case)")
