"""Settings of confirmations. Each field defines a flag and its documentation, as in ``config``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from oversharp.diagnostics.audit.config import SAMPLING, SERIES
from oversharp.diagnostics.engine.config import (
    ENGINE as ENGINE,  # cyclopts looks up the groups of inherited fields here
)
from oversharp.diagnostics.engine.config import EngineConfig
from oversharp.diagnostics.records.arguments import check_settings
from oversharp.diagnostics.records.settings import require_at_least, require_storable
from oversharp.diagnostics.samplers.endpoint.config import ENDPOINT as ENDPOINT
from oversharp.diagnostics.samplers.endpoint.config import EndpointConfig
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class ConfirmConfig(EngineConfig, EndpointConfig, GraderConfig):
    """Settings of a confirmation: problems to sample again, paths of the checkpoints, engine.

    Attributes
    ----------
    series
        Name of the series; required if the store has several.
    most
        Maximum number of problems that seem lost, and of problems that seem gained. Problems without a correct sample
        left come first, then the largest falls.
    fresh
        Fresh samples per problem from each of the two checkpoints, the base and the late one. The first test fixes this
        number. Default: n_base of the audit.
    path
        Run directory, if it was moved after the audit.
    base
        Directory of the base model, if it was moved after the audit and is outside the run directory.
    out
        Path of the report. Default: report.html next to the store.
    verifier
        FILE.py:function or judge:FILE.toml that graded the audit, unchanged.
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
        self.require_endpoint("auto", uses_ray=False)
        GraderConfig.__post_init__(self)
        require_at_least("--most", self.most, 1)
        require_at_least("--fresh", self.fresh, 1)
        require_storable("--fresh", self.fresh)
