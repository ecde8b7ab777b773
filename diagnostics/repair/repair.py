"""``oversharp repair``: points on the straight line from the base to a checkpoint, written as a series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.repair.folders import claimed, refuse_inside, require_ours, require_room
from oversharp.diagnostics.repair.line import RepairLine, mixable
from oversharp.diagnostics.repair.points import RepairResult, standing_steps, steps_of
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
    """Write the points into ``out``; those that stand there from an earlier call are kept.

    Raises ``ConfigError`` for settings and an ``out`` that cannot work, ``CheckpointError`` for weights that cannot.
    """
    wanted = steps_of(lambdas)
    passed = [Path(one).expanduser() for one in paths]
    refuse_inside(out, [one for one in passed if one.is_dir()])
    sources = find_sources(paths, base=base, step=checkpoint, average=average)
    refuse_inside(out, [one.path for one in sources.all])
    line = RepairLine(sources=sources, out=out, float32=float32, weights=mixable(sources))
    record = _record(sources, float32)
    require_ours(out, record)
    steps = {*wanted, *line.ends, *standing_steps(out)}
    require_room(out, sum(line.n_bytes(step) for step in steps if not line.stands(step)))
    with claimed(out, record):
        points, left_out = line.write(sorted(steps), progress or SilentProgress())
    return RepairResult(
        out=out,
        base=sources.base.label,
        checkpoints=tuple(one.label for one in sources.checkpoints),
        points=points,
        left_out=left_out,
    )


def _record(sources: Sources, float32: bool) -> dict[str, Any]:
    """What the folder is made of. Paths are told, hashes decide: a series may be moved."""
    return {
        "made_by": f"oversharp {version()}",
        "made_of": {
            "base": sources.base.trained.weights_hash,
            "checkpoint": [one.weights_hash for one in sources.checkpoints],
            "float32": float32,
        },
        "paths": [str(one.path) for one in sources.all],
    }
