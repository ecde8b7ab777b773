"""PNG of the pictures in ``reports.pictures.files``: reads the SVG that this package writes, and no other."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Affine2D, IdentityTransform, Transform

#: Pixels per unit of a picture; a picture is 400 units wide.
PIXELS_PER_UNIT = 3
_POINTS_PER_INCH = 72.0  # a unit is a point, so that widths of lines and sizes of letters carry over
_ARC_POINTS = 24  # of half a circle

_NAMESPACE = "{http://www.w3.org/2000/svg}"
_INHERITED = frozenset(
    {
        *("fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-linecap"),
        *("stroke-linejoin", "font-family", "font-size", "text-anchor", "shape-rendering"),
    }
)
_PLACING = frozenset({"d", "x", "y", "width", "height", "href", "id", "transform", "opacity", "viewBox", "clip-path"})
_SILENT = frozenset({"title", "desc", "defs"})
_TRANSFORM = re.compile(r"translate\(([-\d.]+)[ ,]([-\d.]+)\)(?:scale\(([-\d.]+)\))?")
_TOKEN = re.compile(r"([a-zA-Z])|(-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?)")
_ARGUMENTS = {"M": 2, "h": 1, "v": 1, "l": 2, "q": 4, "c": 6, "a": 7, "z": 0}
_ALIGNED: Mapping[str, Literal["left", "center", "right"]] = {"start": "left", "middle": "center", "end": "right"}


@dataclass(frozen=True, kw_only=True)
class _State:
    """What an element takes over from those around it; ``scale`` is how much larger its units are."""

    transform: Transform
    scale: float = 1.0
    look: Mapping[str, str] = field(default_factory=dict)
    clip: tuple[Path, Transform] | None = None

    def number(self, name: str, default: float = 1.0) -> float:
        return float(self.look.get(name, default))


def svg_png(svg: str) -> bytes:
    """The picture as PNG, ``PIXELS_PER_UNIT`` pixels for each of its units.

    Raises ``ValueError`` for an element, attribute or path command that the report's pictures do not have.
    """
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    shapes = {element.attrib["id"]: element for element in root.iter() if "id" in element.attrib}
    style = {"text.parse_math": False, "lines.scale_dashes": False, "font.family": ["DejaVu Sans"]}
    with matplotlib.rc_context(style), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in letters that the font lacks: boxes
        canvas = Canvas(figsize=(width / _POINTS_PER_INCH, height / _POINTS_PER_INCH))
        canvas.set_dpi(_POINTS_PER_INCH * PIXELS_PER_UNIT)
        FigureCanvasAgg(canvas)
        # y runs down in SVG and up here
        down = Affine2D().scale(PIXELS_PER_UNIT, -PIXELS_PER_UNIT).translate(0, height * PIXELS_PER_UNIT)
        for place, artist in enumerate(_drawn(root, _State(transform=down), shapes)):
            artist.set_zorder(place)
            canvas.add_artist(artist)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", dpi=canvas.dpi, metadata={"Software": None})
    return buffer.getvalue()


def _drawn(element: ElementTree.Element, around: _State, shapes: Mapping[str, ElementTree.Element]) -> Iterator[Artist]:
    """The artists of an element and of what it holds, in the order in which they are painted."""
    tag = element.tag.removeprefix(_NAMESPACE)
    if tag in _SILENT:
        return
    state = _entered(element, around, shapes)
    if tag in ("svg", "g"):
        for child in element:
            yield from _drawn(child, state, shapes)
    elif tag == "use":
        at = Affine2D().translate(float(element.get("x", "0")), float(element.get("y", "0")))
        shape = shapes[element.attrib["href"].removeprefix("#")]
        yield from _drawn(shape, replace(state, transform=at + state.transform), {})
    elif tag == "path":
        yield _patch(_path(element.attrib["d"]), state, element)
    elif tag == "rect":
        yield _patch(_rectangle(element), state, element)
    elif tag == "text":
        x, y = state.transform.transform((float(element.attrib["x"]), float(element.attrib["y"])))
        yield Text(
            x,
            y,
            element.text or "",
            transform=IdentityTransform(),
            color=state.look["fill"],
            fontsize=state.number("font-size") * state.scale,
            horizontalalignment=_ALIGNED[state.look.get("text-anchor", "start")],
            verticalalignment="baseline",
        )
    else:
        raise ValueError(f"picture holds <{tag}>, which cannot be drawn")


def _entered(element: ElementTree.Element, around: _State, shapes: Mapping[str, ElementTree.Element]) -> _State:
    """The state within ``element``."""
    foreign = set(element.attrib) - _INHERITED - _PLACING
    if foreign:
        raise ValueError(f"picture holds the attribute {min(foreign)!r}, which cannot be drawn")
    own = {name: value for name, value in element.attrib.items() if name in _INHERITED}
    state = replace(around, look={**around.look, **own})
    if (text := element.get("transform")) is not None:
        match = _TRANSFORM.fullmatch(text)
        if match is None:
            raise ValueError(f"picture holds the transform {text!r}, which cannot be drawn")
        dx, dy, scale = (float(number or 1) for number in match.groups())
        moved = Affine2D().scale(scale).translate(dx, dy) + around.transform
        state = replace(state, transform=moved, scale=around.scale * scale)
    if (text := element.get("clip-path")) is not None:
        (cut,) = shapes[text.removeprefix("url(#").removesuffix(")")]
        state = replace(state, clip=(_rectangle(cut), state.transform))
    return state


def _patch(path: Path, state: _State, element: ElementTree.Element) -> PathPatch:
    """A filled and stroked path. Where nothing is said of them, SVG fills and does not stroke."""
    fill, stroke = state.look.get("fill", "none"), state.look.get("stroke", "none")
    opacity = float(element.get("opacity", "1"))
    width = state.number("stroke-width") * state.scale if stroke != "none" else 0.0
    patch = PathPatch(
        path,
        transform=state.transform,
        facecolor="none" if fill == "none" else (fill, opacity * state.number("fill-opacity")),
        edgecolor="none" if stroke == "none" else (stroke, opacity * state.number("stroke-opacity")),
        linewidth=width,
        capstyle={"square": "projecting", "round": "round"}.get(state.look.get("stroke-linecap", ""), "butt"),
        joinstyle=state.look.get("stroke-linejoin", "miter"),
        antialiased=state.look.get("shape-rendering") != "crispEdges",
    )
    if "stroke-dasharray" in state.look and width:
        patch.set_linestyle((0, [float(dash) * state.scale for dash in state.look["stroke-dasharray"].split(",")]))
    if state.clip is not None:
        patch.set_clip_path(*state.clip)
    return patch


def _rectangle(element: ElementTree.Element) -> Path:
    x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
    return Path(corners, closed=True)


def _path(text: str) -> Path:
    """A path of relative commands, as ``svg_compact.path_text`` writes them; arcs are halves of circles."""
    vertices: list[tuple[float, float]] = []
    codes: list[Any] = []
    start = here = np.zeros(2)
    for command, values in _commands(text):
        points = np.reshape(values, (-1, 2)) if command in "Mlqc" else np.zeros((0, 2))
        if command == "M":
            start = here = points[0]
            added, code = [here], Path.MOVETO
        elif command == "z":
            here = start
            added, code = [here], Path.CLOSEPOLY
        elif command == "h":
            added, code = [here + np.array([values[0], 0.0])], Path.LINETO
        elif command == "v":
            added, code = [here + np.array([0.0, values[0]])], Path.LINETO
        elif command == "a":
            added, code = _half_circle(here, np.array(values[-2:])), Path.LINETO
        else:
            added = [here + point for point in points]
            code = {"l": Path.LINETO, "q": Path.CURVE3, "c": Path.CURVE4}[command]
        vertices += [(float(x), float(y)) for x, y in added]
        codes += [code] * len(added)
        here = added[-1]
    return Path(vertices, codes)


def _half_circle(here: np.ndarray, over: np.ndarray) -> list[np.ndarray]:
    """Points of the half circle from ``here`` to ``here + over``, against the clock in a picture whose y runs down."""
    middle, radius = here + over / 2, math.hypot(*over) / 2
    first = math.atan2(-over[1], -over[0])
    angles = first - np.linspace(0, math.pi, _ARC_POINTS + 1)[1:]
    return [middle + radius * np.array([math.cos(angle), math.sin(angle)]) for angle in angles]


def _commands(text: str) -> Iterator[tuple[str, list[float]]]:
    """Commands with their numbers; numbers without a command of their own repeat the one before."""
    tokens = [match.group() for match in _TOKEN.finditer(text)]
    place, command = 0, ""
    while place < len(tokens):
        if tokens[place].isalpha():
            command = tokens[place]
            place += 1
        if command not in _ARGUMENTS:
            raise ValueError(f"picture holds the path command {command!r}, which cannot be drawn")
        count = _ARGUMENTS[command]
        yield command, [float(token) for token in tokens[place : place + count]]
        place += count
