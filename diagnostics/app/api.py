"""The commands as functions for scripts and notebooks. They return records.

``import oversharp`` is enough: ``oversharp.audit(…)``, ``oversharp.AuditConfig(…)``.

A function has the name and the settings of its command. Heavy libraries are loaded when a function is called. Every
expected error is an ``OversharpError`` with the command's message. With ``progress=oversharp.ConsoleProgress()`` a
function prints its progress. ``command`` is the text that the store records as the call that made the results (default:
the Python call). A flag such as --out is an argument or a field of that name; only --allow-loss, --drop, --figure and
--format are ``allow_loss_points``, ``drop_points``, ``figures`` and ``formats``. Pass settings as arguments or as a
config: ``oversharp.audit(run, task="countdown", n=64)``. If you pass both, the arguments override the config. A single
value is accepted for a list: ``series="grpo"``.

In a script, call the functions under ``if __name__ == "__main__":``. Graders, engines and workers are separate
processes that import the script.

>>> import oversharp
>>> print(oversharp.explain("token_entropy").splitlines()[0])
token_entropy: Token entropy
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from oversharp.diagnostics.app.verbs.preparing import check_problems as check_problems
from oversharp.diagnostics.app.verbs.preparing import plan as plan
from oversharp.diagnostics.app.verbs.preparing import plan_cost as plan_cost
from oversharp.diagnostics.app.verbs.preparing import plan_top_up as plan_top_up
from oversharp.diagnostics.app.verbs.preparing import repair as repair
from oversharp.diagnostics.app.verbs.stores import diff as diff
from oversharp.diagnostics.app.verbs.stores import drop as drop
from oversharp.diagnostics.app.verbs.stores import export as export
from oversharp.diagnostics.app.verbs.stores import judge as judge
from oversharp.diagnostics.app.verbs.stores import lost as lost
from oversharp.diagnostics.app.verbs.stores import regrade as regrade
from oversharp.diagnostics.app.verbs.stores import report as report
from oversharp.diagnostics.app.verbs.stores import ship as ship
from oversharp.diagnostics.records.arguments import check_arguments, require_known
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.errors import OversharpError as OversharpError
from oversharp.diagnostics.records.errors import RetryLater as RetryLater
from oversharp.diagnostics.records.names import as_path_list, store_file
from oversharp.diagnostics.records.provenance import format_call
from oversharp.diagnostics.records.provenance import version as version

if TYPE_CHECKING:
    from oversharp.diagnostics.app.compare import CompareResult as CompareResult
    from oversharp.diagnostics.app.reader import OpenStore as OpenStore
    from oversharp.diagnostics.app.reader import ReportPicture as ReportPicture
    from oversharp.diagnostics.audit.audit import AuditResult as AuditResult
    from oversharp.diagnostics.audit.audit import ShardResult as ShardResult
    from oversharp.diagnostics.audit.config import AuditConfig as AuditConfig
    from oversharp.diagnostics.audit.confirm import ConfirmResult as ConfirmResult
    from oversharp.diagnostics.audit.confirm_config import ConfirmConfig as ConfirmConfig
    from oversharp.diagnostics.audit.cost.cost import CostPlan as CostPlan
    from oversharp.diagnostics.audit.cost.top_up import CheckpointTopUp as CheckpointTopUp
    from oversharp.diagnostics.audit.cost.top_up import TopUp as TopUp
    from oversharp.diagnostics.audit.judges.judge import JudgeResult as JudgeResult
    from oversharp.diagnostics.audit.plan import Plan as Plan
    from oversharp.diagnostics.audit.regrade import RegradeResult as RegradeResult
    from oversharp.diagnostics.changes.difference import StepDifference as StepDifference
    from oversharp.diagnostics.changes.lost import LostProblem as LostProblem
    from oversharp.diagnostics.changes.lost import LostProblems as LostProblems
    from oversharp.diagnostics.changes.problems import ProblemChange as ProblemChange
    from oversharp.diagnostics.export.contract import Exported as Exported
    from oversharp.diagnostics.export.contract import ExportResult as ExportResult
    from oversharp.diagnostics.ingest.config import ImportConfig as ImportConfig
    from oversharp.diagnostics.ingest.ingest import ImportResult as ImportResult
    from oversharp.diagnostics.records.progress import ConsoleProgress as ConsoleProgress
    from oversharp.diagnostics.records.progress import ProgressSink
    from oversharp.diagnostics.repair.points import RepairedPoint as RepairedPoint
    from oversharp.diagnostics.repair.points import RepairResult as RepairResult
    from oversharp.diagnostics.store.drop import DropResult as DropResult
    from oversharp.diagnostics.store.merge import MergeResult as MergeResult
    from oversharp.diagnostics.tasks.overlap import Overlap as Overlap
    from oversharp.diagnostics.tasks.overlap import OverlapResult as OverlapResult
    from oversharp.diagnostics.tasks.overlap import SetOverlap as SetOverlap
    from oversharp.diagnostics.verdict.audit_sizes import PlannedAudit as PlannedAudit
    from oversharp.diagnostics.verdict.recommendation import Recommendation as Recommendation
    from oversharp.diagnostics.verdict.record import Verdict as Verdict
    from oversharp.trainers.config import TrainConfig as TrainConfig

Config = TypeVar("Config")

#: Public functions, in the order of the documentation.
VERBS = (
    "audit",
    "import_samples",
    "open_store",
    "explain",
    "ship",
    "diff",
    "lost",
    "plan",
    "plan_cost",
    "plan_top_up",
    "check_problems",
    "confirm",
    "regrade",
    "judge",
    "repair",
    "report",
    "export",
    "audit_shard",
    "merge",
    "drop",
    "train",
    "compare",
)
#: Public settings and results → module from which each is imported on first use.
RECORDS: Mapping[str, str] = MappingProxyType(
    {
        "AuditConfig": "oversharp.diagnostics.audit.config",
        "ImportConfig": "oversharp.diagnostics.ingest.config",
        "ConfirmConfig": "oversharp.diagnostics.audit.confirm_config",
        "TrainConfig": "oversharp.trainers.config",
        "ConsoleProgress": "oversharp.diagnostics.records.progress",
        "OpenStore": "oversharp.diagnostics.app.reader",
        "ReportPicture": "oversharp.diagnostics.app.reader",
        "AuditResult": "oversharp.diagnostics.audit.audit",
        "Verdict": "oversharp.diagnostics.verdict.record",
        "ImportResult": "oversharp.diagnostics.ingest.ingest",
        "Recommendation": "oversharp.diagnostics.verdict.recommendation",
        "StepDifference": "oversharp.diagnostics.changes.difference",
        "LostProblems": "oversharp.diagnostics.changes.lost",
        "LostProblem": "oversharp.diagnostics.changes.lost",
        "ProblemChange": "oversharp.diagnostics.changes.problems",
        "Plan": "oversharp.diagnostics.audit.plan",
        "CostPlan": "oversharp.diagnostics.audit.cost.cost",
        "TopUp": "oversharp.diagnostics.audit.cost.top_up",
        "CheckpointTopUp": "oversharp.diagnostics.audit.cost.top_up",
        "PlannedAudit": "oversharp.diagnostics.verdict.audit_sizes",
        "OverlapResult": "oversharp.diagnostics.tasks.overlap",
        "SetOverlap": "oversharp.diagnostics.tasks.overlap",
        "Overlap": "oversharp.diagnostics.tasks.overlap",
        "ConfirmResult": "oversharp.diagnostics.audit.confirm",
        "RegradeResult": "oversharp.diagnostics.audit.regrade",
        "JudgeResult": "oversharp.diagnostics.audit.judges.judge",
        "RepairResult": "oversharp.diagnostics.repair.points",
        "RepairedPoint": "oversharp.diagnostics.repair.points",
        "ExportResult": "oversharp.diagnostics.export.contract",
        "Exported": "oversharp.diagnostics.export.contract",
        "ShardResult": "oversharp.diagnostics.audit.audit",
        "MergeResult": "oversharp.diagnostics.store.merge",
        "DropResult": "oversharp.diagnostics.store.drop",
        "CompareResult": "oversharp.diagnostics.app.compare",
    }
)

#: Type checkers need a literal list.
__all__ = [
    "AuditConfig",
    "AuditResult",
    "CheckpointTopUp",
    "CompareResult",
    "ConfirmConfig",
    "ConfirmResult",
    "ConsoleProgress",
    "CostPlan",
    "DropResult",
    "ExportResult",
    "Exported",
    "ImportConfig",
    "ImportResult",
    "JudgeResult",
    "LostProblem",
    "LostProblems",
    "MergeResult",
    "OpenStore",
    "Overlap",
    "OverlapResult",
    "OversharpError",
    "Plan",
    "PlannedAudit",
    "ProblemChange",
    "Recommendation",
    "RegradeResult",
    "RepairResult",
    "RepairedPoint",
    "ReportPicture",
    "RetryLater",
    "SetOverlap",
    "ShardResult",
    "StepDifference",
    "TopUp",
    "TrainConfig",
    "Verdict",
    "audit",
    "audit_shard",
    "check_problems",
    "compare",
    "confirm",
    "diff",
    "drop",
    "explain",
    "export",
    "import_samples",
    "judge",
    "lost",
    "merge",
    "open_store",
    "plan",
    "plan_cost",
    "plan_top_up",
    "regrade",
    "repair",
    "report",
    "ship",
    "train",
    "version",
]


def __getattr__(name: str) -> Any:
    if name not in RECORDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(RECORDS[name]), name)


@check_arguments
def audit(
    series: Path | str | Sequence[Path | str] = (),
    config: AuditConfig | None = None,
    *,
    command: str | None = None,
    progress: ProgressSink | None = None,
    **settings: Any,
) -> AuditResult:
    """Audit a series of checkpoints for over-sharpening.

    Samples every checkpoint, grades the responses, and compares them with those of the base model. Writes
    OUT/audit.duckdb and OUT/report.html. If it is interrupted, the same command continues.

    Parameters
    ----------
    series
        A directory of checkpoints, several checkpoint directories, or a quoted glob. Not given if the checkpoints exist
        only behind the servers in --endpoints.

    Examples
    --------
    ::

        result = oversharp.audit("runs/grpo", task="countdown", n=64, progress=oversharp.ConsoleProgress())
        print(result.verdict.sentence)
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.audit.audit import audit as run
    from oversharp.diagnostics.audit.config import AuditConfig

    paths, config = as_path_list(series), _merge_config("audit", AuditConfig, config, settings)
    require_report_place(config.out / "audit.duckdb")
    result = run(paths, config, command=command or format_call("audit", paths, config), progress=progress)
    write_report(result.store_path, result.report_path)
    return result


