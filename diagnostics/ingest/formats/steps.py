"""Run and step of files that lie below the folder of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from oversharp.diagnostics.series.folders import run_and_step

#: Folders above a file that may be named after its checkpoint.
_MOST_FOLDERS = 6


def run_above(folder: Path) -> tuple[str | None, int | None]:
    """Return run and step of the nearest folder whose name has a step; None for both without one.

    >>> run_above(Path("/runs/lucky/step_40/eval-results/aime24")), run_above(Path("/runs/lucky-step-40/aime24"))
    (('lucky', 40), ('lucky', 40))
    >>> run_above(Path("/runs/lucky"))
    (None, None)
    """
    parents = (folder.absolute(), *folder.absolute().parents)
    for folder_above in parents[:_MOST_FOLDERS]:
        run, step = run_and_step(folder_above.name)
        if step is not None:
            return run or folder_above.parent.name or None, step
    return None, None
