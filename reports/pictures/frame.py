"""Draw in a rectangle with axes, without matplotlib's axes.

A report has hundreds of small pictures. Matplotlib's axes, ticks and spines are objects with many properties, and took
most of the time of these pictures. Here, axes are a few strokes and texts on the canvas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.markers import MarkerStyle
from matplotlib.patches import PathPatch, Polygon
from matplotlib.path import Path
from matplotlib.scale import LogTransform
from matplotlib.text import Text
from matplotlib.transforms import (
    Bbox,
    BboxTransformFrom,
    BboxTransformTo,
    IdentityTransform,
    ScaledTranslation,
    Transform,
    TransformedBbox,
    blended_transform_factory,
)

from oversharp.reports.pictures.canvas import POINTS_PER_INCH
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour

TICK_PT, PAD_PT = 3.5, 3.5  # length of a tick, and distance between the tick and its label
LABEL_PT, TICK_LABEL_PT = 12.0, 11.5  # font sizes
_LINE_PT = 0.8  # width of ticks, grid and spines
_LABEL_GAP_PT = 4.0  # distance between the tick labels of the x axis and its label
_LABEL_LEFT_PT, _LABEL_TOP_PT = 4.0, 12.0  # position of the label of the y axis, from the upper left corner
#: Drawing order: grid and ticks, areas, lines, spines, texts.
_BACK, _LINES, _SPINES = 0.5, 2.0, 2.5

_Pair = tuple[float, float]
Side = Literal["left", "right", "bottom", "top"]
#: Ends of the spines, as shares of width and height.
_SIDES: dict[Side, tuple[_Pair, _Pair]] = {
    "left": ((0.0, 0.0), (0.0, 1.0)),
    "right": ((1.0, 0.0), (1.0, 1.0)),
    "bottom": ((0.0, 0.0), (1.0, 0.0)),
    "top": ((0.0, 1.0), (1.0, 1.0)),
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """One axis: its limits, which are descending if it is inverted, and its labels by tick.

    Ticks outside the limits are not drawn. ``log_base`` is None if the axis is linear. ``tick_pt`` is the length of a
    tick, ``pad_pt`` its distance from its label.
    """

    limits: _Pair
    ticks: Mapping[float, str] = field(default_factory=dict)
    label: str = ""
    log_base: float | None = None
    has_grid: bool = False
    tick_pt: float = 0.0
    pad_pt: float = PAD_PT
    label_colour: Colour = "muted"

    @property
    def transform(self) -> Transform:
        """Transform from data to a linear scale."""
        return IdentityTransform() if self.log_base is None else LogTransform(self.log_base)

    @property
    def shown_ticks(self) -> list[float]:
        """Ticks within the limits."""
        ends = sorted(map(float, self.transform.transform(np.array(self.limits))))
        margin = 1e-10 * (ends[1] - ends[0])
        places = self.transform.transform(np.array(list(self.ticks), dtype=float))
        return [t for t, at in zip(self.ticks, places, strict=True) if ends[0] - margin <= at <= ends[1] + margin]


class Frame:
    """Rectangle of a canvas with an x and a y axis. It draws data, and keeps the transforms to the page.

    Attributes:
        box: The rectangle, in pixels of the canvas.
        to_page: Transform from data to pixels of the canvas.
        across: The same for x; its y is a share of the height.
        up: The same for y; its x is a share of the width.
        inside: Transform from shares of width and height.
    """

    def __init__(
        self,
        canvas: Canvas,
        *,
        place_pt: tuple[float, float, float, float],
        x: Scale,
        y: Scale,
        spines: Sequence[Side] = ("bottom",),
        layer: float = 0.0,
    ) -> None:
        """Draw the axes.

        Args:
            place_pt: Left, top, width and height in points from the upper left corner.
            spines: Sides of the rectangle to draw.
            layer: A frame with a higher layer is drawn later. Layers differ by at least 10.
        """
        left, top, wide, high = place_pt
        width, height = canvas.bbox.size
        shares = Bbox.from_bounds(left / width, 1 - (top + high) / height, wide / width, high / height)
        self.canvas, self.x, self.y, self._layer = canvas, x, y, layer
        self.box = TransformedBbox(shares, canvas.transSubfigure)
        self.inside = BboxTransformTo(self.box)
        scaled = blended_transform_factory(x.transform, y.transform)
        limits = TransformedBbox(Bbox.from_extents(x.limits[0], y.limits[0], x.limits[1], y.limits[1]), scaled)
        self.to_page = scaled + (BboxTransformFrom(limits) + self.inside)
        self.across = blended_transform_factory(self.to_page, self.inside)
        self.up = blended_transform_factory(self.inside, self.to_page)
        self._draw_x(high)
        self._draw_y()
        ends = [ends for side, ends in _SIDES.items() if side in spines]
        self.strokes(ends, "muted", _LINE_PT, transform=self.inside, zorder=_SPINES)

    def _add(self, artist: Artist) -> None:
        """Add an artist, in data coordinates if it has no transform."""
        if not artist.is_transform_set():
            artist.set_transform(self.to_page)
        artist.set_zorder(self._layer + artist.get_zorder())
        self.canvas.add_artist(artist)

    def line(self, xs: Sequence[float], ys: Sequence[float], **look: Any) -> None:
        """Draw a line through points. ``look`` are properties of ``Line2D``."""
        self._add(Line2D(xs, ys, **look))

    def strokes(
        self,
        ends: Iterable[tuple[_Pair, _Pair]],
        colour: Colour,
        width_pt: float,
        *,
        transform: Transform | None = None,
        zorder: float = _LINES,
    ) -> None:
        """Draw separate straight lines."""
        vertices = np.array([point for pair in ends for point in pair], dtype=float).reshape(-1, 2)
        if len(vertices):
            path = Path(vertices, [Path.MOVETO, Path.LINETO] * (len(vertices) // 2))
            look: dict[str, Any] = {"facecolor": "none", "edgecolor": PLACEHOLDERS[colour], "linewidth": width_pt}
            self._add(PathPatch(path, transform=transform or self.to_page, zorder=zorder, **look))

    def area(self, corners: Iterable[_Pair] | Float[np.ndarray, "corner 2"], colour: Colour, **look: Any) -> None:
        """Fill a polygon. ``look`` are properties of ``Polygon``."""
        points = corners if isinstance(corners, np.ndarray) else list(corners)
        self._add(Polygon(points, facecolor=PLACEHOLDERS[colour], linewidth=0, **look))  # type: ignore[arg-type]

    def markers(self, xs: Any, ys: Any, sizes: Any, *, marker: str, **look: Any) -> None:
        """Draw markers with different areas, in square points. ``look`` are properties of ``PathCollection``."""
        style = MarkerStyle(marker)
        shape = style.get_path().transformed(style.get_transform())
        offsets: dict[str, Any] = {"offsets": np.column_stack((xs, ys)), "offset_transform": self.to_page}
        self._add(PathCollection((shape,), sizes, transform=IdentityTransform(), **offsets, **look))

    def cells(
        self, colour_RC4: Float[np.ndarray, "row column 4"], corners: Float[np.ndarray, "row1 column1 2"]
    ) -> None:
        """Draw the cells of a map. ``corners`` has one row and one column more than the colours."""
        self._add(QuadMesh(corners, facecolors=colour_RC4.reshape(-1, 4), edgecolors="none", antialiased=False))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        transform: Transform | None = None,
        offset_pt: _Pair = (0.0, 0.0),
        colour: Colour = "ink",
        **look: Any,
    ) -> None:
        """Write text at a point, shifted by ``offset_pt``. ``look`` are properties of ``Text``."""
        place = transform or self.to_page
        if offset_pt != (0.0, 0.0):
            across, up = (shift / POINTS_PER_INCH for shift in offset_pt)
            place = place + ScaledTranslation(across, up, self.canvas.dpi_scale_trans)
        self._add(Text(x, y, text, transform=place, color=PLACEHOLDERS[colour], **look))

    def _draw_x(self, height_pt: float) -> None:
        scale, below = self.x, -self.x.tick_pt / height_pt
        ticks = scale.shown_ticks
        stroke: dict[str, Any] = {"width_pt": _LINE_PT, "transform": self.across, "zorder": _BACK}
        for group in [[tick] for tick in ticks] if scale.has_grid else [ticks]:
            if scale.has_grid:
                self.strokes([((tick, 0.0), (tick, 1.0)) for tick in group], "grid", **stroke)
            if scale.tick_pt:
                self.strokes([((tick, 0.0), (tick, below)) for tick in group], "muted", **stroke)
        down = scale.tick_pt + scale.pad_pt
        look: dict[str, Any] = {"ha": "center", "va": "top", "zorder": _BACK}
        for tick in ticks:
            place: dict[str, Any] = {"transform": self.across, "offset_pt": (0.0, -down), "fontsize": TICK_LABEL_PT}
            self.text(tick, 0.0, scale.ticks[tick], colour=scale.label_colour, **place, **look)
        if scale.label:
            down = (down + TICK_LABEL_PT if ticks else 0.0) + _LABEL_GAP_PT
            self.text(0.5, 0.0, scale.label, transform=self.inside, offset_pt=(0.0, -down), fontsize=LABEL_PT, **look)

    def _draw_y(self) -> None:
        scale = self.y
        ticks = scale.shown_ticks
        grid = [((0.0, tick), (1.0, tick)) for tick in ticks] if scale.has_grid else []
        self.strokes(grid, "grid", _LINE_PT, transform=self.up, zorder=_BACK)
        look: dict[str, Any] = {"ha": "right", "va": "center_baseline", "fontsize": TICK_LABEL_PT, "zorder": _BACK}
        for tick in ticks:
            place: dict[str, Any] = {"transform": self.up, "offset_pt": (-scale.pad_pt, 0.0)}
            self.text(0.0, tick, scale.ticks[tick], colour=scale.label_colour, **place, **look)
        if scale.label:
            width, height = self.canvas.bbox.size
            left, up = _LABEL_LEFT_PT / width, 1 - _LABEL_TOP_PT / height
            label: dict[str, Any] = {"ha": "left", "va": "center", "fontsize": LABEL_PT, "zorder": _BACK}
            self.text(left, up, scale.label, transform=self.canvas.transFigure, **label)
