"""The ``oversharp`` command under Ray, with one worker killed midway; takes the command's arguments."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from oversharp.diagnostics.engine.jobs import JobResult
from oversharp.diagnostics.engine.ray_pool import RayEngine


def kill_one_worker() -> None:
    """Kill one worker after the first samples of a checkpoint after the base, when most of its shards are waiting."""
    wait, killed = RayEngine._wait, list[int]()

    def wait_and_kill(engine: RayEngine, waiting: Any) -> Iterator[JobResult]:
        for result in wait(engine, waiting):
            yield result
            busy = [worker for worker in engine._running.values() if worker.shard is not None]
            if result.checkpoint.label != "checkpoint-0" and result.samples and busy and not killed:
                killed.append(busy[0].place.pid)
                os.kill(killed[0], signal.SIGKILL)
                print(f"killed {killed[0]}", file=sys.stderr, flush=True)

    RayEngine._wait = wait_and_kill  # type: ignore[method-assign]


def main() -> None:
    """Plant the kill, then run the command."""
    kill_one_worker()
    from oversharp.diagnostics.app.process import main as run_command

    run_command()
