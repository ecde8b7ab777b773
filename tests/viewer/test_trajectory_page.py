"""Turns of responses in Chromium: served and as a static copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.viewer.listing import open_viewed
from oversharp.diagnostics.viewer.viewer import Viewer
from tests.browser import serious_violations
from tests.viewer.agents import HOSTILE, LONG_PROMPT, PROMPT, REASONING, call, model, tool, write_agents
from tests.viewer.conftest import Served, serving
from tests.viewer.test_page import expect, open_page

# one browser for all
pytestmark = [pytest.mark.xdist_group("html"), pytest.mark.slow]


@pytest.fixture(scope="module")
def agents_copy(agents_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a static copy."""
    copy = tmp_path_factory.mktemp("copy") / "agents"
    with pytest.raises(SystemExit):
        main(["view", str(agents_path), "--bundle", str(copy), "--quiet"])
    return (copy / "index.html").as_uri()


@pytest.fixture(params=["served", "copied"])
def address(request: pytest.FixtureRequest, served_agents: Served, agents_copy: str) -> str:
    return served_agents.address if request.param == "served" else agents_copy


def open_pair(page: Any) -> None:
    """Open the trajectories of both checkpoints to ``PROMPT``."""
    page.locator("#list li", has_text=PROMPT).click()
    expect(page.locator(".prompt")).to_have_text(PROMPT)
    late = page.locator(".side").nth(1)
    late.locator(".answer", has_text="7").click()
    late.locator(".response", has_text="list_files").click()


