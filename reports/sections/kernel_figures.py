"""Kernel figures: gradient cosines at base and last checkpoint, and the predicted against the measured last step."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.kernel.gradients.coupling import Rows
from oversharp.diagnostics.measures.kernel.gradients.predictions import OWN, Prediction
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.kernels import SeriesKernels, last_pair
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.findings.hints import missing_value
from oversharp.reports.records import DASH, Cell, Colour, Column, Figure, HeatMap, Line, Missing, Panel, Table

MAX_ROWS = 96
_PROMPT = 60
_HEAT_TITLE = "Gradient kernel, cosines"
_SCATTER_TITLE = "Last step: predicted and measured change"


def heat_map(context: Context, series: SeriesSource, kernels: SeriesKernels, place: int) -> Figure | Missing:
    """Return the heat maps of the kernels of base and last checkpoint. Rows are grouped by problem, correct first."""
    title = f"{_HEAT_TITLE}, {series.name}" if len(context.series) > 1 else _HEAT_TITLE
    steps = list(dict.fromkeys((series.base_step, series.last_step)))
    shown = {
        step: rows for step in steps if step in kernels.at_step and len(rows := kernels.at_step[step].fixed.live())
    }
    lacking = list(dict.fromkeys(kernels.why_not(step) for step in steps if step not in shown))
    if not shown:
        return missing_value(context.source, title, lacking)
    problem_ids = _choose_problems(shown)
    drawn = {s: rows.take(np.flatnonzero(np.isin(rows.problem_N, problem_ids))) for s, rows in shown.items()}
    panels = tuple(_heat_panel(series, step, rows, problem_ids) for step, rows in drawn.items())
    left_out = sum(len(rows) for rows in shown.values()) - sum(len(rows) for rows in drawn.values())
    cut = (f"Shown: {numbers.plural(len(problem_ids), 'problem')}. The measures use all problems.",)
    return Figure(
        figure_id=f"kernel-heat-{place}",
        title=title,
        caption=(
            "Every row and every column is one fixed response. Blue: positive cosine. Orange: negative cosine. Lines "
            "separate problems, which have the numbers of the table. Marked rows are correct responses."
        ),
        x_label="",
        y_label="",
        panels=panels,
        table=_heat_table(context, drawn, problem_ids),
        notes=(*(cut if left_out else ()), *(f"Not shown: {why}." for why in lacking)),
    )


def _choose_problems(shown: dict[int, Rows]) -> list[str]:
    """Return the first problems by id that have at most ``MAX_ROWS`` responses in total, but at least one problem."""
    every = sorted({str(problem) for rows in shown.values() for problem in rows.problem_N})
    most = [max(int((rows.problem_N == problem).sum()) for rows in shown.values()) for problem in every]
    return [problem for problem, up_to in zip(every, np.cumsum(most), strict=True) if up_to <= MAX_ROWS] or every[:1]


def _heat_panel(series: SeriesSource, step: int, rows: Rows, problem_ids: list[str]) -> HeatMap:
    cosine_NN = rows.cosines
    upper_NN = np.triu(np.ones_like(cosine_NN, dtype=bool), k=1)
    same_NN = rows.problem_N[:, None] == rows.problem_N
    within, between = cosine_NN[upper_NN & same_NN], cosine_NN[upper_NN & ~same_NN]
    role = "base" if step == series.base_step else "last checkpoint"
    kinds = ((within, "within problems"), (between, "between problems"))
    means = [f"mean {numbers.decimal(float(v.mean()), 2)} {name}" for v, name in kinds if len(v)]
    return HeatMap(
        title=f"{role} (step {step})",
        lines=(),
        description=f"Cosines of {len(rows)} gradients at the {role}: {', '.join(means) or 'a single response'}.",
        cells=tuple(tuple(round(float(value), 3) for value in row) for row in cosine_NN),
        groups=tuple(
            (str(number), count)
            for number, problem in enumerate(problem_ids, start=1)
            if (count := int((rows.problem_N == problem).sum()))
        ),
        marked=tuple(bool(correct) for correct in rows.correct_N),
    )


def _heat_table(context: Context, drawn: dict[int, Rows], problem_ids: list[str]) -> Table:
    """Return a table of mean cosines per problem: among correct, correct with wrong, and with other problems."""
    prompts = dict(zip(context.source.problems["problem_id"], context.source.problems["prompt"], strict=True))
    kinds = ("correct pairs", "correct and wrong", "other problems")
    columns = [Column(name="problem"), Column(name="prompt", numeric=False)]
    columns += [Column(name=f"step {step}, {kind}") for step in drawn for kind in kinds]
    means = {step: _block_means(rows, problem_ids) for step, rows in drawn.items()}
    body = []
    for i, problem in enumerate(problem_ids):
        cells = [Cell.count(i + 1), Cell(text=str(prompts.get(problem, problem))[:_PROMPT])]
        cells += [
            DASH if value is None else Cell(text=numbers.decimal(value, 3), sort=value)
            for step in drawn
            for value in means[step][i]
        ]
        body.append(tuple(cells))
    note = "Mean cosines of gradients. –: the problem has no such pair of responses."
    return Table(title=f"{_HEAT_TITLE}: data", columns=tuple(columns), rows=tuple(body), note=note, folded=True)


def _block_means(rows: Rows, problem_ids: list[str]) -> list[tuple[float | None, ...]]:
    cosine_NN, means = rows.cosines, []
    off_NN = ~np.eye(len(rows), dtype=bool)
    for problem in problem_ids:
        here_N = rows.problem_N == problem
        right_N, wrong_N = here_N & rows.correct_N, here_N & ~rows.correct_N
        masks = (np.outer(right_N, right_N) & off_NN, np.outer(right_N, wrong_N), np.outer(here_N, ~here_N))
        means.append(tuple(float(cosine_NN[mask].mean()) if mask.any() else None for mask in masks))
    return means


def last_step(context: Context, series: SeriesSource, kernels: SeriesKernels, place: int) -> Figure | Missing:
    """Return the scatter plot of measured against predicted Δ log π of the last step, a point per fixed response."""
    title = f"{_SCATTER_TITLE}, {series.name}" if len(context.series) > 1 else _SCATTER_TITLE
    outcome = kernels.last_step(series)
    if isinstance(outcome, str):
        return missing_value(context.source, title, (outcome,))
    scope, prediction = outcome
    spread = float(np.std(prediction.measured_M)) / float(np.std(prediction.total()))
    scaled_M = prediction.total() * spread
    r = float(np.corrcoef(prediction.total(), prediction.measured_M)[0, 1])
    before, last = last_pair(series)
    source = "the own samples" if scope == OWN else kernels.batch_before(series)
    n_mixed = len(prediction.batch_B)
    return Figure(
        figure_id=f"kernel-step-{place}",
        title=title,
        caption=(
            f"Change of log π of every fixed response from step {before} to {last}, against the prediction of the "
            f"kernel at step {before} from {source}: r = {numbers.decimal(r, 2)}. Only groups with correct and wrong "
            f"responses have a gradient: {n_mixed}. The step size is unknown, so the prediction is scaled to the "
            "measured spread. Dotted line: prediction equals measurement."
        ),
        x_label="predicted Δ log π (scaled)",
        y_label="measured Δ log π (nats)",
        panels=(
            Panel(
                title="",
                lines=_point_clouds(prediction, scaled_M),
                description=f"{title}. {len(scaled_M)} responses, correlation {numbers.decimal(r, 2)}.",
            ),
        ),
        table=_point_table(prediction, scaled_M),
        kind="scatter",
        zero_line=True,
        diagonal=True,
    )


def _point_clouds(prediction: Prediction, scaled_M: np.ndarray) -> tuple[Line, ...]:
    looks: tuple[tuple[str, bool, Colour], ...] = (("correct", True, "c1"), ("not correct", False, "c2"))
    return tuple(
        Line(
            label=label,
            x=tuple(float(value) for value in scaled_M[is_kind_M]),
            y=tuple(float(value) for value in prediction.measured_M[is_kind_M]),
            colour=colour,
            style=style,
            sizes=(1.0,) * int(is_kind_M.sum()),
        )
        for style, (label, kind, colour) in enumerate(looks)
        if (is_kind_M := prediction.correct_M == kind).any()
    )


def _point_table(prediction: Prediction, scaled_M: np.ndarray) -> Table:
    places = {problem: i for i, problem in enumerate(sorted(set(map(str, prediction.problem_M))), start=1)}
    body = tuple(
        (
            Cell.count(places[str(problem)]),
            Cell(text="correct" if correct else "not correct"),
            Cell(text=numbers.decimal(float(x), 3), sort=float(x)),
            Cell(text=numbers.decimal(float(y), 3), sort=float(y)),
        )
        for problem, correct, x, y in zip(
            prediction.problem_M, prediction.correct_M, scaled_M, prediction.measured_M, strict=True
        )
    )
    names = (("problem", True), ("response", False), ("predicted, scaled (nats)", True), ("measured (nats)", True))
    columns = tuple(Column(name=name, numeric=numeric) for name, numeric in names)
    return Table(title=f"{_SCATTER_TITLE}: data", columns=columns, rows=body, folded=True)
