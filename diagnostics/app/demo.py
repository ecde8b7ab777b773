"""The demo: train a base model and two RLVR runs on the built-in task, and audit both runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from oversharp.diagnostics.app.report import write_report
from oversharp.diagnostics.audit.audit import AuditResult, audit, reload_verdicts
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import ProgressSink

ALGORITHMS = ("grpo", "iac")
SAMPLES = 256
KS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def run_demo(out: Path, *, device: str | None, command: str, progress: ProgressSink) -> tuple[AuditResult, ...]:
    """Train and audit into ``out``, or continue an earlier demo. Returns one result per series.

    Writes the base to ``out/base``, the series to ``out/grpo`` and ``out/iac``, and store and report to ``out``.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is not a directory; pass another path")
    # transformers samples a model this small faster than an engine does
    config = AuditConfig(task="countdown", n=SAMPLES, k=KS, out=out, device=device, sampler="transformers")
    runs = {algorithm: _train(out, algorithm, device=device, progress=progress) for algorithm in ALGORITHMS}

    def audited(algorithm: str) -> AuditResult:
        return audit([runs[algorithm]], replace(config, name=algorithm), command=command, progress=progress)

    results = {algorithm: audited(algorithm) for algorithm in ALGORITHMS}
    for earlier in ALGORITHMS[:-1]:  # ways of solving are parsed from the responses of all series
        results[earlier] = audited(earlier)
    last = results[ALGORITHMS[-1]]
    write_report(last.store_path, last.report_path)  # one report shows all series of the store
    return reload_verdicts(tuple(results.values()))


def _train(out: Path, algorithm: str, *, device: str | None, progress: ProgressSink) -> Path:
    """Train the missing steps of one algorithm from the shared base. Returns the run directory."""
    from oversharp.trainers.config import SftConfig, TrainConfig
    from oversharp.trainers.run import checkpointing

    base_config = SftConfig(output_dir=out / "base", device=device, resume=True)
    run_config = TrainConfig(
        algorithm=algorithm,
        model=str(checkpointing.checkpoint_path(base_config.output_dir, base_config.max_steps)),
        task="countdown",
        output_dir=out / algorithm,
        device=device,
        resume=True,
    )
    if checkpointing.committed_step(run_config.output_dir) == run_config.max_steps:
        return run_config.output_dir  # this reads the step without loading torch

    from oversharp.trainers.loop import train
    from oversharp.trainers.sft import train_base

    train_base(base_config, progress)
    return train(run_config, progress)
