"""The same picture in fewer bytes: relative paths in tenths of a unit, shared attributes on groups, no idle clips.

A page holds hundreds of small pictures, and most of matplotlib's SVG repeats itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import dist
from xml.etree.ElementTree import Element

_TOKEN = re.compile(r"([MLCQz])|(-?\d*\.?\d+(?:e-?\d+)?)", re.IGNORECASE)
_URL = re.compile(r"url\(#([^)]+)\)")
#: What places an element; everything else may stand on a group around it.
_PLACING = frozenset({"d", "x", "y", "width", "height", "href", "id", "transform", "role", "aria-labelledby"})
_IDLE = {"stroke-dashoffset": "0"}
_PAIRS = {"M": 1, "L": 1, "Q": 2, "C": 3}  # points per command
#: So far beyond its clip a drawing may reach: half a line, and what rounding adds.
_SLACK = 1.0
_ROUND = 0.02  # by which a circle may be out of round, in units

Point = tuple[float, float]
Box = tuple[float, float, float, float]


def compact(root: Element) -> None:
    """Shrink the picture in place; what it shows stays the same within a tenth of a unit.

    Raises ``ValueError`` for a path command that matplotlib does not write.
    """
    _without_idle(root)
    _inline(root)
    _unclipped(root)
    _without_empty(root)
    _inherited(root)
    for element in root.iter():
        if "d" in element.attrib:
            element.set("d", path_text(element.attrib["d"]))
        for name in ("x", "y"):
            if name in element.attrib:
                element.set(name, _tenths(round(float(element.attrib[name]) * 10)))
    # text is painted last: tick labels and tick marks alternate, and so apart each kind makes one group
    texts = [child for child in root if child.tag == "text"]
    root[:] = [*(child for child in root if child.tag != "text"), *texts]
    _grouped(root)


def path_text(path: str) -> str:
    """The path with relative commands, in tenths.

    >>> path_text("M 10 20 L 30 20 L 30.04 25.5 L 31 26 z")
    'M10 20h20v5.5l1 .5z'
    """
    commands = list(_commands(path))
    if (circle := _circle(commands)) is not None:
        return circle
    parts: list[str] = []
    here = start = (0, 0)
    before = ""
    for command, points in commands:
        tenths = [(round(x * 10), round(y * 10)) for x, y in points]
        if command == "z":
            parts.append("z")
            here, before = start, "z"
            continue
        if command == "M":
            parts.append("M" + _joined([*tenths[0]]))
            here = start = tenths[0]
            before = "M"
            continue
        moves = [(x - here[0], y - here[1]) for x, y in tenths]
        letter = command.lower()
        numbers = [number for move in moves for number in move]
        if command == "L" and moves[0] == (0, 0) and before != "M":
            continue  # a step within the same tenth
        if command == "L" and 0 in moves[0]:
            letter = "v" if moves[0][0] == 0 else "h"
            numbers = [moves[0][1] if letter == "v" else moves[0][0]]
        text = _joined(numbers)
        repeats = letter == before
        parts.append((text if text.startswith("-") else f" {text}") if repeats else letter + text)
        here, before = tenths[-1], letter
    return "".join(parts)


def _circle(commands: Sequence[tuple[str, list[Point]]]) -> str | None:
    """Two arcs, if the path is a circle as matplotlib draws it, in eight curves; else None."""
    if [command for command, _ in commands] != ["M", *("C" * 8), "z"]:
        return None
    ends = [points[-1] for _, points in commands[:-1]]
    (x, y), (far_x, far_y) = ends[0], ends[4]
    middle, radius = ((x + far_x) / 2, (y + far_y) / 2), dist(ends[0], ends[4]) / 2
    if any(abs(dist(end, middle) - radius) > _ROUND for end in ends):
        return None
    r = _tenths(round(radius * 10))
    over, back = ([round(sign * 10 * d) for d in (far_x - x, far_y - y)] for sign in (1, -1))
    return f"M{_joined([round(x * 10), round(y * 10)])}a{r} {r} 0 1 0 {_joined(over)}a{r} {r} 0 1 0 {_joined(back)}z"


def _commands(path: str) -> Iterator[tuple[str, list[Point]]]:
    tokens = [match.group() for match in _TOKEN.finditer(path)]
    place = 0
    command = ""
    while place < len(tokens):
        if tokens[place].isalpha():
            command = tokens[place]
            place += 1
        if command in ("z", "Z"):
            yield "z", []
            continue
        if command not in _PAIRS:
            raise ValueError(f"picture holds the path command {command!r}, which reports do not know")
        size = 2 * _PAIRS[command]
        values = [float(token) for token in tokens[place : place + size]]
        place += size
        yield command, list(zip(values[::2], values[1::2], strict=True))


def _tenths(value: int) -> str:
    """
    >>> _tenths(-5), _tenths(120), _tenths(31)
    ('-.5', '12', '3.1')
    """
    whole, rest = divmod(abs(value), 10)
    return ("-" if value < 0 else "") + (f"{whole or ''}.{rest}" if rest else str(whole))


def _joined(tenths: list[int]) -> str:
    text = ""
    for value in tenths:
        number = _tenths(value)
        text += number if not text or number.startswith("-") else f" {number}"
    return text


def _without_idle(root: Element) -> None:
    """Paths without paint, and attributes that say what holds anyway."""
    for element in root.iter():
        for name, value in _IDLE.items():
            if element.get(name) == value:
                del element.attrib[name]
        if element.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        element[:] = [child for child in element if not _is_unpainted(child)]


def _is_unpainted(element: Element) -> bool:
    stroked = any(name.startswith("s-") for name in element.get("class", "").split())
    return element.tag == "path" and element.get("fill") == "none" and not stroked


def _inline(root: Element) -> None:
    """Shapes that are used once stand where they are used."""
    uses: dict[str, list[Element]] = {}
    for element in root.iter("use"):
        uses.setdefault(element.attrib["href"].removeprefix("#"), []).append(element)
    for parent in list(root.iter("defs")):
        for shape in list(parent):
            users = uses.get(shape.get("id", ""), [])
            if shape.tag != "path" or len(users) != 1:
                continue
            user = users[0]
            dx, dy = float(user.attrib.pop("x", "0")), float(user.attrib.pop("y", "0"))
            del user.attrib["href"]
            user.tag = "path"
            own = {name: value for name, value in shape.attrib.items() if name not in ("id", "d", "class")}
            classes = _classes(shape.get("class", ""), user.get("class", ""))
            user.attrib.update(own)
            if classes:
                user.set("class", classes)
            user.set("d", _moved(shape.attrib["d"], dx, dy))
            parent.remove(shape)


def _classes(inner: str, outer: str) -> str:
    """Classes of both; of two paints of one kind that of the inner, drawn element."""
    kinds = {name[:2]: name for name in [*outer.split(), *inner.split()]}
    return " ".join(sorted(kinds.values()))


def _moved(path: str, dx: float, dy: float) -> str:
    return " ".join(
        " ".join([command, *(f"{x + dx:.3f} {y + dy:.3f}" for x, y in points)]) for command, points in _commands(path)
    )


def _unclipped(root: Element) -> None:
    """Clips that cut nothing off go, and with them the shapes that they named."""
    boxes: dict[str, Box] = {}
    for clip in root.iter("clipPath"):
        rect = clip.find("rect")
        if rect is not None:
            x, y, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            boxes[clip.attrib["id"]] = (x, y, x + width, y + height)
    needed = set()
    for element in root.iter():
        if (match := _URL.fullmatch(element.get("clip-path", ""))) is None:
            continue
        name = match.group(1)
        if name in boxes and all(_is_inside(point, boxes[name]) for point in _points(element)):
            del element.attrib["clip-path"]
        else:
            needed.add(name)
    for parent in list(root.iter("defs")):
        parent[:] = [child for child in parent if child.tag != "clipPath" or child.get("id") in needed]


def _points(element: Element) -> Iterator[Point]:
    """Where the element and what it holds is drawn; a marker counts by its middle."""
    for inner in element.iter():
        if inner.tag == "use":
            yield float(inner.get("x", "0")), float(inner.get("y", "0"))
        elif "d" in inner.attrib:
            for _, points in _commands(inner.attrib["d"]):
                yield from points


def _is_inside(point: Point, box: Box) -> bool:
    (x, y), (left, top, right, bottom) = point, box
    return left - _SLACK <= x <= right + _SLACK and top - _SLACK <= y <= bottom + _SLACK


def _without_empty(parent: Element) -> None:
    """Groups that group nothing are replaced by what they hold; empty ones go."""
    kept: list[Element] = []
    for child in parent:
        _without_empty(child)
        if child.tag == "g" and not child.attrib:
            kept += list(child)
        elif child.tag not in ("g", "defs") or len(child):
            kept.append(child)
    parent[:] = kept


def _inherited(root: Element) -> None:
    """A use repeats nothing that the shape says itself."""
    shapes = {element.attrib["id"]: element for element in root.iter("path") if "id" in element.attrib}
    for use in root.iter("use"):
        shape = shapes.get(use.attrib["href"].removeprefix("#"))
        if shape is None:
            continue
        for name, value in shape.attrib.items():
            if name not in (*_PLACING, "class") and use.get(name) == value:
                del use.attrib[name]
        own = {name[:2] for name in shape.get("class", "").split()}
        left = [name for name in use.get("class", "").split() if name[:2] not in own]
        if left:
            use.set("class", " ".join(left))
        else:
            use.attrib.pop("class", None)


def _look(element: Element) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in element.attrib.items() if name not in _PLACING))


def _grouped(parent: Element) -> None:
    """Neighbours of one look share a group; strokes of one look share a path."""
    made: list[Element] = []
    for (tag, look), run in groupby(parent, key=lambda child: (child.tag, _look(child))):
        alike = list(run)
        if tag not in ("path", "use", "text", "tspan", "rect") or len(alike) < 2 or not look:
            made += alike
            continue
        names = {name for name, _ in look}
        if tag == "path" and ("fill", "none") in look and not any("opacity" in name for name in names):
            alike[0].set("d", "".join(path.attrib["d"] for path in alike))
            made.append(alike[0])
            continue
        shared = [(name, value) for name, value in look if name != "opacity"]  # a group would fade as one
        group = Element("g", dict(shared))
        for child in alike:
            for name, _ in shared:
                del child.attrib[name]
        group.extend(alike)
        made.append(group)
    for child in parent:
        if child.tag == "g":
            _grouped(child)
    parent[:] = made
