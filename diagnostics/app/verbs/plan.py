"""``plan`` and ``plan_cost``: the size and the cost of an audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.cost import CostPlan
    from oversharp.diagnostics.audit.plan import Plan


@check_arguments
def plan(
    store: Path | str,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
) -> Plan:
    """Compute how many problems, samples and tokens an audit needs to find a given loss.

    Starts from the base's samples in STORE, of a finished audit or a small pilot. Simulates audits of several sizes in
    which pass@k falls by DROP, and counts how often the verdict reports a fall. Two kinds of loss are simulated:
    diffuse, where rarely solved problems become rarer and the others more frequent, and concentrated, where a few
    problems are never solved again. An audit is large enough if it finds both. Real losses vary more between problems,
    and changes between checkpoints are not simulated, so the power is an upper bound. Reads the store only.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Name of the series whose base and responses to use; required if the store has several.
    drop_points
        The fall of pass@k to find, in percentage points.
    k
        The k of that fall, at most half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is required.
    checkpoints
        Trained checkpoints of the planned audit. Default: as many as in the store.
    """
    from oversharp.diagnostics.audit.plan import plan as run

    return run(store_file(store), series=series, drop_points=drop_points, k=k, wanted=power, n_checkpoints=checkpoints)


@check_arguments
def plan_cost(
    model: Path | str,
    *,
    problems: int,
    tokens: int,
    checkpoints: int = 10,
    n: int = 256,
    prompt_tokens: int = 200,
    gpu: str | None = None,
) -> CostPlan:
    """Estimate the hours, disk and memory of each stage of an audit of MODEL with the default settings.

    Reads the model's configuration only. Without ``gpu``, the hours are those of one core of this CPU: rates measured
    on one model and CPU, scaled by the model's operations and by the speed of this core, which is measured for some
    seconds. GPU hours are not measured: they are lower bounds from the data sheet, and real ones are longer.

    Parameters
    ----------
    model
        A directory with the model, or its hub name.
    problems
        Number of problems.
    tokens
        Mean length of a response, in tokens.
    checkpoints
        Trained checkpoints, without the base.
    n
        Samples per problem and checkpoint; twice as many of the base.
    prompt_tokens
        Mean length of a prompt with its chat template, in tokens.
    gpu
        h100, h200, a100, l40s or l4: a single one.
    """
    from oversharp.diagnostics.audit.cost.cost import plan_cost as run
    from oversharp.diagnostics.audit.cost.work import AuditSize

    size = AuditSize(problems=problems, checkpoints=checkpoints, n=n, tokens=tokens, prompt_tokens=prompt_tokens)
    return run(str(model), size, gpu=gpu)
