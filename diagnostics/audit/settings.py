"""Settings of an audit, resolved once from configuration, series and store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Protocol, cast

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.controls import Controls, add_stored_controls, plan_controls
from oversharp.diagnostics.audit.terms import resolve_terms
from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.engine.local import EngineSpec
from oversharp.diagnostics.models.chat import choose_chat, require_usable, trained_with_chat
from oversharp.diagnostics.models.precision import choose_dtype
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.types import (
    DEFAULT_MAX_TOKENS,
    AuditKey,
    Checkpoint,
    Problem,
    SamplingSettings,
    Series,
    VerdictTerms,
    content_hash,
)
from oversharp.diagnostics.samplers import lora_ranks
from oversharp.diagnostics.samplers.agents.environment import Environment
from oversharp.diagnostics.samplers.endpoint.places import LOG_FOLDER
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import FinishedSamples, finished_samples
from oversharp.diagnostics.store.missing import StoredDraws, stored_controls, stored_draws
from oversharp.diagnostics.tasks import suggested_max_tokens
from oversharp.diagnostics.verifiers import SHOW_MODES
from oversharp.diagnostics.verifiers.thoughts import SUFFIX as THOUGHTS

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import Dtype

Note = Callable[[str], None]

#: Largest default of the first round if the grader distinguishes modes.
FIRST_WITH_MODES = 64
_WITHOUT_MODEL = (
    "left out: panel, token entropy and kernel; --panel 4 adds the panel, which a vLLM server scores; "
    "--entropy-samples 16 and --kernel-problems 8 load the model on this machine"
)
_WITHOUT_ENTROPY = (
    "left out, because they load the model on this machine: token entropy and kernel; --entropy-samples 16 and "
    "--kernel-problems 8 add them"
)
_WITHOUT_TOKENS = "unknown for trajectories, which have no token ids: panel, token entropy and kernel"
_WITHOUT_WEIGHTS = "unknown without weights: panel, token entropy, kernel, and log-probabilities of given responses"
#: Floating-point type in the sampling settings of models behind a server.
UNKNOWN_DTYPE = "unknown"
#: Approximate number of characters per token, for estimates.
CHARACTERS_PER_TOKEN = 4


class SamplerChoice(Protocol):
    """Function that chooses a sampler on the machine that samples.

    See ``samplers.choose_sampler``.
    """

    def __call__(
        self, name: str, checkpoints: Sequence[Checkpoint], *, device: str | None, stored: str | None = None
    ) -> tuple[str, str]: ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Resolved settings of one audit. After ``resolve``, no step reads the configuration.

    ``n`` and ``n_base`` include ``--top-up``. ``first_round`` and ``enough`` are the stopping rule, None without one.
    ``panel_sampling`` are the sampling settings of the panel. ``controls`` are samples at other temperatures, None for
    none. ``engine`` specifies the engine that samples and scores. ``scores_responses``: responses are teacher-forced,
    by the server or here; without it, a server samples, and nothing else is computed. ``uses_ray``: Ray's workers run
    it. ``preset`` is the name of ``--preset`` and the settings that it set.
    """

    sampling: SamplingSettings
    panel_sampling: SamplingSettings
    n: int
    n_base: int
    first_round: int | None
    enough: int | None
    ks: tuple[int, ...]
    panel: int
    entropy_samples: int
    is_strict: bool
    kernel_problems: int
    kernel_responses: int
    strategy_regex: str
    terms: VerdictTerms
    controls: Controls | None
    engine: EngineSpec
    scores_responses: bool
    uses_ray: bool
    preset: Mapping[str, object]

    def key(self, series: str, problems: Sequence[Problem]) -> AuditKey:
        """Return the identity in the store of an audit of these problems."""
        problem_ids = [problem.problem_id for problem in problems]
        compared = (series, self.sampling.settings_id, problem_ids, self.n, self.n_base, self.ks)
        panel = (self.panel_sampling.settings_id, self.panel)
        kernel = (self.kernel_problems, self.kernel_responses)
        others = (self.entropy_samples, self.strategy_regex, self.first_round, self.enough)
        return AuditKey(
            audit_id=content_hash(*compared, *panel, *kernel, *others),
            series=series,
            settings_id=self.sampling.settings_id,
            n=self.n,
            n_base=self.n_base,
            first_round=self.first_round,
            enough=self.enough,
            entropy_samples=self.entropy_samples,
            panel=self.panel,
            panel_settings_id=self.panel_sampling.settings_id,
            kernel_problems=self.kernel_problems,
            kernel_responses=self.kernel_responses,
            ks=self.ks,
            strategy_regex=self.strategy_regex,
            terms=self.terms,
        )