@check_arguments
def audit_shard(
    series: Path | str | Sequence[Path | str],
    config: AuditConfig | None = None,
    shard: str | None = None,
    *,
    command: str | None = None,
    progress: ProgressSink | None = None,
    **settings: Any,
) -> ShardResult:
    """Run one share of an audit, as ``oversharp audit --shard`` does.

    ``shard`` is I/N, for example ``"1/4"``. Each share needs a separate ``config.out``. ``merge`` joins the shares.
    """
    from oversharp.diagnostics.audit.audit import audit_shard as run
    from oversharp.diagnostics.audit.config import AuditConfig
    from oversharp.diagnostics.records.shard import Shard

    if shard is None:
        raise ConfigError("--shard: pass the share of the problems, for example 1/4")
    paths, part = as_path_list(series), Shard.from_text("--shard", shard)
    config = _merge_config("audit_shard", AuditConfig, config, settings)
    return run(paths, config, part, command=command or format_call("audit_shard", paths, config), progress=progress)


@check_arguments
def import_samples(
    paths: Path | str | Sequence[Path | str],
    config: ImportConfig | None = None,
    *,
    command: str | None = None,
    progress: ProgressSink | None = None,
    **settings: Any,
) -> ImportResult:
    """Audit samples from another tool. No model is needed.

    Reads dumps of lm-eval, lighteval, inspect, verl, TRL, SkyRL, prime-rl and others, or any JSONL, Parquet or CSV with
    --map. The format is recognized by content. The step is parsed from fields, file names or folder names. Check both
    with --dry-run first. Writes the store and report.html. Files that were imported before are skipped.

    Parameters
    ----------
    paths
        Files, or folders to search.
    """
    from oversharp.diagnostics.app.report import require_report_place, write_report
    from oversharp.diagnostics.ingest.config import ImportConfig
    from oversharp.diagnostics.ingest.ingest import import_samples as run

    given, config = as_path_list(paths), _merge_config("import_samples", ImportConfig, config, settings)
    require_report_place(config.store)
    result = run(given, config, command=command or format_call("import_samples", given, config), progress=progress)
    if result.report_path:
        write_report(result.store_path, result.report_path)
    return result


