"""Prepares an audit: finds problems and checkpoints, opens store and engine, and registers what is to be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from diagnostics.audit.config import AuditConfig
from diagnostics.audit.controls import Controls, plan_controls, with_held
from diagnostics.audit.stages import OpenAudit
from diagnostics.audit.terms import settled_terms
from diagnostics.engine.first_look import FirstLook
from diagnostics.engine.grading import Grader
from diagnostics.engine.local import AuditEngine, Engine, EngineSpec
from diagnostics.engine.ray_pool import open_pool
from diagnostics.records.amounts import plural
from diagnostics.records.errors import ConfigError
from diagnostics.records.progress import ProgressSink
from diagnostics.records.shard import WHOLE, Shard
from diagnostics.records.types import (
    DEFAULT_MAX_TOKENS,
    AuditKey,
    Checkpoint,
    Problem,
    SamplingSettings,
    Series,
    VerdictTerms,
    content_hash,
)
from diagnostics.samplers import choose_sampler, lora_ranks
from diagnostics.series import find_series
from diagnostics.series.rollouts import read_training_responses
from diagnostics.store import Store
from diagnostics.store.missing import finished_samples, held_controls, held_sampler
from diagnostics.tasks import load_problems, suggested_max_tokens
from diagnostics.tasks.clusters import clusters_of

#: Responses of the training batches that are scored per interval between checkpoints, for each problem of the audit.
TRAINING_PER_PROBLEM = 4


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
        config.problems, config.task, limit=config.limit, seed=config.seed, verifier=config.verifier
    )
    clusters = clusters_of(every_problem, config.cluster, note=progress.note)
    problems = shard.take(every_problem)
    if not problems:
        raise ConfigError(
            f"--shard {shard}: the problem set has {plural(len(every_problem), 'problem')}; make fewer shards"
        )
    series = find_series(series_paths, base=config.base, name=config.name)
    skipped = dict(reason.split(": ", 1) for reason in series.skipped)
    _announce(config, series, skipped, progress)
    if shard != WHOLE:
        progress.note(f"shard {shard}: {len(problems)} of {plural(len(every_problem), 'problem')}")

    store = stack.enter_context(Store.open(config.out / "audit.duckdb"))
    for note in store.notes:
        progress.note(note)
    sampler, engine = _open_engine(stack, config, series, held_sampler(store, series.name), progress)
    settings = sampling_settings(config, series.base, sampler=sampler)
    panel_settings = panel_sampling_settings(config, settings)
    store.require_regex("--strategy-regex", config.strategy_regex)
    config = _topped_up(store, config, series, settings, problems)
    terms = settled_terms(store, series.name, config)
    controls, says = plan_controls(
        config, settings, n=config.n, n_base=config.used_n_base, n_checkpoints=len(series.checkpoints)
    )
    problem_ids = [problem.problem_id for problem in problems]
    if config.controls is None and not config.asks_for_controls:
        held_draws = held_controls(store, series.base.checkpoint_id, problem_ids)
        controls, says = with_held(controls, says, settings, held_draws)
    if says:
        progress.note(says)
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
    grader = stack.enter_context(Grader(store, key, problems, look=look))
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


def _require_device(config: AuditConfig) -> None:
    """Refuse a device that is named and not there before anything is said or done; workers of Ray see their own."""
    if config.device is not None and config.ray is None:
        from diagnostics.models.devices import pick_device  # brings torch

        pick_device(config.device)


def _announce(config: AuditConfig, series: Series, skipped: dict[str, str], progress: ProgressSink) -> None:
    if config.preset is not None:
        progress.note(f"preset {config.preset} sets {json.dumps(config.set_by_preset)}")
    progress.note(f"series {series.name}: {plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    for label, reason in skipped.items():
        progress.note(f"left out {label}: {reason}")


def _open_engine(
    stack: ExitStack, config: AuditConfig, series: Series, held: str | None, progress: ProgressSink
) -> tuple[str, AuditEngine]:
    """The sampler's name, and the engine: this process, or with ``--ray`` the workers of a cluster."""
    pool = None if config.ray is None else stack.enter_context(open_pool(config.ray, config, note=progress.note))
    choose = choose_sampler if pool is None else pool.choose_sampler
    sampler, why = choose(config.sampler, series.checkpoints, device=config.device, held=held)
    spec = EngineSpec(
        config=config,
        dtype=config.dtype,
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
        chat=config.chat,
        seed=config.seed,
        dtype=config.dtype,
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
