"""From matplotlib's SVG to one that may stand inline under a strict Content-Security-Policy.

Style attributes become presentation attributes, known colours become classes, ids get a prefix, numbers are rounded,
and everything that loads, scripts or styles is gone. What is not known here is refused, not passed on. Then the
picture is made small.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from reports.pictures.palette import PLACEHOLDERS
from reports.pictures.svg_compact import compact

_KEPT_TAGS = frozenset({"svg", "g", "path", "use", "defs", "clipPath", "rect", "text", "tspan", "title", "desc"})
_DROPPED_TAGS = frozenset({"metadata", "style"})
_LENGTH_ATTRIBUTES = frozenset({"d", "x", "y", "width", "height", "transform"})
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMAL = re.compile(r"-?\d*\.\d+(?:e-?\d+)?")
_FONT = re.compile(r"^(?:[a-z]+ )*([\d.]+)px")
_NAMES = {value: name for name, value in PLACEHOLDERS.items()}
#: Set once for all pictures in the stylesheet.
_STYLES_IN_SHEET = frozenset({"stroke-linejoin", "font-family", "-inkscape-font-specification", "font-style"})


def clean_svg(raw: str, *, prefix: str, title: str, description: str) -> str:
    """Inline SVG text of ``raw``, every id prefixed by ``prefix``; without ``title`` it is decoration."""
    root = ElementTree.fromstring(raw)
    used = _references(root)
    clean = _clean(root, prefix, used)
    view_box = root.attrib["viewBox"]
    compact(clean)
    _shorten_ids(clean, prefix)
    clean.attrib.clear()
    clean.set("viewBox", view_box)
    if title:
        clean.set("role", "img")
        clean.set("aria-labelledby", f"{prefix}-title {prefix}-desc")
        desc = ElementTree.Element("desc", {"id": f"{prefix}-desc"})
        desc.text = description
        name = ElementTree.Element("title", {"id": f"{prefix}-title"})
        name.text = title
        clean[:0] = [name, desc]
    else:
        clean.set("aria-hidden", "true")
    # " />" stands in no text and no attribute: both are escaped
    return ElementTree.tostring(clean, encoding="unicode").replace(" />", "/>")


def _shorten_ids(clean: ElementTree.Element, prefix: str) -> None:
    """Ids in order of appearance: matplotlib's are hashes, and every marker repeats one."""
    owners = [element for element in clean.iter() if "id" in element.attrib]
    short = {element.attrib["id"]: f"{prefix}-{number}" for number, element in enumerate(owners)}
    for element in owners:
        element.set("id", short[element.attrib["id"]])
    for element in clean.iter():
        if "href" in element.attrib:
            element.set("href", f"#{short[element.attrib['href'][1:]]}")
        if "clip-path" in element.attrib:
            element.set(
                "clip-path", _REFERENCE.sub(lambda match: f"url(#{short[match.group(1)]})", element.attrib["clip-path"])
            )


def _references(root: ElementTree.Element) -> frozenset[str]:
    found = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href"):
                found.add(value.removeprefix("#"))
            found.update(_REFERENCE.findall(value))
    return frozenset(found)


def _clean(element: ElementTree.Element, prefix: str, used: frozenset[str]) -> ElementTree.Element:
    clean = ElementTree.Element(_local(element.tag))
    classes: list[str] = []
    for raw_name, value in element.attrib.items():
        name = _local(raw_name)
        if name == "style":
            for key, style in _styles(value):
                _set_style(clean, classes, key, style)
        elif name == "id":
            if value in used:
                clean.set("id", f"{prefix}-{value}")
        elif name == "href":
            if not value.startswith("#"):
                raise ValueError(f"picture refers to {value!r}, outside itself")
            clean.set("href", f"#{prefix}-{value[1:]}")
        elif name in ("fill", "stroke"):
            _set_style(clean, classes, name, value)
        elif name == "clip-path":
            clean.set(name, _REFERENCE.sub(lambda match: f"url(#{prefix}-{match.group(1)})", value))
        elif name in _LENGTH_ATTRIBUTES:
            clean.set(name, " ".join(_DECIMAL.sub(_rounded, value).split()))
    if classes:
        clean.set("class", " ".join(classes))
    clean.text = element.text if clean.tag in ("text", "tspan") else None
    for child in element:
        if not isinstance(child.tag, str) or _local(child.tag) in _DROPPED_TAGS:
            continue
        if _local(child.tag) not in _KEPT_TAGS:
            raise ValueError(f"picture holds <{_local(child.tag)}>, which reports do not know")
        kept = _clean(child, prefix, used)
        if kept.tag == "g" and not kept.attrib:
            clean.extend(list(kept))  # a group that groups nothing
        elif kept.tag != "defs" or len(kept):
            clean.append(kept)
    return clean


def _local(name: str) -> str:
    return name.rsplit("}", 1)[-1]


def _styles(value: str) -> list[tuple[str, str]]:
    pairs = [part.split(":", 1) for part in value.split(";") if part.strip()]
    return [(key.strip(), style.strip()) for key, style in pairs]


def _set_style(element: ElementTree.Element, classes: list[str], key: str, value: str) -> None:
    if key in ("fill", "stroke") and value.lower() in _NAMES:
        classes.append(f"{key[0]}-{_NAMES[value.lower()]}")
    elif key in ("fill", "stroke") and value != "none":
        raise ValueError(f"picture uses {key} {value!r}, a colour without a theme")
    elif key == "font":
        match = _FONT.match(value)
        if match is None:
            raise ValueError(f"picture uses font {value!r}, which has no size in px")
        element.set("font-size", match.group(1))
    elif key == "font-size":
        element.set(key, value.removesuffix("px"))
    elif key not in _STYLES_IN_SHEET:
        element.set(key, value)


def _rounded(match: re.Match[str]) -> str:
    text = f"{float(match.group()):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
