"""Problems as tables: lost beside gained, and the long one to filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports import numbers
from reports.context import Context
from reports.evidence.problem_changes import STATES
from reports.evidence.problem_details import ProblemDetails
from reports.evidence.source import SeriesSource
from reports.records import Cell, Column, SideBySide, Table, columns

#: Rows of all filterable tables together, and of the lists of lost and gained problems.
SHOWN_ROWS = 1000
SHOWN_ENDS = 8
PROMPT_CAP, NAME_CAP = 90, 24
CONFIRMED = "confirmed"


def cut(text: str, cap: int) -> str:
    """The text, or as much of it as ``cap`` characters hold, the last one an ellipsis.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= cap else text[: cap - 1] + "…"


def case_id(problem_id: str) -> str:
    """The place on the page where a problem is shown by itself.

    >>> case_id("0a1b")
    'problem-0a1b'
    """
    return f"problem-{problem_id}"


def hits(correct: float, n: float) -> Cell:
    """Correct samples of all, sorted by their share."""
    return Cell(text=f"{int(correct)} / {int(n)}", sort=float(correct / n))


def lost_beside_gained(context: Context, series: SeriesSource, changes: pd.DataFrame) -> SideBySide:
    """The problems that lost every correct sample, and those that won a first one."""
    lost, gained = changes[changes["state"] == "lost"], changes[changes["state"] == "gained"].iloc[::-1]
    named = f": {series.name}" if len(context.series) > 1 else ""
    return SideBySide(
        title=f"Lost beside gained{named}",
        note="Largest changes first. Rarely solved problems cross the line by chance in both directions, so that the "
        "lost ones mean nothing without the gained ones beside them.",
        tables=(_end(context, "Lost", lost), _end(context, "Gained", gained)),
    )


def _end(context: Context, title: str, rows: pd.DataFrame) -> Table:
    names = _Names(context)
    shown = rows[:SHOWN_ENDS]
    body = tuple(
        (
            names.prompt(str(row["problem_id"])),
            hits(row["c_base"], row["n_base"]),
            hits(row["c_late"], row["n_late"]),
        )
        for row in shown.to_dict("records")
    )
    count = numbers.plural(len(rows), "problem")
    no_rows = "" if body else "None."
    return Table(
        title=f"{title}: {count}",
        columns=columns("problem", numbers=("correct, base", "correct, last")),
        rows=body,
        note=f"The {len(shown)} largest of {count}; the table below goes on." if len(shown) < len(rows) else no_rows,
    )


def problem_table(
    context: Context, series: SeriesSource, changes: pd.DataFrame, details: ProblemDetails, *, cap: int
) -> Table:
    """At most ``cap`` problems to filter: confirmed, lost and gained ones, then the largest changes."""
    names = _Names(context)
    fresh = details.fresh[details.fresh["series"] == series.name]
    drawn: dict[str, Any] = {str(row["problem_id"]): row for row in fresh.to_dict("records")}
    shown = _chosen(changes, set(drawn), cap)
    body, states = [], []
    for row in shown.to_dict("records"):
        problem_id, state = str(row["problem_id"]), str(row["state"])
        again = drawn.get(problem_id)
        is_confirmed = again is not None and bool(again["confirmed"])
        states.append(f"{state} {CONFIRMED}" if is_confirmed else state)
        cells = [
            Cell(text=state, sort=None),
            names.prompt(problem_id),
            hits(row["c_base"], row["n_base"]),
            hits(row["c_late"], row["n_late"]),
            Cell(text=numbers.points(row["change"]), sort=float(row["change"])),
        ]
        if drawn:
            cells.append(_fresh_cell(again))
        body.append((*cells, names.link(problem_id)))
    named = f": {series.name}" if len(context.series) > 1 else ""
    left = len(changes) - len(shown)
    more = f" {numbers.plural(left, 'problem')} with smaller changes not shown: view problem_counts of the store."
    return Table(
        title=("All problems" if not left else f"{len(shown)} of {numbers.plural(len(changes), 'problem')}") + named,
        columns=(
            Column(name="change", numeric=False),
            Column(name="problem", numeric=False),
            Column(name="correct, base"),
            Column(name="correct, last"),
            Column(name="points"),
            *([Column(name="fresh samples", numeric=False)] if drawn else []),
            Column(name="id", numeric=False),
        ),
        rows=tuple(body),
        states=tuple(states),
        note=_note(drawn, series) + (more if left else ""),
    )


def _chosen(changes: pd.DataFrame, drawn: set[str], cap: int) -> pd.DataFrame:
    """Drawn again, lost and gained ones first, then by the size of the change; in the order of the change."""
    ranks = changes["change"].abs() + changes["state"].isin(["lost", "gained"]) * 2.0
    ranks += changes["problem_id"].isin(drawn) * 4.0
    kept = ranks.sort_values(ascending=False, kind="stable").index[:cap]
    order = {state: place for place, state in enumerate(STATES)}
    rows = changes.loc[sorted(kept)]
    return rows.iloc[rows["state"].map(order).argsort(kind="stable")]


def fresh_samples(series: SeriesSource) -> str:
    """How to have problems confirmed, as an order."""
    if series.recorded:
        return "import more samples, or audit the checkpoints with oversharp audit and confirm them there"
    if series.verifier is not None:
        return "run oversharp confirm on the series that was graded first"
    return "run oversharp confirm, which draws fresh samples of them"


def _note(drawn: Mapping[str, Any], series: SeriesSource) -> str:
    if not drawn:
        return f"Not confirmed: these are the counts of one draw. To know, {fresh_samples(series)}."
    return (
        "Fresh samples are those of oversharp confirm: Fisher's exact test, one-sided, with Holm's correction over "
        "all problems that were drawn again; confirmed where p ≤ 0.05."
    )


def _fresh_cell(again: Mapping[str, Any] | None) -> Cell:
    if again is None:
        return Cell(text="–")
    verdict = f"{CONFIRMED} {again['change']}" if again["confirmed"] else f"not {CONFIRMED}"
    counts = f"{again['correct_base']} / {again['n_base']} → {again['correct_late']} / {again['n_late']}"
    return Cell(text=f"{verdict}, {numbers.p_text(float(again['p_adjusted']))} ({counts})")


class _Names:
    """Problems as cells: their prompt, and their id, which links to the problem where it is shown by itself."""

    def __init__(self, context: Context) -> None:
        self._texts = {str(row["problem_id"]): row for row in context.source.problems.to_dict("records")}
        self._picked = frozenset(context.details.picked)

    def prompt(self, problem_id: str) -> Cell:
        href = f"#{case_id(problem_id)}" if problem_id in self._picked else ""
        return Cell(text=cut(str(self._texts[problem_id]["prompt"]), PROMPT_CAP), href=href)

    def link(self, problem_id: str) -> Cell:
        source_id = self._texts[problem_id]["source_id"]
        name = source_id if isinstance(source_id, str) else problem_id
        return Cell(text=cut(name, NAME_CAP), code=True)
