"""Read a trainer's logged metrics and training responses, both optional. Faults are listed.

Metrics are in ``trainer_state.json`` of TRL and ``metrics.jsonl`` of oversharp. Training responses are in Parquet files
of oversharp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.records.errors import first_line
from oversharp.diagnostics.records.types import TrainingMetric, TrainingResponse

if TYPE_CHECKING:
    import pandas as pd

#: Fields of a record that are not metrics.
_NOT_METRICS = frozenset({"step", "global_step"})
#: Prefix of findings that a live audit logs. They are not training metrics.
LIVE_FINDINGS = "oversharp/"

#: Exclusive upper limit of steps, because the store has 32-bit integers.
_STEPS = 2**31
#: Columns of a file of training responses.
_COLUMNS = ["step", "prompt", "response", "truncated", "correct"]


def read_training_log(run: Path, checkpoints: Sequence[Path]) -> tuple[tuple[TrainingMetric, ...], tuple[str, ...]]:
    """Return finite numbers logged per step, and a ``"file: reason"`` line per unreadable log.

    ``checkpoints`` are in step order. Only the last ``trainer_state.json`` is used, because TRL repeats the whole
    history in it. If a step and name has several records, as after a resumed run, the last one is used.
    """
    metrics: dict[tuple[int, str], TrainingMetric] = {}
    faults: list[str] = []
    states = [path / "trainer_state.json" for path in checkpoints]
    logs = [*[path for path in states if path.is_file()][-1:], run / "metrics.jsonl"]
    for path in logs:
        if not path.is_file():
            continue
        load = _load_jsonl if path.suffix == ".jsonl" else _load_trainer_state
        try:
            logged = list(_find_metrics(load(path)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            faults.append(f"{path.name}: training metrics skipped, because {path} cannot be read ({error})")
            continue
        metrics.update({(metric.step, metric.name): metric for metric in logged})
    return tuple(sorted(metrics.values(), key=lambda metric: (metric.step, metric.name))), tuple(faults)


def _load_trainer_state(path: Path) -> Sequence[Mapping[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["log_history"]


def _load_jsonl(path: Path) -> Iterator[Mapping[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except ValueError:
            if number == len(lines):
                return  # the trainer may still be writing the last line
            raise ValueError(f"line {number} is not JSON") from None


def _find_metrics(records: Iterable[Mapping[str, Any]]) -> Iterator[TrainingMetric]:
    for record in records:
        step = record["step"]
        if not 0 <= step < _STEPS:
            raise ValueError("a step is out of range")
        for name, value in record.items():
            if name in _NOT_METRICS or name.startswith(LIVE_FINDINGS):
                continue
            if isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value):
                yield TrainingMetric(step=int(step), name=name, value=float(value))


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer larger than the largest float
        return False


# ---------------------------------------------------------------- responses


def read_training_responses(
    run: Path, steps: Sequence[int], *, limit: int
) -> tuple[tuple[TrainingResponse, ...], tuple[str, ...]]:
    """Return training responses, and a ``"file: reason"`` line per unreadable file.

    ``steps`` are those of the checkpoints in ascending order. A group is all responses to one prompt in one batch. Of
    each prompt, only the first group between two checkpoints is used. For each interval between checkpoints, evenly
    spaced groups with at most ``limit`` distinct responses are returned. Reads ``rollouts/step_*.parquet`` of
    oversharp's trainer, with the columns step, prompt, response, truncated and correct. Rows without a response are
    skipped.
    """
    import pandas as pd

    frames, faults = [], []
    for path in sorted((run / "rollouts").glob("step_*.parquet")) if limit and len(steps) > 1 else ():
        try:
            frames.append(_check_columns(pd.read_parquet(path, columns=_COLUMNS).dropna()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            faults.append(
                f"{path.name}: training responses skipped, because {path} cannot be read ({first_line(error)})"
            )
    if not frames:
        return (), tuple(faults)
    rows = pd.concat(frames)
    chosen = []
    for before, step in pairwise(steps):
        between = rows[(rows["step"] > before) & (rows["step"] <= step)]
        chosen += [
            TrainingResponse(
                step=step,
                prompt=str(row.prompt),
                text=str(row.response),
                truncated=bool(row.truncated),
                correct=bool(row.correct),
                draws=int(row.draws),
            )
            for row in _spaced_groups(between, limit).itertuples()
        ]
    return tuple(chosen), tuple(faults)


def _check_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows``.

    Raises ``ValueError`` for a column of the wrong type.
    """
    from pandas.api.types import is_bool_dtype, is_integer_dtype

    for name in ("truncated", "correct"):  # bool("False") is True, so text must be rejected
        if not is_bool_dtype(rows[name].convert_dtypes()) and not rows[name].isin([0, 1]).all():
            raise ValueError(f"column {name} must contain true and false, or 0 and 1")
    if len(rows) and not is_integer_dtype(rows["step"].convert_dtypes()):
        raise ValueError("column step must contain whole numbers")
    for name in ("prompt", "response"):
        if not rows[name].map(lambda value: isinstance(value, str)).all():
            raise ValueError(f"column {name} must contain text")
    return rows


def _spaced_groups(rows: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Return distinct responses of evenly spaced groups. ``draws`` counts how often each was sampled."""
    import numpy as np

    firsts = rows[rows["step"] == rows.groupby("prompt")["step"].transform("min")]
    counted = firsts.groupby(["step", "prompt", "response"], sort=False)
    distinct = counted.agg(
        truncated=("truncated", "first"), correct=("correct", "first"), draws=("correct", "size")
    ).reset_index()
    if len(distinct) <= limit:
        return distinct
    group_R = distinct.groupby(["step", "prompt"], sort=False).ngroup().to_numpy()
    groups = np.split(np.argsort(group_R, kind="stable"), np.cumsum(np.bincount(group_R))[:-1])
    wanted = max(1, limit * len(groups) // len(distinct))
    chosen: list[int] = []
    for place in range(wanted):
        group = groups[place * len(groups) // wanted]
        if len(chosen) + len(group) <= limit:
            chosen += group.tolist()
    # only a group that exceeds the limit alone is split
    return distinct.iloc[chosen or groups[0][:limit]]
