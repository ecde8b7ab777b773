"""The whole flow of an audit: series → samples → scores → grades → gradient kernels → findings → verdict → report.

Each stage reads what the store has, does what is missing and commits in small transactions. Running the same
command again continues where the last one ended, however it ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from diagnostics.config import AuditConfig
from diagnostics.coupling import plan_kernel, upper_triangle
from diagnostics.engine import Engine
from diagnostics.errors import CheckpointError, ConfigError, EngineRefusedError, KernelError, SamplerError
from diagnostics.pending import (
    finished_samples,
    held_sampler,
    planned_samples,
    ungraded,
    unrepeated,
    unscored,
)
from diagnostics.progress import ProgressSink, SilentProgress
from diagnostics.provenance import provenance
from diagnostics.samplers import choose_sampler, lora_ranks
from diagnostics.series import find_series
from diagnostics.series.rollouts import read_training_responses
from diagnostics.stages import draw, grade
from diagnostics.standing import findings_and_verdict, report
from diagnostics.store import Store
from diagnostics.tasks import load_problems, suggested_max_tokens
from diagnostics.types import (
    DEFAULT_MAX_TOKENS,
    AuditKey,
    Checkpoint,
    Problem,
    ResponseScore,
    SamplingSettings,
    Series,
    content_hash,
)
from diagnostics.verdict import Verdict

#: Scored tokens per commit and Parquet file.
TOKENS_PER_COMMIT = 1 << 18
#: Responses of the training batches that are scored per interval between checkpoints, for each problem of the audit.
TRAINING_PER_PROBLEM = 4
#: Panel responses per checkpoint that are scored twice, to see how far rounding alone moves a log-probability.
REPEATED_SCORES = 64


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
    try:
        return _audit(series_paths, config, command=command, say=say, write_report=write_report)
    except EngineRefusedError as error:
        if config.sampler != "auto":
            raise
        say.note(f"{error}: done now")
        config = replace(config, sampler="transformers")
        return _audit(series_paths, config, command=command, say=say, write_report=write_report)


def _audit(
    series_paths: Sequence[Path | str], config: AuditConfig, *, command: str, say: ProgressSink, write_report: bool
) -> AuditResult:
    problems = load_problems(config.problems, config.task, limit=config.limit, seed=config.seed)
    series = find_series(series_paths, base=config.base, name=config.name)
    if config.preset is not None:
        say.note(f"preset {config.preset} sets {json.dumps(config.set_by_preset)}")
    say.note(f"series {series.name}: {_plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    skipped = dict(reason.split(": ", 1) for reason in series.skipped)
    left_out = dict(skipped)
    for label, reason in left_out.items():
        say.note(f"left out {label}: {reason}")

    store_path = config.out / "audit.duckdb"
    with Store.open(store_path) as store, ExitStack() as stack:
        held = held_sampler(store, series.name)
        sampler_name, why = choose_sampler(config.sampler, series.checkpoints, device=config.device, held=held)
        settings = sampling_settings(config, series.base, sampler=sampler_name)
        panel_settings = panel_sampling_settings(config, settings)
        engine = stack.enter_context(
            closing(Engine(config, sampler_name, why, lora_ranks=lora_ranks(series.checkpoints), note=say.note))
        )
        store.require_regex("--strategy-regex", config.strategy_regex)
        config = _topped_up(store, config, series, settings, problems)
        key = _register(store, series, problems, settings, panel_settings, config, say)
        run = _Run(store=store, key=key, engine=engine, problems=problems, say=say)
        failed: dict[str, str] = {}
        drawn = 0
        for checkpoint in (*series.checkpoints, series.base):  # the base again: by then it can score all the others
            if checkpoint.checkpoint_id in failed:
                continue
            try:
                if config.adaptive and checkpoint is not series.base:
                    _allocate(run, checkpoint, config)
                drawn += _sample(run, checkpoint, settings, planned_samples(store, key, checkpoint.checkpoint_id))
                if checkpoint is series.base and config.panel:
                    panel = dict.fromkeys((problem.problem_id for problem in problems), config.panel)
                    drawn += _sample(run, checkpoint, panel_settings, panel, greedy=False)
                _score(run, checkpoint, settings)
            except (CheckpointError, SamplerError) as error:
                if checkpoint is series.base:
                    raise
                why = str(error).removeprefix(f"{checkpoint.label}: ")
                failed[checkpoint.checkpoint_id] = left_out[checkpoint.label] = why
                store.log_event(key, "failed", wall_s=0, rows=0, checkpoint_id=checkpoint.checkpoint_id, note=why)
                say.note(f"left out {checkpoint.label}: {why}")
        engine.close()
        _grade(run)
        without_kernel: dict[str, str] = {}
        for checkpoint in series.checkpoints:
            if config.kernel_problems and checkpoint.checkpoint_id not in failed:
                why_none = _kernel(run, checkpoint, settings, series.checkpoints[-1].kind)
                if why_none is not None:
                    without_kernel[checkpoint.label] = why_none
        engine.close()
        verdict = findings_and_verdict(store, key, failed, skipped, say)
        preset = {} if config.preset is None else {"preset": {"name": config.preset, **config.set_by_preset}}
        store.end_audit(key, provenance(command, left_out, preset))
    report_path = config.out / "report.html"
    if write_report:
        report(store_path, report_path)
    return AuditResult(
        series=series.name,
        verdict=verdict,
        store_path=store_path,
        report_path=report_path,
        left_out=left_out,
        without_kernel=without_kernel,
        samples_drawn=drawn,
    )


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


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What every stage of one audit works with."""

    store: Store
    key: AuditKey
    engine: Engine
    problems: Sequence[Problem]
    say: ProgressSink


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


