"""Helpers: a small audit of the built-in task, its notes, and frames of its store."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from oversharp import open_store
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import AuditKey, SamplingSettings, VerdictTerms


def config(out: Path, **changes: object) -> AuditConfig:
    """Without kernels, unless asked for: they take a third of the time."""
    small = {"task": "countdown", "limit": 5, "n": 16, "n_base": 16, "panel": 2, "entropy_samples": 4, "batch_size": 40}
    return AuditConfig(**{**small, "kernel_problems": 0, "name": "run", "out": out, **changes})


def audit_key(
    series: str, settings: SamplingSettings, *, n: int, n_base: int, terms: VerdictTerms | None = None
) -> AuditKey:
    """An audit of pass@1 alone; its id is the name of the series."""
    nothing = {"entropy_samples": 0, "panel": 0, "kernel_problems": 0, "kernel_responses": 0}
    ids = {"audit_id": series, "settings_id": settings.settings_id, "panel_settings_id": settings.settings_id}
    told = terms or VerdictTerms()
    return AuditKey(**ids, **nothing, series=series, n=n, n_base=n_base, ks=(1,), strategy_regex="```", terms=told)


def frame(store_path: Path, sql: str) -> pd.DataFrame:
    with open_store(store_path) as store:
        return store.frame(sql)


class Notes(SilentProgress):
    """Keeps what the user would be told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def with_rollouts(series: Path, run: Path, rollouts: list[dict[str, object]]) -> Path:
    """A run that shares the checkpoints of ``series`` and has these training responses of steps 21 to 40."""
    (run / "rollouts").mkdir(parents=True)
    for checkpoint in series.iterdir():
        (run / checkpoint.name).symlink_to(checkpoint)
    pd.DataFrame(rollouts).to_parquet(run / "rollouts" / "step_000040.parquet")
    return run
