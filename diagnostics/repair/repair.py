"""``oversharp repair``: write points on the straight line from the base to a checkpoint as a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.repair.folders import lock_output, refuse_inside, require_ours, require_room
from oversharp.diagnostics.repair.line import RepairLine, load_mixable
from oversharp.diagnostics.repair.points import RepairResult, steps_of, written_steps
from oversharp.diagnostics.repair.sources import Sources, find_sources


def repair(
    paths: Sequence[Path | str],
    out: Path,
    *,
    base: Path | None,
    checkpoint: int | None,
    lambdas: Sequence[float],
    average: int,
    float32: bool,
    progress: ProgressSink | None = None,
) -> RepairResult:
    """Write the points into ``out``; points of an earlier call are kept.

    Raises ``ConfigError`` for invalid settings or ``out``, ``CheckpointError`` for weights that cannot be mixed.
    """
    wanted = steps_of(lambdas)
    passed = [Path(path).expanduser() for path in paths]
    refuse_inside(out, [item for item in passed if item.is_dir()])
    sources = find_sources(paths, base=base, step=checkpoint, average=average)
    refuse_inside(out, [entry.path for entry in sources.all])
    line = RepairLine(sources=sources, out=out, float32=float32, weights=load_mixable(sources))
    record = _record(sources, float32)
    require_ours(out, record)
    steps = {*wanted, *line.ends, *written_steps(out)}
    require_room(out, sum(line.n_bytes(step) for step in steps if not line.is_written(step)))
    with lock_output(out, record):
        points, left_out = line.write(sorted(steps), progress or SilentProgress())
    return RepairResult(
        out=out,
        base=sources.base.label,
        checkpoints=tuple(element.label for element in sources.checkpoints),
        points=points,
        left_out=left_out,
    )


def _record(sources: Sources, float32: bool) -> dict[str, Any]:
    """Return the record of the sources.

    Only hashes identify them: a series may be moved, so paths are informative.
    """
    return {
        "made_by": f"oversharp {version()}",
        "made_of": {
            "base": sources.base.trained.weights_hash,
            "checkpoint": [checkpoint.weights_hash for checkpoint in sources.checkpoints],
            "float32": float32,
        },
        "paths": [str(item.path) for item in sources.all],
    }
