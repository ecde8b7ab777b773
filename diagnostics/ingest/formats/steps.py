"""Run and step of files that lie below the folder of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from oversharp.diagnostics.series.folders import run_and_step

#: Folders above a file that may be named after its checkpoint.
_MOST_FOLDERS = 6


def run_above(folder: Path) -> tuple[str | None, int | None]:
    """The step in the name of the nearest folder that has one, and the name of its run; None without such a folder.

    >>> run_above(Path("/runs/lucky/step_40/eval-results/aime24")), run_above(Path("/runs/lucky-step-40/aime24"))
    (('lucky', 40), ('lucky', 40))
    >>> run_above(Path("/runs/lucky"))
    (None, None)
    """
    parents = (folder.absolute(), *folder.absolute().parents)
    for one in parents[:_MOST_FOLDERS]:
        run, step = run_and_step(one.name)
        if step is not None:
            return run or one.parent.name or None, step
    return None, None
