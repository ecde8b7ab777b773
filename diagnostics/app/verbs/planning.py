"""``oversharp plan``: the size of an audit, or with --cost its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from oversharp.diagnostics.app.commands import Json
from oversharp.diagnostics.app.console import results
from oversharp.diagnostics.app.console.cost import show_plan_cost
from oversharp.diagnostics.app.verbs.plan import plan as plan_size
from oversharp.diagnostics.app.verbs.plan import plan_cost
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
    """Compute how many problems and samples an audit needs to find a given loss; with --cost, what an audit costs.

    Starts from the base's samples in STORE, of a finished audit or a small pilot. Simulates audits of several sizes in
    which pass@k falls by DROP, and counts how often the verdict reports a fall. Two kinds of loss are simulated:
    diffuse, where rarely solved problems become rarer and the others more frequent, and concentrated, where a few
    problems are never solved again. An audit is large enough if it finds both. Real losses vary more between problems,
    and changes between checkpoints are not simulated, so the power is an upper bound. Reads the store only.

    `oversharp plan --cost MODEL --problems 500 --tokens 2000` needs no store. It estimates hours, disk and memory of
    each stage of an audit with the default settings. Without --gpu the hours are those of one core of this CPU. GPU
    hours are not measured: they are lower bounds from the data sheet, and real ones are longer.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory; none with --cost.
    series
        Name of the series whose base and responses to use; required if the store has several.
    drop_points
        The fall of pass@k to find, in percentage points.
    k
        The k of that fall, at most half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is required.
    checkpoints
        Trained checkpoints of the planned audit. Default: as many as in the store, with --cost 10.
    cost
        Model to estimate the cost of an audit for: a directory, or a hub name.
    problems
        With --cost: number of problems.
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
        flags = (("--problems", problems), ("--tokens", tokens), ("--gpu", gpu))
        cost_flags = [flag for flag, value in flags if value]
        if cost_flags:
            raise ConfigError(f"{cost_flags[0]}: estimates the cost of an audit; add --cost MODEL, or leave it out")
        planned = plan_size(store, series=series, drop_points=drop_points, k=k, power=power, checkpoints=checkpoints)
        return results.show_plan(planned, as_json)
    if store is not None:
        raise ConfigError(f"--cost {cost}: needs no store; leave {store} out")
    if problems is None or tokens is None:
        raise ConfigError("--cost needs --problems and --tokens (mean length of a response), for example 500 and 2000")
    estimate = plan_cost(
        cost,
        problems=problems,
        tokens=tokens,
        checkpoints=10 if checkpoints is None else checkpoints,
        n=n,
        prompt_tokens=prompt_tokens,
        gpu=gpu,
    )
    return show_plan_cost(estimate, as_json)
