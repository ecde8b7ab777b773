"""The whole flow of an audit: series → samples → scores → grades → gradient kernels → findings → verdict → report.

Each stage reads what the store has, does what is missing and commits in small transactions. Running the same
command again continues where the last one ended, however it ended. The flow is the same whether this process computes
or Ray's workers do (``--ray``); a shard (``--shard``) goes through it as far as the grades.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from diagnostics.audit.config import AuditConfig
from diagnostics.audit.freshness import findings_and_verdict, report
from diagnostics.audit.provenance import provenance
from diagnostics.audit.stages import Workshop, draw, grade, kernel, teacher_force
from diagnostics.engine.local import Engine, EngineSpec
from diagnostics.engine.ray_pool import open_pool
from diagnostics.records.errors import CheckpointError, ConfigError, EngineRefusedError, SamplerError
from diagnostics.records.progress import ProgressSink, SilentProgress
from diagnostics.records.shard import WHOLE, Shard, Task
from diagnostics.records.types import (
    DEFAULT_MAX_TOKENS,
    AuditKey,
    Checkpoint,
    Problem,
    SamplingSettings,
    Series,
    content_hash,
)
from diagnostics.samplers import choose_sampler, lora_ranks
from diagnostics.series import find_series
from diagnostics.series.rollouts import read_training_responses
from diagnostics.store import Store
from diagnostics.store.missing import finished_samples, held_sampler, planned_samples, ungraded
from diagnostics.tasks import load_problems, suggested_max_tokens
from diagnostics.verdict.record import Verdict

#: Responses of the training batches that are scored per interval between checkpoints, for each problem of the audit.
TRAINING_PER_PROBLEM = 4

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """The verdict, where the files are, and what was left out (label → reason): checkpoints, or their kernels."""

    series: str
    verdict: Verdict
    store_path: Path
    report_path: Path
    left_out: Mapping[str, str]
    without_kernel: Mapping[str, str]
    samples_drawn: int


@dataclass(frozen=True, kw_only=True)
class ShardResult:
    """One share of an audit, drawn, scored and graded: where it is, and checkpoints left out (label → reason)."""

    series: str
    shard: Shard
    n_problems: int
    store_path: Path
    left_out: Mapping[str, str]
    samples_drawn: int


def audit(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
    write_report: bool = True,
) -> AuditResult:
    """Audit one series of checkpoints into ``config.out``; without ``write_report`` its report stays as it was.

    Raises:
        OversharpError: bad input; what was computed before stays in the store.
    """
    say = progress or SilentProgress()

    def run(config: AuditConfig) -> AuditResult:
        with ExitStack() as stack:
            graded = _graded(stack, series_paths, config, WHOLE, say)
            shop, key, series = graded.shop, graded.shop.key, graded.series
            without_kernel: dict[str, str] = {}
            if config.kernel_problems:
                shop.engine.run([_kernel(graded, one, without_kernel) for one in series.checkpoints])
            shop.engine.close()
            verdict = findings_and_verdict(shop.store, key, graded.failed, graded.skipped, say)
            shop.store.end_audit(key, provenance(command, graded.left_out, _of_preset(config)))
        report_path = config.out / "report.html"
        if write_report:
            report(shop.store.path, report_path)
        return AuditResult(
            series=series.name,
            verdict=verdict,
            store_path=shop.store.path,
            report_path=report_path,
            left_out=graded.left_out,
            without_kernel=without_kernel,
            samples_drawn=sum(graded.drawn.values()),
        )

    return _with_another_sampler(run, config, say)


def audit_shard(
    series_paths: Sequence[Path | str],
    config: AuditConfig,
    shard: Shard,
    *,
    command: str = "",
    progress: ProgressSink | None = None,
) -> ShardResult:
    """Draw, score and grade one share of the problems of an audit into ``config.out``, which no other shard has.

    The problems are every ``shard.of``-th in the order of the problem set. ``merging.merge`` joins the stores of all
    shards; ``audit`` on the joined one then draws nothing, and comes to the verdict. Raises as ``audit``.
    """
    say = progress or SilentProgress()

    def run(config: AuditConfig) -> ShardResult:
        with ExitStack() as stack:
            graded = _graded(stack, series_paths, config, shard, say)
            store = graded.shop.store
            place = {"index": shard.index + 1, "of": shard.of, "whole": graded.whole_id}
            more = {**_of_preset(config), "shard": place}
            store.end_audit(graded.shop.key, provenance(command, graded.left_out, more))
        return ShardResult(
            series=graded.series.name,
            shard=shard,
            n_problems=len(graded.shop.problems),
            store_path=store.path,
            left_out=graded.left_out,
            samples_drawn=sum(graded.drawn.values()),
        )

    return _with_another_sampler(run, config, say)


def _with_another_sampler(run: Callable[[AuditConfig], Result], config: AuditConfig, say: ProgressSink) -> Result:
    """``run``, once more with transformers where ``auto`` had taken an engine that refuses the model."""
    try:
        return run(config)
    except EngineRefusedError as error:
        if config.sampler != "auto":
            raise
        say.note(f"{error}: done now")
        return run(replace(config, sampler="transformers"))


@dataclass(frozen=True, kw_only=True)
class _Graded:
    """An audit whose samples are drawn, scored and graded, and the parts it was made with.

    ``skipped`` checkpoints could not be read, ``left_out`` are these and those that failed (label → reason), ``failed``
    and ``drawn`` are by checkpoint id. ``whole_id`` is the id of the audit that this one, if a shard, is a part of.
    """

    shop: Workshop
    series: Series
    settings: SamplingSettings
    whole_id: str
    skipped: Mapping[str, str]
    left_out: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)


def _graded(
    stack: ExitStack, series_paths: Sequence[Path | str], config: AuditConfig, shard: Shard, say: ProgressSink
) -> _Graded:
    """Go through all stages up to the grades; the store and the engine stay open as long as ``stack``."""
    every_problem = load_problems(config.problems, config.task, limit=config.limit, seed=config.seed)
    problems = shard.take(every_problem)
    if not problems:
        raise ConfigError(f"--shard {shard}: there are only {len(every_problem)} problems; make fewer shards")
    series = find_series(series_paths, base=config.base, name=config.name)
    if config.preset is not None:
        say.note(f"preset {config.preset} sets {json.dumps(config.set_by_preset)}")
    say.note(f"series {series.name}: {_plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    if shard != WHOLE:
        say.note(f"shard {shard}: {len(problems)} of {_plural(len(every_problem), 'problem')}")
    skipped = dict(reason.split(": ", 1) for reason in series.skipped)
    for label, reason in skipped.items():
        say.note(f"left out {label}: {reason}")

    store = stack.enter_context(Store.open(config.out / "audit.duckdb"))
    pool = None if config.ray is None else stack.enter_context(open_pool(config, note=say.note))
    choose = choose_sampler if pool is None else pool.choose_sampler
    held = held_sampler(store, series.name)
    sampler_name, why = choose(config.sampler, series.checkpoints, device=config.device, held=held)
    ranks = lora_ranks(series.checkpoints)
    spec = EngineSpec(config=config, sampler_name=sampler_name, why=why, lora_ranks=ranks)
    engine = stack.enter_context(closing(Engine(spec, note=say.note) if pool is None else pool.engine(spec)))
    settings = sampling_settings(config, series.base, sampler=sampler_name)
    panel_settings = panel_sampling_settings(config, settings)
    store.require_regex("--strategy-regex", config.strategy_regex)
    config = _topped_up(store, config, series, settings, problems)
    whole, key = (_key(series, settings, panel_settings, config, listed) for listed in (every_problem, problems))
    _register(store, key, series, problems, settings, panel_settings)
    n_training = TRAINING_PER_PROBLEM * len(every_problem)
    _register_training(store, series, n_training, shard, say)

    shop = Workshop(store=store, key=key, engine=engine, problems=problems, say=say)
    graded = _Graded(
        shop=shop,
        series=series,
        settings=settings,
        whole_id=whole.audit_id,
        skipped=skipped,
        left_out=dict(skipped),
    )
    for tasks in _waves(graded, config, panel_settings):
        engine.run(tasks)
    engine.close()
    _grade(shop)
    return graded


def _waves(graded: _Graded, config: AuditConfig, panel_settings: SamplingSettings) -> Iterator[list[Task[None]]]:
    """What can be done side by side, and what after that.

    The others score the panel, so that the base is drawn from first. What the base scores then is settled before any
    sample of the others is there, and so is the same however long their sampling takes; it scores them in the end.
    """
    shop, settings = graded.shop, graded.settings
    base, *others = graded.series.checkpoints
    yield [_of_base(graded, panel_settings, config.panel)]
    tasks = [_of_checkpoint(graded, one, config) for one in others]
    if config.adaptive:  # who comes later is given samples by what the earlier ones solved
        yield [teacher_force(shop, base, settings)]
        yield from ([task] for task in tasks)
    else:
        yield [teacher_force(shop, base, settings), *tasks]
    yield [teacher_force(shop, base, settings)]


def _of_base(graded: _Graded, panel_settings: SamplingSettings, n_panel: int) -> Task[None]:
    shop, base = graded.shop, graded.series.base
    planned = planned_samples(shop.store, shop.key, base.checkpoint_id)
    n = yield from draw(shop, base, graded.settings, planned, greedy=True, what="sample")
    if n_panel:
        panel = dict.fromkeys((problem.problem_id for problem in shop.problems), n_panel)
        n += yield from draw(shop, base, panel_settings, panel, greedy=False, what="panel")
    graded.drawn[base.checkpoint_id] = n


def _of_checkpoint(graded: _Graded, checkpoint: Checkpoint, config: AuditConfig) -> Task[None]:
    """Draw and score one checkpoint after the base; one that fails is left out, with the reason."""
    shop, checkpoint_id = graded.shop, checkpoint.checkpoint_id
    try:
        if config.adaptive:
            _allocate(shop, checkpoint, config)
        planned = planned_samples(shop.store, shop.key, checkpoint_id)
        graded.drawn[checkpoint_id] = yield from draw(
            shop, checkpoint, graded.settings, planned, greedy=True, what="sample"
        )
        yield from teacher_force(shop, checkpoint, graded.settings)
    except (CheckpointError, SamplerError) as error:
        why = str(error).removeprefix(f"{checkpoint.label}: ")
        graded.failed[checkpoint_id] = graded.left_out[checkpoint.label] = why
        shop.store.log_event(shop.key, "failed", wall_s=0, rows=0, checkpoint_id=checkpoint_id, note=why)
        shop.say.note(f"left out {checkpoint.label}: {why}")


def _kernel(graded: _Graded, checkpoint: Checkpoint, without_kernel: dict[str, str]) -> Task[None]:
    if checkpoint.checkpoint_id in graded.failed:
        return
    why_none = yield from kernel(graded.shop, checkpoint, graded.settings, graded.series.checkpoints[-1].kind)
    if why_none is not None:
        without_kernel[checkpoint.label] = why_none


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
    )


def _register(
    store: Store,
    key: AuditKey,
    series: Series,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    panel_settings: SamplingSettings,
) -> None:
    problem_ids = [problem.problem_id for problem in problems]
    store.add_series(series)
    store.add_problems(problems)
    store.begin_audit(key, settings=settings, panel_settings=panel_settings, problem_ids=problem_ids)


def _register_training(store: Store, series: Series, n: int, shard: Shard, say: ProgressSink) -> None:
    """Of the ``n`` responses per interval that an audit scores of the training batches, those of the shard."""
    steps = [checkpoint.step for checkpoint in series.checkpoints]
    training, faults = read_training_responses(series.path, steps, limit=n)
    for fault in faults:
        say.note(fault)
    store.add_training_responses(series.name, shard.take(training))


def _allocate(shop: Workshop, checkpoint: Checkpoint, config: AuditConfig) -> None:
    """Plan the samples of one checkpoint from what the earlier ones solved, which has to be graded for that."""
    _grade(shop)
    least = max(2 * max(config.ks), config.used_entropy_samples, config.panel)
    decided = shop.store.allocate(shop.key, checkpoint.checkpoint_id, least)
    shop.say.note(f"{checkpoint.label}: {decided} of {len(shop.problems)} problems are decided, {least} samples each")


def _grade(shop: Workshop) -> None:
    """Grade every distinct response once, whichever checkpoints gave it."""
    grade(shop.store, shop.problems, ungraded(shop.store, shop.key), key=shop.key, say=shop.say)


def _of_preset(config: AuditConfig) -> dict[str, object]:
    return {} if config.preset is None else {"preset": {"name": config.preset, **config.set_by_preset}}


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
