"""The HTML file: self-contained, locked down, deterministic, and unmoved by hostile model text."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store import Store
from oversharp.reports import build_report
from oversharp.reports.page import load_page
from oversharp.reports.pictures import palette
from oversharp.reports.records import Cell, Column, Table, Trajectory
from oversharp.reports.render import parsed_columns, render_page, sparkline_svg, write_atomically
from tests.reports.parts import section

pytestmark = pytest.mark.xdist_group("html")  # they share what takes seconds to make


class Elements(HTMLParser):
    """Every start tag with its attributes, and the raw text of styles and scripts."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"style": [], "script": []}
        self._open: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag if tag in self.raw else None
        if self._open:
            self.raw[tag].append("")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.raw[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    @property
    def policy(self) -> str:
        metas = (attrs for tag, attrs in self.tags if tag == "meta")
        return next(str(m["content"]) for m in metas if m.get("http-equiv") == "Content-Security-Policy")


def source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_exactly_this_style_and_this_script(html: str) -> None:
    page = Elements(html)
    assert len(page.raw["style"]) == len(page.raw["script"]) == 1
    directives = dict(part.strip().split(" ", 1) for part in page.policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["style-src"] == source_hash(page.raw["style"][0])
    assert directives["script-src"] == source_hash(page.raw["script"][0])
    assert directives["img-src"] == "data:"


def test_nothing_is_loaded_and_nothing_is_styled_inline(html: str) -> None:
    for tag, attrs in Elements(html).tags:
        assert "style" not in attrs, tag
        assert not [name for name in attrs if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href", "action", "srcset"):
            assert (attrs.get(name) or "#").startswith(("#", "data:,")) or is_own_file(tag, attrs), (tag, attrs)
    assert "://" not in html
    assert "@import" not in html
    assert "url(" not in html.replace("url(#", "")


def is_own_file(tag: str, attrs: dict[str, str | None]) -> bool:
    """A link to follow: to a file that the report carries, or to the store beside it. Nothing is loaded by it."""
    href = str(attrs.get("href"))
    carried = "download" in attrs and href.startswith("data:application/gzip;base64,")
    return tag == "a" and (carried or re.fullmatch(r"[\w.%/-]+\.duckdb", href) is not None)


def test_ids_are_unique_and_links_lead_somewhere(html: str) -> None:
    tags = Elements(html).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in tags:
        if tag in ("a", "use") and not is_own_file(tag, attrs):
            assert str(attrs["href"])[1:] in ids


@pytest.mark.slow
def test_the_same_store_gives_the_same_bytes(session_store: Path, measures: Any, html: str) -> None:
    with Store.open(session_store, read_only=True) as store:
        again = render_page(load_page(store, measures, store_name="audit.duckdb"))
    assert again == html


@pytest.mark.slow
def test_hostile_text_stays_text_and_a_very_long_response_is_cut_and_says_so(hostile_html: str) -> None:
    page = Elements(hostile_html)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1
    assert "img" not in names
    assert "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;" in hostile_html
    assert "שלום \\u202e reversed" in hostile_html
    assert "\u202e" not in hostile_html
    assert "&lt;/script&gt;&lt;/script&gt;&lt;img src=x onerror=" in hostile_html
    assert "\N{BELL}" in hostile_html
    assert "שלום" in hostile_html
    left_out = "<i>… 98800 of 100000 characters omitted …</i>"
    assert f"{'x' * 500}{left_out}{'x' * 700}" in hostile_html, "the answer stands at the end"
    assert "x" * 701 not in hostile_html


@pytest.mark.slow
def test_control_characters_are_replaced(page_of: Any) -> None:
    page = page_of(texts=("nul \x00 escape \x1b[31m", "fine"), names=("grpo",))
    html = render_page(replace(page, sections=(section(page, "problems"),)))
    assert "nul \N{REPLACEMENT CHARACTER} escape \N{REPLACEMENT CHARACTER}[31m" in html
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", html)


@pytest.mark.parametrize("theme", [palette.PLACEHOLDERS, palette.DARK], ids=["light", "dark"])
def test_lines_stand_out_from_the_surface_and_placeholders_are_distinct(theme: dict[Any, str]) -> None:
    assert theme.keys() == palette.PLACEHOLDERS.keys()
    assert len(set(palette.PLACEHOLDERS.values())) == len(palette.PLACEHOLDERS)
    for name, colour in theme.items():
        if name[0] in "cq" or name in ("ink", "muted"):
            assert contrast(colour, theme["surface"]) >= 3, name


def contrast(first: str, second: str) -> float:
    """Contrast ratio of WCAG 2.1."""
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_importing_reports_is_light() -> None:
    code = "import sys, oversharp.reports; print({'matplotlib', 'pandas', 'jinja2', 'duckdb'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "set()"


@pytest.mark.slow
def test_build_report_writes_the_whole_file_with_the_installed_measures(session_store: Path, tmp_path: Path) -> None:
    out = build_report(session_store, tmp_path / "new" / "report.html", series=("grpo",))
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert stat.S_IMODE(out.stat().st_mode) == 0o644
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    assert f'href="{os.path.relpath(session_store, out.parent)}"' in text, "the link leads from the report to the store"


def test_a_report_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write the report"):
        write_atomically(tmp_path / "file" / "report.html", "x")


@pytest.mark.slow
def test_an_empty_store_is_an_error_with_a_mend(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.duckdb"):
        pass
    with pytest.raises(StoreError, match="run `oversharp audit` first"):
        build_report(tmp_path / "empty.duckdb", tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def column(*cells: tuple[str, float | None]) -> Table:
    rows = tuple((Cell(text=text, sort=sort),) for text, sort in cells)
    return Table(title="t", columns=(Column(name="c"),), rows=rows)


@pytest.mark.parametrize(
    ("cells", "is_parsed"),
    [
        ([("0.250 [0.200, 0.300]", 0.25), ("–", None)], True),
        ([("−12.5", -0.125), ("+3.0", 0.03)], True),  # points of a probability
        ([("3 / 8", 0.375), ("0 / 8", 0.0)], True),
        ([("12\u202f346", 12345.6)], True),
        ([("2.0e−4", 2.04e-4)], True),
        ([("0.250", 0.25), ("3.0", 0.03)], False),  # two scales in one column
        ([("step 40", 40.0)], False),
        ([("0.250", 0.25), ("7 of 9", None)], False),  # unknown, but it reads like a number
        ([("0.25", 0.2561)], False),
    ],
)
def test_sort_keys_are_left_out_only_where_the_text_says_the_same(
    cells: list[tuple[str, float | None]], is_parsed: bool
) -> None:
    assert parsed_columns(column(*cells)) == (is_parsed,)


def test_states_belong_to_rows() -> None:
    with pytest.raises(ValueError, match="1 rows but 2 states"):
        Table(title="t", columns=(Column(name="c"),), rows=((Cell(text="1"),),), states=("lost", "gained"))


def test_a_sparkline_falls_from_its_largest_to_zero() -> None:
    svg = sparkline_svg([Trajectory(colour="c2", shares=(0.1, 0.05, 0.0)), Trajectory(colour="c1", shares=(0.3,))])
    assert 'd="M3 3 36 11 69 19"' in svg
    assert svg.count("s-c2") == 1
    assert "s-c1" not in svg  # one checkpoint is no trajectory
    assert sparkline_svg([]) == ""
