"""What pictures of a page share, told once: shapes of markers, halves of symmetric maps."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFS = re.compile(r"<defs>(.*?)</defs>", re.DOTALL)  # of our own pictures alone: text of others has no "<"
_ONE = re.compile(r'<(marker|g) [^>]*?\bid="(\w+)".*?</\1>', re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """HTML whose pictures refer to ``definitions``, which belong into a picture that is never hidden.

    Browsers take no marker from what is folded or not displayed. ``rules`` are the styles that put markers on lines.
    """

    html: str
    definitions: str
    rules: str


def shared(html: str) -> Shared:
    """Take the definitions out of the pictures in ``html``, each once, in the order in which they are needed.

    >>> one = '<svg><defs><marker id="m1"><path d="z"/></marker></defs><path class="m1"/></svg>'
    >>> made = shared(one + one)
    >>> made.html
    '<svg><path class="m1"/></svg><svg><path class="m1"/></svg>'
    >>> made.definitions, made.rules
    ('<marker id="m1"><path d="z"/></marker>', '.m1{marker:url(#m1)}')
    """
    found: dict[str, re.Match[str]] = {}
    for inside in _DEFS.findall(html):
        for one in _ONE.finditer(inside):
            found.setdefault(one.group(2), one)
    markers = [name for name, one in found.items() if one.group(1) == "marker"]
    return Shared(
        html=_DEFS.sub("", html),
        definitions="".join(one.group(0) for one in found.values()),
        rules="".join(f".{name}{{marker:url(#{name})}}" for name in markers),
    )
