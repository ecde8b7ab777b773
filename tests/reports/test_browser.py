"""The report as a person opens it: Chromium, from disk, on a phone and on a desk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diagnostics.types import TrainingMetric
from reports.records import Page
from reports.render import render_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _missing() -> str:
    try:
        import playwright  # noqa: F401
    except ImportError:
        return "playwright is not installed"
    return "" if CHROMIUM else "no chromium on PATH"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if reason := _missing():
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(f"REQUIRE_ALL=1 but {reason}")
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(html: str, hostile_html: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("html")
    (folder / "plain.html").write_text(html, encoding="utf-8")
    (folder / "hostile.html").write_text(hostile_html, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


@contextmanager
def opened(browser: Any, path: Path, width: int, *, scheme: str = "light", script: bool = True) -> Iterator[Any]:
    """A page with everything unfolded; fails if it said anything on the console or asked for anything but itself."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert said == []
    assert asked == [path.as_uri()]


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_and_nothing_is_asked_for(
    browser: Any, reports: dict[str, Path], name: str, width: int
) -> None:
    with opened(browser, reports[name], width) as page:
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_hostile_text_never_runs(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["hostile"], 1440) as page:
        assert page.title() == "Over-sharpening report: grpo and iac"
        assert page.locator("img").count() == 0


def test_figures_follow_the_theme(browser: Any, reports: dict[str, Path]) -> None:
    strokes = {}
    for scheme in ("light", "dark"):
        with opened(browser, reports["plain"], 1440, scheme=scheme) as page:
            paint = "getComputedStyle(document.querySelector('#headline-delta svg .s-c1')).stroke"
            strokes[scheme] = page.evaluate(paint)
            page.emulate_media(media="print")
            strokes[f"{scheme} print"] = page.evaluate(paint)
    assert strokes["light"] == "rgb(11, 102, 168)"
    assert strokes["dark"] == "rgb(95, 176, 240)"
    assert strokes["dark print"] == strokes["light print"] == strokes["light"]


def test_a_click_on_a_head_sorts_the_table_by_number(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        table = page.locator("div.plain", has_text="Problems lost and gained: grpo").locator("table")
        head = table.locator("th", has_text="correct, base")
        column = "rows => rows.map(row => row.cells[2].textContent)"
        head.locator("button").click()
        assert table.locator("tbody tr").evaluate_all(column) == ["0 / 8", "1 / 8", "3 / 8"]
        head.locator("button").click()
        assert table.locator("tbody tr").evaluate_all(column) == ["3 / 8", "1 / 8", "0 / 8"]
        assert head.get_attribute("aria-sort") == "descending"


def test_the_report_is_useful_without_script(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440, script=False) as page:
        page.locator("#measure-pass-at-k summary").click()
        assert page.locator("#measure-pass-at-k table").is_visible()
        assert page.get_by_text("pass@1 rose while pass@4 fell").is_visible()


def test_print_unfolds_the_data(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details:not([open])").count() == 0
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("details:not([open])").count() > 5


def test_labels_of_tiny_values_are_not_cut(browser: Any, page_of: Callable[..., Page], tmp_path: Path) -> None:
    metrics = [TrainingMetric(step=s, name="lr", value=-2e-4 - 1e-9 * s) for s in range(1, 30)]
    path = tmp_path / "tiny.html"
    path.write_text(render_page(page_of(names=("grpo",), metrics=metrics)), encoding="utf-8")
    outside = """svg => [...svg.querySelectorAll("text")].filter(text => {
        const own = text.getBoundingClientRect(), frame = svg.getBoundingClientRect();
        return own.left < frame.left || own.right > frame.right + 1;
    }).map(text => text.textContent)"""
    with opened(browser, path, 1440) as page:
        assert page.locator("#training-0 .panel > svg").evaluate(outside) == []


def test_a_figure_alone_in_its_row_shows_its_data_beside_it(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        lone = page.locator("figure.lone")
        assert lone.count() > 0
        assert all(one.is_visible() for one in lone.locator("table").all())
        for i in range(lone.count()):
            figure, panel, table = (
                one.bounding_box() for one in (lone.nth(i), lone.nth(i).locator(".panel"), lone.nth(i).locator("table"))
            )
            assert table["x"] > panel["x"] + panel["width"]
            assert table["y"] < panel["y"] + panel["height"] / 2
            assert figure["height"] < 1.4 * panel["height"]


def test_a_phone_starts_with_all_data_folded(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 390) as page:
        assert page.locator("figure.lone").count() > 0
        assert page.locator("figure details[open]").count() == 0
