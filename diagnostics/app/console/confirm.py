"""Prints the problems that ``oversharp confirm`` tested on fresh samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from oversharp.diagnostics.app.console.layout import (
    OutputColumn,
    OutputRow,
    print_lines,
    print_rows,
    print_table,
    terminal,
)
from oversharp.diagnostics.records.amounts import plural

if TYPE_CHECKING:
    from oversharp.diagnostics.audit.confirm import ConfirmResult

COLUMNS = (
    OutputColumn(heading="problem", is_text=True, may_shorten=True),
    OutputColumn(heading="seemed", is_text=True),
    *(OutputColumn(heading=heading) for heading in ("base", "late", "p", "adjusted p", "confirmed")),
)


def print_confirmations(result: ConfirmResult, console: Console | None = None) -> None:
    """Print a row per problem that was sampled again, and how many are confirmed."""
    out = console or terminal()
    if not result.tested:
        value = f"{result.series}: no problem seems lost or gained; there is nothing to sample again"
        print_rows([OutputRow(label="series", value=value)], out)
        return
    fresh = plural(result.fresh, "fresh sample")
    value = f"{result.series}: {result.checkpoint} compared with the base, {fresh} per problem and checkpoint"
    print_rows([OutputRow(label="series", value=value)], out)
    print_lines([""], out)
    rows = [
        (
            f"{problem.source_id or problem.problem_id}  {problem.prompt}",
            one.change,
            f"{one.correct_base}/{one.n_base}",
            f"{one.correct_late}/{one.n_late}",
            f"{one.p:.2g}",
            f"{one.p_adjusted:.2g}",
            "yes" if one.confirmed else "no",
        )
        for problem, one in zip(result.problems, result.tested, strict=True)
    ]
    print_table(COLUMNS, rows, out)
    print_lines([""], out)
    counts = [
        f"{sum(one.confirmed for one in result.tested if one.change == change)} of "
        f"{sum(one.change == change for one in result.tested)} {change}"
        for change in ("lost", "gained")
    ]
    gone = [one for one in result.tested if one.confirmed and one.change == "lost" and not one.correct_late]
    print_rows(
        (
            OutputRow(label="confirmed", value=f"{', '.join(counts)} (Fisher's exact test, Holm over all, level 5 %)"),
            OutputRow(label="lost", value=f"{len(gone)} without a correct fresh sample at {result.checkpoint}"),
        ),
        out,
    )
    if result.n_earlier:
        value = f"{plural(result.n_earlier, 'problem')} of an earlier confirmation tested again with these"
        print_rows([OutputRow(label="note", value=value)], out)