def _register(
    store: Store,
    series: Series,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    panel_settings: SamplingSettings,
    config: AuditConfig,
    say: ProgressSink,
) -> AuditKey:
    problem_ids = [problem.problem_id for problem in problems]
    compared = (series.name, settings.settings_id, problem_ids, config.n, config.used_n_base, config.ks)
    panel = (panel_settings.settings_id, config.panel)
    kernel = (config.kernel_problems, config.kernel_responses)
    taken = (config.used_entropy_samples, config.strategy_regex, config.adaptive)
    key = AuditKey(
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
    steps = [checkpoint.step for checkpoint in series.checkpoints]
    training, faults = read_training_responses(series.path, steps, limit=TRAINING_PER_PROBLEM * len(problems))
    for fault in faults:
        say.note(fault)
    store.add_series(series)
    store.add_problems(problems)
    store.add_training_responses(series.name, training)
    store.begin_audit(key, settings=settings, panel_settings=panel_settings, problem_ids=problem_ids)
    return key


def _allocate(run: _Run, checkpoint: Checkpoint, config: AuditConfig) -> None:
    """Plan the samples of one checkpoint from what the earlier ones solved, which has to be graded for that."""
    _grade(run)
    least = max(2 * max(config.ks), config.used_entropy_samples, config.panel)
    decided = run.store.allocate(run.key, checkpoint.checkpoint_id, least)
    run.say.note(f"{checkpoint.label}: {decided} of {len(run.problems)} problems are decided, {least} samples each")


def _sample(
    run: _Run, checkpoint: Checkpoint, settings: SamplingSettings, planned: Mapping[str, int], *, greedy: bool = True
) -> int:
    """Draw the samples of one checkpoint that the store lacks; returns how many were drawn."""
    return draw(
        run.store,
        run.engine,
        checkpoint,
        run.problems,
        settings,
        planned,
        greedy=greedy,
        key=run.key,
        what="panel" if settings.settings_id != run.key.settings_id else "sample",
        say=run.say,
    )


def _score(run: _Run, checkpoint: Checkpoint, settings: SamplingSettings) -> None:
    """Teacher-force what the checkpoint has not scored yet, then a few panel responses a second time."""
    checkpoint_id = checkpoint.checkpoint_id
    pending = unscored(run.store, run.key, checkpoint_id)
    if len(pending):
        start = time.perf_counter()
        with run.say.stage(f"score {checkpoint.label}", len(pending)) as advance:
            scores = run.engine.score(checkpoint, run.problems, pending, settings)
            for chunk in _chunks(scores, TOKENS_PER_COMMIT):
                run.store.add_scores(run.key, checkpoint_id, chunk)
                advance(len(chunk))
        wall_s = time.perf_counter() - start
        run.store.log_event(run.key, "score", wall_s=wall_s, rows=len(pending), checkpoint_id=checkpoint_id)
    again = unrepeated(run.store, run.key, checkpoint_id, REPEATED_SCORES)
    if len(again):
        batches = run.engine.score(checkpoint, run.problems, again, settings, again=True)
        run.store.add_second_scores(run.key, checkpoint_id, [score for batch in batches for score in batch])


def _kernel(run: _Run, checkpoint: Checkpoint, settings: SamplingSettings, kind: str) -> str | None:
    """The gradient kernel of one checkpoint; why it could not be computed, and the audit goes on.

    ``kind``: what is trained in this series, a full model or an adapter.
    """
    checkpoint_id = checkpoint.checkpoint_id
    plan = plan_kernel(run.store, run.key, checkpoint, settings)
    if plan is None or checkpoint.kind != kind:
        why = "no panel to choose responses from; run the audit with --panel 4"
        if plan is not None:
            why = "its kernel would be over the weights of the whole model, the adapters' are over theirs alone"
        run.store.add_missing_kernel(run.key, checkpoint_id, why)
        return None  # nothing went wrong
    if run.store.link_kernel(run.key, checkpoint_id, plan.kernel_id):
        return None
    start = time.perf_counter()
    try:
        with run.say.stage(f"kernel {checkpoint.label}", len(plan.rows)) as advance:
            kernel, n_tokens = run.engine.kernel(checkpoint, run.problems, plan.rows, settings)
            advance(len(plan.rows))
    except (CheckpointError, KernelError, SamplerError) as error:
        why = str(error).removeprefix(f"{checkpoint.label}: ")
        run.store.add_missing_kernel(run.key, checkpoint_id, why)
        return why
    rows = plan.rows[["problem_id", "response_id"]].assign(
        position=range(len(plan.rows)), logp_sum=kernel.logp_sum_N, n_tokens=n_tokens
    )
    run.store.add_kernel(
        run.key,
        checkpoint_id,
        plan.kernel_id,
        certificate=kernel.certificate,
        rows=rows,
        roles=plan.roles,
        values=upper_triangle(kernel.kernel_NN),
    )
    wall_s = time.perf_counter() - start
    run.store.log_event(run.key, "kernel", wall_s=wall_s, rows=len(rows), checkpoint_id=checkpoint_id)
    return None


def _chunks(batches: Iterable[list[ResponseScore]], n_tokens: int) -> Iterator[list[ResponseScore]]:
    """Batches joined until they hold ``n_tokens``: one file per commit, not per batch."""
    chunk: list[ResponseScore] = []
    for batch in batches:
        chunk += batch
        if sum(score.n_tokens for score in chunk) >= n_tokens:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _grade(run: _Run) -> None:
    """Grade every distinct response once, whichever checkpoints gave it."""
    grade(run.store, run.problems, ungraded(run.store, run.key), key=run.key, say=run.say)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
