"""Prepare an audit: find problems and checkpoints, resolve settings, open store and engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.settings import Settings, resolve
from oversharp.diagnostics.audit.stages import OpenAudit
from oversharp.diagnostics.engine.first_look import FirstLook
from oversharp.diagnostics.engine.grading import Grader
from oversharp.diagnostics.engine.local import Engine
from oversharp.diagnostics.engine.ray_pool import open_pool
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.shard import WHOLE, Shard
from oversharp.diagnostics.records.types import AuditKey, Problem, Series
from oversharp.diagnostics.samplers import choose_sampler
from oversharp.diagnostics.samplers.agents.environment import Environment, load_environment, require_reset
from oversharp.diagnostics.samplers.endpoint.served import served_series
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.series.training_log import read_training_responses
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.benchmarks import text_answers_note
from oversharp.diagnostics.tasks.clusters import find_clusters

#: Number of training responses to score per problem of the audit and interval between two checkpoints.
TRAINING_PER_PROBLEM = 4


@dataclass(frozen=True, kw_only=True)
class PreparedAudit(OpenAudit):
    """An audit that is registered in its store and ready to sample.

    ``skipped`` maps the labels of checkpoints that could not be read to reasons. ``whole_id`` is the id of the whole
    audit. In a shard it differs from the id of ``key``.
    """

    settings: Settings
    series: Series
    whole_id: str
    skipped: Mapping[str, str]


def prepare(
    stack: ExitStack, series_paths: Sequence[Path | str], config: AuditConfig, shard: Shard, progress: ProgressSink
) -> PreparedAudit:
    """Find problems and checkpoints, resolve the settings and register the audit.

    The store and the engine stay open until ``stack`` closes.
    """
    _require_device(config)
    environment = None
    if config.environment is not None:
        environment = load_environment(config.environment, config.grader_limits)
    every_problem = _load_problems(config, environment, progress)
    if environment is not None:
        require_reset(environment, every_problem[0])
    clusters = find_clusters(every_problem, config.cluster, note=progress.note)
    problems = shard.take(every_problem)
    if not problems:
        raise ConfigError(
            f"--shard {shard}: the problem set has {plural(len(every_problem), 'problem')}; make fewer shards"
        )
    series = _find_series(series_paths, config)
    skipped = dict(reason.split(": ", 1) for reason in series.skipped)
    _announce(config, series, skipped, progress)
    if shard != WHOLE:
        progress.note(f"shard {shard}: {len(problems)} of {plural(len(every_problem), 'problem')}")

    store = stack.enter_context(Store.open(config.out / "audit.duckdb"))
    for note in store.notes:
        progress.note(note)
    pool = None if config.ray is None else stack.enter_context(open_pool(config.ray, config, note=progress.note))
    settings = resolve(
        config,
        series,
        problems,
        store,
        choose_sampler=choose_sampler if pool is None else pool.choose_sampler,
        note=progress.note,
        environment=environment,
    )
    engine = Engine(settings.engine, note=progress.note) if pool is None else pool.engine(settings.engine)
    stack.enter_context(closing(engine))
    key = settings.key(series.name, problems)
    _register(store, key, settings, series, problems, clusters)
    _register_training(store, series, TRAINING_PER_PROBLEM * len(every_problem), shard, progress)
    look = FirstLook(
        store,
        key,
        label=series.base.label,
        max_tokens=settings.sampling.max_tokens,
        n_problems=len(problems),
        is_strict=settings.is_strict,
        note=progress.note,
    )
    grader = stack.enter_context(Grader(store, key, problems, look=look, note=progress.note))
    return PreparedAudit(
        store=store,
        key=key,
        engine=engine,
        grader=grader,
        problems=problems,
        progress=progress,
        settings=settings,
        series=series,
        whole_id=settings.key(series.name, every_problem).audit_id,
        skipped=skipped,
    )


def _load_problems(config: AuditConfig, environment: Environment | None, progress: ProgressSink) -> Sequence[Problem]:
    own = environment.name if environment is not None and environment.has_reward else None
    problems = load_problems(
        config.problems,
        config.task,
        limit=config.limit,
        seed=config.seed,
        verifier=config.verifier or own,
        gold=config.gold,
        answer_in_thoughts=config.answer_in_thoughts,
        limits=config.grader_limits,
    )
    if config.task and (config.verifier or own) is None and (as_text := text_answers_note(config.task, problems)):
        progress.note(as_text)
    return problems


def _find_series(paths: Sequence[Path | str], config: AuditConfig) -> Series:
    """Return the checkpoints in ``paths``, or those that exist only in the file of ``--endpoints``."""
    if paths:
        return find_series(paths, base=config.base, name=config.name, verify_weights=config.verify_weights)
    served = config.endpoint_settings(config.out, compares_weights=False) if config.endpoints is not None else None
    if served is None:
        raise ConfigError("no checkpoints are given; pass the directory of a run, or --endpoints FILE with its servers")
    if config.base is not None:
        raise ConfigError(f"--base {config.base}: the base is the lowest step in --endpoints; remove --base")
    return served_series(served, name=config.name)


def _register(
    store: Store,
    key: AuditKey,
    settings: Settings,
    series: Series,
    problems: Sequence[Problem],
    clusters: Mapping[str, str],
) -> None:
    store.add_series(series)
    store.add_problems(problems)
    store.begin_audit(
        key,
        settings=settings.sampling,
        panel_settings=settings.panel_sampling,
        problem_ids=[problem.problem_id for problem in problems],
        clusters=clusters,
    )


def _require_device(config: AuditConfig) -> None:
    """Raise ``ConfigError`` for a missing ``--device``. Ray's workers check their own device."""
    if config.device is not None and config.ray is None:
        from oversharp.diagnostics.models.devices import pick_device  # loads torch

        pick_device(config.device)


def _announce(config: AuditConfig, series: Series, skipped: dict[str, str], progress: ProgressSink) -> None:
    if config.preset is not None:
        progress.note(f"preset {config.preset} sets {json.dumps(config.set_by_preset)}")
    progress.note(f"series {series.name}: {plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    if config.base is None and series.base.step > 0:
        progress.note(
            f"base: {series.base.label}, the first step, because there is no step 0; --base PATH sets another base"
        )
    for label, reason in skipped.items():
        progress.note(f"left out {label}: {reason}")
    for line in series.notes:
        progress.note(line)


def _register_training(store: Store, series: Series, n: int, shard: Shard, progress: ProgressSink) -> None:
    """Register the training responses to score, ``n`` per interval between checkpoints.

    A shard registers only its part.
    """
    steps = [checkpoint.step for checkpoint in series.checkpoints]
    training, faults = read_training_responses(series.path, steps, limit=n)
    for fault in faults:
        progress.note(fault)
    store.add_training_responses(series.name, shard.take(training))
