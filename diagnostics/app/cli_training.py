"""The commands that train: `train`, `train-base`, `compare`, `demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from diagnostics.app.cli_shared import LEFT_OUT_EXIT_CODE, Json, Quiet, command_line, progress_sink
from diagnostics.records.progress import ConsoleProgress
from trainers.config import SftConfig, TrainConfig


def train(
    *,
    config: TrainConfig | None = None,
    list_algorithms: Annotated[bool, Parameter(name="--list", negative=())] = False,
) -> int:
    """Train a compact reference model by on-policy RLVR.

    Leaves OUTPUT_DIR/checkpoint-0, checkpoint-N, …, metrics.jsonl and rollouts/, ready for `oversharp audit`.

    Parameters
    ----------
    list_algorithms
        List the parts that --algorithm joins, with their settings and sources, and exit.
    """
    if list_algorithms:
        from trainers.listing import print_objectives

        print_objectives()
        return 0
    from trainers.loop import train as run_training

    print(run_training(config or TrainConfig(), ConsoleProgress()))
    return 0


def train_base(*, config: SftConfig | None = None) -> int:
    """Train the base model of the built-in task by supervised fine-tuning, from random weights.

    Prints the final checkpoint, which `oversharp train --model` starts from.
    """
    from trainers.sft import train_base as run_training

    print(run_training(config or SftConfig(), ConsoleProgress()))
    return 0


def compare(
    config: Path,
    /,
    *,
    out: Path | None = None,
    dry_run: Annotated[bool, Parameter(negative=())] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train several objectives over several seeds from one base, and audit them into one report.

    CONFIG holds seeds = [0, 1, 2]; [train] with settings of all runs; a [[run]] per objective with a name and what it
    changes; [audit]; and [base], unless [train] names a model. Killed or stopped, the same command continues.

    Parameters
    ----------
    config
        TOML file of the comparison.
    out
        Directory for base, runs, store and report. Default: runs/ and the name of CONFIG.
    dry_run
        Check all runs, their models included, print what there is to do, and do nothing.
    """
    from diagnostics.app.compare import compare_command

    progress = progress_sink(as_json or quiet)
    told = compare_command(config, out, dry_run=dry_run, command=command_line(), progress=progress)
    print(json.dumps(told.summary, indent=2) if as_json else "\n".join(told.lines))
    return LEFT_OUT_EXIT_CODE if told.incomplete else 0


def demo(*, out: Path = Path("runs/demo"), device: str | None = None, quiet: Quiet = False) -> int:
    """Train a base model, over-sharpen it with GRPO, calibrate it with IAC, and audit both.

    Parameters
    ----------
    out
        Where runs, store and report go. The same directory continues an earlier demo.
    device
        cpu or cuda. Default: cuda if there is one.
    """
    from diagnostics.app.demo import run_demo

    results = run_demo(out, device=device, command=command_line(), progress=progress_sink(quiet))
    print(f"report  {results[-1].report_path}\nstore   {results[-1].store_path}")
    for result in results:
        print(f"verdict of {result.series}: {result.verdict.sentence}")
    return 0
