"""The report as a person opens it: Chromium, from disk, on a phone and on a desk."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.types import TrainingMetric
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verdict.results import ChangeAtK, Claim, Estimate, Explanation, Rates, StepClaim
from oversharp.reports.context import Context
from oversharp.reports.page import build_page
from oversharp.reports.records import Cell, Column, Page, Table
from oversharp.reports.render import render_page
from tests.browser import serious_violations
from tests.reports.decision.judged import judged
from tests.reports.parts import section, with_series

# they share what takes seconds to make
pytestmark = [pytest.mark.xdist_group("html"), pytest.mark.slow]

OPEN_ALL = "document.querySelectorAll('details').forEach(one => one.open = true)"
TABLE = '[aria-label="All problems: grpo"] > table'


@pytest.fixture(scope="module")
def reports(html: str, hostile_html: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("html")
    (folder / "plain.html").write_text(html, encoding="utf-8")
    (folder / "hostile.html").write_text(hostile_html, encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


def written(report: Page, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    return path


@contextmanager
def opened(
    browser: Any, path: Path, width: int, *, scheme: str = "light", script: bool = True, place: str = ""
) -> Iterator[Any]:
    """The report at ``place``; fails if it said anything on the console or asked for anything but itself."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        java_script_enabled=script,
        reduced_motion="reduce",
    )
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri() + place)
    yield page
    context.close()
    assert said == []
    # a download of what the page itself made is no request to anywhere
    assert [url for url in asked if not url.startswith("blob:null/")] == [path.as_uri()]


def is_in_view(element: Any) -> bool:
    """Whether the top of the element lies in the window."""
    top = element.evaluate("one => one.getBoundingClientRect().top")
    return bool(-1 <= top < 900)


def rows_of(page: Any, control: Any, folder: Path) -> list[dict[str, str]]:
    """What a click on ``control`` downloads, read as CSV."""
    with page.expect_download() as download:
        control.click()
    path = folder / download.value.suggested_filename
    assert path.suffix == ".csv"
    download.value.save_as(path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["plain", "hostile"])
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_and_nothing_is_asked_for(
    browser: Any, reports: dict[str, Path], name: str, width: int
) -> None:
    with opened(browser, reports[name], width) as page:
        page.evaluate(OPEN_ALL)
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_card_of_a_verdict_fits_a_phone_with_everything_open(
    browser: Any, context: Context, tmp_path: Path
) -> None:
    changes = tuple(ChangeAtK(k=2**i, base=0.8, late=0.6, change=-0.2, low=-0.305, high=-0.105) for i in range(8))
    rates = tuple(
        Rates(step=100 * i, checkpoint="c", truncated=0.125, not_parsed=0.125, timed_out=0.125, ambiguous=0.125)
        for i in range(10)
    )
    verdict = Verdict(series="grpo", label="over_sharpened", sentence="Over-sharpened.", changes=changes, rates=rates)
    claim = Claim(name="pass@k fell", null="pass@k fell at no k " * 9, scope="these", level=0.03, holds=True, p=0.001)
    claim = replace(claim, size=Estimate(value=-0.125, low=-0.25, high=-0.125), otherwise=("guessed answers " * 9,))
    steps = tuple(
        StepClaim(step=s, checkpoint="c", lost=True, kept=False, p=0.001, k=128, change=-0.1, low=-0.2, high=-0.1)
        for s in range(100, 4100, 100)
    )
    explanation = Explanation(guess_rate=0.02, guess_rate_allowed=0.005, guess_source="assumed", even_loss=1.0)
    verdict = replace(verdict, claims=(claim,) * 7, steps=steps, explanation=explanation)
    verdict = replace(verdict, p_exact=0.001, p_population=0.001, window=(10, 20, 30), k_most=128)
    report = replace(build_page(with_series(context, 0, verdict=verdict)), sections=())
    with opened(browser, written(report, tmp_path), 390) as page:
        page.evaluate(OPEN_ALL)
        card = page.locator("article.verdict").first
        assert card.locator("details.table table").count() == 6
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert card.evaluate("one => one.scrollWidth <= one.clientWidth")
        broken = """() => [...document.querySelectorAll("th")].filter(one => one.scrollWidth > one.clientWidth + 1)
            .map(one => one.textContent)"""
        assert page.evaluate(broken) == []


