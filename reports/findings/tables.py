"""Formats of values, labels of scopes, and the data table of a figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from oversharp.diagnostics.measures.contract import Measure
from oversharp.reports import numbers
from oversharp.reports.evidence.source import Source
from oversharp.reports.records import DASH, Cell, Column, Table
from oversharp.reports.wording import WITH_MODES, float_or_none

MAX_TABLE_COLUMNS = 16
#: Scope → label, for scopes whose names are unclear to readers.
_SCOPES = {
    "plug_in": "the plug-in estimate",
    "token_pooled": "mean over all tokens",
    WITH_MODES: "problems that list their modes",
}
#: Prefixes of the names of scopes that are bins of a numeric scale.
_SCALES = (*(f"base {digit}" for digit in range(10)), "base p", "tokens ")


@dataclass(frozen=True, kw_only=True)
class Display:
    """Number format of the values of a measure. Differences of probabilities are in percentage points (× 100)."""

    factor: float
    unit: str
    is_difference: bool

    def text(self, value: float) -> str:
        """Return one value as text, without its unit."""
        return numbers.points(value) if self.is_difference else numbers.number(value, self.unit)

    def cell(self, value: object, low: object, high: object) -> Cell:
        """Return a table cell with a value and its CI, or a dash if the value is unknown.

        >>> Display(factor=1, unit="probability", is_difference=False).cell(0.25, 0.2, 0.3).text
        '0.250 [0.200, 0.300]'
        """
        value_f, low_f, high_f = float_or_none(value), float_or_none(low), float_or_none(high)
        if value_f is None:
            return DASH
        text = self.text(value_f)
        if low_f is not None and high_f is not None:
            text += f" [{self.text(low_f)}, {self.text(high_f)}]"
        return Cell(text=text, sort=value_f)


POINTS = Display(factor=100.0, unit="points", is_difference=True)


def display_of(unit: str, *, signed: bool) -> Display:
    """Return the format of a unit. Signed probabilities are in percentage points, other values are unchanged."""
    if signed and numbers.is_probability(unit):
        return POINTS
    return Display(factor=1.0, unit=unit, is_difference=False)


def spread_evenly(values: Sequence[Any], limit: int) -> tuple[Any, ...]:
    """Return at most ``limit`` of ``values``, evenly spread, including the first and the last."""
    if len(values) <= limit:
        return tuple(values)
    return tuple(values[round(i * (len(values) - 1) / (limit - 1))] for i in range(limit))


def scope_label(scope: str) -> str:
    """Return the label of a scope.

    >>> scope_label("not_correct"), scope_label("task:math"), scope_label("tokens 00002-00003")
    ('not correct', 'task math', 'tokens 2-3')
    """
    if scope in _SCOPES:
        return _SCOPES[scope]
    scope = re.sub(r"^base p ", "base probability ", re.sub(r"^base (?=\d)", "base solved ", scope))
    # names of scopes have leading zeros, so that they sort numerically; labels do not need them
    return re.sub(r"(?<![\d.])0+(?=[1-9])", "", scope.replace("_", " ").replace(":", " "))


def is_ordered(scopes: Sequence[str]) -> bool:
    """Return whether the scopes are bins of a numeric scale, such as base success or token position.

    >>> is_ordered(["all", "base 0-10%", "base 90-100%"]), is_ordered(["all", "correct"])
    (True, False)
    """
    bins = [scope for scope in scopes if scope != "all"]
    return len(bins) > 1 and all(scope.startswith(_SCALES) for scope in bins)


def scope_order(scope: str) -> tuple[bool, bool, str]:
    """Return a sort key that puts "all" first and "other" last, and numbers in names in ascending order.

    >>> sorted(["T=13", "other", "T=2", "all"], key=scope_order)
    ['all', 'T=2', 'T=13', 'other']
    """
    return (scope != "all", scope == "other", re.sub(r"\d+", lambda number: number[0].zfill(9), scope))


def measure_table(source: Source, measure: Measure, rows: pd.DataFrame, display: Display) -> Table:
    """Return a table with one row per series and checkpoint, and one column per k or scope."""
    by = "k" if measure.plot.x == "k" or measure.plot.group == "k" else "scope"
    if by == "k":
        keys: list[Any] = sorted(rows["k"].dropna().unique())
    else:
        keys = sorted({str(scope) for scope in rows["scope"]}, key=scope_order)
    shown = list(spread_evenly(keys, MAX_TABLE_COLUMNS))
    several = len(source.series) > 1
    head = [Column(name="series", numeric=False)] if several else []
    if by == "k":
        names = [f"k = {int(key)}" for key in shown]
    else:
        names = [measure.title if keys == ["all"] else scope_label(key) for key in shown]
    columns = rows[["series", "step", by, "value", "low", "high"]]
    indexed = {(row["series"], row["step"], row[by]): row for row in columns.to_dict("records")}
    body = []
    for series in source.series:
        for step in (int(s) for s in series.checkpoints["step"]):
            cells = [indexed.get((series.name, step, key)) for key in shown]
            if all(cell is None for cell in cells):
                continue
            lead = [Cell(text=series.name)] if several else []
            lead.append(Cell.count(step))
            values = [
                DASH if cell is None else display.cell(cell["value"], cell["low"], cell["high"]) for cell in cells
            ]
            body.append((*lead, *values))
    unit = "percentage points" if display.is_difference else display.unit
    brackets = f" Brackets: {numbers.NINETY_FIVE} CI." if rows["low"].notna().any() else ""
    return Table(
        title=f"{measure.title}: data",
        columns=(*head, Column(name="step"), *(Column(name=name) for name in names)),
        rows=tuple(body),
        note=f"Unit: {unit}.{brackets}"
        + (f" This table shows {len(shown)} of {len(keys)} columns." if len(shown) < len(keys) else ""),
        folded=True,
    )
