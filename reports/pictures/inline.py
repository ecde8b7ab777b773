"""Render a matplotlib canvas as compact inline SVG with colour classes and no styles.

Matplotlib's SVG backend is unsuitable for three reasons. It writes style attributes, which the report's
Content-Security-Policy forbids. It writes fixed colours instead of those of the light or dark theme. Its output is
several times as large, and a page has hundreds of pictures.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
from jaxtyping import Float
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from oversharp.reports.pictures.palette import PLACEHOLDERS

_NAMES = {value: name for name, value in PLACEHOLDERS.items()}
_TENTHS = 10
_FLIPPED = Affine2D().scale(1, -1)
_ID_DIGITS = 6
_ANCHORS = {"left": "start", "center": "middle", "right": "end"}

_MOST_ALONE = 1  # lines with more markers refer to one shared marker shape
_MIRROR = "matrix(0 1 1 0 .5 -.5)"  # reflects the cells of a map at its diagonal

#: SVG attributes of an element: its classes, stroke widths and opacities.
Look = dict[str, str]


def inline_svg(canvas: Canvas, *, title: str = "", description: str = "", points: str = "") -> str:
    """Render ``canvas`` (one pixel per point) as SVG text. Without ``title``, screen readers skip the picture.

    Units are tenths of a point, so that integers suffice. Nothing is clipped, so callers must draw inside the axes.
    Shared elements (marker shapes, halves of symmetric maps) are in ``defs``. Their ids are hashes of their content, so
    ``oversharp.reports.render.extract_shared`` can keep one copy of each per page.

    Args:
        points: Points of the picture for the tooltips of the page's script; see ``pictures.points``.

    Raises:
        ValueError: a colour is not in the theme.
        NotImplementedError: the canvas has rotated text or images.
    """
    width, height = canvas.bbox.size
    svg = Element("svg", {"viewBox": f"0 0 {_TENTHS * width:g} {_TENTHS * height:g}"})
    if title:
        # not a title element: browsers show it as a tooltip, which would cover the tooltips of points
        svg.attrib |= {"role": "img", "aria-label": description or title}
        svg.attrib |= {"data-points": points} if points else {}
    else:
        svg.set("aria-hidden", "true")
    renderer = _Renderer(width, height)
    canvas.draw(renderer)
    if renderer.shared:
        SubElement(svg, "defs").extend(renderer.shared.values())
    # texts after all shapes: strokes between labels would prevent the labels from being grouped
    svg.extend([*_group_shapes(renderer.shapes), *_group_shapes(renderer.texts)])
    # safe, because escaped text and attributes contain no " />"
    return tostring(svg, encoding="unicode").replace(" />", "/>")


class _Renderer(RendererBase):
    """Matplotlib renderer that collects shapes and texts with their SVG attributes."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__()
        self.shapes: list[tuple[Look, Element]] = []
        self.texts: list[tuple[Look, Element]] = []
        self.shared: dict[str, Element] = {}
        self._size = (width, height)
        self._down = Affine2D().scale(1, -1).translate(0, height)  # the y axis points down in SVG, up in matplotlib

    def flipy(self) -> bool:
        """Return True: the y axis of texts points down."""
        return True

    def get_canvas_width_height(self) -> tuple[float, float]:
        """Return the size in points."""
        return self._size

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> tuple[float, float, float]:
        """Return the size of a text, and the part of its height below the baseline, in points."""
        return _text_size(s, prop)

    def draw_path(self, gc: GraphicsContextBase, path: Path, transform: Transform, rgbFace: Any = None) -> None:
        """Add a line, polygon or circle. Other curves are not supported."""
        look = _paint_attributes(gc, rgbFace)
        text = path_text(np.asarray(path.vertices), path.codes, transform + self._down) if look else ""
        if text:
            self.shapes.append((look, Element("path", {"d": text})))

    def draw_markers(
        self,
        gc: GraphicsContextBase,
        marker_path: Path,
        marker_trans: Transform,
        path: Path,
        trans: Transform,
        rgbFace: Any = None,
    ) -> None:
        """Add the markers of a line as a path that refers to a shared shape."""
        shape = np.asarray(marker_path.vertices)
        look = _paint_attributes(gc, rgbFace)
        places = trans.transform(np.asarray(path.vertices))
        places = places[np.isfinite(places).all(axis=1)]
        if look and len(places) > _MOST_ALONE:
            self._add_marked(look, path_text(shape, marker_path.codes, marker_trans + _FLIPPED), places)
            return
        texts = [
            path_text(shape, marker_path.codes, marker_trans + Affine2D().translate(x, y) + self._down)
            for x, y in places
        ]
        if look and any(texts):
            self.shapes.append((look, Element("path", {"d": "".join(texts)})))

    def _add_marked(self, look: Look, shape: str, places: Float[np.ndarray, "point 2"]) -> None:
        """Add markers at ``places``. If the line through them was just drawn, its path gets the markers."""
        marker = Element("marker", {"markerUnits": "userSpaceOnUse"})
        SubElement(marker, "path", look | {"d": shape})
        name = self._share(marker, "m")
        tenths = np.rint(_TENTHS * self._down.transform(places)).astype(int)
        line = f"M{_numbers(tenths[0])}l{_numbers(np.diff(tenths, axis=0).flat)}"
        if self.shapes and self.shapes[-1][1].get("d") == line:
            before, element = self.shapes[-1]
            self.shapes[-1] = (before | {"class": f"{before['class']} {name}"}, element)
        else:
            self.shapes.append(({"class": name}, Element("path", {"d": line})))

    def _share(self, element: Element, kind: str) -> str:
        """Store a shared element and return its id, which is a hash of its content."""
        name = kind + hashlib.sha256(tostring(element)).hexdigest()[:_ID_DIGITS]
        element.set("id", name)
        self.shared[name] = element
        return name

    def draw_quad_mesh(
        self,
        gc: GraphicsContextBase,
        master_transform: Transform,
        meshWidth: int,
        meshHeight: int,
        coordinates: Any,
        offsets: Any,
        offsetTrans: Transform,
        facecolors: Any,
        antialiased: Any,
        edgecolors: Any,
    ) -> None:
        """Add the cells of a map as strokes, in units of a cell.

        A gradient kernel has thousands of cells. Rectangles in page units would take four times the bytes.
        """
        corners = (master_transform + self._down).transform(np.asarray(coordinates)[[0, 0, -1], [0, -1, 0]])
        along_row, along_column = (corners[1] - corners[0]) / meshWidth, (corners[2] - corners[0]) / meshHeight
        # shift by half a cell, because a stroke is centred on its line
        place = _TENTHS * np.array((*along_row, *along_column, *(corners[0] + along_column / 2)))
        matrix = " ".join(f"{round(number, 3):g}" for number in place)
        group = Element("g", {"transform": f"matrix({matrix})", "shape-rendering": "crispEdges"})
        group.extend(self._cells(np.reshape(facecolors, (meshHeight, meshWidth, 4))))
        self.shapes.append(({}, group))

    def _cells(self, colour_RC4: Float[np.ndarray, "row column 4"]) -> Iterator[Element]:
        """Yield the cells of a map. A symmetric map is the upper half, its mirror image, and the diagonal."""
        rows, columns = np.indices(colour_RC4.shape[:2])
        if len(rows) == 1 or not _is_symmetric(colour_RC4):
            yield from _runs(colour_RC4)
            return
        half = Element("g")
        half.extend(_runs(np.where((columns > rows)[..., None], colour_RC4, 0.0)))
        name = self._share(half, "h")
        yield Element("use", {"href": f"#{name}"})
        yield Element("use", {"href": f"#{name}", "transform": _MIRROR})
        yield from _runs(np.where((columns == rows)[..., None], colour_RC4, 0.0))

    def draw_text(
        self,
        gc: GraphicsContextBase,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        """Add text as an SVG text element, which readers can search and copy, and screen readers can read."""
        if angle or mtext is None:
            raise NotImplementedError(f"{s!r}: rotated or multi-line text is not supported")
        anchored, _ = mtext.get_transform().transform(mtext.get_unitless_position())
        anchor = _ANCHORS[mtext.get_ha()]
        aligned = {} if anchor == "start" else {"text-anchor": anchor}  # "start" is SVG's default
        aligned["font-size"] = f"{_TENTHS * prop.get_size_in_points():g}"
        element = Element("text", {"x": f"{_TENTHS * anchored:.0f}", "y": f"{_TENTHS * y:.0f}"})
        element.text = s
        self.texts.append((_paints(fill=gc.get_rgb()) | aligned, element))


@lru_cache(maxsize=4096)
def _text_size(text: str, font: FontProperties) -> tuple[float, float, float]:
    """Measure a text. Cached, because matplotlib's cache is per renderer, and pictures share most tick labels."""
    return RendererBase().get_text_width_height_descent(text, font, False)


def _is_symmetric(colour_RC4: Float[np.ndarray, "row column 4"]) -> bool:
    return colour_RC4.shape[0] == colour_RC4.shape[1] and bool((colour_RC4 == colour_RC4.swapaxes(0, 1)).all())


def _runs(colour_RC4: Float[np.ndarray, "row column 4"]) -> Iterator[Element]:
    """Yield one path per colour, in units of a cell. A run of equal cells is a stroke such as "M3 5h2".

    Transparent cells are skipped.
    """
    runs: dict[tuple[float, ...], str] = {}
    for row, cells in enumerate(colour_RC4.tolist()):
        column = 0
        for colour, same in itertools.groupby(map(tuple, cells)):
            count = len(list(same))
            runs[colour] = f"{runs.get(colour, '')}M{column} {row}h{count}"
            column += count
    for colour, path in sorted(runs.items()):
        if colour[3]:
            yield Element("path", {"d": path, **_paints(stroke=colour)})


def _paint_attributes(gc: GraphicsContextBase, face: Any) -> Look:
    """Return fill and stroke attributes, or an empty dict if nothing is painted."""
    paints: dict[str, Any] = {"fill": face, "stroke": gc.get_rgb() if gc.get_linewidth() else None}
    if gc.get_forced_alpha():
        paints = {kind: None if rgb is None else (*rgb[:3], gc.get_alpha()) for kind, rgb in paints.items()}
    paints = {kind: rgb for kind, rgb in paints.items() if rgb is not None and _opacity(rgb)}
    look = _paints(**paints)
    if "stroke" in paints:
        look["stroke-width"] = f"{_TENTHS * gc.get_linewidth():.3g}"
        if (dashes := gc.get_dashes()[1]) is not None:
            look["stroke-dasharray"] = " ".join(f"{_TENTHS * dash:.3g}" for dash in np.asarray(dashes))
    return look


def _paints(**paints: Any) -> Look:
    """Return the classes of these colours, and their opacities."""
    classes, faint = [], {}
    for kind, rgb in paints.items():
        name = _NAMES.get(to_hex(rgb[:3]))
        if name is None:
            raise ValueError(f"picture uses {kind} {to_hex(rgb[:3])!r}, a colour that is not in the theme")
        classes.append(f"{kind[0]}-{name}")
        if _opacity(rgb) < 1.0:
            faint[f"{kind}-opacity"] = f"{_opacity(rgb):.2g}"
    return ({"class": " ".join(classes)} if classes else {}) | faint


def _opacity(rgb: Sequence[float]) -> float:
    return rgb[3] if len(rgb) > 3 else 1.0


def path_text(vertices: Float[np.ndarray, "point 2"], codes: Any, transform: Transform) -> str:
    """Return an SVG path with relative commands, in tenths of a point; "" for a single point.

    >>> path_text(np.array([(10, 20), (30, 20), (30.04, 25.5), (31, 26), (10, 20)]), None, Affine2D())
    'M100 200l200 0 0 55 10 5z'
    """
    if codes is not None and Path.CURVE4 in codes:
        return _circle(transform.transform(vertices))
    parts = []
    for points in Path(vertices, codes).to_polygons(transform, closed_only=False):
        tenths = np.rint(10 * np.asarray(points)).astype(int)
        moves = np.diff(tenths, axis=0)
        moves = moves[moves.any(axis=1)]
        is_closed = len(moves) > 1 and (tenths[0] == tenths[-1]).all()
        if len(moves):
            lines = moves[:-1] if is_closed else moves
            parts.append(f"M{_numbers(tenths[0])}l{_numbers(lines.flat)}{'z' if is_closed else ''}")
    return "".join(parts)


def _circle(curves: Float[np.ndarray, "point 2"]) -> str:
    """Return a circle as one almost closed arc. Matplotlib's circles are eight Bézier curves.

    The extreme points of these curves are on the circle.
    """
    low, high = np.rint(10 * curves.min(axis=0)), np.rint(10 * curves.max(axis=0))
    across = int(high[0] - low[0])
    radius = _numbers([across / 2])
    return f"M{_numbers([low[0], (low[1] + high[1]) / 2])}a{radius} {radius} 0 1 1 0 1z"


def _numbers(tenths: Iterable[float]) -> str:
    return " ".join(f"{value:g}" for value in tenths).replace(" -", "-")


def _group_shapes(drawn: Sequence[tuple[Look, Element]]) -> Iterator[Element]:
    """Merge neighbouring shapes with the same attributes into one path, or a group if overlaps would be visible."""
    for look, run in itertools.groupby(drawn, key=lambda pair: pair[0]):
        alike = [element for _, element in run]
        is_plain = " " not in look.get("class", " ") and not any(name.endswith("opacity") for name in look)
        if is_plain and alike[0].tag == "path":
            alike[0].set("d", "".join(element.attrib["d"] for element in alike))
            del alike[1:]
        if len(alike) == 1:
            alike[0].attrib |= look
            yield alike[0]
        else:
            group = Element("g", look)
            group.extend(alike)
            yield group
