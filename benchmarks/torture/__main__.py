"""``python -m benchmarks.torture``: run all trials and write ``results/torture.json`` and ``torture.md``.

``--trial 17`` repeats one trial and prints its actions: everything random in a trial comes from its number. The time of
a kill is a share of the undisturbed run time, so it varies with the speed of the machine. ``--first 400`` adds other
trials to those on record.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.speed.results import RESULTS
from benchmarks.torture.commands import ended, fork_server
from benchmarks.torture.faults import FAULTS, ONE_LINE, Found, WrongError, can_mount
from benchmarks.torture.material import Bench, made
from benchmarks.torture.mutations import DUMPS
from benchmarks.torture.record import FAILED, Outcome, summary, table, write_results
from benchmarks.torture.stages import STAGES, with_needed

_MUTATED = "a damaged dump"


def plan(*, with_disks: bool) -> list[tuple[str, str]]:
    """Return (fault, command) of one round of trials. The next round starts again."""
    faults = [(fault, stage) for fault, (_, names) in FAULTS.items() for stage in names]
    faults = [one for one in faults if with_disks or one[0] != "a full disk"]
    return faults + [(_MUTATED, name) for name in DUMPS]


def outcome(bench: Bench, number: int, fault: str, stage: str, examples: int) -> Outcome:
    """Run one trial."""
    start = time.perf_counter()
    try:
        if fault == _MUTATED:
            found = _mutated(bench, stage, number, examples)
        else:
            found = FAULTS[fault][0](bench, STAGES[stage], number, np.random.default_rng(number))
    except Exception as error:  # noqa: BLE001 - any error is the result of the trial
        ended, done = FAILED, str(error) if isinstance(error, WrongError) else f"{type(error).__name__}: {error}"
    else:
        ended, done = found.ended, found.done
        shutil.rmtree(bench.root / "trials" / str(number), ignore_errors=True)
    done = done.replace(str(bench.root), "…")
    return Outcome(number=number, fault=fault, stage=stage, ended=ended, done=done, wall_s=time.perf_counter() - start)


def _mutated(bench: Bench, name: str, number: int, examples: int) -> Found:
    call = ended(bench.server, [name, str(examples), str(number)], call="benchmarks.torture.mutations:main")
    if call.code:
        raise WrongError(f"{call.code}: {call.said.strip()[-1500:]}")
    return Found(ended=ONE_LINE, done=f"{examples} examples")


def main() -> None:
    """Parse the flags, run the trials, print failures, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--trial", type=int, nargs="*", help="these alone; no results are written")
    parser.add_argument("--minutes", type=float, default=18.0, help="begin no trial after so long")
    parser.add_argument("--examples", type=int, default=60, help="mutations of one trial of a dump")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    flags = parser.parse_args()
    numbers = flags.trial or range(flags.first, flags.first + flags.trials)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="oversharp-torture-", dir=_scratch()) as scratch, fork_server() as server:
        root = Path(scratch)
        with_disks = can_mount(root / "disk")
        round_ = plan(with_disks=True)
        stages = {round_[number % len(round_)][1] for number in numbers} & STAGES.keys()
        bench = made(server, root, with_needed(stages))
        print(f"undisturbed: {', '.join(f'{n} {o.wall_s:.1f} s' for n, o in bench.whole.items())}", file=sys.stderr)

        def one(number: int) -> Outcome | None:
            fault, stage = round_[number % len(round_)]
            if time.perf_counter() - start > 60 * flags.minutes or (fault == "a full disk" and not with_disks):
                return None
            made_of = outcome(bench, number, fault, stage, flags.examples)
            if made_of.ended == FAILED or flags.trial:
                print(f"{number}, {fault}, {stage}: {made_of.ended}: {made_of.done}\n", file=sys.stderr)
            return made_of

        with ThreadPoolExecutor(flags.workers) as pool:
            outcomes = [found for found in pool.map(one, numbers) if found is not None]
    print(table(outcomes))
    print(summary(outcomes))
    if not flags.trial:
        left_out = [] if with_disks else ["full disks: this machine lets nobody mount a small file system"]
        write_results(flags.out, outcomes, left_out=left_out)
    sys.exit(any(found.ended == FAILED for found in outcomes))


def _scratch() -> Path | None:
    """Return a folder in memory if there is room, because a store waits for the disk at every commit."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 4e9 else None


if __name__ == "__main__":
    main()