def resolve(
    config: AuditConfig,
    series: Series,
    problems: Sequence[Problem],
    store: Store,
    *,
    choose_sampler: SamplerChoice,
    note: Note,
    environment: Environment | None = None,
) -> Settings:
    """Resolve every setting that the configuration leaves open. Nothing is written to the store.

    A continued audit keeps the chat template, floating-point type and sampler of the samples in the store. ``note``
    prints each choice that the user did not make. Raises ``ConfigError`` for settings that contradict the store, and
    ``SamplerError`` for a sampler or chat template that cannot be used.
    """
    draws = stored_draws(store, series.name)
    is_served = series.base.kind == "recorded"  # its checkpoints exist only behind servers
    chat, chat_args = _resolve_chat(config, series, problems, draws, note)
    dtype: Dtype = "float32" if is_served else resolve_dtype(config, series.base, draws, note)
    name, why = choose_sampler(
        config.used_sampler, series.checkpoints, device=config.device, stored=None if draws is None else draws.sampler
    )
    recorded_dtype = UNKNOWN_DTYPE if is_served else dtype
    sampling = replace(
        sampling_settings(config, series.base, sampler=name, chat=chat, chat_args=chat_args, dtype=recorded_dtype),
        environment=None if environment is None else environment.name,
        max_turns=config.used_max_turns,
    )
    if chat and not is_served and (draws is None or not draws.chat):
        require_usable(series.base, sampling)
    store.require_regex("--strategy-regex", config.strategy_regex)
    counts = _resolve_counts(store, config, series, sampling, problems)
    terms = resolve_terms(store, series.name, config)
    loads_models = name != "endpoint" or bool(counts.used_entropy_samples or config.used_kernel_problems)
    scores_responses = loads_models or config.used_panel > 0
    if scores_responses and (is_served or environment is not None):
        lacking = "the weights, which are only behind the server" if is_served else "tokens, which trajectories lack"
        raise ConfigError(f"--panel, --entropy-samples, --kernel-problems: need {lacking}; remove these flags")
    endpoint = config.endpoint_settings(
        config.out / LOG_FOLDER,
        compares_weights=loads_models,
        scores_responses=scores_responses and not loads_models,
        knows_dtype=config.dtype != "auto",
    )
    if endpoint is not None and (unused := endpoint.require_places(series)):
        listed = f"{'step' if len(unused) == 1 else 'steps'} {', '.join(map(str, unused))}"
        note(f"--endpoints {config.endpoints}: {listed} not used, because {series.name} has no such checkpoint")
    if not loads_models:
        lacking = _WITHOUT_WEIGHTS if is_served else _WITHOUT_ENTROPY if scores_responses else _WITHOUT_MODEL
        note(lacking if environment is None else _WITHOUT_TOKENS)
    elif name == "endpoint" and counts.used_entropy_samples:
        _require_entropies(store, series, sampling, counts.used_entropy_samples)
    settings = Settings(
        sampling=sampling,
        panel_sampling=_panel_sampling(config, sampling),
        n=counts.n,
        n_base=counts.used_n_base,
        first_round=first_round(counts, problems) if counts.is_stopping else None,
        enough=counts.used_until_solved or None,
        ks=counts.ks,
        panel=config.used_panel,
        entropy_samples=counts.used_entropy_samples,
        is_strict=config.strict,
        kernel_problems=config.used_kernel_problems,
        kernel_responses=config.kernel_responses,
        strategy_regex=config.strategy_regex,
        terms=terms,
        controls=_resolve_controls(store, counts, series, problems, sampling, note),
        engine=EngineSpec(
            config=EngineConfig(**{field.name: getattr(config, field.name) for field in fields(EngineConfig)}),
            dtype=dtype,
            sampler_name=name,
            why=why,
            lora_ranks=lora_ranks(series.checkpoints),
            kernel_memory_gib=config.kernel_memory_gib,
            endpoint=endpoint,
            environment=environment,
        ),
        scores_responses=scores_responses,
        uses_ray=config.ray is not None,
        preset={} if config.preset is None else {"name": config.preset, **config.set_by_preset},
    )
    if settings.first_round is not None and (config.first is None or config.until_solved is None):
        problem_ids = [problem.problem_id for problem in problems]
        note(_rounds_text(settings, finished_samples(store, series.name, sampling.settings_id, problem_ids)))
    if draws is None:
        _estimate_kernel_memory(settings, series, problems, note)
    if config.controls is False:
        audit_id = settings.key(series.name, problems).audit_id
        if len(store.frame("FROM audit_controls WHERE audit_id = $id", id=audit_id)):
            note("--no-controls: none are sampled; the store has some from an earlier call, which are reported")
    return settings