@check_arguments
def open_store(path: Path | str, *, memory_gib: float | None = None) -> OpenStore:
    """Open a store read-only, for example in a notebook.

    The result has ``.ship()``, ``.lost()``, ``.frame("FROM findings")`` and more. Queries use at most ``memory_gib``
    GiB (default: half of the free memory). A result may use half of that.
    """
    from oversharp.diagnostics.app.reader import OpenStore
    from oversharp.diagnostics.store import Store

    return OpenStore(Store.open_for_user(store_file(path), memory_gib))


@check_arguments
def explain(name: str) -> str:
    """Return the meaning of a word, measure, benchmark or preset.

    Raises ``ConfigError`` if unknown.
    """
    from oversharp.diagnostics.app.verbs.glossary import find_meaning

    return find_meaning(name)


@check_arguments
def confirm(
    store: Path | str, config: ConfirmConfig | None = None, *, progress: ProgressSink | None = None, **settings: Any
) -> ConfirmResult:
    """Test on fresh samples whether problems were really lost or gained.

    Of the problems that changed most in an audit, some changed only by chance. This command samples them again from the
    base and from the last checkpoint. p values are corrected for the number of problems. The result is stored, and the
    report is written again. If it is interrupted, the same command continues.

    Repeating the command does not raise the chance of a false confirmation: all problems that were ever tested are
    corrected together, and the first test fixes the number of fresh samples. A larger --most only adds problems, so
    choose it first.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    """
    from oversharp.diagnostics.audit.confirm import confirm as run
    from oversharp.diagnostics.audit.confirm import confirm_report_path
    from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
    from oversharp.reports import build_report, require_place

    path, config = store_file(store), _merge_config("confirm", ConfirmConfig, config, settings)
    require_place(path, confirm_report_path(path, config))  # before sampling
    result = run(path, config, progress=progress)
    build_report(path, result.report_path)
    return result


