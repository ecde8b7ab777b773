"""Metrics sent to an experiment tracker while a run trains: TensorBoard, Weights & Biases or trackio.

``metrics.jsonl`` stays the truth; a tracker is a window on it. Each package is imported when a run asks for it and
not before. A run keeps its identity in ``tracker.json``, so a continued run continues its charts. Steps that are run
again after a kill are equal on CPU: TensorBoard hides the first ones, Weights & Biases keeps them, trackio shows both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.run.checkpointing import atomic_file

TrackerName = Literal["tensorboard", "wandb", "trackio"]
#: What runs are filed under where the tracker has projects.
PROJECT = "oversharp"

Settings = Mapping[str, str | int | float | bool]


class Tracker(Protocol):
    """Where metrics go beside ``metrics.jsonl``."""

    def log(self, step: int, metrics: Mapping[str, float | int]) -> None:
        """Send the metrics of one step. Steps come in ascending order."""

    def close(self) -> None:
        """Send what is left."""


class NoTracker:
    """Sends nothing."""

    def log(self, step: int, metrics: Mapping[str, float | int]) -> None:
        """Drops the metrics."""

    def close(self) -> None:
        """Nothing is left."""


def require_tracker(name: TrackerName | None) -> None:
    """Raise ``ConfigError`` where the tracker's package is not installed; imports nothing."""
    if name is not None and find_spec(name) is None:
        raise ConfigError(
            f"--tracker {name}: the package {name} is not installed; pip install {name}, or leave --tracker out: "
            "metrics.jsonl is written either way"
        )


def open_tracker(name: TrackerName | None, run: Path, *, after_step: int, settings: Settings) -> Tracker:
    """The tracker of the run in ``run``, which goes on after ``after_step``; one that does nothing for None.

    Raises ``ConfigError`` where its package is missing, or where it refuses to start.
    """
    require_tracker(name)
    match name:
        case "tensorboard":
            return _TensorBoard(run / "tensorboard", after_step=after_step)
        case "wandb":
            return _WeightsAndBiases(run, settings)
        case "trackio":
            return _Trackio(run, settings)
        case None:
            return NoTracker()


class _TensorBoard:
    """Event files in RUN/tensorboard; ``tensorboard --logdir RUN`` shows them."""

    def __init__(self, folder: Path, *, after_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=after_step + 1)  # hides steps that are run again

    def log(self, step: int, metrics: Mapping[str, float | int]) -> None:
        for name, value in _without_step(metrics).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WeightsAndBiases:
    """One run of the project ``oversharp``; WANDB_MODE=offline keeps it in RUN/wandb."""

    def __init__(self, run: Path, settings: Settings) -> None:
        import wandb

        run_id = _identity(run)
        try:
            with redirect_stdout(sys.stderr):
                self._run = wandb.init(
                    project=PROJECT,
                    name=run.name,
                    id=run_id,
                    resume="allow",
                    dir=run,
                    config=dict(settings),
                    # a resumed run has other values of resume and perhaps max_steps
                    allow_val_change=True,
                )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"--tracker wandb: it did not start ({' '.join(str(error).split())}); run wandb login, set "
                "WANDB_MODE=offline, or leave --tracker out"
            ) from error

    def log(self, step: int, metrics: Mapping[str, float | int]) -> None:
        self._run.log(_without_step(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    """One run of the project ``oversharp`` on this machine; ``trackio show --project oversharp`` shows it."""

    def __init__(self, run: Path, settings: Settings) -> None:
        import trackio

        # trackio knows a run by its name alone
        name = f"{run.name}-{_identity(run)}"
        self._trackio = trackio
        with redirect_stdout(sys.stderr):  # it greets on stdout, which belongs to the command's result
            self._run: Any = trackio.init(
                project=PROJECT,
                name=name,
                config=dict(settings),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float | int]) -> None:
        self._run.log(_without_step(metrics), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()  # the run's own finish() leaves it open, to be finished again at exit


def _without_step(metrics: Mapping[str, float | int]) -> dict[str, float | int]:
    return {name: value for name, value in metrics.items() if name != "step"}


def _identity(run: Path) -> str:
    """The id of this run directory, made once: a run that was deleted and started anew is another run."""
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
            f"{path}: not the identity of a tracked run ({error}); delete it to start a new chart"
        ) from error
