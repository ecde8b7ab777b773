"""Exact positions of runs of several seeds relative to the temperature frontier of their base.

*Gain* is pass@1 minus that of the base at the temperature with the same pass@k. It is unknown if pass@k is above the
base's own, or below that of the base at the lowest temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.frontier.exact_frontier import FINE, ExactFrontier, ExactTask, Rates, load, mixed, pass_at

#: Ways to restore coverage: a higher temperature, and weights this far on the way from the base to the last checkpoint.
HOTTER, PART = 1.2, 0.75


@dataclass(frozen=True, kw_only=True)
class FrontierPosition:
    """One run: its last checkpoint, the same at temperature ``HOTTER``, and weights ``PART`` of the way to it.

    ``matched_loss``: pass@k where the run's pass@1 first reaches the level of the tables, minus that of the base at the
    temperature with this pass@1. None if the run, or the frontier, does not reach the level. All are probabilities.
    """

    gain: float | None
    loss: float | None
    matched_loss: float | None
    hot_pass_at_1: float
    hot_pass_at_k: float
    hot_gain: float | None
    part_pass_at_1: float
    part_pass_at_k: float
    part_gain: float | None


MEASURES = tuple(field.name for field in fields(FrontierPosition))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Mean over ``n`` seeds with its 95 % t-interval, which is None with one seed."""

    mean: float
    low: float | None
    high: float | None
    n: int


def summary(values: Sequence[float]) -> Summary:
    """Return mean and 95 % t-interval.

    >>> summary([1.0, 2.0, 3.0])
    Summary(mean=2.0, low=-0.484..., high=4.484..., n=3)
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return Summary(mean=mean, low=None, high=None, n=len(values))
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Summary(mean=mean, low=mean - half, high=mean + half, n=len(values))


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Exact rates of the base at the fine temperatures, for one k: the reference of all runs of a task."""

    task: ExactTask
    base: Path
    fine: Mapping[float, Rates]
    frontier: ExactFrontier

    @classmethod
    def of(cls, task: ExactTask, base: Path, k: int) -> Ground:
        """Score the base, once for all runs."""
        fine = dict(zip(FINE, task.rates(load(base), FINE), strict=True))
        return cls(task=task, base=base, fine=fine, frontier=ExactFrontier.of(fine, k))

    def frontier_values(self) -> dict[str, dict[str, float]]:
        """Return pass@1 and pass@k of the base by temperature."""
        k = self.frontier.k
        return {
            f"{temperature:g}": {"pass_at_1": pass_at(rate_P, 1), f"pass_at_{k}": pass_at(rate_P, k)}
            for temperature, rate_P in self.fine.items()
        }

    def position(self, last: Path, matched: tuple[float, float] | None) -> FrontierPosition:
        """Return the position of the last checkpoint of a run.

        ``matched``: its pass@1 and pass@k where pass@1 first reached the level.
        """
        model, k = load(last), self.frontier.k
        own, hot = self.task.rates(model, [1.0, HOTTER])
        [part] = self.task.rates(mixed(load(self.base), model, PART), [1.0])
        places = [(pass_at(rate_P, 1), pass_at(rate_P, k)) for rate_P in (own, hot, part)]
        gain, hot_gain, part_gain = (self.frontier.gain(*place) for place in places)
        return FrontierPosition(
            gain=gain,
            loss=self.frontier.loss(*places[0]),
            matched_loss=None if matched is None else self.frontier.loss(*matched),
            hot_pass_at_1=places[1][0],
            hot_pass_at_k=places[1][1],
            hot_gain=hot_gain,
            part_pass_at_1=places[2][0],
            part_pass_at_k=places[2][1],
            part_gain=part_gain,
        )


def position_row(positions: Sequence[FrontierPosition]) -> dict[str, Any]:
    """Return summaries over the seeds with a value, None if there is none."""
    row: dict[str, Any] = {}
    for name in MEASURES:
        known = [value for one in positions if (value := getattr(one, name)) is not None]
        row[name] = asdict(summary(known)) if known else None
    return row


def ranks(values: Mapping[str, float | None]) -> dict[str, int | None]:
    """Return ranks, 1 for the highest. Unknown values have no rank.

    >>> ranks({"a": 0.1, "b": 0.3, "c": None})
    {'a': 2, 'b': 1, 'c': None}
    """
    known = sorted((value for value in values.values() if value is not None), reverse=True)
    return {name: None if value is None else known.index(value) + 1 for name, value in values.items()}


def ranked(rows: Sequence[dict[str, Any]], k: int) -> dict[str, dict[str, int | None]]:
    """Return ranks at the last step: by pass@1 and pass@k without the control, by gain with it."""

    def of(value: Callable[[dict[str, Any]], dict[str, Any] | None]) -> dict[str, int | None]:
        found = {row["setting"]["name"]: value(row) for row in rows}
        return ranks({name: None if one is None else one["mean"] for name, one in found.items()})

    return {
        "pass@1": of(lambda row: row["last_step"]["pass_at_1"]),
        f"pass@{k}": of(lambda row: row["last_step"][f"pass_at_{k}"]),
        "gain": of(lambda row: row["frontier"]["gain"]),
    }


def position_markdown(rows: Sequence[dict[str, Any]], seeds: int, k: int, level: float) -> list[str]:
    """Return the lines of one table, with gains and losses in points."""
    rank = ranked(rows, k)
    lines = [
        f"| | gain | pass@{k} at pass@1 = {level} against the colder base's | at T = {HOTTER}: pass@1 | pass@{k} "
        f"| gain | base + {PART} (last − base): pass@1 | pass@{k} | gain | rank by pass@1 | by pass@{k} | by gain |",
        "|---" * 12 + "|",
    ]
    for row in rows:
        name, at = row["setting"]["name"], row["frontier"]
        cells = [
            points_cell(at["gain"], seeds),
            points_cell(at["matched_loss"], seeds),
            *(part for way in ("hot", "part") for part in _way_cells(at, way, seeds)),
            *("–" if rank[by][name] is None else str(rank[by][name]) for by in rank),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _way_cells(at: Mapping[str, Any], way: str, seeds: int) -> list[str]:
    shares = [at[f"{way}_pass_at_1"]["mean"], at[f"{way}_pass_at_k"]["mean"]]
    return [*(f"{share:.3f}" for share in shares), points_cell(at[f"{way}_gain"], seeds)]


def points_cell(value: Mapping[str, Any] | None, seeds: int) -> str:
    """Return mean ± half of the interval in points, with the number of seeds if some have no value."""
    if value is None:
        return "unknown"
    text = f"{100 * value['mean']:+.1f}".replace("-", "−")
    text += "" if value["high"] is None else f" ± {100 * (value['high'] - value['mean']):.1f}"
    return text if value["n"] == seeds else f"{text} ({value['n']} of {seeds} seeds)"
