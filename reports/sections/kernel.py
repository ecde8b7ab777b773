"""Coupling section: cosines between gradients of responses, and the change that they predict for the last step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from oversharp.diagnostics.measures.contract import Measure
from oversharp.diagnostics.measures.kernel.gradients.predictions import OWN, TRAINING
from oversharp.reports import numbers
from oversharp.reports.context import Context, group_missing
from oversharp.reports.evidence.kernels import NOT_ASKED_FOR, SeriesKernels
from oversharp.reports.evidence.source import SeriesSource, Source
from oversharp.reports.findings.figures import MAX_BANDS, describe_panel, series_lines
from oversharp.reports.findings.tables import Display, display_of, scope_label, scope_order
from oversharp.reports.records import DASH, Block, Cell, Figure, Folded, Line, Missing, Panel, Section, Table, columns
from oversharp.reports.sections.kernel_figures import heat_map, last_step
from oversharp.reports.wording import float_or_none

#: (measure, scope) → noun for what its sample size n counts, if these are not problems.
_COUNTED_NOUNS = {
    ("kernel_prediction", ""): "response",
    ("kernel_lambda", ""): "response",
    ("kernel_lambda_per_token", ""): "response",
    ("kernel_rho_extremes", ""): "pair",
    ("kernel_effective_rank", "all"): "response",
}
_NO_VALUE = "No value"
#: Probability that a 95 % CI does not contain the true value.
_MISSES = 0.05
_ABOVE_ONE = "Z′\N{NO-BREAK SPACE}>\N{NO-BREAK SPACE}1"
_NO_KERNELS = SeriesKernels(at_step={}, why={}, asked_for=False)


def kernel(context: Context) -> Section:
    """Build the section: a table, the kernel figures, and figures of measures. Measures may be declared as folded."""
    kernels = [context.kernels.get(series.name, _NO_KERNELS) for series in context.series]
    figures: list[Block] = [
        draw(context, series, kernels[i], i)
        for draw in (heat_map, last_step)
        for i, series in enumerate(context.series)
        if series.verifier is None  # a regraded series has the same kernels as the original series
    ]
    names = context.in_section("kernel")
    first = [_block(context, name) for name in names if not context.measures[name].folded]
    further = [_block(context, name) for name in names if context.measures[name].folded]
    if any(not isinstance(block, Missing) for block in further):
        shown = group_missing([*_summary_table(context), *figures, *first])
        blocks = (
            *(block for block in shown if not isinstance(block, Missing)),
            _fold(group_missing(further)),
            *(block for block in shown if isinstance(block, Missing)),
        )
    else:
        blocks = group_missing([*_summary_table(context), *figures, *first, *further])
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


def _fold(blocks: tuple[Block, ...]) -> Folded:
    titles = [title for block in blocks if not isinstance(block, Folded | str) for title in block.title.split("; ")]
    return Folded(title="More on the kernel", summary=" · ".join(titles), blocks=blocks)


def _summary_table(context: Context) -> tuple[Table, ...]:
    """Return a table of the five main measures at base and last checkpoint of every series."""
    predictor = TRAINING if not context.source.known_findings("kernel_prediction", scope=TRAINING).empty else OWN
    rows = (
        ("kernel_rho_correct", "all", "coupling of correct responses, mean cosine"),
        ("kernel_rho_null", "all", "null test: coupling of own samples, 0 expected"),
        ("kernel_effective_rank", "all", "effective rank of the fixed responses"),
        ("kernel_prediction", predictor, f"r of the step predicted from the {predictor}"),
        ("kernel_certificate", "all", "certificate, relative difference"),
    )
    body = []
    for name, scope, label in rows:
        values = context.source.known_findings(name, scope=scope)
        cells = []
        for series in context.series:
            for step in (series.base_step, series.last_step):
                row = context.source.value_at(name, series.name, step, scope=scope)
                if row is None:
                    cells.append(DASH)
                else:
                    display = display_of(str(row["unit"]), signed=False)
                    cells.append(display.cell(row["value"], row["low"], row["high"]))
        if not values.empty:
            size = "" if name == "kernel_certificate" else f" ({sample_size_text(values)})"  # n of one kernel is 1
            body.append((Cell(text=f"{label}{size}"), *cells))
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
            note=f"Brackets: {numbers.NINETY_FIVE} CI over problems. No step precedes the base, so it has no r.",
        ),
    )


def _lead(context: Context, series: SeriesSource) -> str:
    kernels = context.kernels.get(series.name, _NO_KERNELS)
    sentences = [
        _coupling_sentence(context, series),
        _prediction_sentence(context, series, kernels),
        _null_test_sentence(context, series),
    ]
    if not any(sentences):
        why = "no gradient kernel has a value at the last checkpoint; see the reasons below"
        sentences = [f"{why if kernels.asked_for else NOT_ASKED_FOR}."]
    return " ".join(sentence for sentence in (*sentences, _fall_sentence(context, series)) if sentence)


def _coupling_sentence(context: Context, series: SeriesSource) -> str:
    """Return a sentence on whether correct responses to a problem are coupled at the last checkpoint."""
    row = context.source.value_at("kernel_rho_correct", series.name, series.last_step)
    if row is None:
        return ""
    value, low, high = float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"])
    if low is not None and low > 0:
        what = "a gradient step on a correct response raises the probability of other correct responses to its problem"
    elif high is not None and high < 0:
        what = "a gradient step on a correct response lowers the probability of other correct responses to its problem"
    else:
        what = "correct responses to a problem are not significantly coupled"
    before = context.level(series, "kernel_rho_correct", series.base_step)
    path = numbers.decimal(value, 2)
    if before is not None and series.base_step != series.last_step:
        path = f"{path} at the last checkpoint, {numbers.decimal(before, 2)} at the base"
    return f"{what} (mean cosine of their gradients {path})."


def _prediction_sentence(context: Context, series: SeriesSource, kernels: SeriesKernels) -> str:
    """Return a sentence on how well the kernel before the last step predicts that step."""
    for scope in (TRAINING, OWN):
        row = context.source.value_at("kernel_prediction", series.name, series.last_step, scope=scope)
        if row is not None:
            r, low, high = float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"])
            text = f"r = {numbers.decimal(r, 2)}"
            if low is not None and high is not None:
                text += f", {numbers.NINETY_FIVE} CI {numbers.decimal(low, 2)} to {numbers.decimal(high, 2)}"
            source = kernels.batch_before(series) if scope == TRAINING else "its own samples"
            verb = "predicts part of" if low is not None and low > 0 else "does not significantly predict"
            return f"The kernel before the last step, with {source}, {verb} the change in that step ({text})."
    return ""


def _null_test_sentence(context: Context, series: SeriesSource) -> str:
    """Return a sentence on the number of checkpoints that fail the null test, and the number expected by chance."""
    rows = context.source.known_findings("kernel_rho_null", series=series.name)
    rows = rows[rows["low"].notna() & rows["high"].notna()]
    if rows.empty:
        return ""
    is_outside = np.asarray((rows["low"] > 0.0) | (rows["high"] < 0.0), dtype=bool)
    last = ", including the last" if (rows.loc[is_outside, "step"] == series.last_step).any() else ""
    return (
        "Null test: the mean coupling of own samples must be 0. Its CI excludes 0 at "
        f"{int(is_outside.sum())} of {numbers.plural(len(rows), 'checkpoint')}{last}. By chance, about "
        f"{numbers.decimal(_MISSES * len(rows), 1)} are expected, and more for a sharp model, whose mean depends on "
        "rare responses."
    )


def _fall_sentence(context: Context, series: SeriesSource) -> str:
    """Return a sentence on whether unsampled correct modes fell more where Z′ > 1, which theory predicts."""
    row = context.source.value_at("z_prime_fall", series.name, series.last_step, scope="difference")
    if row is None:
        return ""
    value, low, high = float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"])
    if low is None or high is None:
        return ""
    what = "fell more" if high < 0 else "fell less" if low > 0 else "changed neither significantly more nor less"
    return (
        f"In the last step unsampled correct modes {what} where {_ABOVE_ONE} than elsewhere "
        f"(difference {numbers.decimal(value, 2, signed=True)} nats, {numbers.NINETY_FIVE} CI "
        f"{numbers.decimal(low, 2, signed=True)} to {numbers.decimal(high, 2, signed=True)})."
    )


def sample_size_text(rows: pd.DataFrame) -> str:
    """Return the sample size of one measure as text, such as the number of problems, responses or pairs.

    >>> rows = pd.DataFrame({"measure": "kernel_shift", "scope": ["seen correct", "seen wrong"], "n": [2, 8]})
    >>> sample_size_text(rows)
    '2 to 8 problems'
    """
    counts: dict[str, list[int]] = {}
    for measure, scope, n in zip(rows["measure"], rows["scope"], rows["n"], strict=True):
        if pd.notna(n):
            noun = _COUNTED_NOUNS.get((measure, scope), _COUNTED_NOUNS.get((measure, ""), "problem"))
            counts.setdefault(noun, []).append(int(n))
    parts = []
    for noun, ns in sorted(counts.items()):
        low, high = min(ns), max(ns)
        parts.append(numbers.plural(high, noun) if low == high else f"{low} to {numbers.plural(high, noun)}")
    return numbers.listing(tuple(parts))


def split_by_scope(source: Source, measure: Measure, figure: Figure) -> Figure:
    """Add the sample size to the caption, and use one panel per scope if one panel would have too many bands."""
    rows = source.known_findings(measure.name, scope=None)
    reasons = _missing_notes(source, measure)
    kept = tuple(note for note in figure.notes if not note.startswith(_NO_VALUE))
    log_y = measure.plot.log_y and bool((rows["value"] > 0.0).all())
    figure = replace(figure, notes=(*kept, *reasons), log_y=log_y)
    display = display_of(measure.unit, signed=measure.signed)
    scopes = sorted({str(scope) for scope in rows["scope"]}, key=scope_order)
    banded = bool((rows["low"].notna() & rows["high"].notna()).any())
    caption, cut = figure.caption, ""
    if measure.plot.group == "scope" and len(scopes) > MAX_BANDS and banded:
        low, high = _y_limits(rows, measure, display)
        panels = tuple(
            Panel(title=scope_label(scope), lines=series_lines(source, rows[rows["scope"] == scope], display))
            for scope in scopes
        )
        limited = tuple(replace(p, lines=tuple(_clip_band(line, low, high) for line in p.lines)) for p in panels)
        cut = " Bands are clipped at the edge of the figure; the table has the full CIs." if limited != panels else ""
        figure = replace(
            figure,
            panels=tuple(describe_panel(panel, figure.title, display, "step") for panel in limited),
            notes=reasons,
        )
        if "Band:" not in caption:
            caption = f"{caption} Band: {numbers.NINETY_FIVE} CI over problems."
    return replace(figure, caption=f"{caption} Based on {sample_size_text(rows)}.{cut}")


def _y_limits(rows: pd.DataFrame, measure: Measure, display: Display) -> tuple[float, float]:
    """Return y limits with a margin of half the range of the values.

    CIs may exceed them: over two problems, a CI may be ten times as wide as the range of the values.
    """
    values = rows["value"].astype("float64") * display.factor
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    air = 0.5 * (high - low)
    least, most = measure.plot.y_range or (0.0, 0.0)
    return min(low - air, least * display.factor), max(high + air, most * display.factor)


def _clip_band(line: Line, low: float, high: float) -> Line:
    return replace(
        line,
        low=tuple(None if value is None else max(value, low) for value in line.low),
        high=tuple(None if value is None else min(value, high) for value in line.high),
    )


def _missing_notes(source: Source, measure: Measure) -> tuple[str, ...]:
    """Return one note per reason for missing values, with the affected scopes and the number of checkpoints."""
    own = source.findings_of(measure.name)
    lacking = own[own["value"].isna() & own["why"].notna()]
    return tuple(f"{_NO_VALUE}{_places_text(rows, own)}: {why}." for why, rows in lacking.groupby("why", sort=False))


def _places_text(rows: pd.DataFrame, own: pd.DataFrame) -> str:
    """Return the scopes and the number of checkpoints of ``rows`` as text, or "" if ``rows`` are the whole measure."""
    total = own.groupby("scope")["step"].size()
    counts = rows.groupby("scope")["step"].size()
    scopes = sorted(counts.index, key=scope_order)
    if len(total) == 1:
        count, most = int(counts.iloc[0]), int(total.iloc[0])
        return "" if count == most else f" at {count} of {numbers.plural(most, 'checkpoint')}"
    is_whole = bool((counts == total[counts.index]).all())
    if is_whole:
        return "" if len(counts) == len(total) else f" for {numbers.listing(tuple(map(scope_label, scopes)))}"
    of = f" of {numbers.plural(int(total.max()), 'checkpoint')}"
    named = [f"{scope_label(scope)} ({int(counts[scope])}{of if i == 0 else ''})" for i, scope in enumerate(scopes)]
    return f" for {numbers.listing(tuple(named))}"
