"""Reasons for no verdict."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.records.amounts import p_value_text, plural
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.rule import SELECTED_LEVEL, SeenCounts
from oversharp.diagnostics.verdict.words.caveats import NEEDS_SAMPLES, left_out_of

#: Smallest number of problems that the base must have solved: below it there is nothing to lose.
LEAST_SOLVED = 5
#: How to get a verdict on problems that the base's samples chose.
FRESH_BASE = (
    "Sample the base again with another seed and compare with these samples, or give --selected-by none if other "
    "samples chose the problems"
)


def why_none(counts: SeriesCounts, compared: Sequence[CheckpointCounts]) -> str | None:
    """Return why there is no verdict, before any test; None where there may be one."""
    if not len(counts.base.correct_P):
        return "the audit has no problems"
    if counts.base.why is not None:
        return f"the base {counts.base.checkpoint} cannot be compared with ({counts.base.why})"
    if compared and counts.is_greedy:
        return f"there is one greedy response per problem and checkpoint, and {NEEDS_SAMPLES}"
    if compared:
        return counts.why_ungraded or _why_nothing_to_lose(counts)
    left_out = [f"{one.checkpoint} ({one.why})" for one in left_out_of(counts)]
    if not left_out:
        return "the series has no checkpoint after the base"
    return f"no checkpoint after the base can be compared: {'; '.join(left_out)}"


def why_selected(counts: SeriesCounts, seen: SeenCounts) -> str:
    """Return why the base's samples cannot judge the problems, and what can."""
    n_problems = plural(seen.total.n_problems, "problem")
    p = 0.0 if seen.selection is None else seen.selection.p
    if counts.selected_by == "base":
        why = f"these base samples chose the {n_problems} (--selected-by base)"
    elif p <= SELECTED_LEVEL:
        why = f"these base samples chose the {n_problems}: so few unsolved ones are chance with p = {p_value_text(p)}"
    else:
        why = (
            f"these base samples solved all {n_problems}; if the problems were chosen for that, an unchanged model "
            "shows such a fall"
        )
    return f"{why}. {FRESH_BASE}"


def _why_nothing_to_lose(counts: SeriesCounts) -> str | None:
    n_problems, n_solved = len(counts.base.correct_P), count_within_reach(counts)
    if n_solved >= min(LEAST_SOLVED, n_problems):
        return None
    solved = f"{'was' if n_solved < 2 else 'were'} ever solved by the base"
    return (
        f"{n_solved or 'none'} of these {plural(n_problems, 'problem')} {solved}, and what is out of reach cannot be "
        "lost: take easier problems or more samples, or look at what the grader reads"
    )


def count_within_reach(counts: SeriesCounts) -> int:
    """Return the number of problems that the base solved at least once.

    For the others no sample can show whether they were lost.
    """
    return int((counts.base.correct_P > 0).sum())
