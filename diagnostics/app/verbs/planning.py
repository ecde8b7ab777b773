"""``oversharp plan``: how large an audit must be, or with --cost what one will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from oversharp.diagnostics.app import results
from oversharp.diagnostics.app.commands import Json
from oversharp.diagnostics.app.verbs.plan import plan as plan_size
from oversharp.diagnostics.app.verbs.plan import plan_cost
from oversharp.diagnostics.app.verbs.printed_cost import show_plan_cost
from oversharp.diagnostics.records.errors import ConfigError


def plan(
    store: Path | None = None,
    /,
    *,
    series: str | None = None,
    drop_points: Annotated[float, Parameter(name="--drop")] = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
    cost: str | None = None,
    problems: int | None = None,
    n: int = 256,
    tokens: int | None = None,
    prompt_tokens: int = 200,
    gpu: str | None = None,
    as_json: Json = False,
) -> int:
    """Say how many problems and samples an audit needs to find a loss that you name; with --cost, what one will cost.

    Starts from the base's samples in STORE: those of a finished audit, or of a small pilot. Simulates audits of
    several sizes in which pass@k falls by DROP, and counts how often the verdict would say that it fell. Samples
    nothing and changes nothing. The fall is planted in two ways: diffuse, where rarely solved problems become rarer and
    the others more frequent, and concentrated, where a few problems are never solved again; an audit is large enough if
    it finds both. Real losses scatter more from problem to problem, and the churn from checkpoint to checkpoint is not
    simulated: take the power for an upper estimate.

    `oversharp plan --cost MODEL --problems 500 --tokens 2000` needs no store: hours, disk and memory of each stage of
    an audit with the default settings. Without --gpu the hours are those of one core of a CPU that was measured, in
    proportion to the operations that the model takes. Of GPUs nothing was measured: the hours are the least that their
    data sheets allow, and real ones are longer.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it; none with --cost.
    series
        Name of the series whose base and responses to plan with; needed where there are several.
    drop_points
        The fall of pass@k that you want to find, in percentage points.
    k
        Where pass@k falls by that much, up to half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is wanted.
    checkpoints
        Trained checkpoints in the audit that is planned. Default: as many as in the store, with --cost 10.
    cost
        Plan what an audit of this model costs: a directory, or a hub name.
    problems
        With --cost: problems that are asked.
    n
        With --cost: samples per problem and checkpoint; twice as many of the base.
    tokens
        With --cost: mean length of a response, in tokens.
    prompt_tokens
        With --cost: mean length of a prompt with its chat template, in tokens.
    gpu
        With --cost: h100, h200, a100, l40s or l4, a single one.
    """
    if cost is None:
        if store is None:
            raise ConfigError("plan needs the STORE of an audit or a pilot, or --cost MODEL")
        asked = [flag for flag, value in (("--problems", problems), ("--tokens", tokens), ("--gpu", gpu)) if value]
        if asked:
            raise ConfigError(f"{asked[0]}: is about what an audit costs; add --cost MODEL, or leave it out")
        planned = plan_size(store, series=series, drop_points=drop_points, k=k, power=power, checkpoints=checkpoints)
        return results.show_plan(planned, as_json)
    if store is not None:
        raise ConfigError(f"--cost {cost}: needs no store; leave {store} out")
    if problems is None or tokens is None:
        raise ConfigError("--cost needs --problems and --tokens (mean length of a response), for example 500 and 2000")
    of = plan_cost(
        cost,
        problems=problems,
        tokens=tokens,
        checkpoints=10 if checkpoints is None else checkpoints,
        n=n,
        prompt_tokens=prompt_tokens,
        gpu=gpu,
    )
    return show_plan_cost(of, as_json)
