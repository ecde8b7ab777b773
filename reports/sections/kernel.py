"""Coupling: which responses the model can only move together, and what that foretells."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.kernel.gradients.predictions import OWN, TRAINING
from oversharp.reports import numbers
from oversharp.reports.context import Context, group_missing
from oversharp.reports.evidence.kernels import NOT_ASKED_FOR, SeriesKernels
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.scopes import sample_size_text, split_by_scope
from oversharp.reports.findings.tables import display_of
from oversharp.reports.records import Block, Cell, Figure, Folded, Missing, Section, Table, columns
from oversharp.reports.sections.kernel_figures import heat_map, last_step
from oversharp.reports.wording import bound, known_findings

#: How often a 95 % interval misses by chance.
_MISSES = 0.05
_ABOVE_ONE = "Z′\N{NO-BREAK SPACE}>\N{NO-BREAK SPACE}1"
_NO_KERNELS = SeriesKernels(at_step={}, why={}, asked_for=False)


def kernel(context: Context) -> Section:
    """What the kernel says in numbers and pictures; the measures that only a closer reader needs are folded."""
    kernels = [context.kernels.get(series.name, _NO_KERNELS) for series in context.series]
    drawn: list[Block] = [
        draw(context, series, kernels[i], i)
        for draw in (heat_map, last_step)
        for i, series in enumerate(context.series)
        if series.verifier is None  # graded again, it has the kernels of the series that was graded first
    ]
    names = context.in_section("kernel")
    first = [_block(context, name) for name in names if not context.measures[name].folded]
    further = [_block(context, name) for name in names if context.measures[name].folded]
    if any(not isinstance(block, Missing) for block in further):
        shown = group_missing([*_numbers(context), *drawn, *first])
        blocks = (
            *(block for block in shown if not isinstance(block, Missing)),
            _folded(group_missing(further)),
            *(block for block in shown if isinstance(block, Missing)),
        )
    else:
        blocks = group_missing([*_numbers(context), *drawn, *first, *further])
    return Section(
        section_id="kernel",
        title="Coupling",
        lead=tuple(context.with_series_name(series, _lead(context, series)) for series in context.series),
        blocks=blocks,
    )


def _block(context: Context, name: str) -> Block:
    block = context.block(name)
    measure = context.measures[name]
    return split_by_scope(context.source, measure, block) if isinstance(block, Figure) else block


def _folded(blocks: tuple[Block, ...]) -> Folded:
    titles = [title for block in blocks if not isinstance(block, Folded | str) for title in block.title.split("; ")]
    return Folded(title="More on the kernel", summary=" · ".join(titles), blocks=blocks)


def _numbers(context: Context) -> tuple[Table, ...]:
    """Base and last checkpoint of every series in the five numbers to read first."""
    found = context.source.findings
    foretold = TRAINING if not known_findings(found, "kernel_prediction", scope=TRAINING).empty else OWN
    rows = (
        ("kernel_rho_correct", "all", "coupling of correct responses, mean cosine"),
        ("kernel_rho_null", "all", "null test: coupling of own samples, 0 expected"),
        ("kernel_effective_rank", "all", "effective rank of the fixed responses"),
        ("kernel_prediction", foretold, f"r of the step foretold from the {foretold}"),
        ("kernel_certificate", "all", "certificate, relative difference"),
    )
    body = []
    for name, scope, label in rows:
        values = known_findings(found, name, scope=scope)
        cells = []
        for series in context.series:
            for step in (series.base_step, series.last_step):
                row = context.source.value_at(name, series.name, step, scope=scope)
                if row is None:
                    cells.append(Cell(text="–"))
                else:
                    display = display_of(str(row["unit"]), signed=False)
                    cells.append(display.cell(row["value"], row["low"], row["high"]))
        if not values.empty:
            counted = "" if name == "kernel_certificate" else f" ({sample_size_text(values)})"  # of one kernel each
            body.append((Cell(text=f"{label}{counted}"), *cells))
    if not body:
        return ()
    names = [
        f"{series.name}, {role} (step {step})" if len(context.series) > 1 else f"{role} (step {step})"
        for series in context.series
        for role, step in (("base", series.base_step), ("last", series.last_step))
    ]
    return (
        Table(
            title="Base and last checkpoint",
            columns=columns("quantity", numbers=names),
            rows=tuple(body),
            narrow=len(context.series) == 1,
            note=f"Brackets: {numbers.NINETY_FIVE} interval over problems. A base ends no step, so none was foretold.",
        ),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    kernels = context.kernels.get(series.name, _NO_KERNELS)
    about = [_coupled(context, series), _foretold(context, series, kernels), _null(context, series)]
    if not any(about):
        about = [
            "no gradient kernel says anything of the last checkpoint; the reasons are below."
            if kernels.asked_for
            else f"{NOT_ASKED_FOR}."
        ]
    return " ".join(sentence for sentence in (*about, _fall(context, series)) if sentence)


def _coupled(context: Context, series: SeriesSource) -> str:
    """Whether the correct responses of a problem move together at the last checkpoint."""
    row = context.source.value_at("kernel_rho_correct", series.name, series.last_step)
    if row is None:
        return ""
    value, low, high = float(row["value"]), bound(row["low"]), bound(row["high"])
    if low is not None and low > 0:
        what = "raising one correct response lifts the other correct ones of its problem"
    elif high is not None and high < 0:
        what = "raising one correct response pushes the other correct ones of its problem down"
    else:
        what = "no common direction of the correct responses to one problem was detected"
    before = context.level(series, "kernel_rho_correct", series.base_step)
    path = numbers.decimal(value, 2)
    if before is not None and series.base_step != series.last_step:
        path = f"{path} at the last checkpoint, {numbers.decimal(before, 2)} at the base"
    return f"{what} (mean cosine of their gradients {path})."


def _foretold(context: Context, series: SeriesSource, kernels: SeriesKernels) -> str:
    """How well the kernel before the last step foretold it."""
    for scope in (TRAINING, OWN):
        row = context.source.value_at("kernel_prediction", series.name, series.last_step, scope=scope)
        if row is not None:
            r, low, high = float(row["value"]), bound(row["low"]), bound(row["high"])
            text = f"r = {numbers.decimal(r, 2)}"
            if low is not None and high is not None:
                text += f", {numbers.NINETY_FIVE} interval {numbers.decimal(low, 2)} to {numbers.decimal(high, 2)}"
            source = kernels.batch_before(series) if scope == TRAINING else "its own samples"
            foretold = "foretold part of" if low is not None and low > 0 else "was not seen to foretell"
            return f"The kernel before the last step, with {source}, {foretold} the change that came ({text})."
    return ""


def _null(context: Context, series: SeriesSource) -> str:
    """At how many checkpoints the null test fails, beside what chance alone would give."""
    rows = known_findings(context.source.findings, "kernel_rho_null", series=series.name)
    rows = rows[rows["low"].notna() & rows["high"].notna()]
    if rows.empty:
        return ""
    is_outside = np.asarray((rows["low"] > 0.0) | (rows["high"] < 0.0), dtype=bool)
    last = ", the last among them" if (rows.loc[is_outside, "step"] == series.last_step).any() else ""
    return (
        "Null test: the mean coupling of own samples must be 0; its interval excludes 0 at "
        f"{int(is_outside.sum())} of {numbers.plural(len(rows), 'checkpoint')}{last}; about "
        f"{numbers.decimal(_MISSES * len(rows), 1)} are expected by chance, "
        "more where a model is sharp and its rare responses carry the balance."
    )


def _fall(context: Context, series: SeriesSource) -> str:
    """Whether correct modes that the own samples missed fell more where Z′ says that they must."""
    row = context.source.value_at("z_prime_fall", series.name, series.last_step, scope="difference")
    if row is None:
        return ""
    value, low, high = float(row["value"]), bound(row["low"]), bound(row["high"])
    if low is None or high is None:
        return ""
    where = f"where {_ABOVE_ONE} than elsewhere"
    what = f"moved alike, as far as can be told, where {_ABOVE_ONE} and elsewhere"
    if high < 0 or low > 0:
        what = f"fell more {where}" if high < 0 else f"fell less {where}"
    return (
        f"In the last step unsampled correct modes {what} "
        f"(difference {numbers.decimal(value, 2, signed=True)} nats, {numbers.NINETY_FIVE} interval "
        f"{numbers.decimal(low, 2, signed=True)} to {numbers.decimal(high, 2, signed=True)})."
    )
