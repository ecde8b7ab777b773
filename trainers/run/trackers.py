"""Send metrics to an experiment tracker during training: TensorBoard, Weights & Biases or trackio.

``metrics.jsonl`` is always written and is the reference. A tracker's package is imported only if it is used. The run's
id is in ``tracker.json``, so that a resumed run continues its charts. A killed run repeats the steps since its last
save, with equal metrics on a CPU. TensorBoard replaces the first points of these steps, Weights & Biases ignores the
second, and trackio shows both.
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
#: Name of the project, in trackers that have projects.
PROJECT = "oversharp"

Settings = Mapping[str, str | int | float | bool]
Metrics = Mapping[str, float | int]
Log = Callable[[int, Metrics], None]
Close = Callable[[], None]


def require_tracker(name: TrackerName | None) -> None:
    """Raise ``ConfigError`` if the tracker's package is not installed. The package is not imported."""
    if name is not None and find_spec(name) is None:
        raise ConfigError(
            f"--tracker {name}: the package {name} is not installed; pip install {name}, or omit --tracker: "
            "metrics.jsonl is always written"
        )


@contextmanager
def open_tracker(name: TrackerName | None, run: Path, *, after_step: int, settings: Settings) -> Iterator[Log]:
    """Yield a function that sends the metrics of one step to the tracker.

    The run continues after ``after_step``, and steps must ascend. If ``name`` is None, the function does nothing.
    Raises ``ConfigError`` if the tracker's package is missing or the tracker does not start.
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
    """Open event files in RUN/tensorboard. Show them with ``tensorboard --logdir RUN``."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run / "tensorboard"), purge_step=after_step + 1)  # hides repeated steps

    def log(step: int, metrics: Metrics) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def _open_wandb(run: Path, settings: Settings) -> tuple[Log, Close]:
    """Open a run in the project ``oversharp``. With WANDB_MODE=offline, it is stored in RUN/wandb."""
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
                # the settings resume and max_steps may change in a resumed run
                allow_val_change=True,
            )
    except wandb.errors.Error as error:
        raise ConfigError(
            f"--tracker wandb: it did not start ({' '.join(str(error).split())}); run wandb login, set "
            "WANDB_MODE=offline, or omit --tracker"
        ) from error
    return (lambda step, metrics: tracked.log(dict(metrics), step=step)), tracked.finish


def _open_trackio(run: Path, settings: Settings) -> tuple[Log, Close]:
    """Open a local run in the project ``oversharp``. Show it with ``trackio show --project oversharp``."""
    import trackio

    # trackio identifies a run only by its name, so the name contains the id
    name = f"{run.name}-{_run_id(run)}"
    with redirect_stdout(sys.stderr):  # trackio prints to stdout, which is for results
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
            trackio.finish()  # not tracked.finish(), after which trackio would finish the run again at exit

    return (lambda step, metrics: tracked.log(dict(metrics), step=step)), close


def _run_id(run: Path) -> str:
    """Return the id of this run directory, which is created once. A run that is deleted and restarted has a new id."""
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
