"""The ``oversharp`` command with faults planted in it, in place of its report: its arguments are STROKES audit ….

STROKES is a JSON list of ``Stroke`` fields. A stroke falls at a call of a function, so that no test has to guess the
moment by sleeping; what it does is real: a signal, a file that is gone, a disk that takes no more.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preloaded import ForkedEngine, fork_engines

#: What is measured: a few findings tell whether what they rest on is the same.
MEASURES = ("pass_at_k", "pass_at_k_delta", "pass_at_k_exact", "answer_entropy", "token_entropy", "kernel_lambda")
#: Commits as small as a large audit's are large beside its samples: so a stroke falls between two of them.
SMALL_COMMITS = {
    "oversharp.diagnostics.engine.grading:GRADES_PER_COMMIT": 64,
    "oversharp.diagnostics.audit.stages:TOKENS_PER_COMMIT": 64,
    "oversharp.diagnostics.samplers.vllm:BATCH_ROWS": 32,
}


@dataclass(frozen=True, kw_only=True)
class Stroke:
    """``fault`` (a function of this module, given ``path``) before the ``call``-th call of ``at``, or after it.

    ``at`` is ``module:function`` or ``module:Class.method``.
    """

    at: str
    fault: str
    call: int = 1
    after: bool = False
    path: str = ""


def kill_main(_: Path) -> None:
    """kill −9 of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_engine(_: Path) -> None:
    """kill −9 of the engine's processes."""
    for process_id in engines():
        os.killpg(process_id, signal.SIGKILL)


def delete(path: Path) -> None:
    """Somebody removes a checkpoint."""
    shutil.rmtree(path)


def cut(path: Path) -> None:
    """A file loses its end."""
    os.truncate(path, path.stat().st_size - 1000)


def fill_disk(path: Path) -> None:
    """No file can become longer than ``path`` is: the kernel answers "file too large", as a full disk would."""
    size = path.stat().st_size if path.exists() else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def narrow_worker(_: Path) -> None:
    """Engines from now on run out of memory with too many responses at a time; see ``fault_worker``."""
    from oversharp.diagnostics.samplers import vllm_engine

    vllm_engine.WORKER_EXTENSION = "tests.audit.fault_worker.NarrowWorker"


FAULTS: dict[str, Callable[[Path], None]] = {
    fault.__name__: fault for fault in (kill_main, kill_engine, delete, cut, fill_disk, narrow_worker)
}


def engines() -> list[int]:
    """Processes of vLLM that this one has started and that have not ended."""
    return [engine.pid for engine in ForkedEngine.started if engine.poll() is None]


def plant(stroke: Stroke) -> None:
    """Wrap the function that the stroke falls at."""
    holder, name = _place(stroke.at)
    plain = getattr(holder, name)
    calls = 0

    def strike() -> None:
        print(f"stroke {stroke.fault}, engines {engines()}", file=sys.stderr, flush=True)
        FAULTS[stroke.fault](Path(stroke.path))

    @functools.wraps(plain)
    def struck(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        falls = stroke.call in (calls, 0)  # 0: at every call
        if falls and not stroke.after:
            strike()
        result = plain(*arguments, **named)
        if falls and stroke.after:
            strike()
        return result

    setattr(holder, name, struck)


def _place(address: str) -> tuple[Any, str]:
    module, _, path = address.partition(":")
    *classes, name = path.split(".")
    return functools.reduce(getattr, classes, importlib.import_module(module)), name


def main() -> None:
    """Plant the strokes, then be the command."""
    strokes = [Stroke(**fields) for fields in json.loads(sys.argv.pop(1))]
    fork_engines()
    setattr(*_place("oversharp.diagnostics.app.report:write_report"), lambda store_path, report_path: None)
    for address, value in SMALL_COMMITS.items() if strokes else ():
        setattr(*_place(address), value)
    for stroke in strokes:
        plant(stroke)
    measures = _place("oversharp.diagnostics.measures:all_measures")
    chosen = {name: getattr(*measures)()[name] for name in MEASURES}
    setattr(*_place("oversharp.diagnostics.audit.measure:all_measures"), lambda: chosen)
    from oversharp.diagnostics.app.process import main as run_command

    run_command()
