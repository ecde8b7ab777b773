"""Move definitions that pictures share (marker shapes, halves of symmetric maps) to one place on the page."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFS = re.compile(r"<defs>(.*?)</defs>", re.DOTALL)  # matches only our own pictures: other text is escaped
_DEFINITION = re.compile(r'<(marker|g) [^>]*?\bid="(\w+)".*?</\1>', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """HTML whose pictures refer to ``definitions``, which must be in a picture that is always displayed.

    Browsers ignore markers in folded or hidden elements. ``rules`` are the styles that put markers on lines.
    """

    html: str
    definitions: str
    rules: str


def extract_shared(html: str) -> Shared:
    """Extract the distinct definitions from the pictures in ``html``, in order of first use.

    >>> picture = '<svg><defs><marker id="m1"><path d="z"/></marker></defs><path class="m1"/></svg>'
    >>> made = extract_shared(picture + picture)
    >>> made.html
    '<svg><path class="m1"/></svg><svg><path class="m1"/></svg>'
    >>> made.definitions, made.rules
    ('<marker id="m1"><path d="z"/></marker>', '.m1{marker:url(#m1)}')
    """
    by_id: dict[str, re.Match[str]] = {}
    for inside in _DEFS.findall(html):
        for match in _DEFINITION.finditer(inside):
            by_id.setdefault(match.group(2), match)
    markers = [name for name, match in by_id.items() if match.group(1) == "marker"]
    return Shared(
        html=_DEFS.sub("", html),
        definitions="".join(match.group(0) for match in by_id.values()),
        rules="".join(f".{name}{{marker:url(#{name})}}" for name in markers),
    )