def _resolve_chat(
    config: AuditConfig, series: Series, problems: Sequence[Problem], draws: StoredDraws | None, note: Note
) -> tuple[bool, str | None]:
    """Return whether to use the chat template, and its arguments.

    They are the user's, else the store's, else those of the series. Raises ``SamplerError`` for a system prompt or
    arguments without a chat template.
    """
    chat_args = _canonical_json(config.chat_args)
    if config.environment is not None:
        if config.chat is False or (config.preset is not None and config.prompt_template is None):
            raise ConfigError("--environment: trajectories need the chat template; remove --no-chat or --preset")
        return True, chat_args
    if config.chat is not None:
        return config.chat, chat_args if config.chat else None
    if config.preset is not None and config.prompt_template is None:  # the preset's template contains the chat turns
        return False, None
    if draws is not None and draws.chat is not None:
        if not draws.chat and (config.system_prompt or config.chat_args):
            flag = "--system-prompt" if config.system_prompt else "--chat-args"
            raise ConfigError(
                f"{flag}: needs a chat template, but the samples in the store were drawn without one; leave it out, or "
                "pass --chat to draw new samples"
            )
        return draws.chat, (chat_args or draws.chat_args) if draws.chat else None
    if series.base.kind == "recorded":
        is_chat = config.used_prompt_template == "{prompt}" or bool(config.system_prompt or config.chat_args)
        route, other = ("/v1/chat/completions", "--no-chat") if is_chat else ("/v1/completions", "--chat")
        note(f"prompts are sent to {route}; {other} uses the other route")
        return is_chat, chat_args if is_chat else None
    choice = choose_chat(
        series.base,
        problems,
        own_words=config.used_prompt_template != "{prompt}",
        trained=trained_with_chat(series.path),
        needed_by="--system-prompt" if config.system_prompt else "--chat-args" if config.chat_args else None,
    )
    if choice.note is not None:
        note(choice.note)
    return choice.chat, chat_args if choice.chat else None


def _canonical_json(chat_args: str | None) -> str | None:
    """Return a JSON object in canonical form, because it identifies samples.

    None for an empty one.
    """
    given: dict[str, object] = {} if chat_args is None else json.loads(chat_args)
    return json.dumps(given, sort_keys=True, ensure_ascii=False) if given else None


def resolve_dtype(config: AuditConfig, base: Checkpoint, draws: StoredDraws | None, note: Note) -> Dtype:
    """Return the floating-point type of the model.

    For ``--dtype auto`` it is that of the stored samples, else it depends on base and device.
    """
    if config.dtype == "auto" and draws is not None and draws.dtype is not None:
        return cast("Dtype", draws.dtype)
    from oversharp.diagnostics.models.devices import pick_device, slow_products_note  # loads torch

    if config.dtype != "auto":
        if slow := slow_products_note("--dtype", config.dtype, pick_device(config.device)):
            note(slow)
        return config.dtype
    dtype, why = choose_dtype(base, pick_device(config.device))
    if dtype != "float32":
        note(f"computing in {dtype}, {why}; --dtype float32 is more exact")
    return dtype


def sampling_settings(
    config: AuditConfig, base: Checkpoint, *, sampler: str, chat: bool, chat_args: str | None, dtype: str
) -> SamplingSettings:
    """Return the sampling settings of the audit, which identify a sample."""
    return SamplingSettings(
        sampler=sampler,
        temperature=config.used_temperature,
        top_p=config.used_top_p,
        top_k=config.top_k,
        max_tokens=config.asked_max_tokens or suggested_max_tokens(config.task) or _default_max_tokens(base),
        prompt_template=config.used_prompt_template,
        system_prompt=config.system_prompt,
        chat=chat,
        seed=config.seed,
        dtype=dtype,
        chat_args=chat_args,
    )


def _panel_sampling(config: AuditConfig, sampling: SamplingSettings) -> SamplingSettings:
    """Return the panel's sampling settings: separate temperature and seed, no top-p or top-k.

    With the audit's seed, the panel would share its random numbers with the samples for pass@k.
    """
    seed = int(content_hash("panel", config.seed), 16) % 2**31
    return replace(sampling, temperature=float(config.panel_temperature), top_p=1.0, top_k=0, seed=seed)