def test_hostile_text_never_runs(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["hostile"], 1440) as page:
        assert page.title() == "Over-sharpening report: grpo"
        assert page.locator("img").count() == 0


def test_figures_follow_the_theme(browser: Any, reports: dict[str, Path]) -> None:
    strokes = {}
    for scheme in ("light", "dark"):
        with opened(browser, reports["plain"], 1440, scheme=scheme) as page:
            paint = "getComputedStyle(document.querySelector('#headline-delta svg .s-c1')).stroke"
            strokes[scheme] = page.evaluate(paint)
            marker = """getComputedStyle(document.querySelector(
                getComputedStyle(document.querySelector('#headline-delta svg .s-c1')).markerMid.slice(5, -2) + ' path'
            )).fill"""
            assert page.evaluate(marker) == strokes[scheme]
            page.emulate_media(media="print")
            strokes[f"{scheme} print"] = page.evaluate(paint)
    assert strokes["light"] == "rgb(11, 102, 168)"
    assert strokes["dark"] == "rgb(95, 176, 240)"
    assert strokes["dark print"] == strokes["light print"] == strokes["light"]


def test_a_click_on_a_head_sorts_the_table_by_number(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        page.evaluate(OPEN_ALL)
        table = page.locator(TABLE)
        head = table.locator("th", has_text="correct, last")
        column = "rows => rows.map(row => row.cells[3].textContent)"
        risen = [*["0 / 8"] * 2, *["2 / 8"] * 7, "4 / 8", *["8 / 8"] * 2]
        head.click()
        assert table.locator("tbody tr").evaluate_all(column) == risen
        head.click()
        assert table.locator("tbody tr").evaluate_all(column) == risen[::-1]
        assert head.get_attribute("aria-sort") == "descending"
        page.get_by_label("Sort: All problems: grpo").select_option("points \N{UPWARDS ARROW}")
        shown = table.locator("tbody tr").evaluate_all("rows => rows.map(row => row.cells[4].textContent)")
        assert shown[:3] == ["−37.5", "−12.5", "0.0"]  # read off the text, real minus signs and all


def test_problems_are_filtered_by_state_and_by_text(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        page.evaluate(OPEN_ALL)
        controls = page.locator(".controls").first
        shown = page.locator(f"{TABLE} tbody tr:visible")
        assert shown.count() == 12
        controls.locator("select").select_option("lost")
        assert shown.count() == 2
        assert controls.locator("output").text_content() == "2 of 12 shown"
        words = shown.first.locator("td").nth(1).text_content()
        controls.locator("input").fill(words.upper())
        assert shown.count() == 1
        controls.locator("select").select_option("gained")
        assert controls.locator("output").text_content() == "0 of 12 shown"


def test_a_permalink_opens_the_problem_it_leads_to(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        cases = page.locator("details.case")
        identity = cases.last.get_attribute("id")
        assert not cases.last.evaluate("one => one.open")
        page.locator("summary", has_text="All problems").click()
        page.locator(f'{TABLE} a[href="#{identity}"]').click()
        assert page.evaluate("location.hash") == f"#{identity}"
        assert cases.last.evaluate("one => one.open")
        assert is_in_view(cases.last)
        second = cases.nth(1)
        page.locator(".cases .tool", has_text="Open all").first.click()
        assert page.locator(".cases").first.locator("details.case:not([open])").count() == 0
        second.locator(".permalink").click()
        assert page.evaluate("location.hash") == f"#{second.get_attribute('id')}"
        page.evaluate(OPEN_ALL)
        page.locator("#coverage h2 .permalink").click()
        assert page.evaluate("location.hash") == "#coverage"


def test_a_report_opened_at_a_problem_shows_it(browser: Any, reports: dict[str, Path], html: str) -> None:
    identity = re.findall(r'<details class="card case" id="(problem-[0-9a-f]+)"', html)[-1]
    with opened(browser, reports["plain"], 1440, place=f"#{identity}") as page:
        assert page.locator(f"#{identity}").evaluate("one => one.open")
        assert is_in_view(page.locator(f"#{identity}"))


def test_tables_and_findings_are_downloaded_as_csv(
    browser: Any, reports: dict[str, Path], session_store: Path, tmp_path: Path
) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        page.evaluate(OPEN_ALL)
        page.locator(".controls select").first.select_option("lost")
        table = rows_of(page, page.locator(f"div.plain:has({TABLE}) > button.tool"), tmp_path)
        folded = page.locator("#measure-pass-at-k-delta details")
        measure = rows_of(page, folded.locator("button.tool"), tmp_path)
        findings = rows_of(page, page.locator("a[download]"), tmp_path)
    columns = ("change", "correct, base", "correct, base of", "points")
    shown = [[row[name] for name in columns] for row in table]
    assert shown == [["lost", "3", "8", "-37.5"], ["lost", "1", "8", "-12.5"]]
    first = measure[1]
    assert (first["series"], float(first["step"])) == ("grpo", 10.0)
    assert [float(first[f"k = 1{end}"]) for end in ("", " low", " high")] == [0.1, 0.07, 0.13]
    assert {row["series"] for row in findings} == {"grpo", "iac"}
    assert float(next(r for r in findings if r["measure"] == "pass_at_k" and r["k"] == "1")["value"]) == 0.25


def test_a_spreadsheet_runs_nothing_that_a_model_wrote(
    browser: Any, page_of: Callable[..., Page], tmp_path: Path
) -> None:
    report = page_of(names=("grpo",))
    cells = ("=1+1", '@sum("a")', "+3 apples", "-2", "plain, with a comma")
    table = Table(
        title="Formulas",
        columns=(Column(name="text", numeric=False), Column(name="number")),
        rows=tuple((Cell(text=text), Cell(text="−2.5", sort=-2.5)) for text in cells),
    )
    report = replace(report, brief=(), sections=(replace(section(report, "problems"), blocks=(table,)),))
    with opened(browser, written(report, tmp_path), 1440) as page:
        page.evaluate(OPEN_ALL)
        rows = rows_of(page, page.locator("#problems button.tool"), tmp_path)
    assert [row["text"] for row in rows] == ["'=1+1", '\'@sum("a")', "'+3 apples", "'-2", "plain, with a comma"]
    assert {row["number"] for row in rows} == {"-2.5"}


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_axe_finds_no_serious_violation(browser: Any, reports: dict[str, Path], scheme: str, width: int) -> None:
    with opened(browser, reports["hostile"], width, scheme=scheme) as page:
        page.evaluate(OPEN_ALL)
        assert serious_violations(page) == {}


def test_without_script_the_report_is_useful_and_has_no_controls_that_need_it(
    browser: Any, reports: dict[str, Path]
) -> None:
    with opened(browser, reports["plain"], 1440, script=False) as page:
        assert page.locator("button, input, select").count() == 0
        assert page.locator("table.choices").is_visible()
        page.locator("summary", has_text="All problems").click()
        assert page.locator(f"{TABLE} tbody tr").count() == 12
        assert page.locator(TABLE).is_visible()
        page.locator("summary", has_text="Mechanisms").click()
        link = page.locator("a[download]")
        assert link.text_content() == "findings.csv.gz"
        assert link.get_attribute("href").startswith("data:application/gzip;base64,")
        page.locator("#measure-pass-at-k summary").click()
        assert page.locator("#measure-pass-at-k table").is_visible()
        assert page.get_by_text("pass@1 rose while pass@4 fell").is_visible()


@pytest.fixture(scope="module")
def judged_report(context: Context, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with verdicts and a recommendation."""
    return written(build_page(judged(context)), tmp_path_factory.mktemp("judged"))


@pytest.mark.parametrize(("width", "height"), [(1400, 900), (390, 844)])
def test_what_to_ship_and_what_it_costs_is_seen_without_scrolling(
    browser: Any, judged_report: Path, width: int, height: int
) -> None:
    with opened(browser, judged_report, width) as page:
        bottom = "one => one.getBoundingClientRect().bottom"
        facts = [page.locator("#decision-title"), *page.locator(".advice, .choices tbody tr").all()]
        facts += page.locator("#decision figure .panel").all() if width > 1000 else []
        assert page.locator("#decision-title").text_content().startswith("Ship checkpoint-20 of iac")
        said = page.locator(".choices").inner_text()
        for fact in ("40.0\xa0%, +15.0", "−20.0 [−23.0, −17.0] at k = 4", "2 of 12", "Coverage lost", "recommended"):
            assert fact in said
        assert len(facts) > 4
        assert all(one.is_visible() and 0 < one.evaluate(bottom) <= height for one in facts)
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("n", [1, 3, 6])  # with two: the tests of judged_report
def test_of_several_series_a_table_of_all_comes_first_and_is_read_on_a_phone(
    browser: Any, context_of: Callable[..., Context], tmp_path: Path, n: int
) -> None:
    names = ("iac", "grpo", "iac-with-a-long-name-of-its-own", "grpo-seed-2", "iac-seed-2", "grpo-seed-3")[:n]
    path = written(build_page(judged(context_of(names=names))), tmp_path)
    top, bottom = (f"one => one.getBoundingClientRect().{side}" for side in ("top", "bottom"))
    clipped = "cells => cells.filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"
    for width, height in ((1400, 900), (390, 844)):
        with opened(browser, path, width) as page:
            table, rows = page.locator("table.choices"), page.locator("table.choices tbody tr")
            assert rows.count() == n + 1
            assert rows.first.evaluate("one => one.className") == "chosen"
            title = page.locator("#decision-title").text_content().removesuffix(" #")
            assert title == ("Ship checkpoint-20 of iac" if n > 1 else "Ship checkpoint-20")
            assert (table.evaluate(top) < page.locator(".advice").evaluate(top)) == (n > 1)
            assert (rows.last if width == 1400 or n < 6 else rows.nth(4)).evaluate(bottom) <= height
            assert table.locator("td").evaluate_all(clipped) == []
            said = table.inner_text()
            assert all(name in said for name in names) or n == 1
            if width == 390:  # no head stands above the cells
                labels = table.locator("td[data-label]").evaluate_all("all => all.map(one => one.dataset.label)")
                assert labels.count("worst pass@k") == n + 1
            assert page.evaluate("document.documentElement.scrollWidth") == width
            if n == 6:
                assert serious_violations(page) == {}
            if n < 6 and width == 1400:
                assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) <= 10


def test_the_keyboard_alone_reaches_the_report_sorts_a_table_and_reads_a_picture(
    browser: Any, judged_report: Path
) -> None:
    stops = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
        .filter(one => one.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true}))
        .findIndex(one => one.matches("#mechanisms > summary"))"""
    with opened(browser, judged_report, 1400) as page:
        assert 20 < page.evaluate(stops) <= 150
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        picture = page.locator("#coverage-map svg").first
        picture.focus()
        tip = page.locator("#coverage-map output").first
        assert tip.text_content() == "10, k = 1: +10.0 points"
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert tip.text_content() == "20, k = 4: −10.0 points"
        page.keyboard.press("Escape")
        assert not tip.is_visible()
        page.locator("summary", has_text="All problems").focus()
        page.keyboard.press("Enter")
        page.get_by_label("Sort: All problems: grpo").select_option("correct, last \N{DOWNWARDS ARROW}")
        assert page.locator(f"{TABLE} tbody tr").first.locator("td").nth(3).text_content() == "8 / 8"


def test_the_pointer_names_the_point_that_it_is_at(browser: Any, judged_report: Path) -> None:
    """GRPO: pass@1 of the last checkpoint lies 25 points above the base, at the left end of the curve."""
    with opened(browser, judged_report, 1400) as page:
        line = page.locator("#headline-delta svg path.s-c1")
        line.scroll_into_view_if_needed()
        box = line.bounding_box()  # it falls: its first point is the upper left corner
        page.mouse.move(box["x"] + 3, box["y"] + 3)
        assert page.locator("#headline-delta output").text_content() == "grpo, 1: 25"


def test_paper_holds_the_brief_alone(browser: Any, judged_report: Path) -> None:
    with opened(browser, judged_report, 1400) as page:
        pages = re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))
        assert 2 < len(pages) <= 10
        page.emulate_media(media="print")
        assert not page.locator("#mechanisms").is_visible()
        assert not page.locator("nav.bar").is_visible()
        assert page.locator("#decision .choices").is_visible()
        assert page.locator(".on-paper").is_visible()


def test_on_paper_no_word_of_a_problems_tables_is_broken_and_no_card_lies_under_the_next(
    browser: Any, reports: dict[str, Path]
) -> None:
    broken = """() => [...document.querySelectorAll(".case[open] :is(th, td)")].flatMap(cell => {
        const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), words = [];
        for (let node; (node = walker.nextNode());)
            for (const word of node.data.matchAll(/\\S+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                words.push([word[0], range.getClientRects().length]);
            }
        return words;
    })"""
    with opened(browser, reports["plain"], 730) as page:  # an A4 sheet with narrow margins: tables stand in two columns
        page.emulate_media(media="print")
        words = page.evaluate(broken)
        assert len(words) > 40
        assert page.evaluate(
            "[...document.querySelectorAll('.side')].every(one => one.scrollWidth <= one.clientWidth + 1)"
        )
        assert {word for word, lines in words if lines != 1} == set()
        # Chromium breaks a grid over pages at the heights it had before, so that the next card covers what is longer
        assert page.locator(".cases").first.evaluate("one => getComputedStyle(one).display") == "block"


def test_on_a_phone_the_bar_is_not_cut(browser: Any, judged_report: Path) -> None:
    with opened(browser, judged_report, 390) as page:
        bar = page.locator("nav.bar ul")
        assert bar.locator("a").count() == 5
        assert bar.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_a_brief_report_has_no_mechanisms(browser: Any, context: Context, tmp_path: Path) -> None:
    with opened(browser, written(build_page(judged(context), brief=True), tmp_path), 1400) as page:
        assert page.locator("#mechanisms").count() == 0
        assert page.locator("nav.bar a").all_text_contents() == [
            "Decision",
            "Verdicts",
            "Problems",
            "Health",
        ]


def test_labels_of_tiny_values_are_not_cut(browser: Any, page_of: Callable[..., Page], tmp_path: Path) -> None:
    metrics = tuple(TrainingMetric(step=s, name="lr", value=-2e-4 - 1e-9 * s) for s in range(1, 30))
    report = page_of(names=("grpo",), metrics=metrics)
    report = replace(report, brief=(), sections=(section(report, "training"),))
    outside = """svg => [...svg.querySelectorAll("text")].filter(text => {
        const own = text.getBoundingClientRect(), frame = svg.getBoundingClientRect();
        return own.left < frame.left || own.right > frame.right + 1;
    }).map(text => text.textContent)"""
    with opened(browser, written(report, tmp_path), 1440) as page:
        page.evaluate(OPEN_ALL)
        assert page.locator("#training-0 .panel > svg").evaluate(outside) == []


def test_a_figure_alone_in_its_row_shows_its_data_beside_it(browser: Any, reports: dict[str, Path]) -> None:
    with opened(browser, reports["plain"], 1440) as page:
        page.evaluate(OPEN_ALL)
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
