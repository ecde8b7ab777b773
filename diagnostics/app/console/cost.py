"""Prints the estimated cost of an audit: stages, memory, disk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from oversharp.diagnostics.app.console.layout import OutputColumn, OutputRow, print_lines, print_rows, print_table
from oversharp.diagnostics.records.amounts import disk_size, plural, two_digits

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.cost.cost import CostPlan


def show_plan_cost(plan: CostPlan, as_json: bool) -> int:
    """Print the plan, or return it as JSON."""
    if as_json:
        print(json.dumps({**asdict(plan), "hours": plan.hours}, indent=2))
        return 0
    size, model = plan.size, plan.model
    checkpoints = f"{plural(size.checkpoints, 'checkpoint')} and the base"
    samples = f"n = {size.n} ({2 * size.n} of the base)"
    tokens = f"{size.tokens:,} tokens per response, {size.prompt_tokens:,} per prompt"
    print_rows(
        (
            OutputRow(label="model", value=f"{model.name}: {model.parameters:,} parameters"),
            OutputRow(label="audit", value=f"{plural(size.problems, 'problem')}, {checkpoints}, {samples}, {tokens}"),
            OutputRow(label="machine", value=plan.machine),
        )
    )
    print_lines([""])
    columns = (
        OutputColumn(heading="stage", is_text=True),
        OutputColumn(heading="of", is_text=True),
        OutputColumn(heading="core hours" if plan.per_core else "hours, at least"),
    )
    stages = [(stage.name, stage.amount, two_digits(stage.hours)) for stage in plan.stages]
    print_table(columns, [*stages, ("all", "", two_digits(plan.hours))])
    print_lines([""])
    print_rows(_rows(plan))
    return 0


def _rows(plan: CostPlan) -> Iterator[OutputRow]:
    if plan.per_core:
        cores = os.cpu_count() or 1
        hours = f"at least {two_digits(plan.hours / cores)} hours on the {plural(cores, 'core')} of this machine"
        yield OutputRow(label="time", value=f"{hours}; --gpu estimates a GPU")
    else:
        yield OutputRow(
            label="time",
            value="not measured: a lower bound, operations and bytes divided by the data sheet's rates; CPU work and "
            "starting the engine are not included",
        )
    for need in plan.memory:
        too_much = ": more than this GPU has" if need.fits is False else ""
        yield OutputRow(label="memory", value=f"{need.what}: {need.needed_bytes / 2**30:,.1f} GiB{too_much}")
    yield OutputRow(label="disk", value=f"at most about {disk_size(plan.disk_bytes)} for the store")
    yield OutputRow(label="", value=f"{disk_size(plan.weights_bytes)} for the checkpoints as whole models in bfloat16")
    yield from (OutputRow(label="note", value=remark) for remark in plan.remarks)
