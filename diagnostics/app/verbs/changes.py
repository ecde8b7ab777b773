"""``diff`` and ``lost``: changes between two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import LostProblems


@check_arguments
def diff(
    store: Path | str,
    *,
    steps: Sequence[int],
    series: str | None = None,
    most: int = 12,
    memory_gib: float | None = None,
) -> StepDifference:
    """Compare two checkpoints of a series: pass@k at every k, and the problems lost and gained between them.

    Differences of pass@k are paired over problems, with Holm's correction over all k. Single problems are tested by
    Fisher's exact test in each direction, with Holm's correction over the problems that have correct and wrong samples.
    Both tests assume that the two steps were chosen before looking at the results. Reads the store only.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    steps
        Two steps, the earlier one first: --steps 80 160. The step of the base is allowed.
    series
        Name of the series; required if the store has several.
    most
        Number of significantly changed problems to print; the result has all.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        result = oversharp.diff("audit/audit.duckdb", steps=[80, 160], series="grpo")
        print(*result.sentences, sep="\\n")
    """
    from oversharp.diagnostics.changes.difference import diff as run

    return run(store_file(store), steps=steps, series=series, most=most, memory_gib=memory_gib)


@check_arguments
def lost(
    store: Path | str,
    *,
    step: int | None = None,
    since: int | None = None,
    series: str | None = None,
    answers: bool = False,
    most: int = 20,
    memory_gib: float | None = None,
) -> LostProblems:
    """List the problems that a checkpoint lost: without a correct sample, or solved significantly less often.

    The test is Fisher's exact test, one-sided, with Holm's correction over the problems that have correct and wrong
    samples, as in the report. Significantly lost problems come first, then those that fell significantly, then the
    others. Rarely solved problems are also lost by chance; their expected number is printed. `oversharp confirm` tests
    problems on fresh samples.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    step
        The checkpoint. Default: the last.
    since
        The checkpoint to compare with. Default: the base.
    series
        Name of the series; required if the store has several.
    answers
        Print the answers at both checkpoints with their counts, and a response of each.
    most
        Number of problems to list.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        for one in oversharp.lost("audit/audit.duckdb", answers=True).problems:
            print(one.change.title, one.before[0].answer, "→", one.after[-1].answer)
    """
    from oversharp.diagnostics.changes.lost import lost as run

    path = store_file(store)
    return run(path, step=step, since=since, series=series, answers=answers, most=most, memory_gib=memory_gib)
