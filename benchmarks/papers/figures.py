"""Figures of the paths of toy worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from benchmarks.papers.table import number
from oversharp.reports.records import Cell, Colour, Column, Figure, Line, Panel, Table

#: Points per line. Above 45 the figures draw few markers on a line instead of one per point.
_POINTS = 51
_COLOURS: tuple[Colour, ...] = ("c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8")
_ORDERED: tuple[Colour, ...] = ("q1", "q3", "q5", "q6")


@dataclass(frozen=True, kw_only=True)
class Path:
    """A quantity over recorded steps and seeds, with a label.

    Step 0 is before the first update.
    """

    label: str
    value_ST: Float[np.ndarray, "seed record"]
    step_T: Int[np.ndarray, " record"]


def path_figure(
    *,
    figure_id: str,
    title: str,
    caption: str,
    y_label: str,
    panels: Sequence[tuple[str, Sequence[Path]]],
    y_range: tuple[float, float] | None = (0.0, 1.0),
    ordered: bool = False,
    spread: bool = True,
) -> Figure:
    """One panel per setting, one line per path: the mean over seeds, the band from the 10th to the 90th percentile.

    Lines are thinned to 51 points. ``ordered`` colours the labels by their order (G, temperature).
    """
    labels = list(dict.fromkeys(path.label for _, paths in panels for path in paths))
    colours = dict(zip(labels, _ORDERED if ordered and len(labels) <= len(_ORDERED) else _COLOURS, strict=False))
    drawn = tuple(
        Panel(
            title=name,
            lines=tuple(_line(path, colours[path.label], labels.index(path.label), spread=spread) for path in paths),
            description=f"{name}: " + "; ".join(f"{path.label} ends at {_end(path)}" for path in paths) + ".",
        )
        for name, paths in panels
    )
    rows = tuple(
        (Cell(text=name), Cell(text=path.label), *(_cell(value) for value in _quarters(path)))
        for name, paths in panels
        for path in paths
    )
    columns = ("panel", "line", "start", "first quarter", "half", "third quarter", "end")
    return Figure(
        figure_id=figure_id,
        title=title,
        caption=caption,
        x_label="step",
        y_label=y_label,
        panels=drawn,
        y_range=y_range,
        table=Table(
            title="Mean over seeds",
            columns=tuple(Column(name=name, numeric=i > 1) for i, name in enumerate(columns)),
            rows=rows,
            folded=True,
        ),
    )


def _line(path: Path, colour: Colour, style: int, *, spread: bool) -> Line:
    last = path.value_ST.shape[1] - 1
    at = np.unique(np.linspace(0, last, _POINTS).round().astype(int))
    own_ST = path.value_ST[:, at]
    low, high = np.quantile(own_ST, [0.1, 0.9], axis=0)
    return Line(
        label=path.label,
        x=tuple(float(step) for step in path.step_T[at]),
        y=tuple(float(value) for value in own_ST.mean(axis=0)),
        colour=colour,
        style=style,
        low=tuple(float(value) for value in low) if spread else (),
        high=tuple(float(value) for value in high) if spread else (),
    )


def _quarters(path: Path) -> tuple[float, ...]:
    last = path.value_ST.shape[1] - 1
    mean_T = path.value_ST.mean(axis=0)
    return tuple(float(mean_T[round(last * part / 4)]) for part in range(5))


def _cell(value: float) -> Cell:
    return Cell(text=number(value), sort=value)


def _end(path: Path) -> str:
    return number(float(path.value_ST[:, -1].mean()))
