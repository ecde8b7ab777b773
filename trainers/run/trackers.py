"""Send metrics to an experiment tracker during training: TensorBoard, Weights & Biases or trackio.

``metrics.jsonl`` is always written and is authoritative. A tracker's package is only imported if it is used. The run's
id is in ``tracker.json``, so that a resumed run continues its charts. Steps repeated after a kill (equal on CPU)
replace the first ones in TensorBoard, are ignored by Weights & Biases, and appear twice in trackio.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.run.checkpointing import atomic_file

TrackerName = Literal["tensorboard", "wandb", "trackio"]
#: Project name in trackers that have projects.
PROJECT = "oversharp"

Settings = Mapping[str, str | int | float | bool]
Metrics = Mapping[str, float | int]
Log = Callable[[int, Metrics], None]
Close = Callable[[], None]


def require_tracker(name: TrackerName | None) -> None:
    """Raise ``ConfigError`` if the tracker's package is not installed, without importing it."""
    if name is not None and find_spec(name) is None:
        raise ConfigError(
            f"--tracker {name}: the package {name} is not installed; pip install {name}, or omit --tracker: "
            "metrics.jsonl is always written"
        )


@contextmanager
def open_tracker(name: TrackerName | None, run: Path, *, after_step: int, settings: Settings) -> Iterator[Log]:
    """Yield a function that sends the metrics of one step, of a run that continues after ``after_step``.

    Steps must ascend. For None, the function does nothing. Raises ``ConfigError`` if the tracker's package is missing
    or it does not start.
    """
    require_tracker(name)
    match name:
        case "tensorboard":
            log, close = _open_tensorboard(run, after_step)
        case "wandb":
            log, close = _open_wandb(run, settings)
        case "trackio":
            log, close = _open_trackio(run, settings)
        case None:
            log, close = (lambda step, metrics: None), (lambda: None)
    try:
        yield lambda step, metrics: log(step, {name: value for name, value in metrics.items() if name != "step"})
    finally:
        close()


def _open_tensorboard(run: Path, after_step: int) -> tuple[Log, Close]:
    """Open event files in RUN/tensorboard, for ``tensorboard --logdir RUN``."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run / "tensorboard"), purge_step=after_step + 1)  # hides repeated steps

    def log(step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def _open_wandb(run: Path, settings: Settings) -> tuple[Log, Close]:
    """Open a run in the project ``oversharp``; WANDB_MODE=offline stores it in RUN/wandb."""
    import wandb

    run_id = _run_id(run)
    try:
        with redirect_stdout(sys.stderr):
            tracked = wandb.init(
                project=PROJECT,
                name=run.name,
                id=run_id,
                resume="allow",
                dir=run,
                config=dict(settings),
                # resume and max_steps may differ in a resumed run
                allow_val_change=True,
            )
    except wandb.errors.Error as error:
        raise ConfigError(
            f"--tracker wandb: it did not start ({' '.join(str(error).split())}); run wandb login, set "
            "WANDB_MODE=offline, or omit --tracker"
        ) from error
    return (lambda step, metrics: tracked.log(dict(metrics), step=step)), tracked.finish


def _open_trackio(run: Path, settings: Settings) -> tuple[Log, Close]:
    """Open a local run in the project ``oversharp``, for ``trackio show --project oversharp``."""
    import trackio

    # trackio identifies a run by its name only
    name = f"{run.name}-{_run_id(run)}"
    with redirect_stdout(sys.stderr):  # it prints to stdout, which is for the command's result
        tracked: Any = trackio.init(
            project=PROJECT,
            name=name,
            config=dict(settings),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def close() -> None:
        with redirect_stdout(sys.stderr):
            trackio.finish()  # after the run's finish(), trackio would finish it again at exit

    return (lambda step, metrics: tracked.log(dict(metrics), step=step)), close


def _run_id(run: Path) -> str:
    """Return the id of this run directory, which is created once; a deleted and restarted run gets another id."""
    path = run / "tracker.json"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except FileNotFoundError:
        run_id = uuid4().hex[:12]
        with atomic_file(path) as file:
            file.write_text(json.dumps({"id": run_id}) + "\n", encoding="utf-8")
        return run_id
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path}: contains no id of a tracked run ({error}); delete it to start a new chart"
        ) from error