def _default_max_tokens(base: Checkpoint) -> int:
    """Return 1,024, or half of the model's context if that is less."""
    if base.kind == "recorded":
        return DEFAULT_MAX_TOKENS
    path = (base.base_path or base.path) / "config.json"
    context_tokens = json.loads(path.read_text(encoding="utf-8")).get("max_position_embeddings")
    return DEFAULT_MAX_TOKENS if context_tokens is None else min(DEFAULT_MAX_TOKENS, int(context_tokens) // 2)


def _resolve_counts(
    store: Store, config: AuditConfig, series: Series, sampling: SamplingSettings, problems: Sequence[Problem]
) -> AuditConfig:
    """Return the configuration with the total numbers of samples after ``--top-up``.

    The totals are checked like given numbers. The samples are added to those of the last finished audit: an interrupted
    top-up is continued, not added a second time. Without ``--until-solved``, the stopping rule is that of this audit.
    """
    more = config.top_up
    if more is None:
        return config
    problem_ids = [problem.problem_id for problem in problems]
    finished = finished_samples(store, series.name, sampling.settings_id, problem_ids)
    if finished is None:
        raise ConfigError(
            f"--top-up {more}: {store.path} has no finished audit of series {series.name!r} with these problems and "
            "settings; run it without --top-up first"
        )
    n, n_base = finished.n, finished.n_base
    enough, first = config.until_solved, config.first
    if enough is None:
        enough, first = finished.enough or 0, finished.first_round
    return replace(
        config, n=n + more, n_base=n_base + more * n_base // n, until_solved=enough, first=first, top_up=None
    )


def _require_entropies(store: Store, series: Series, sampling: SamplingSettings, entropy_samples: int) -> None:
    """Raise ``ConfigError`` if a server scored responses, because their entropies stay unknown."""
    scored = store.frame(
        """
        SELECT 1
        FROM response_logps
        SEMI JOIN (FROM series_checkpoints WHERE series = $series) USING (checkpoint_id)
        WHERE settings_id = $settings_id AND entropy_sum IS NULL
        LIMIT 1
        """,
        series=series.name,
        settings_id=sampling.settings_id,
    )
    if len(scored):
        raise ConfigError(
            f"--entropy-samples {entropy_samples}: the server's scores in {store.path} have no entropies; remove it, "
            "or pass another --out"
        )


def _rounds_text(settings: Settings, finished: FinishedSamples | None) -> str:
    """Return the stopping rule as a line, with the first round of the last finished audit if it was another."""
    first = settings.first_round
    of_base = "" if settings.n_base == settings.n else f", {settings.n_base} of the base"
    before = None if finished is None else finished.first_round
    other = "" if before in (None, first) else f"; the last audit began with {before}: --first {before} keeps that"
    return (
        f"each problem is sampled in rounds, {first} samples and then up to {settings.n}{of_base}, until "
        f"{settings.enough} are correct (--first, --until-solved){other}"
    )


def first_round(config: AuditConfig, problems: Sequence[Problem]) -> int:
    """Return the number of samples per problem in the first round.

    Modes are compared only in the first round, so it is longer by default if the grader distinguishes them.
    """
    graders = {(config.verifier or problem.verifier).removesuffix(THOUGHTS) for problem in problems}
    if config.first is None and graders & SHOW_MODES:
        return max(config.used_first, min(FIRST_WITH_MODES, config.n // 2))
    return config.used_first


def _resolve_controls(
    store: Store,
    config: AuditConfig,
    series: Series,
    problems: Sequence[Problem],
    sampling: SamplingSettings,
    note: Note,
) -> Controls | None:
    """Return the controls that are requested, affordable, or already in the store."""
    request = config.control_request
    controls, line = plan_controls(
        request, sampling, n=config.n, n_base=config.used_n_base, n_checkpoints=len(series.checkpoints)
    )
    if config.controls is None and not request.is_explicit:
        problem_ids = [problem.problem_id for problem in problems]
        controls, line = add_stored_controls(
            controls, line, sampling, stored_controls(store, series.base.checkpoint_id, problem_ids)
        )
    if line:
        note(line)
    return controls


def _estimate_kernel_memory(settings: Settings, series: Series, problems: Sequence[Problem], note: Note) -> None:
    """Warn before sampling if the gradient kernels of full models may not fit into memory."""
    base = series.base
    if not (settings.kernel_problems and settings.panel) or settings.uses_ray:
        return  # the free memory of a worker is unknown here
    if series.checkpoints[-1].kind != "full" or base.kind != "full":
        return  # the gradients of an adapter are small
    from oversharp.diagnostics.kernel.memory_plan import predict_shortage  # loads torch
    from oversharp.diagnostics.models.devices import pick_device
    from oversharp.diagnostics.models.load import outline_path

    try:
        outline = outline_path(base.path)
    except CheckpointError:
        return  # loading the model raises this error again
    prompt_tokens = max(len(problem.prompt) for problem in problems) // CHARACTERS_PER_TOKEN
    given = settings.engine.kernel_memory_gib
    line = predict_shortage(
        outline.model,
        pick_device(settings.engine.config.device),
        n_rows=2 * settings.kernel_problems * settings.kernel_responses,
        row_tokens=prompt_tokens + settings.sampling.max_tokens,
        response_tokens=settings.sampling.max_tokens,
        memory_bytes=None if given is None else int(given * 2**30),
    )
    if line is not None:
        note(f"kernel: {line}")
