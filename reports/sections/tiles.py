"""The numbers of a headline card: coverage at a few k, and what became of the correct modes."""

from __future__ import annotations

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Tile
from oversharp.reports.wording import WITH_MODES, Change, bound

_VERBS = {"rose": "rose:", "fell": "fell:", "unchanged": "no change detected:", "unknown": "moved:"}


def pass_tile(k: int, change: Change, *, chosen: bool) -> Tile:
    """pass@k of base and last. ``chosen``: this k was picked because the fall is largest there."""
    if change.direction == "unclear":
        text = change.too_few
    else:
        text = (
            f"{_VERBS[change.direction]} {numbers.points(change.delta)} points, "
            f"{numbers.points_interval(change.low, change.high)}"
        )
    return Tile(
        title=f"pass@{k}, the largest fall" if chosen else f"pass@{k}",
        value=f"{numbers.decimal(change.before, 3)} → {numbers.decimal(change.after, 3)}",
        change=f"{text}; k chosen after looking" if chosen else text,
        direction=change.direction,
    )


def mode_tiles(context: Context, series: SeriesSource) -> tuple[Tile, ...]:
    """What became of the correct modes by the last checkpoint, as far as it is known."""
    tiles = (
        _share_tile(context, series, "problems_over_sharpened", "over-sharpened (Definition 2.1)", "problem"),
        _share_tile(context, series, "modes_fallen_10x", "modes that fell > 10×", "correct mode"),
        _effective_modes(context, series),
    )
    return tuple(tile for tile in tiles if tile is not None)


def _share_tile(context: Context, series: SeriesSource, measure: str, title: str, counted: str) -> Tile | None:
    """A share at the last checkpoint, of all problems or, said so, of those that list their modes."""
    found = context.source.value_at(measure, series.name, series.last_step)
    if found is None:
        found = context.source.value_at(measure, series.name, series.last_step, scope=WITH_MODES)
        title = f"{title}, where problems list their modes"
    if found is None:
        return None
    count = bound(found["n"])
    of = "" if count is None else f"of {numbers.plural(int(count), counted)}, "
    return Tile(
        title=title,
        value=numbers.percent(float(found["value"])),
        change=f"{of}{numbers.percent_interval(bound(found['low']), bound(found['high']))}",
        direction="unknown",
    )


def _effective_modes(context: Context, series: SeriesSource) -> Tile | None:
    rows = tuple(
        context.source.value_at("effective_modes", series.name, step) for step in (series.base_step, series.last_step)
    )
    before, after = rows
    if before is None or after is None or series.base_step == series.last_step:
        return None
    ends = f"{_modes_interval(before)} → {_modes_interval(after)}"
    return Tile(
        title="effective modes per problem",
        value=f"{numbers.number(before['value'], 'modes')} → {numbers.number(after['value'], 'modes')}",
        change=f"{numbers.NINETY_FIVE} intervals {ends}" if "[" in ends else "no interval",
        direction="unknown",
    )


def _modes_interval(row: pd.Series) -> str:
    return numbers.interval(bound(row["low"]), bound(row["high"]), "modes") or "open"
