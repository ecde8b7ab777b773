"""Tables of problems: lost and gained problems side by side, and all problems with a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from oversharp.diagnostics.statistics.problem_changes import STATES, SURE
from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import intermediate_success
from oversharp.reports.evidence.problem_details import ProblemDetails
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import DASH, Cell, Column, SideBySide, Table, columns

#: Maximum number of rows of all filterable tables together.
SHOWN_ROWS = 1000
#: Maximum number of rows in each list of lost or gained problems.
SHOWN_ENDS = 8
#: From CROWD series on, these lists have at most SHOWN_ENDS_OF_CROWD rows.
CROWD, SHOWN_ENDS_OF_CROWD = 4, 3
PROMPT_CAP, NAME_CAP = 90, 24
CONFIRMED = "confirmed"
_P = (
    "p: {} of base against last checkpoint, one-sided, with Holm's correction over the problems that "
    f"have correct and wrong samples. Losses are significant if p ≤ {SURE:g}."
)


def test_name(series: SeriesSource) -> str:
    """Return the name of the test of a single problem's change."""
    return "an exact likelihood-ratio test" if series.is_stopped else "Fisher's exact test"


def truncate_text(text: str, cap: int) -> str:
    """Truncate a text to ``cap`` characters, including an ellipsis at the end.

    >>> truncate_text("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= cap else text[: cap - 1] + "…"


def case_id(problem_id: str) -> str:
    """Return the HTML anchor of a single problem on the page.

    >>> case_id("0a1b")
    'problem-0a1b'
    """
    return f"problem-{problem_id}"


def hits_cell(correct: float, n: float) -> Cell:
    """Return a cell such as "3 / 8": correct samples of all samples. It sorts by their share."""
    return Cell(text=f"{int(correct)} / {int(n)}", sort=float(correct / n))


def lost_and_gained_tables(context: Context, moved: Mapping[str, pd.DataFrame]) -> SideBySide:
    """Return tables of the lost and of the gained problems of every series. ``moved`` is series → changes.

    With several series, empty tables are omitted, and the titles have the counts of lost and gained problems.
    """
    several, tables = len(context.series) > 1, []
    tests = " or ".join(sorted({test_name(series) for series in context.series}))
    for series in context.series:
        if series.name not in moved:
            continue
        changes = moved[series.name]
        lost, gained = changes[changes["state"] == "lost"], changes[changes["state"] == "gained"].iloc[::-1]
        if not several:
            tables += [_lost_table(context, series, lost), _gained_table(context, gained)]
            continue
        counted = f"{series.name}: {{}} ({len(lost)} lost, {len(gained)} gained)"
        if len(lost):
            tables.append(replace(_lost_table(context, series, lost), title=counted.format("lost")))
        if len(gained):
            tables.append(replace(_gained_table(context, gained), title=counted.format("gained")))
    return SideBySide(
        title="Lost and gained problems",
        note="Largest changes first. Problems that are rarely solved are lost and gained by chance, so compare both "
        f"lists.{f' {_P.format(tests)}' if several else ''}",
        tables=tuple(tables),
    )


def _lost_table(context: Context, series: SeriesSource, rows: pd.DataFrame) -> Table:
    """Return the table of lost problems.

    Columns: base, best checkpoint in between, last checkpoint, steps without a correct sample, p.
    """
    names, best = Names(context), intermediate_success(context.source, series)
    shown = rows[: _most_shown(context)]
    body = tuple(
        (
            names.prompt(str(row["problem_id"])),
            hits_cell(row["c_base"], row["n_base"]),
            _best_cell(best.loc[row["problem_id"]]),
            hits_cell(row["c_late"], row["n_late"]),
            Cell(text=numbers.ranges(best.loc[row["problem_id"], "none_at"], _steps(series))),
            _p(row["p_adjusted"]),
        )
        for row in shown.to_dict("records")
    )
    return Table(
        title=f"Lost: {numbers.plural(len(rows), 'problem')}",
        columns=(
            Column(name="problem", numeric=False),
            *(Column(name=name) for name in ("base", "best between", "last")),
            Column(name="none at step", numeric=False),
            Column(name="p"),
        ),
        rows=body,
        note=f"{_test_note(context, series)}{_rest(shown, rows)}".strip() if body else "None.",
    )


def _p(p: float) -> Cell:
    return DASH if pd.isna(p) else Cell(text=numbers.number(float(p), "p-value"), sort=float(p))


def _test_note(context: Context, series: SeriesSource) -> str:
    """Return the explanation of p, or "" with several series, which share an explanation above their tables."""
    if series.why_untested:
        return f"Not tested: {series.why_untested}."
    return _P.format(test_name(series)) if len(context.series) == 1 else ""


def _steps(series: SeriesSource) -> list[int]:
    return [int(step) for step in series.checkpoints["step"]]


def _best_cell(best: pd.Series[Any]) -> Cell:
    """Return a cell of the intermediate checkpoint that solved the problem most often."""
    if pd.isna(best["step"]):
        return DASH
    share = float(best["n_correct"] / best["n"])
    return Cell(text=f"{int(best['n_correct'])} / {int(best['n'])} at step {int(best['step'])}", sort=share)


def _most_shown(context: Context) -> int:
    return SHOWN_ENDS if len(context.series) < CROWD else SHOWN_ENDS_OF_CROWD


def _gained_table(context: Context, rows: pd.DataFrame) -> Table:
    names = Names(context)
    shown = rows[: _most_shown(context)]
    body = tuple(
        (
            names.prompt(str(row["problem_id"])),
            hits_cell(row["c_base"], row["n_base"]),
            hits_cell(row["c_late"], row["n_late"]),
        )
        for row in shown.to_dict("records")
    )
    return Table(
        title=f"Gained: {numbers.plural(len(rows), 'problem')}",
        columns=columns("problem", numbers=("base", "last")),
        rows=body,
        note=_rest(shown, rows).strip() if body else "None.",
    )


def _rest(shown: pd.DataFrame, rows: pd.DataFrame) -> str:
    if len(shown) == len(rows):
        return ""
    return f" The {len(shown)} largest of {numbers.plural(len(rows), 'problem')}; the table below has more."


def problem_table(
    context: Context, series: SeriesSource, changes: pd.DataFrame, details: ProblemDetails, *, cap: int
) -> Table:
    """Return a filterable table of at most ``cap`` problems.

    Resampled, lost and gained problems have priority, then the problems with the largest changes.
    """
    names = Names(context)
    fresh = details.fresh[details.fresh["series"] == series.name]
    drawn: dict[str, Any] = {str(row["problem_id"]): row for row in fresh.to_dict("records")}
    shown = _select_rows(changes, set(drawn), cap)
    body, states = [], []
    for row in shown.to_dict("records"):
        problem_id, state = str(row["problem_id"]), str(row["state"])
        again = drawn.get(problem_id)
        is_confirmed = again is not None and bool(again["confirmed"])
        states.append(f"{state} {CONFIRMED}" if is_confirmed else state)
        cells = [
            Cell(text=state, sort=None),
            names.prompt(problem_id),
            hits_cell(row["c_base"], row["n_base"]),
            hits_cell(row["c_late"], row["n_late"]),
            Cell(text=numbers.points(row["change"]), sort=float(row["change"])),
        ]
        if drawn:
            cells.append(_fresh_cell(again))
        body.append((*cells, names.link(problem_id)))
    named = f": {series.name}" if len(context.series) > 1 else ""
    left = len(changes) - len(shown)
    more = f" {numbers.plural(left, 'problem')} with smaller changes: see the view problem_counts of the store."
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
        search=names.search_texts([str(v) for v in shown["problem_id"]]),
        note=_note(drawn, series) + (more if left else ""),
    )


def _select_rows(changes: pd.DataFrame, drawn: set[str], cap: int) -> pd.DataFrame:
    """Select ``cap`` problems: resampled ones, then lost and gained ones, then the largest changes; sort by state."""
    ranks = changes["change"].abs() + changes["state"].isin(["lost", "gained"]) * 2.0
    ranks += changes["problem_id"].isin(drawn) * 4.0
    kept = ranks.sort_values(ascending=False, kind="stable").index[:cap]
    order = {state: place for place, state in enumerate(STATES)}
    rows = changes.loc[sorted(kept)]
    return rows.iloc[rows["state"].map(order).argsort(kind="stable")]


def confirm_hint(series: SeriesSource) -> str:
    """Return what to run to confirm lost and gained problems with fresh samples."""
    if series.is_recorded:
        return "import more samples, or audit the checkpoints with oversharp audit and confirm them there"
    if series.verifier is not None:
        return "run oversharp confirm on the original series"
    return "run oversharp confirm, which takes fresh samples"


def _note(drawn: Mapping[str, Any], series: SeriesSource) -> str:
    if not drawn:
        return f"Not confirmed: these counts are from one set of samples. To confirm, {confirm_hint(series)}."
    return (
        "Fresh samples are from oversharp confirm. A change is confirmed if p ≤ 0.05 in Fisher's exact test "
        "(one-sided, with Holm's correction over all resampled problems)."
    )


def _fresh_cell(again: Mapping[str, Any] | None) -> Cell:
    if again is None:
        return DASH
    verdict = f"{CONFIRMED} {again['change']}" if again["confirmed"] else f"not {CONFIRMED}"
    counts = f"{again['correct_base']} / {again['n_base']} → {again['correct_late']} / {again['n_late']}"
    return Cell(text=f"{verdict}, {numbers.p_text(float(again['p_adjusted']))} ({counts})")


class Names:
    """Table cells with the titles and ids of problems. A title links to the problem if the page shows its responses."""

    def __init__(self, context: Context) -> None:
        self._texts = {str(row["problem_id"]): row for row in context.source.problems.to_dict("records")}
        self._titles = context.source.titles
        self._picked = frozenset(context.details.picked)

    def prompt(self, problem_id: str) -> Cell:
        """Return a cell with the title of the problem."""
        href = f"#{case_id(problem_id)}" if problem_id in self._picked else ""
        return Cell(text=truncate_text(self._titles[problem_id], PROMPT_CAP), href=href)

    def name(self, problem_id: str) -> str:
        """Return the id from the problem file, or the id in the store if the file has none."""
        source_id = self._texts[problem_id]["source_id"]
        return source_id if isinstance(source_id, str) and source_id else problem_id

    def link(self, problem_id: str) -> Cell:
        """Return a cell with the id of the problem."""
        return Cell(text=truncate_text(self.name(problem_id), NAME_CAP), code=True)

    def search_texts(self, problem_ids: Sequence[str]) -> tuple[str, ...]:
        """Return the whole prompt and id of each problem, for search. Empty if the cells already show all of them."""
        prompts = [str(self._texts[problem_id]["prompt"]) for problem_id in problem_ids]
        names = [self.name(problem_id) for problem_id in problem_ids]
        if max(map(len, prompts), default=0) <= PROMPT_CAP and max(map(len, names), default=0) <= NAME_CAP:
            titles = [self._titles[problem_id] for problem_id in problem_ids]
            if titles == [" ".join(prompt.split()) for prompt in prompts]:
                return ()
        return tuple(f"{prompt} {name}" for prompt, name in zip(prompts, names, strict=True))
