"""Prepares an audit: finds problems and checkpoints, opens store and engine, and registers what is to be compared."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.controls import Controls, plan_controls, with_held
from oversharp.diagnostics.audit.stages import OpenAudit
from oversharp.diagnostics.audit.terms import settled_terms
from oversharp.diagnostics.engine.first_look import FirstLook
from oversharp.diagnostics.engine.grading import Grader
from oversharp.diagnostics.engine.local import AuditEngine, Engine, EngineSpec
from oversharp.diagnostics.engine.ray_pool import open_pool
from oversharp.diagnostics.models.chat import choose_chat, require_usable, trained_with_chat
from oversharp.diagnostics.models.precision import choose_dtype
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.pace import Pace
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.shard import WHOLE, Shard
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
from oversharp.diagnostics.samplers import choose_sampler, lora_ranks
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.series.rollouts import read_training_responses
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import cost_before
from oversharp.diagnostics.store.missing import (
    OtherDraw,
    StoredDraws,
    finished_samples,
    samples_to_draw,
    stored_controls,
    stored_draws,
)
from oversharp.diagnostics.tasks import load_problems, suggested_max_tokens
from oversharp.diagnostics.tasks.benchmarks import text_answers_note
from oversharp.diagnostics.tasks.clusters import clusters_of

if TYPE_CHECKING:
    from oversharp.diagnostics.models.load import Dtype

#: Responses of the training batches that are scored per interval between checkpoints, for each problem of the audit.
TRAINING_PER_PROBLEM = 4
#: About, where only an estimate is wanted.
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class PreparedAudit:
    """An audit that is registered in its store and can draw.

    ``config`` has the numbers of samples that ``--top-up`` came to. ``skipped`` checkpoints could not be read (label →
    reason). ``controls`` are drawn besides.
    ``whole_id`` is the id of the audit that this one, if a shard, is a part of.
    """

    open: OpenAudit
    config: AuditConfig
    series: Series
    settings: SamplingSettings
    panel_settings: SamplingSettings
    controls: Controls | None
    whole_id: str
    skipped: dict[str, str]


def prepare(
    stack: ExitStack, series_paths: Sequence[Path | str], config: AuditConfig, shard: Shard, progress: ProgressSink
) -> PreparedAudit:
    """Find, choose and register; the store and the engine stay open as long as ``stack``."""
    _require_device(config)
    every_problem = load_problems(
        config.problems,
        config.task,
        limit=config.limit,
        seed=config.seed,
        verifier=config.verifier,
        gold=config.gold,
        answer_in_thoughts=config.answer_in_thoughts,
        limits=config.grader_limits,
    )
    if config.task and config.verifier is None and (as_text := text_answers_note(config.task, every_problem)):
        progress.note(as_text)
    clusters = clusters_of(every_problem, config.cluster, note=progress.note)
    problems = shard.take(every_problem)
    if not problems:
        raise ConfigError(
            f"--shard {shard}: the problem set has {plural(len(every_problem), 'problem')}; make fewer shards"
        )
    series = find_series(series_paths, base=config.base, name=config.name, verify_weights=config.verify_weights)
    skipped = dict(reason.split(": ", 1) for reason in series.skipped)
    _announce(config, series, skipped, progress)
    if shard != WHOLE:
        progress.note(f"shard {shard}: {len(problems)} of {plural(len(every_problem), 'problem')}")

    store = stack.enter_context(Store.open(config.out / "audit.duckdb"))
    for note in store.notes:
        progress.note(note)
    held = stored_draws(store, series.name)
    config = with_precision(with_chat(config, series, problems, held, progress), series.base, held, progress)
    sampler, engine = _open_engine(stack, config, series, None if held is None else held.sampler, progress)
    settings = sampling_settings(config, series.base, sampler=sampler)
    if settings.chat and (held is None or not held.chat):
        require_usable(series.base, settings)
    panel_settings = panel_sampling_settings(config, settings)
    store.require_regex("--strategy-regex", config.strategy_regex)
    config = _topped_up(store, config, series, settings, problems)
    terms = settled_terms(store, series.name, config)
    controls, says = plan_controls(
        config, settings, n=config.n, n_base=config.used_n_base, n_checkpoints=len(series.checkpoints)
    )
    problem_ids = [problem.problem_id for problem in problems]
    if config.controls is None and not config.asks_for_controls:
        drawn_controls = stored_controls(store, series.base.checkpoint_id, problem_ids)
        controls, says = with_held(controls, says, settings, drawn_controls)
    if says:
        progress.note(says)
    if held is None and config.kernel_problems and config.panel:
        _foresee_kernel(config, series, settings, problems, progress)
    whole, key = (_key(series, settings, panel_settings, config, terms, listed) for listed in (every_problem, problems))
    store.add_series(series)
    store.add_problems(problems)
    store.begin_audit(key, settings=settings, panel_settings=panel_settings, problem_ids=problem_ids, clusters=clusters)
    if config.controls is False and len(store.frame("FROM audit_controls WHERE audit_id = $id", id=key.audit_id)):
        progress.note("--no-controls: none are drawn; those of an earlier call are in the store, and are reported")
    _register_training(store, series, TRAINING_PER_PROBLEM * len(every_problem), shard, progress)
    look = FirstLook(
        store,
        key,
        label=series.base.label,
        max_tokens=settings.max_tokens,
        n_problems=len(problems),
        strict=config.strict,
        note=progress.note,
    )
    grader = stack.enter_context(Grader(store, key, problems, look=look, note=progress.note))
    return PreparedAudit(
        open=OpenAudit(store=store, key=key, engine=engine, grader=grader, problems=problems, progress=progress),
        config=config,
        series=series,
        settings=settings,
        panel_settings=panel_settings,
        controls=controls,
        whole_id=whole.audit_id,
        skipped=skipped,
    )


def pace_of(prepared: PreparedAudit) -> Pace:
    """All that the checkpoints lack: own samples and greedy responses, the panel, controls."""
    controls, opened = prepared.controls, prepared.open
    base, last = prepared.series.base, prepared.series.checkpoints[-1]
    besides = []
    if prepared.config.panel:
        besides.append(OtherDraw(base.checkpoint_id, prepared.panel_settings.settings_id, prepared.config.panel))
    if controls is not None:
        besides += [OtherDraw(base.checkpoint_id, one.settings_id, controls.n) for one in controls.colder]
        if last is not base:
            besides += [OtherDraw(last.checkpoint_id, one.settings_id, controls.n_hot) for one in controls.hotter]
    lacking = samples_to_draw(opened.store, opened.key, besides)
    perhaps = 0
    if controls is not None and len(prepared.series.checkpoints) > 2:  # the one to ship may be none of these two
        perhaps = controls.n_hot * len(controls.hotter) * len(opened.problems)
    return Pace(lacking, began=time.monotonic(), perhaps=perhaps, fewer=prepared.config.adaptive)


def tell_cost(prepared: PreparedAudit, pace: Pace) -> None:
    """Say how much there is to draw, and what it takes as far as the store knows; else a rough guess."""
    store, key, note = prepared.open.store, prepared.open.key, prepared.open.progress.note
    note(pace.start_line(max_tokens=prepared.settings.max_tokens))
    cost = cost_before(store, key)
    guess = _guessed(prepared, pace) if cost.n == 0 else ""
    note(guess or pace.cost_line(cost, free_bytes=shutil.disk_usage(store.path.parent).free))


def _guessed(prepared: PreparedAudit, pace: Pace) -> str:
    """How long sampling may take, of the model that is the base; nothing of workers elsewhere."""
    if prepared.config.ray is not None:
        return ""
    from oversharp.diagnostics.audit.cost.guess import sampling_guess

    prompts = [len(problem.prompt) for problem in prepared.open.problems]
    return sampling_guess(
        str(prepared.series.base.path),
        n_samples=pace.total,
        max_tokens=prepared.settings.max_tokens,
        prompt_tokens=sum(prompts) / len(prompts) / _CHARACTERS_PER_TOKEN,
        device=prepared.config.device,
    )


def _require_device(config: AuditConfig) -> None:
    """Refuse a device that is named and not there before anything is said or done; workers of Ray see their own."""
    if config.device is not None and config.ray is None:
        from oversharp.diagnostics.models.devices import pick_device  # brings torch

        pick_device(config.device)


def _announce(config: AuditConfig, series: Series, skipped: dict[str, str], progress: ProgressSink) -> None:
    if config.preset is not None:
        progress.note(f"preset {config.preset} sets {json.dumps(config.set_by_preset)}")
    progress.note(f"series {series.name}: {plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    if config.base is None and series.base.step > 0:
        progress.note(
            f"base: {series.base.label}, the first step, as there is no step 0; --base PATH names the model before RLVR"
        )
    for label, reason in skipped.items():
        progress.note(f"left out {label}: {reason}")
    for line in series.notes:
        progress.note(line)


def with_chat(
    config: AuditConfig, series: Series, problems: Sequence[Problem], held: StoredDraws | None, progress: ProgressSink
) -> AuditConfig:
    """The configuration with a chat template or without, as asked for, else as before, else as suits the series.

    An audit that continues asks as it did. Raises ``SamplerError`` for a system turn or arguments that nothing takes.
    """
    if config.chat is not None:
        return replace(config, chat_args=canonical(config.chat_args))
    if config.preset is not None and config.prompt_template is None:  # which writes the turns itself
        return replace(config, chat=False)
    if held is not None and held.chat is not None:
        if not held.chat and (config.system_prompt or config.chat_args):
            raise ConfigError("the store's samples were asked without a chat; pass --chat to draw new ones with one")
        return replace(config, chat=held.chat, chat_args=canonical(config.chat_args) or held.chat_args)
    choice = choose_chat(
        series.base,
        problems,
        own_words=config.used_prompt_template != "{prompt}",
        trained=trained_with_chat(series.path),
        needed_by="--system-prompt" if config.system_prompt else "--chat-args" if config.chat_args else None,
    )
    if choice.says is not None:
        progress.note(choice.says)
    return replace(config, chat=choice.chat, chat_args=canonical(config.chat_args) if choice.chat else None)


def canonical(chat_args: str | None) -> str | None:
    """The same JSON object in one way of writing, so that it identifies samples; None for one without entries."""
    given: dict[str, object] = {} if chat_args is None else json.loads(chat_args)
    return json.dumps(given, sort_keys=True, ensure_ascii=False) if given else None


def with_precision(
    config: AuditConfig, base: Checkpoint, held: StoredDraws | None, progress: ProgressSink
) -> AuditConfig:
    """The configuration with the precision that --dtype auto stands for: as before, else as suits base and device."""
    if config.dtype == "auto" and held is not None and held.dtype is not None:
        return replace(config, dtype=cast("Dtype", held.dtype))
    from oversharp.diagnostics.models.devices import pick_device, slow_products_note  # they bring torch

    if config.dtype != "auto":
        if slow := slow_products_note("--dtype", config.dtype, pick_device(config.device)):
            progress.note(slow)
        return config
    dtype, why = choose_dtype(base, pick_device(config.device))
    if dtype != "float32":
        progress.note(f"computing in {dtype}, {why}; --dtype float32 is more exact")
    return replace(config, dtype=dtype)


def _foresee_kernel(
    config: AuditConfig, series: Series, settings: SamplingSettings, problems: Sequence[Problem], progress: ProgressSink
) -> None:
    """Tell before anything is drawn where the gradient kernels of full models may not fit into memory."""
    base = series.base
    if series.checkpoints[-1].kind != "full" or base.kind != "full" or config.ray is not None:
        return  # an adapter's are small, and what a worker has free only it knows
    from oversharp.diagnostics.kernel.memory_plan import foresee  # brings torch
    from oversharp.diagnostics.models.devices import pick_device
    from oversharp.diagnostics.models.load import outline_path

    try:
        outline = outline_path(base.path)
    except CheckpointError:
        return  # said when the model is loaded
    prompt_tokens = max(len(problem.prompt) for problem in problems) // _CHARACTERS_PER_TOKEN
    given = config.kernel_memory_gib
    says = foresee(
        outline.model,
        pick_device(config.device),
        n_rows=2 * config.kernel_problems * config.kernel_responses,
        row_tokens=prompt_tokens + settings.max_tokens,
        response_tokens=settings.max_tokens,
        memory_bytes=None if given is None else int(given * 2**30),
    )
    if says is not None:
        progress.note(f"kernel: {says}")


def _open_engine(
    stack: ExitStack, config: AuditConfig, series: Series, held: str | None, progress: ProgressSink
) -> tuple[str, AuditEngine]:
    """The sampler's name, and the engine: this process, or with ``--ray`` the workers of a cluster."""
    pool = None if config.ray is None else stack.enter_context(open_pool(config.ray, config, note=progress.note))
    choose = choose_sampler if pool is None else pool.choose_sampler
    sampler, why = choose(config.sampler, series.checkpoints, device=config.device, held=held)
    spec = EngineSpec(
        config=config,
        dtype=cast("Dtype", config.dtype),
        kernel_memory_gib=config.kernel_memory_gib,
        sampler_name=sampler,
        why=why,
        lora_ranks=lora_ranks(series.checkpoints),
    )
    engine = Engine(spec, note=progress.note) if pool is None else pool.engine(spec)
    return sampler, stack.enter_context(closing(engine))


