"""Settings of ``oversharp confirm``. One dataclass field is the flag, the TOML key and the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from oversharp.diagnostics.audit.config import SAMPLING, SERIES
from oversharp.diagnostics.engine.config import ENGINE as ENGINE  # cyclopts looks up inherited fields' groups here
from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.records.arguments import check_settings
from oversharp.diagnostics.records.settings import require_at_least, require_storable
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER  # as ENGINE above
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class ConfirmConfig(EngineConfig, GraderConfig):
    """Which problems to sample again, where their checkpoints are now, and the engine that samples.

    Attributes
    ----------
    series
        Name of the series in the store; needed where there are several.
    most
        Most problems that seem lost, and as many that seem gained: first those that lost every correct sample, then
        the largest falls.
    fresh
        Fresh samples per problem, from the base and from the late checkpoint each; fixed by the first test. Default: as
        many as then, at first as many as the audit drew from the base.
    path
        Run directory, if it was moved after the audit.
    base
        Directory of the base model, if it was moved after the audit and is not in the run directory.
    out
        Where to write the report. Default: report.html beside the store.
    verifier
        FILE.py:function again, unchanged, if code of yours graded the audit.
    """

    series: Annotated[str | None, SERIES] = None
    most: Annotated[int, SAMPLING] = 20
    fresh: Annotated[int | None, SAMPLING] = None
    path: Annotated[Path | None, SERIES] = None
    base: Annotated[Path | None, SERIES] = None
    out: Annotated[Path | None, SERIES] = None
    verifier: Annotated[str | None, SERIES] = None

    def __post_init__(self) -> None:
        EngineConfig.__post_init__(self)
        GraderConfig.__post_init__(self)
        require_at_least("--most", self.most, 1)
        require_at_least("--fresh", self.fresh, 1)
        require_storable("--fresh", self.fresh)
