"""The verbs ``plan`` and ``plan_cost`` of the API: how large an audit must be, and what it will cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.cost import CostPlan
    from oversharp.diagnostics.audit.plan import Plan


@checked_arguments
def plan(
    store: Path | str,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
) -> Plan:
    """Say how many problems and samples an audit needs to find a loss that you name, and how many tokens it costs.

    Starts from the base's samples in STORE: those of a finished audit, or of a small pilot. Simulates audits of
    several sizes in which pass@k falls by DROP, and counts how often the verdict would say that it fell. Samples
    nothing and changes nothing. The fall is planted in two ways: diffuse, where rarely solved problems become rarer and
    the others more frequent, and concentrated, where a few problems are never solved again; an audit is large enough if
    it finds both. Real losses scatter more from problem to problem, and the churn from checkpoint to checkpoint is not
    simulated: take the power for an upper estimate.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    series
        Name of the series whose base and responses to plan with; needed where there are several.
    drop_points
        The fall of pass@k that you want to find, in percentage points.
    k
        Where pass@k falls by that much, up to half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is wanted.
    checkpoints
        Trained checkpoints in the audit that is planned. Default: as many as in the store.
    """
    from oversharp.diagnostics.audit.plan import plan as run

    return run(store_file(store), series=series, drop_points=drop_points, k=k, wanted=power, n_checkpoints=checkpoints)


@checked_arguments
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
    """Say what an audit of a series of MODEL will cost with the default settings: hours, disk and memory, per stage.

    Reads the model's configuration alone. Without GPU the hours are those of one core of this CPU: rates that were
    measured on one model and CPU, in proportion to the operations that the model takes and to how fast this core runs a
    small transformer, which is tried for some seconds. Of GPUs nothing was measured: the hours are the least that their
    data sheets allow, and real ones are longer.

    Parameters
    ----------
    model
        A directory with the model, or its hub name.
    problems
        Problems that are asked.
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
