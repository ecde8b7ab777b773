"""The ``oversharp`` command under Ray with one worker killed midway; its arguments are those of the command."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from oversharp.diagnostics.engine.ray_pool import RayEngine
from oversharp.diagnostics.engine.ray_worker import SampleJob, Unit, UnitResult


def kill_one_worker() -> None:
    """Once, with the first samples of a checkpoint after the base, when most of its units are still to be done."""
    use, killed = RayEngine._accept, list[int]()

    def then_kill(engine: RayEngine, work: Any, unit: Unit | None, outcome: UnitResult) -> None:
        use(engine, work, unit, outcome)
        after_base = isinstance(work.job, SampleJob) and work.job.checkpoint.label != "checkpoint-0"
        busy = [worker for worker in engine._workers if worker.busy]
        if after_base and isinstance(outcome.result, bytes) and busy and not killed:
            killed.append(busy[0].place.pid)
            os.kill(killed[0], signal.SIGKILL)
            print(f"killed {killed[0]}", file=sys.stderr, flush=True)

    RayEngine._accept = then_kill  # type: ignore[method-assign]


def main() -> None:
    """Plant the kill, then be the command."""
    kill_one_worker()
    from oversharp.diagnostics.app.process import main as run_command

    run_command()
