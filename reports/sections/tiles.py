"""Tiles of a verdict card: pass@k at a few k, and changes of the correct modes."""

from __future__ import annotations

import pandas as pd

from oversharp.reports import numbers
from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Tile
from oversharp.reports.wording import WITH_MODES, Change, float_or_none

_VERBS = {"rose": "rose:", "fell": "fell:", "unchanged": "no change detected:", "unknown": "changed:"}


def pass_tile(k: int, change: Change, *, chosen: bool) -> Tile:
    """Return the tile of pass@k at base and last checkpoint.

    ``chosen`` is whether k was chosen because it has the largest fall.
    """
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
    """Return the tiles on correct modes at the last checkpoint, for the measures that have a value."""
    tiles = (
        _share_tile(context, series, "problems_over_sharpened", "over-sharpened (Definition 2.1)", "problem"),
        _share_tile(context, series, "modes_fallen_10x", "modes that fell > 10×", "correct mode"),
        _effective_modes(context, series),
    )
    return tuple(tile for tile in tiles if tile is not None)


def _share_tile(context: Context, series: SeriesSource, measure: str, title: str, counted: str) -> Tile | None:
    """Return the tile of a share at the last checkpoint; None if it has no value.

    The share is over all problems or, without such a value, over the problems that list their modes.
    """
    row = context.source.value_at(measure, series.name, series.last_step)
    if row is None:
        row = context.source.value_at(measure, series.name, series.last_step, scope=WITH_MODES)
        title = f"{title}, where problems list their modes"
    if row is None:
        return None
    count = float_or_none(row["n"])
    of = "" if count is None else f"of {numbers.plural(int(count), counted)}, "
    return Tile(
        title=title,
        value=numbers.percent(float(row["value"])),
        change=f"{of}{numbers.percent_interval(float_or_none(row['low']), float_or_none(row['high']))}",
        direction="unknown",
    )


def _effective_modes(context: Context, series: SeriesSource) -> Tile | None:
    before, after = (
        context.source.value_at("effective_modes", series.name, step) for step in (series.base_step, series.last_step)
    )
    if before is None or after is None or series.base_step == series.last_step:
        return None
    ends = f"{_modes_interval(before)} → {_modes_interval(after)}"
    return Tile(
        title="effective modes per problem",
        value=f"{numbers.number(before['value'], 'modes')} → {numbers.number(after['value'], 'modes')}",
        change=f"{numbers.NINETY_FIVE} CIs {ends}" if "[" in ends else "no CI",
        direction="unknown",
    )


def _modes_interval(row: pd.Series) -> str:
    return numbers.interval(float_or_none(row["low"]), float_or_none(row["high"]), "modes") or numbers.UNKNOWN
