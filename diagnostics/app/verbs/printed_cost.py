"""Prints what an audit will cost: a line per stage, then memory and disk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from oversharp.diagnostics.records.amounts import disk_size, plural, two_digits

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.cost import CostPlan, MemoryNeed


def show_plan_cost(plan: CostPlan, as_json: bool) -> int:
    """The plan on the console, or as JSON."""
    if as_json:
        print(json.dumps({**asdict(plan), "hours": plan.hours}, indent=2))
        return 0
    out = Console(highlight=False)
    table = Table("stage", "of", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("core hours" if plan.per_core else "hours, at least", justify="right")
    for stage in plan.stages:
        table.add_row(stage.name, stage.amount, two_digits(stage.hours))
    table.add_row("all", "", two_digits(plan.hours))
    size, model = plan.size, plan.model
    _say(
        out,
        f"{model.name}: {model.parameters:,} parameters; {plural(size.problems, 'problem')}, "
        f"{plural(size.checkpoints, 'checkpoint')} and the base, n = {size.n} ({2 * size.n} of the base), "
        f"{size.tokens:,} tokens a response, {size.prompt_tokens:,} a prompt",
        f"on {plan.machine}",
        "",
    )
    out.print(table)
    _say(out, "", *_machine_words(plan))
    for need in plan.memory:
        _say(out, f"memory of the {need.what}: {need.needed_bytes / 2**30:,.1f} GiB{_fit_words(need)}")
    _say(
        out,
        f"disk: at most about {disk_size(plan.disk_bytes)} for the store; the checkpoints themselves take "
        f"{disk_size(plan.weights_bytes)} as whole models in bfloat16",
        *plan.remarks,
    )
    return 0


def _machine_words(plan: CostPlan) -> tuple[str, ...]:
    if not plan.per_core:
        return (
            "nothing was measured on a GPU: these are operations and bytes over the data sheet's rates, which no "
            "program reaches; what the CPU does meanwhile, and starting the engine, come on top",
        )
    cores = os.cpu_count() or 1
    return (
        f"at best {two_digits(plan.hours / cores)} hours on the {plural(cores, 'core')} of this machine, if all "
        "are busy and none slows another down; --gpu says what a GPU's data sheet allows",
    )


def _fit_words(need: MemoryNeed) -> str:
    return {None: "", True: "", False: ": more than this GPU has"}[need.fits]


def _say(out: Console, *lines: str) -> None:
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
