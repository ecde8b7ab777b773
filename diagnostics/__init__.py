"""oversharp: audits series of RLVR checkpoints for over-sharpening.

The verbs of the command line are functions here, beside their settings and results: see ``diagnostics.api``.

>>> import diagnostics
>>> diagnostics.version().count(".") >= 1
True
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _distribution_version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from diagnostics import api as api
    from diagnostics.api import AuditConfig as AuditConfig
    from diagnostics.api import AuditResult as AuditResult
    from diagnostics.api import CompareResult as CompareResult
    from diagnostics.api import ConfirmConfig as ConfirmConfig
    from diagnostics.api import ConfirmResult as ConfirmResult
    from diagnostics.api import ConsoleProgress as ConsoleProgress
    from diagnostics.api import Exported as Exported
    from diagnostics.api import ExportResult as ExportResult
    from diagnostics.api import ImportConfig as ImportConfig
    from diagnostics.api import ImportResult as ImportResult
    from diagnostics.api import MergeResult as MergeResult
    from diagnostics.api import OversharpError as OversharpError
    from diagnostics.api import Plan as Plan
    from diagnostics.api import PlannedAudit as PlannedAudit
    from diagnostics.api import RescoreResult as RescoreResult
    from diagnostics.api import ShardResult as ShardResult
    from diagnostics.api import Store as Store
    from diagnostics.api import TrainConfig as TrainConfig
    from diagnostics.api import Verdict as Verdict
    from diagnostics.api import audit as audit
    from diagnostics.api import audit_shard as audit_shard
    from diagnostics.api import compare as compare
    from diagnostics.api import confirm as confirm
    from diagnostics.api import explain as explain
    from diagnostics.api import export as export
    from diagnostics.api import import_samples as import_samples
    from diagnostics.api import merge as merge
    from diagnostics.api import plan as plan
    from diagnostics.api import report as report
    from diagnostics.api import rescore as rescore
    from diagnostics.api import train as train


def version() -> str:
    """The installed version of oversharp, ``0+unknown`` when it runs from a bare source tree."""
    try:
        return _distribution_version("oversharp")
    except PackageNotFoundError:
        return "0+unknown"


def open_store(path: Path | str) -> Store:
    """Open a store read-only, for notebooks: ``open_store(path).frame("FROM findings")``, ``.verdict("grpo")``."""
    from pathlib import Path

    from diagnostics.store import Store

    return Store.open(Path(path), read_only=True)


def __getattr__(name: str) -> Any:
    """A verb, or a record, which loads what it needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    api = import_module("diagnostics.api")
    return api if name == "api" else getattr(api, name)


def __dir__() -> list[str]:
    return __all__


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
    "RescoreResult",
    "ShardResult",
    "Store",
    "TrainConfig",
    "Verdict",
    "api",
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
    "report",
    "rescore",
    "train",
    "version",
]
