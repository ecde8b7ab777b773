"""Print the results of ``oversharp plan``: power and cost, or hours, memory and disk."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_lines,
    print_rows,
    print_table,
    terminal,
    unbroken,
)
from oversharp.diagnostics.http.prices import money_text
from oversharp.diagnostics.records.amounts import disk_size, plural, rounds_text, short_count, two_digits

if TYPE_CHECKING:
    from pathlib import Path

    from oversharp.diagnostics.audit.cost.cost import CostPlan
    from oversharp.diagnostics.audit.cost.never_solved import NeverSolved
    from oversharp.diagnostics.audit.cost.top_up import TopUp
    from oversharp.diagnostics.audit.plan import Plan, PlantedLoss
    from oversharp.diagnostics.verdict.audit_sizes import PlannedAudit


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """Print power and cost by audit size, one row per number of problems.

    The cheapest size is marked. A second table compares stopping rules.
    """
    out = console or terminal()
    numbers_of_samples = sorted({audit.n for audit in plan.audits})
    by_size = {(audit.n_problems, audit.n): audit for audit in plan.audits}
    table = Table("problems", box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for n in numbers_of_samples:
        table.add_column(f"n = {n}", justify="right")
    for n_problems in sorted({audit.n_problems for audit in plan.audits}):
        audits = [by_size[n_problems, n] for n in numbers_of_samples]
        marks = [" ◀" if audit is plan.cheapest else "  " for audit in audits]
        cells = [f"{_power(audit)}{mark}\n{_drawn(audit)}  " for audit, mark in zip(audits, marks, strict=True)]
        table.add_row(f"{n_problems:,}", *cells)
    print_rows(
        (
            OutputRow(
                label="series",
                value=f"{plan.series}: power to detect a fall of pass@{plan.k} by {_points(plan.drop)}, "
                f"from {100 * plan.base_pass_at_k:.1f}",
            ),
            OutputRow(
                label="audits",
                value=f"{plural(plan.n_checkpoints, 'checkpoint')} after the base, the last {plan.window} "
                f"{_merged_text(plan)}n samples per problem and checkpoint, 2n of the base; {_length(plan)}",
            ),
            *(OutputRow(label="sampling", value=text) for text in (_sampling_text(plan),) if text),
            OutputRow(label="", value=""),
        ),
        out,
    )
    out.print(table, crop=False)
    print_rows(_rows(plan), out)
    if plan.stopping:
        best = _best(plan)
        size = f"{plural(best.n_problems, 'problem')}, n = {best.n}"
        text = (
            f"{size}, by the number of correct samples after which a problem stops; power for the loss that is harder "
            "to detect, within 7 points"
        )
        print_rows((OutputRow(label="stopping", value=text), OutputRow(label="", value="")), out)
        print_table(*_stopping_table(plan), out)
    print_rows(_last_rows(plan), out)


def _rows(plan: Plan) -> Iterator[OutputRow]:
    yield OutputRow(label="", value="")
    yield OutputRow(
        label="cells",
        value=f"power to detect {_kinds(_best(plan))}, within 10 points; below it the "
        f"{_expected_text(plan)}{_cost(plan)} of the audit",
    )
    yield from (OutputRow(label=loss.law, value=_planted(loss)) for loss in plan.planted)
    yield OutputRow(label="cheapest", value=_cheapest(plan))
    if plan.present is not None:
        present = plan.present
        size = f"{plural(present.n_problems, 'problem')}, n = {present.n}, {present.n_base} of the base"
        until = "" if present.enough is None else f", until {present.enough} correct"
        yield OutputRow(label="this store", value=f"{size}{until}: power {_one_power(present)}")


def _last_rows(plan: Plan) -> Iterator[OutputRow]:
    yield OutputRow(label="", value="")
    if plan.never_solved is not None and plan.never_solved.cost >= 0.005:
        yield OutputRow(label="never solved", value=_unsolved_text(plan.never_solved, plan))
    notes = (*_small_k(plan), *_assumed_rates(plan), *_related(plan), *_guessed(plan))
    yield from (OutputRow(label="note", value=note) for note in notes)
    yield OutputRow(
        label="note",
        value="the power is an upper bound: real losses vary more, and changes between checkpoints are not simulated",
    )


def _merged_text(plan: Plan) -> str:
    return "averaged; at most " if any(audit.enough for audit in plan.audits) else "pooled; "


def _expected_text(plan: Plan) -> str:
    return "expected " if any(audit.enough for audit in plan.audits) else ""


def _sampling_text(plan: Plan) -> str:
    """Return the stopping rule, its first round, and the n without a rule; empty if no audit has one."""
    n_by_rule: dict[tuple[int, int], list[str]] = {}
    for n, *rule in sorted({(audit.n, audit.first or 0, audit.enough or 0) for audit in plan.audits}):
        n_by_rule.setdefault((rule[0], rule[1]), []).append(str(n))
    uniform = n_by_rule.pop((0, 0), [])
    if not n_by_rule:
        return ""
    firsts = ", ".join(f"{first} samples at n = {_list_text(n)}" for (first, _), n in n_by_rule.items())
    enough = next(iter(n_by_rule))[1]
    always = f"; always n samples at n = {_list_text(uniform)}" if uniform else ""
    return (
        f"in rounds that double up to n; a problem stops after the round that leaves it with {enough} correct samples; "
        f"first round: {firsts}{always}"
    )


def _list_text(numbers: Sequence[str]) -> str:
    *firsts, last = numbers
    return f"{', '.join(firsts)} and {last}" if firsts else last


def _stopping_table(plan: Plan) -> tuple[Sequence[OutputColumn], Sequence[Sequence[str]]]:
    """Return the columns and rows that compare stopping rules for the audit of one size."""
    best = next(audit for audit in plan.stopping if audit.enough == _best(plan).enough)
    columns = (
        OutputColumn(heading="stop after", is_text=True),
        OutputColumn(heading="power"),
        OutputColumn(heading=_cost(plan)),
        OutputColumn(heading="times as many"),
    )
    rows = [
        (
            f"{'never' if audit.enough is None else f'{audit.enough} correct'}{' ◀' if audit is best else ''}",
            _power(audit),
            _drawn(audit),
            "" if audit is best else two_digits(audit.cost / best.cost),
        )
        for audit in plan.stopping
    ]
    return columns, rows


def _best(plan: Plan) -> PlannedAudit:
    return plan.cheapest or max(plan.audits, key=lambda audit: audit.power)


def _unsolved_text(unsolved: NeverSolved, plan: Plan) -> str:
    """Return the cost of the problems that stay unsolved, and the effect of thinning them."""
    text = (
        f"{100 * unsolved.problems:.0f} % of the problems stay unsolved at a checkpoint and take "
        f"{100 * unsolved.cost:.0f} % of the {_cost(plan)}"
    )
    if unsolved.thinning is not None:
        thin = unsolved.thinning
        saved = f"{100 * thin.saved:.0f} %"
        text += (
            f". To give up {100 * (1 - thin.kept):g} % of those that no checkpoint solves in {thin.after} samples "
            f"would save {saved}, but multiply the standard error of pass@{thin.k} on these problems by "
            f"{thin.error_factor:.2f} ({saved} fewer problems: by {thin.fewer_factor:.2f}); there is no flag for it"
        )
    return text


def _drawn(audit: PlannedAudit) -> str:
    return short_count(audit.samples if audit.tokens is None else audit.tokens)


def _cost(plan: Plan) -> str:
    return "samples" if plan.tokens_per_sample is None else "tokens"


def _length(plan: Plan) -> str:
    if plan.tokens_per_sample is None:
        return "the number of tokens per sample is unknown"
    return f"{plural(round(plan.tokens_per_sample), 'token')} per sample"


def _power(audit: PlannedAudit) -> str:
    return " / ".join(f"{_percent(power.power):>5}" for power in audit.by_law).strip()


def _one_power(audit: PlannedAudit) -> str:
    """Return the powers for text: without alignment or line breaks."""
    return unbroken(" ".join(_power(audit).split()))


def _kinds(audit: PlannedAudit) -> str:
    kinds = [power.law for power in audit.by_law]
    if len(kinds) == 1:
        other = "concentrated" if kinds == ["diffuse"] else "diffuse"
        return f"a {kinds[0]} loss (no {other} loss is that large)"
    return f"a {kinds[0]} / a {kinds[1]} loss"


def _cheapest(plan: Plan) -> str:
    cheapest = plan.cheapest
    both = " for both" if len(plan.planted) > 1 else ""
    if cheapest is None:
        return f"no audit size reaches a power of {100 * plan.wanted:g} %{both}: pass a larger --drop, or add problems"
    return (
        f"◀ {plural(cheapest.n_problems, 'problem')}, n = {cheapest.n} ({cheapest.n_base} of the base), "
        f"{_drawn(cheapest)} {_cost(plan)}: a power of {100 * plan.wanted:g} % or more{both}"
    )


def _planted(loss: PlantedLoss) -> str:
    """Return the simulated loss as text: its mechanism and the change of pass@k at each k."""
    changes = ", ".join(
        f"{100 * change.change:+.1f} at k = {change.k}".replace("-", "\u2212") for change in loss.changes
    )
    mechanism = "rarely solved problems become rarer, the others more frequent"
    if loss.share_lost is not None:
        mechanism = f"{100 * loss.share_lost:.3g} % of the problems are never solved again, the others rise"
    return f"{mechanism}; pass@k in points: {changes}; the largest fall at k = {loss.k_largest}"


def _small_k(plan: Plan) -> Iterator[str]:
    """Yield the audit sizes that have too few samples for the k of the loss."""
    for n, k_most in sorted({(audit.n, audit.k_most) for audit in plan.audits if 2 * audit.k_most <= plan.k}):
        yield f"n = {n} tests k up to {k_most}: a fall of pass@{plan.k} is detected only if pass@{k_most} falls too"


def _assumed_rates(plan: Plan) -> Iterator[str]:
    """Yield the success rates by which samples until a problem is solved are expected."""
    if not any(audit.enough for audit in plan.audits):
        return
    if plan.n_trained:
        yield (
            f"expected {_cost(plan)} are for checkpoints that solve the problems as often as "
            f"{plural(plan.n_trained, 'checkpoint')} of this store on average"
        )
    else:
        yield (
            f"expected {_cost(plan)} are for checkpoints that solve the problems as often as the base; those that lose "
            "problems need more"
        )


def _related(plan: Plan) -> Iterator[str]:
    if plan.related is not None:
        yield (
            f"the problems of the store are in {plural(plan.related.n_clusters, 'cluster')} but are planned as "
            "independent; if the problems of a cluster are correlated, up to "
            f"{two_digits(plan.related.most_times)} times as many problems, in more clusters, are needed"
        )


def _guessed(plan: Plan) -> Iterator[str]:
    """Yield the share of detected falls that get the label *guessing*.

    It is for the cheapest audit, or for the most powerful one if no audit is large enough.
    """
    shares = [f"{_percent(loss.guessed)} of the {loss.law} falls" for loss in plan.planted if loss.guessed]
    if shares:
        yield (
            f"false accepts ({100 * plan.guess_rate:g} % of wrong answers, {plan.guess_source}) would explain "
            f"{' and '.join(shares)} that {'the cheapest' if plan.cheapest else 'the most powerful'} audit detects; if "
            "you measured a lower rate, pass --guess-rate"
        )


def _percent(power: float) -> str:
    """Return a simulated power in percent, never 0 % or 100 %.

    >>> _percent(1.0), _percent(0.804), _percent(0.0)
    ('>99 %', '80 %', '<1 %')
    """
    if power > 0.99:
        return ">99 %"
    return "<1 %" if power < 0.01 else f"{100 * power:.0f} %"


def _points(probability: float) -> str:
    points = f"{100 * probability:g}"
    return f"{points} point" if points == "1" else f"{points} points"


def show_top_up(plan: TopUp, store: Path, as_json: bool) -> int:
    """Print the further samples of an import by checkpoint, their power, and the next commands."""
    if as_json:
        print(json.dumps(asdict(plan), indent=2, default=str))
        return 0
    base = "" if plan.n_base == plan.n else f" ({plan.n_base} of the base)"
    print_rows(
        (
            OutputRow(label="series", value=f"{plan.series}: {plural(plan.n_problems, 'problem')}"),
            OutputRow(
                label="sampling",
                value=f"in {rounds_text(plan.first, plan.n)}{base}, until {plan.enough} are correct",
            ),
        )
    )
    if plan.path is None:
        print_rows([OutputRow(label="next round", value="nothing to sample: every problem is solved or has n samples")])
        return 0
    print_lines([""])
    columns = (
        OutputColumn(heading="checkpoint", is_text=True),
        OutputColumn(heading="problems"),
        OutputColumn(heading="next round"),
        OutputColumn(heading="expected in all"),
        OutputColumn(heading="at most"),
    )
    rows = [
        (row.checkpoint, *(f"{number:,}" for number in (row.problems, row.samples, row.expected, row.most)))
        for row in plan.checkpoints
    ]
    totals = [sum(getattr(row, name) for row in plan.checkpoints) for name in ("samples", "expected", "most")]
    print_table(columns, [*rows, ("all", "", *(f"{total:,}" for total in totals))])
    print_lines([""])
    print_rows(_top_up_rows(plan, store))
    return 0


def _top_up_rows(plan: TopUp, store: Path) -> Iterator[OutputRow]:
    expected = sum(row.expected for row in plan.checkpoints)
    times = plan.uniform / max(1, expected)
    yield OutputRow(
        label="instead of",
        value=f"{plan.uniform:,} further samples, if every problem had {plan.n}"
        f"{f': {two_digits(times)} times as many' if times >= 1.05 else ''}",
    )
    if plan.before is not None and plan.after is not None:
        yield OutputRow(
            label="power",
            value=f"now {_one_power(plan.before)}, then {_one_power(plan.after)}, within 10 points: to detect "
            f"{_kinds(plan.after)} of {_points(plan.drop)} at pass@{plan.k}",
        )
    yield OutputRow(label="file", value=str(plan.path), is_whole=True)
    yield OutputRow(
        label="then",
        value="sample the prompt of each line n times at its step; import the responses as the first files were, with "
        f"--store {shlex.quote(str(store))} --name {shlex.quote(plan.series)} --until-solved {plan.enough}; repeat "
        "until no problem is left",
    )


def show_plan_cost(plan: CostPlan, as_json: bool) -> int:
    """Print the estimated cost of an audit, as text or as JSON."""
    if as_json:
        print(json.dumps({**asdict(plan), "hours": plan.hours}, indent=2))
        return 0
    size, model = plan.size, plan.model
    checkpoints = f"{plural(size.checkpoints, 'checkpoint')} and the base"
    until = "" if size.enough is None else f", until {size.enough} correct"
    samples = f"n = {size.n} ({2 * size.n} of the base){until}"
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
    print_rows(_cost_rows(plan))
    return 0


def _cost_rows(plan: CostPlan) -> Iterator[OutputRow]:
    if plan.least_hours is not None:
        unit = "core hours" if plan.per_core else "hours"
        yield OutputRow(
            label="stopping",
            value=f"the table is for problems that never stop; if all stop after their first round of "
            f"{plan.size.first} samples, {two_digits(plan.least_hours)} {unit}. `oversharp plan STORE` estimates the "
            "number of samples from a pilot",
        )
    if plan.per_core:
        cores = os.cpu_count() or 1
        hours = f"at least {two_digits(plan.hours / cores)} hours on the {plural(cores, 'core')} of this machine"
        yield OutputRow(label="time", value=f"{hours}; --gpu estimates a GPU")
    else:
        yield OutputRow(
            label="time",
            value="a lower bound, not measured: operations and bytes divided by the rates of the data sheet, without "
            "CPU work and engine start",
        )
    if plan.money is not None:
        at_most = "at most " if plan.least_hours is not None else ""
        yield OutputRow(label="money", value=f"{at_most}{money_text(plan.money)} for the responses, by --prices")
    for need in plan.memory:
        too_much = ": more than this GPU has" if need.fits is False else ""
        yield OutputRow(label="memory", value=f"{need.what}: {need.needed_bytes / 2**30:,.1f} GiB{too_much}")
    yield OutputRow(label="disk", value=f"at most about {disk_size(plan.disk_bytes)} for the store")
    yield OutputRow(label="", value=f"{disk_size(plan.weights_bytes)} for the checkpoints as whole models in bfloat16")
    yield from (OutputRow(label="note", value=remark) for remark in plan.remarks)