@check_arguments
def merge(stores: Sequence[Path | str], out: Path | str, *, progress: ProgressSink | None = None) -> MergeResult:
    """Join stores: the shards of one audit, or audits from several machines.

    After merging shards, run the same audit without --shard and with this --out. It computes the kernels and the
    verdict. With controls, it also samples the checkpoint to ship at higher temperatures. The checkpoint to ship is
    chosen again, among all comparable series. A store that was merged before is skipped. If the command is interrupted,
    run it again to continue.

    Parameters
    ----------
    stores
        The audit.duckdb files; for an audit in shards, all of them.
    out
        Directory of the joined audit.duckdb, which may contain some of the stores already.
    """
    from oversharp.diagnostics.audit.shipping import settle_merged
    from oversharp.diagnostics.store.merge import merge as run

    result = run([store_file(store) for store in stores], Path(out), progress=progress)
    settle_merged(result.store_path)
    return result


@check_arguments
def train(config: TrainConfig | None = None, *, progress: ProgressSink | None = None, **settings: Any) -> Path:
    """Train a compact reference model by on-policy RLVR.

    Writes OUTPUT_DIR/checkpoint-0, checkpoint-N, …, metrics.jsonl and rollouts/, for `oversharp audit`.
    """
    from oversharp.trainers.config import TrainConfig
    from oversharp.trainers.loop import train as run

    return run(_merge_config("train", TrainConfig, config, settings), progress)


@check_arguments
def compare(
    config: Path | str,
    out: Path | str | None = None,
    *,
    command: str | None = None,
    progress: ProgressSink | None = None,
) -> CompareResult:
    """Train several objectives over several seeds from one base, and audit them into one report.

    CONFIG contains seeds = [0, 1, 2]; [train] with settings of all runs; a [[run]] per objective with a name and its
    settings; [audit]; and [base], unless [train] has a model. If it is interrupted, the same command continues.

    Parameters
    ----------
    config
        TOML file of the comparison.
    out
        Directory of base, runs, store and report. Default: runs/ and the name of CONFIG.
    """
    from oversharp.diagnostics.app.compare import compare as run
    from oversharp.diagnostics.app.compare_config import read_comparison

    comparison = read_comparison(Path(config), None if out is None else Path(out))
    return run(comparison, command=command or f"oversharp.compare({str(config)!r})", progress=progress)


def _merge_config(verb: str, kind: type[Config], config: Config | None, settings: Mapping[str, Any]) -> Config:
    """Return the settings of a function: the fields of ``config``, overridden by the arguments."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    require_known(verb, settings, [*known, "config", *(() if verb == "train" else ("command",)), "progress"])
    return kind(**settings) if config is None else replace(config, **settings)  # type: ignore[type-var]