def test_turns_have_numbers_folded_calls_and_marks(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        open_pair(page)
        turns = page.locator(".side").nth(1).locator(".turn")
        expect(turns).to_have_count(4)
        assert turns.locator(".number").all_text_contents() == ["turn 1", "turn 2", "turn 3", "turn 4"]
        reasoning, call = turns.nth(0).locator(".think"), turns.nth(0).locator(".call")
        expect(reasoning.locator("pre")).to_be_hidden()
        reasoning.locator("summary").click()
        expect(reasoning.locator("pre")).to_have_text(REASONING)
        expect(call.locator("summary")).to_have_text('list_files({"path": "."})')
        expect(call.locator("dl")).to_be_hidden()
        call.locator("summary").click()
        expect(call.locator("dd")).to_have_text(".")
        expect(turns.nth(0).locator(".observation pre")).to_have_text(f"notes.txt\nzebra.md {HOSTILE}")
        assert page.locator("#problem img").count() == 0
        assert turns.locator(".call .chip").all_text_contents() == ["failed", "invalid"]
        assert turns.nth(1).locator(".who").all_text_contents() == ["look · call 2failed", "count · call 1"]
        expect(turns.nth(3).locator("mark.read")).to_have_text("7")


def test_two_responses_are_aligned_by_turn_and_their_first_divergent_call_is_marked(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        open_pair(page)
        line = page.locator(".difference")
        expect(line.locator("b")).to_have_text("First divergent call: call 2")
        assert line.locator("code").all_text_contents() == [
            'count({"path": "notes.txt", "code": "x = 1\\nprint(x)"})', 'count({"path": "zebra.md"})',
        ]  # fmt: skip
        page.get_by_role("button", name="Turns side by side").click()
        rows = page.locator(".aligned .turn")
        expect(rows).to_have_count(4)
        expect(page.locator("#sides")).to_be_hidden()
        for row in (rows.nth(1), rows.nth(2)):
            tops = row.locator(".cell").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
            assert tops[0] == tops[1]
        assert rows.nth(0).locator(".differs").count() == 0
        assert rows.nth(1).locator(".differs .text").all_text_contents() == line.locator("code").all_text_contents()
        assert rows.nth(3).locator(".cell").nth(0).text_content() == "ended after turn 3"
        link = page.evaluate("location.href")
        page.keyboard.press("t")
        expect(page.locator(".side .turn").first).to_be_visible()
    with open_page(browser, link) as page:
        expect(page.locator(".aligned .turn")).to_have_count(4)


def test_long_calls_are_shown_from_where_they_differ(browser: Any, tmp_path: Path) -> None:
    def run(end: str) -> list[dict[str, Any]]:
        return [model("", call("run", code=f"{'x = 1; ' * 100}{end}")), tool("run", "1")]

    store = write_agents(tmp_path, {1: [(PROMPT, run("print(x)"), 1.0)], 2: [(PROMPT, run("print(y)"), 0.0)]})
    with (
        open_viewed(store, lambda total: SilentProgress().stage("count", total)) as opened,
        serving(Viewer(opened), "agent") as served,
        open_page(browser, served.address) as page,
    ):
        line = page.locator(".difference code")
        expect(line).to_have_count(2)
        for text, end in zip(line.all_text_contents(), ('; print(x)"})', '; print(y)"})'), strict=True):
            assert text.startswith("…")
            assert text.endswith(end)


def test_equal_calls_and_a_response_without_calls_are_compared_too(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#list li", has_text=LONG_PROMPT).click()
        expect(page.locator(".difference")).to_have_text("Both have the same 9,999 calls.")
        page.locator("#list li", has_text=PROMPT).click()
        expect(page.locator(".difference .call-of")).to_have_text(
            ['A in turn 1: list_files({"path": "."})', "B has no further call"]
        )


def test_a_response_of_very_many_turns_is_loaded_in_parts(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#list li", has_text=LONG_PROMPT).click()
        side = page.locator(".side").nth(0)
        expect(side.locator(".turn")).to_have_count(70)
        expect(side.locator(".turn .number").last).to_have_text("turn 10,000")
        expect(side.locator(".gap span")).to_have_text("Turns 51 to 9,980 are hidden.")
        side.get_by_role("button", name="Show more").press("Enter")
        expect(side.locator(".turn")).to_have_count(170)
        expect(side.locator(".turn .number").nth(149)).to_have_text("turn 150")
        expect(side.locator("[data-turn='51']")).to_be_focused()
        page.keyboard.press("t")
        expect(page.locator(".aligned .turn")).to_have_count(70)
        page.get_by_role("button", name="Show more").click()
        expect(page.locator(".aligned .turn")).to_have_count(170)


def test_a_search_shows_the_place_and_leads_to_a_turn_that_is_not_loaded(browser: Any, address: str) -> None:
    with open_page(browser, address) as page:
        page.locator("#q").fill("NEEDLE")
        page.locator("#count", has_text="1 of 2 problems").wait_for()
        first = page.locator(".side").nth(0)
        expect(first.locator(".response .chip")).to_have_text(["match in observation"])
        expect(first.locator(".hits")).to_have_text("Found in observation: turn 5,000.")
        expect(page.locator(".side").nth(1).locator(".hits")).to_have_count(0)
        first.locator(".hits .link").click()
        expect(first.locator("mark.hit")).to_have_text(["needle"])
        expect(first.locator("[data-turn='5000']")).to_be_in_viewport()
        assert first.locator(".gap span").all_text_contents() == [
            "Turns 51 to 4,999 are hidden.", "Turns 5,100 to 9,980 are hidden.",
        ]  # fmt: skip
        page.locator("#q").fill("zebra.md")
        expect(page.locator("#list .title")).to_have_text([PROMPT])
        late = page.locator(".side").nth(1)
        expect(late.locator(".response .chip").first).to_have_text("match in call, observation")
        expect(late.locator(".call[open] .text mark.hit")).to_have_text(["zebra.md"])
        page.locator("#q").fill("a cellar")
        page.locator("#count", has_text="0 of 2 problems").wait_for()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_axe_finds_no_serious_violation_and_nothing_overflows(
    browser: Any, served_agents: Served, scheme: str, width: int
) -> None:
    with open_page(browser, served_agents.address, width=width, scheme=scheme) as page:
        open_pair(page)
        page.locator(".side .call summary").first.click()
        expect(page.locator(".difference b")).to_be_visible()
        assert serious_violations(page) == {}
        page.get_by_role("button", name="Turns side by side").click()
        expect(page.locator(".aligned .turn")).to_have_count(4)
        page.locator(".call summary").nth(1).click()
        assert serious_violations(page) == {}
        assert page.evaluate("document.documentElement.scrollWidth") == width
