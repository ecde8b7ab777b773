"""Worker processes that can be killed."""

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.verifiers.killable import KillablePool

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_outcomes_keep_the_order_of_the_calls_and_errors_stay_with_their_call() -> None:
    pool = KillablePool(module="math", timeout_s=5.0, workers=2)
    outcomes = pool.map(math.sqrt, [(4.0,), (-1.0,), (9.0,)])
    # more calls than are ever in flight at once
    many = pool.map(math.sqrt, [(float(number),) for number in range(1200)])
    dead = pool.map(os._exit, [(3,)])
    pool.close()
    assert [outcome.value for outcome in outcomes] == [2.0, None, 3.0]
    assert [outcome.state for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].reason.startswith("ValueError")
    assert [outcome.value for outcome in many] == [math.sqrt(number) for number in range(1200)]
    assert [(outcome.state, outcome.reason) for outcome in dead] == [("error", "its worker process died 3 times")]


def test_workers_that_cannot_start_say_so_in_bounded_time() -> None:
    pool = KillablePool(module="no_such_module", timeout_s=1.0, workers=1)
    start = time.perf_counter()
    with pytest.raises(VerifierError, match="import no_such_module"):
        pool.map(math.sqrt, [(4.0,)])
    pool.close()
    assert time.perf_counter() - start < 120.0  # a busy machine takes seconds to start each process


ORPHANER = """
import multiprocessing, os, threading
from oversharp.diagnostics.verifiers.killable import KillablePool

if __name__ == "__main__":
    pool = KillablePool(module="math", timeout_s=0.5, workers=1)
    pool.map(abs, [(1,)])
    print(multiprocessing.active_children()[0].pid, flush=True)
    threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()
    pool.map(pow, [(9, 9**18)])
"""


@pytest.mark.slow
def test_a_worker_whose_parent_was_killed_does_not_burn_a_core_for_ever(tmp_path: Path) -> None:
    script = tmp_path / "orphaner.py"
    script.write_text(ORPHANER)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == -9
    worker = Path(f"/proc/{int(run.stdout)}")
    deadline = time.monotonic() + 30.0
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not worker.exists()


STOPPED = """
import os, signal, sys, threading, time
from oversharp.diagnostics.verifiers.killable import KillablePool

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands inherit that it is ignored

def main():
    pool = KillablePool(module="slow_to_import", timeout_s=5.0, workers=2)
    send = os.killpg if sys.argv[1] == "group" else os.kill
    threading.Timer(0.3, send, (os.getpid(), signal.SIGINT)).start()
    try:
        pool.map(abs, [(-1,)])
    except KeyboardInterrupt:
        print("stopped", flush=True)
    pool.close()

if __name__ == "__main__":
    main()
    time.sleep(1.0)  # as a command writes and closes its store
"""


@pytest.mark.slow
@pytest.mark.parametrize("to", ["process", "group"])  # SIGTERM of a batch system, Ctrl-C of a terminal
def test_a_command_that_is_stopped_while_workers_start_says_no_traceback(to: str, tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.8)\n")
    script = tmp_path / "stopped.py"
    script.write_text(STOPPED)
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"}
    run = subprocess.run(
        [sys.executable, script, to],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        start_new_session=True,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "stopped\n", "")
