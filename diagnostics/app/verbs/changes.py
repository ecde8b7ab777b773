"""The verbs ``diff`` and ``lost`` of the API: what changed between two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.changes.difference import StepDifference
    from oversharp.diagnostics.changes.lost import LostProblems


@checked_arguments
def diff(
    store: Path | str,
    *,
    steps: Sequence[int],
    series: str | None = None,
    most: int = 12,
    memory_gib: float | None = None,
) -> StepDifference:
    """Compare two checkpoints of a series: pass@k at every k, and which problems were lost and gained in between.

    Is step 80 safer than step 160? Differences of pass@k are paired over problems, with Holm's correction over all k;
    single problems are tested by Fisher's exact test, each direction by itself, with Holm's correction over those that
    have correct samples and wrong ones. Both take the two steps as chosen before looking. Samples and changes nothing.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    steps
        Two steps, the earlier one first: --steps 80 160. The step of the base is one of them.
    series
        Name of the series; needed where there are several.
    most
        So many problems that surely changed are printed; the result has all.
    memory_gib
        Most memory for queries, in GiB; default: 1, or half of what is free if that is less.

    Examples
    --------
    ::

        found = oversharp.diff("audit/audit.duckdb", steps=[80, 160], series="grpo")
        print(*found.sentences, sep="\\n")
    """
    from oversharp.diagnostics.changes.difference import diff as run

    return run(store_file(store), steps=steps, series=series, most=most, memory_gib=memory_gib)


@checked_arguments
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
    """List the problems that a checkpoint lost: those without a correct sample, and those surely solved less often.

    Fisher's exact test, one-sided, with Holm's correction over the problems that have correct samples and wrong ones,
    says which are sure, as in the report: the surely lost come first, then what surely fell, then the others. Rarely
    solved problems are lost by chance too, and how many that would be is said. `oversharp confirm` tests them on fresh
    samples.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    step
        The checkpoint. Default: the last.
    since
        What it is compared with. Default: the base.
    series
        Name of the series; needed where there are several.
    answers
        Show what was answered at both checkpoints, how often, and a response of each.
    most
        So many problems are listed.
    memory_gib
        Most memory for queries, in GiB; default: 1, or half of what is free if that is less.

    Examples
    --------
    ::

        for one in oversharp.lost("audit/audit.duckdb", answers=True).problems:
            print(one.change.title, one.before[0].answer, "→", one.after[-1].answer)
    """
    from oversharp.diagnostics.changes.lost import lost as run

    path = store_file(store)
    return run(path, step=step, since=since, series=series, answers=answers, most=most, memory_gib=memory_gib)
