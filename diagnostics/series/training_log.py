"""Reads a trainer's log: ``trainer_state.json`` of TRL, ``metrics.jsonl`` of oversharp.

The log is optional in an audit: unreadable parts are left out and listed, never an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.types import TrainingMetric

#: Bookkeeping fields in the records of metrics.
_NOT_METRICS = frozenset({"step", "global_step"})
#: Prefix of a live audit's findings, which are no training metrics.
LIVE_FINDINGS = "oversharp/"

#: Steps below this fit the integers that the store keeps them in.
_STEPS = 2**31


def read_training_log(run: Path, checkpoints: Sequence[Path]) -> tuple[tuple[TrainingMetric, ...], tuple[str, ...]]:
    """Return every finite number logged per step, and a ``"file: reason"`` line for each log that could not be read.

    ``checkpoints`` are in step order. The last ``trainer_state.json`` counts: TRL repeats the whole history in it.
    The later record of the same step and name wins, as after a resumed run.
    """
    metrics: dict[tuple[int, str], TrainingMetric] = {}
    faults: list[str] = []
    states = [path / "trainer_state.json" for path in checkpoints]
    logs = [*[path for path in states if path.is_file()][-1:], run / "metrics.jsonl"]
    for path in logs:
        if not path.is_file():
            continue
        read = _metrics_jsonl if path.suffix == ".jsonl" else _trainer_state
        try:
            metrics_found = list(_numbers(read(path)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            faults.append(f"{path.name}: training metrics left out, {path} cannot be read ({error})")
            continue
        metrics.update({(metric.step, metric.name): metric for metric in metrics_found})
    return tuple(sorted(metrics.values(), key=lambda metric: (metric.step, metric.name))), tuple(faults)


def _trainer_state(path: Path) -> Sequence[Mapping[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["log_history"]


def _metrics_jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError:
            if number == len(lines):
                return  # the trainer is writing it at this moment
            raise ValueError(f"line {number} is not JSON") from None


def _numbers(records: Iterable[Mapping[str, Any]]) -> Iterator[TrainingMetric]:
    for record in records:
        step = record["step"]
        if not 0 <= step < _STEPS:
            raise ValueError("a step is out of range")
        for name, value in record.items():
            if name in _NOT_METRICS or name.startswith(LIVE_FINDINGS):
                continue
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and _is_finite(value):
                yield TrainingMetric(step=int(step), name=name, value=float(value))


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond every float
        return False
