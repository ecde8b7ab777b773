"""The page in Chromium: keyboard and mouse, desktop and phone width, served and as a static copy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.app.cli import main
from tests.browser import needed, serious_violations
from tests.viewer.conftest import HOSTILE, SCORED, Served

# one browser for all
pytestmark = [pytest.mark.xdist_group("html"), pytest.mark.slow]

CHOSEN = "#list [aria-selected=true] .title"


@contextmanager
def open_page(browser: Any, address: str, *, width: int = 1440, scheme: str = "light") -> Iterator[Any]:
    """Open the page; fail if it logs to the console or requests another origin."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    messages: list[str] = []
    urls: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: urls.append(request.url))
    page.goto(address)
    page.locator("#list li").first.wait_for()
    yield page
    context.close()
    assert messages == []
    assert [url for url in urls if not url.startswith(address.partition("#")[0].removesuffix("index.html"))] == []


@pytest.fixture(scope="module")
def copy(viewed_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a static copy of all problems, moved after it was written."""
    made, moved = (tmp_path_factory.mktemp("copy") / name for name in ("made", "moved"))
    with pytest.raises(SystemExit):
        main(["view", str(viewed_path), "--bundle", str(made), "--quiet"])
    return Path(shutil.move(made, moved), "index.html").as_uri()


@pytest.fixture(params=["served", "copied"])
def address(request: pytest.FixtureRequest, served: Served, copy: str) -> str:
    return served.address if request.param == "served" else copy


def expect(locator: Any) -> Any:
    """Wait for the final state of a locator: a page that searches while one types passes through others."""
    return needed("playwright.sync_api").expect(locator)


@pytest.mark.slow
def test_the_keyboard_alone_leads_from_a_problem_to_a_response_and_back(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        press, focused = page.keyboard.press, page.locator(":focus")
        page.locator(".full pre").first.wait_for()
        assert page.locator(CHOSEN).text_content() == "What is 2 * 3?"
        press("ArrowDown")
        page.locator("#problem h2", has_text=re.compile("gained|third")).wait_for()
        press("Home")
        page.locator("#problem h2", has_text="lost one").wait_for()
        press("ArrowRight")
        assert focused.text_content().startswith("7×✓correct6only in A")
        press("ArrowDown")
        press("ArrowDown")
        assert focused.text_content().startswith("1×\\boxed{7}, no: \\boxed{6}")
        press("Enter")
        page.locator(".full .meta", has_text="accepted with 2 different boxes").wait_for()
        assert "r=base" in page.evaluate("location.hash")
        press("ArrowRight")
        assert focused.locator("xpath=ancestor::section[1]").get_attribute("aria-label") == "B: step 20"
        press("ArrowLeft")
        press("ArrowLeft")
        assert page.evaluate("document.activeElement.id") == "list"
        press("/")
        assert page.evaluate("document.activeElement.id") == "q"


def test_only_the_panes_scroll_under_the_keyboard(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.set_viewport_size({"width": 1200, "height": 230})
        page.locator(".full pre").first.wait_for()
        for key in ("ArrowRight", "ArrowDown", "Enter"):
            page.keyboard.press(key)
        assert page.locator("#problem").evaluate("pane => pane.scrollHeight > pane.clientHeight")
        assert page.evaluate("document.documentElement.scrollHeight") == 230


def test_the_extracted_answer_is_marked_and_its_tokens_have_heat(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        first = page.locator(".full").first
        assert first.locator("mark.read").text_content() == "6"
        first.locator("select.heat").wait_for()
        page.keyboard.press("h")
        first.locator(".heated").wait_for()
        assert first.locator(".heated").text_content() == SCORED
        assert first.locator(".heated .t").evaluate_all("all => all.map(one => one.className)") == [
            "t h0", *["t h3"] * 9, "t h3 read", "t h3"
        ]  # fmt: skip
        assert "p 0.0498" in first.locator(".heated .t").nth(1).get_attribute("title")
        assert page.locator(".side").nth(1).locator(".full .note").text_content().startswith("No token colours: ")


@pytest.mark.slow
def test_answers_can_be_filtered_by_side(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#answers").select_option("a")
        expect(page.locator(".answer .text")).to_have_text(["6"])
        page.locator("#answers").select_option("b")
        expect(page.locator(".answer .text")).to_have_text(["unparsed"])


@pytest.mark.slow
def test_a_link_leads_to_the_same_state(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.get_by_role("button", name="gained 1").click()
        page.locator("#problem h2", has_text="gained one").wait_for()
        page.locator(".side").nth(1).locator(".row.answer").nth(0).click()
        link = page.evaluate("location.href")
        assert "only=gained" in link
    with open_page(browser, link) as page:
        page.locator("#problem h2", has_text="gained one").wait_for()
        assert page.locator("#list li").count() == 1
        assert page.get_by_role("button", name="gained 1").get_attribute("aria-pressed") == "true"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("#a=base&b=4711", "grpo has no checkpoint 4711 here; showing its first and last."),
        ("#series=iac&a=1&b=2", "There is no series iac here; showing grpo."),
    ],
)
def test_a_link_to_a_missing_checkpoint_shows_a_message_and_the_default(
    browser: Any, address: str, link: str, message: str
) -> None:
    with open_page(browser, address + link) as page:
        expect(page.get_by_role("alert")).to_have_text(message)
        assert page.locator(CHOSEN).text_content() == "What is 2 * 3?"
        assert "4711" not in page.evaluate("location.hash")
        page.locator("#a").evaluate("one => one.dispatchEvent(new Event('change'))")
        expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.slow
def test_a_search_finds_responses_and_shows_where(browser: Any, served: Served) -> None:
    with open_page(browser, served.address) as page:
        page.keyboard.press("/")
        page.keyboard.type("UNFINISHED")
        page.locator("#count", has_text="1 of 3 problems").wait_for()
        expect(page.locator("mark.hit")).to_have_text(["unfinished"])  # the response that has it is open
        assert page.locator(".response[aria-expanded=true] .chip").all_text_contents()[-3:-1] == ["match", "truncated"]
        page.locator("#q").fill("")
        page.locator("#count", has_text="3 problems").wait_for()


@pytest.mark.slow
def test_another_step_is_another_comparison(browser: Any, served: Served) -> None:
    with open_page(browser, served.address) as page:
        page.locator("#b").select_option("10")
        page.locator("h3", has_text="2 of 8 correct").wait_for()
        assert page.get_by_role("button", name="lost 0").count() == 1
        page.locator("#a").select_option("10")
        assert page.get_by_role("alert").text_content() == "A and B are the same checkpoint; choose another."


@pytest.mark.slow
def test_untrusted_text_is_never_markup(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#list li", has_text="4 + 5").click()
        page.locator("#problem h2", has_text="<b>third</b>").wait_for()
        page.locator(".full pre").first.wait_for()
        assert page.locator(".full pre").first.text_content() == HOSTILE
        assert page.locator("img, #problem b:not(h3 b), main script").count() == 0
        assert page.title() == "grpo · audit.duckdb"


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_axe_finds_no_serious_violation_and_nothing_overflows(
    browser: Any, served: Served, scheme: str, width: int
) -> None:
    with open_page(browser, served.address, width=width, scheme=scheme) as page:
        assert serious_violations(page) == {}
        page.locator("#list li").first.click()
        page.locator("select.heat").wait_for()
        page.keyboard.press("h")
        page.locator(".heated").wait_for()
        assert serious_violations(page) == {}
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == {
            "light": "rgb(246, 247, 249)", "dark": "rgb(14, 19, 25)",
        }[scheme]  # fmt: skip


@pytest.mark.slow
def test_a_phone_shows_the_list_or_the_problem(browser: Any, served: Served) -> None:
    with open_page(browser, served.address, width=390) as page:
        assert not page.locator("#problem").is_visible()
        page.locator("#list li").first.click()
        page.locator("#problem h2").wait_for()
        assert not page.locator("#list").is_visible()
        page.get_by_role("button", name="Problems").click()
        assert page.locator("#list").is_visible()