def sampling_settings(config: AuditConfig, base: Checkpoint, *, sampler: str) -> SamplingSettings:
    """The part of the configuration that is a sample's identity."""
    return SamplingSettings(
        sampler=sampler,
        temperature=config.used_temperature,
        top_p=config.used_top_p,
        top_k=config.top_k,
        max_tokens=config.asked_max_tokens or suggested_max_tokens(config.task) or default_max_tokens(base),
        prompt_template=config.used_prompt_template,
        system_prompt=config.system_prompt,
        chat=bool(config.chat),
        seed=config.seed,
        dtype=config.dtype,
        chat_args=config.chat_args if config.chat else None,
    )


def panel_sampling_settings(config: AuditConfig, settings: SamplingSettings) -> SamplingSettings:
    """How the panel is drawn: at its own temperature without truncation, and with its own seed.

    With the seed of the audit its responses would share their random numbers with the samples that pass@k rests on.
    """
    seed = int(content_hash("panel", config.seed), 16) % 2**31
    return replace(settings, temperature=config.panel_temperature, top_p=1.0, top_k=0, seed=seed)


def default_max_tokens(base: Checkpoint) -> int:
    """1,024, or half of the context of a model whose context is too short for that."""
    path = (base.base_path or base.path) / "config.json"
    context_tokens = json.loads(path.read_text(encoding="utf-8")).get("max_position_embeddings")
    return DEFAULT_MAX_TOKENS if context_tokens is None else min(DEFAULT_MAX_TOKENS, int(context_tokens) // 2)


def _topped_up(
    store: Store, config: AuditConfig, series: Series, settings: SamplingSettings, problems: Sequence[Problem]
) -> AuditConfig:
    """``--top-up`` counts from the last audit that ended: one that was killed is continued, not topped up again."""
    if config.top_up is None:
        return config
    problem_ids = [problem.problem_id for problem in problems]
    finished = finished_samples(store, series.name, settings.settings_id, problem_ids)
    if finished is None:
        raise ConfigError(
            f"--top-up {config.top_up}: {store.path} holds no finished audit of series {series.name!r} with these "
            "problems and settings; run it without --top-up first"
        )
    n, n_base = finished
    more = config.top_up
    return replace(config, n=n + more, n_base=n_base + more * n_base // n, top_up=None)


def _key(
    series: Series,
    settings: SamplingSettings,
    panel_settings: SamplingSettings,
    config: AuditConfig,
    terms: VerdictTerms,
    problems: Sequence[Problem],
) -> AuditKey:
    problem_ids = [problem.problem_id for problem in problems]
    compared = (series.name, settings.settings_id, problem_ids, config.n, config.used_n_base, config.ks)
    panel = (panel_settings.settings_id, config.panel)
    kernel = (config.kernel_problems, config.kernel_responses)
    taken = (config.used_entropy_samples, config.strategy_regex, config.adaptive)
    return AuditKey(
        audit_id=content_hash(*compared, *panel, *kernel, *taken),
        series=series.name,
        settings_id=settings.settings_id,
        n=config.n,
        n_base=config.used_n_base,
        entropy_samples=config.used_entropy_samples,
        panel=config.panel,
        panel_settings_id=panel_settings.settings_id,
        kernel_problems=config.kernel_problems,
        kernel_responses=config.kernel_responses,
        ks=config.ks,
        strategy_regex=config.strategy_regex,
        terms=terms,
    )


def _register_training(store: Store, series: Series, n: int, shard: Shard, progress: ProgressSink) -> None:
    """Of the ``n`` responses per interval that an audit scores of the training batches, those of the shard."""
    steps = [checkpoint.step for checkpoint in series.checkpoints]
    training, faults = read_training_responses(series.path, steps, limit=n)
    for fault in faults:
        progress.note(fault)
    store.add_training_responses(series.name, shard.take(training))
