"""The verbs of ``oversharp`` for scripts and notebooks: same names, same settings, records instead of prints.

``import oversharp`` is enough: ``oversharp.audit(…)``, ``oversharp.AuditConfig(…)``.

Nothing is loaded before a verb is called.
Everything foreseen raises an ``OversharpError``, whose message is the line that the command would print.

A script calls them under ``if __name__ == "__main__":``. Graders, engines and workers run in processes of their own,
which read the script once more.

>>> import oversharp
>>> print(oversharp.explain("token_entropy").splitlines()[0])
token_entropy: Token entropy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from diagnostics.records.errors import OversharpError as OversharpError
from diagnostics.records.version import version as version

if TYPE_CHECKING:
    from diagnostics.app.compare import CompareResult as CompareResult
    from diagnostics.audit.audit import AuditResult as AuditResult
    from diagnostics.audit.audit import ShardResult as ShardResult
    from diagnostics.audit.config import AuditConfig as AuditConfig
    from diagnostics.audit.config import ConfirmConfig as ConfirmConfig
    from diagnostics.audit.confirm import ConfirmResult as ConfirmResult
    from diagnostics.audit.plan import Plan as Plan
    from diagnostics.audit.plan import PlannedAudit as PlannedAudit
    from diagnostics.audit.regrade import RegradeResult as RegradeResult
    from diagnostics.export.contract import Exported as Exported
    from diagnostics.export.contract import ExportResult as ExportResult
    from diagnostics.export.contract import Format, What
    from diagnostics.ingest.config import ImportConfig as ImportConfig
    from diagnostics.ingest.ingest import ImportResult as ImportResult
    from diagnostics.records.progress import ConsoleProgress as ConsoleProgress
    from diagnostics.records.progress import ProgressSink
    from diagnostics.store import Store as Store
    from diagnostics.store.merge import MergeResult as MergeResult
    from diagnostics.verdict.record import Verdict as Verdict
    from trainers.config import TrainConfig as TrainConfig

#: The verbs, in the order in which one meets them.
VERBS = (
    "audit",
    "import_samples",
    "open_store",
    "explain",
    "plan",
    "confirm",
    "regrade",
    "report",
    "export",
    "audit_shard",
    "merge",
    "train",
    "compare",
)
#: Settings and results, by the module that each is loaded from when it is asked for.
RECORDS: Mapping[str, str] = MappingProxyType(
    {
        "AuditConfig": "diagnostics.audit.config",
        "ImportConfig": "diagnostics.ingest.config",
        "ConfirmConfig": "diagnostics.audit.config",
        "TrainConfig": "trainers.config",
        "ConsoleProgress": "diagnostics.records.progress",
        "Store": "diagnostics.store",
        "AuditResult": "diagnostics.audit.audit",
        "Verdict": "diagnostics.verdict.record",
        "ImportResult": "diagnostics.ingest.ingest",
        "Plan": "diagnostics.audit.plan",
        "PlannedAudit": "diagnostics.audit.plan",
        "ConfirmResult": "diagnostics.audit.confirm",
        "RegradeResult": "diagnostics.audit.regrade",
        "ExportResult": "diagnostics.export.contract",
        "Exported": "diagnostics.export.contract",
        "ShardResult": "diagnostics.audit.audit",
        "MergeResult": "diagnostics.store.merge",
        "CompareResult": "diagnostics.app.compare",
    }
)


__all__ = [
    "AuditConfig",
    "AuditResult",
    "CompareResult",
    "ConfirmConfig",
    "ConfirmResult",
    "ConsoleProgress",
    "ExportResult",
    "Exported",
    "ImportConfig",
    "ImportResult",
    "MergeResult",
    "OversharpError",
    "Plan",
    "PlannedAudit",
    "RegradeResult",
    "ShardResult",
    "Store",
    "TrainConfig",
    "Verdict",
    "audit",
    "audit_shard",
    "compare",
    "confirm",
    "explain",
    "export",
    "import_samples",
    "merge",
    "open_store",
    "plan",
    "regrade",
    "report",
    "train",
    "version",
]


def __getattr__(name: str) -> Any:
    if name not in RECORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(RECORDS[name]), name)


def audit(
    series: Path | str | Sequence[Path | str], config: AuditConfig, *, progress: ProgressSink | None = None
) -> AuditResult:
    """Audit a series of checkpoints for over-sharpening, as ``oversharp audit`` does.

    ``series`` is a directory that holds checkpoints, a glob, or several checkpoint directories. Leaves
    ``audit.duckdb`` and ``report.html`` in ``config.out``; stopped or killed, the same call continues. Without
    ``progress`` it says nothing until it ends.

    ::

        config = oversharp.AuditConfig(task="countdown", n=64)
        result = oversharp.audit("runs/grpo", config, progress=oversharp.ConsoleProgress())
        print(result.verdict.sentence)
    """
    from diagnostics.audit.audit import audit as run

    paths = _listed(series)
    return run(paths, config, command=_call("audit", paths, config), progress=progress)


def import_samples(
    paths: Path | str | Sequence[Path | str], config: ImportConfig, *, progress: ProgressSink | None = None
) -> ImportResult:
    """Audit samples that another tool drew, as ``oversharp import`` does: nothing is sampled again."""
    from diagnostics.ingest.ingest import import_samples as run

    listed = _listed(paths)
    return run(listed, config, command=_call("import_samples", listed, config), progress=progress)


def open_store(path: Path | str) -> Store:
    """Open a store read-only, for notebooks: ``open_store(path).frame("FROM findings")``, ``.verdict("grpo")``."""
    from diagnostics.store import Store

    return Store.open(Path(path), read_only=True)


def explain(name: str) -> str:
    """What a measure, benchmark or preset is, as ``oversharp explain`` says. Raises ``ConfigError`` for others."""
    from diagnostics.measures import explanation, get_measure
    from diagnostics.tasks.listing import task_explanation

    return task_explanation(name) or explanation(get_measure(name))


def plan(
    store: Path | str,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
) -> Plan:
    """How many problems and samples an audit needs to find a fall of pass@``k`` by ``drop_points``, and its cost.

    Starts from the base's samples in ``store``. ``drop_points`` are percentage points, ``power`` is the chance of
    finding it that is wanted, ``checkpoints`` counts trained ones. The power is an upper estimate. Changes nothing.
    """
    from diagnostics.audit.plan import plan as run

    return run(Path(store), series=series, drop_points=drop_points, k=k, wanted=power, n_checkpoints=checkpoints)


def confirm(
    store: Path | str, config: ConfirmConfig | None = None, *, progress: ProgressSink | None = None
) -> ConfirmResult:
    """Draw the problems that seem lost or gained again, and test them, as ``oversharp confirm`` does.

    Needs the checkpoints. Keeps the result in ``store`` and writes the report anew.
    """
    from diagnostics.audit.config import ConfirmConfig
    from diagnostics.audit.confirm import confirm as run

    return run(Path(store), config or ConfirmConfig(), progress=progress)


def regrade(
    store: Path | str, verifier: str, *, series: str | None = None, progress: ProgressSink | None = None
) -> RegradeResult:
    """Grade the stored responses of ``series`` by ``verifier`` too, as ``oversharp regrade`` does.

    Samples nothing. Makes a second series of the same samples, with a verdict of its own, and writes the report anew.
    """
    from diagnostics.audit.regrade import regrade as run

    return run(
        Path(store),
        verifier,
        series=series,
        command=f"oversharp.regrade({str(store)!r}, {verifier!r}, series={series!r})",
        progress=progress,
    )


def report(
    store: Path | str, out: Path | str | None = None, *, series: Sequence[str] | None = None, allow: bool = False
) -> Path:
    """Write the HTML report of ``series`` (default: all), by default beside the store, and return its path.

    Named series that were sampled or graded differently are an error, unless ``allow``.
    """
    from reports import build_report

    path = Path(store)
    target = path.parent / "report.html" if out is None else Path(out)
    return build_report(path, target, series=tuple(series) if series else None, allow=allow)


def export(
    store: Path | str,
    out: Path | str | None = None,
    *,
    what: Sequence[What] = ("findings", "verdicts"),
    formats: Sequence[Format] = (),
    series: Sequence[str] | None = None,
    replace: bool = False,
    progress: ProgressSink | None = None,
) -> ExportResult:
    """Take findings, verdicts, samples or plots out of a store, as ``oversharp export`` does.

    ``what``: findings, verdicts, samples, every_eval_ever, plots. ``formats``: csv, parquet, markdown for the first
    two, svg, png for plots; by default all three, and svg. ``out`` is a folder, by default ``export`` beside the store.

    ::

        oversharp.export("audit/audit.duckdb", "out", what=["samples", "plots"], formats=["png"])
    """
    from diagnostics.export.export import export as run

    target = None if out is None else Path(out)
    return run(Path(store), target, what=what, formats=formats, series=series, replace=replace, progress=progress)


def audit_shard(
    series: Path | str | Sequence[Path | str],
    config: AuditConfig,
    shard: str,
    *,
    progress: ProgressSink | None = None,
) -> ShardResult:
    """Draw, score and grade one share of an audit, as ``oversharp audit --shard`` does.

    ``shard`` is I/N, for example ``"1/4"``; each has a ``config.out`` of its own. ``merge`` joins them.
    """
    from diagnostics.audit.audit import audit_shard as run
    from diagnostics.records.shard import Shard

    paths = _listed(series)
    part = Shard.from_text("shard", shard)
    return run(paths, config, part, command=_call("audit_shard", paths, config), progress=progress)


def merge(stores: Sequence[Path | str], out: Path | str, *, progress: ProgressSink | None = None) -> MergeResult:
    """Join stores into ``out``/audit.duckdb, as ``oversharp merge`` does: shards, or audits of several machines.

    After shards, ``audit`` with that ``out`` draws nothing and comes to the verdict.
    """
    from diagnostics.store.merge import merge as run

    return run([Path(store) for store in stores], Path(out), progress=progress)


def train(config: TrainConfig, *, progress: ProgressSink | None = None) -> Path:
    """Train a compact reference model, as ``oversharp train`` does, and return its run directory."""
    from trainers.loop import train as run

    return run(config, progress)


def compare(
    config: Path | str, out: Path | str | None = None, *, progress: ProgressSink | None = None
) -> CompareResult:
    """Train objectives over seeds and audit them into one report, as ``oversharp compare`` does.

    ``config`` is its TOML file; ``out`` by default ``runs/`` and the name of that file.
    """
    from diagnostics.app.compare import compare as run
    from diagnostics.app.compare_config import read_comparison

    comparison = read_comparison(Path(config), None if out is None else Path(out))
    return run(comparison, command=f"oversharp.compare({str(config)!r})", progress=progress)


def _listed(paths: Path | str | Sequence[Path | str]) -> list[Path | str]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _call(verb: str, paths: Sequence[Path | str], config: Any) -> str:
    """The call as one would type it, for the record: settings at their default are left out."""
    told = [f"{one.name}={value!r}" for one in fields(config) if (value := getattr(config, one.name)) != one.default]
    return f"oversharp.{verb}({[str(path) for path in paths]!r}, {type(config).__name__}({', '.join(told)}))"
