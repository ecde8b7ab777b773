"""What pictures share stands once on a page, where browsers find it."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from oversharp.reports.render import extract_shared


def test_what_two_pictures_share_is_told_once_and_halves_of_maps_need_no_rule() -> None:
    marker, half = '<marker id="m1"><path d="z"/></marker>', '<g id="h2"><path d="M1 0h1"/></g>'
    made = extract_shared(f"<svg><defs>{marker}</defs>a</svg><p>b</p><svg><defs>{half}{marker}</defs>c</svg>")
    assert made.html == "<svg>a</svg><p>b</p><svg>c</svg>"
    assert made.definitions == marker + half
    assert made.rules == ".m1{marker:url(#m1)}"


@pytest.mark.xdist_group("html")
def test_a_page_tells_shapes_once_before_everything_that_may_be_folded(html: str) -> None:
    """Browsers draw no marker that lies in a closed block."""
    ids = re.findall(r'<(?:marker|g) [^>]*id="(\w+)"', html)
    assert ids
    assert set(Counter(ids).values()) == {1}
    body = html[html.index("<body>") :]
    assert body.index("<marker") < body.index("<details")
    assert body.rindex("<marker") < body.index("<details")
    for name in ids:
        assert f".{name}{{marker:url(#{name})}}" in html
        assert re.search(rf'class="[^"]*\b{name}"', body)
