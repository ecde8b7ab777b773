"""Progress lines of a long run, also with several open stages."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from rich.console import Console

from oversharp.diagnostics.records import progress
from oversharp.diagnostics.records.progress import ConsoleProgress


@pytest.mark.parametrize("terminal", [True, False])
def test_stages_that_overlap_are_all_shown_in_whatever_order_they_end(terminal: bool) -> None:
    say = ConsoleProgress()
    written = io.StringIO()
    say._console = Console(file=written, force_terminal=terminal, width=100, highlight=False)
    first, second = ExitStack(), ExitStack()
    advance_first = first.enter_context(say.stage("sample checkpoint-20", 4))
    advance_second = second.enter_context(say.stage("sample checkpoint-40", 2))
    advance_second(2)
    advance_first(4)
    first.close()
    say.note("checkpoint-40: a note")
    second.close()
    with say.stage("verify", 1) as advance:
        advance(1)
    text = written.getvalue()
    lines = ["sample checkpoint-20: 4 done", "checkpoint-40: a note", "sample checkpoint-40: 2 done", "verify: 1 done"]
    if terminal:  # a line replaced the bar that ended first
        assert [line for line in lines if line in text] == lines[:2]
        assert "2/2" in text
        assert "1/1" in text
    else:
        assert text.splitlines() == lines


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_a_whole_run_is_stands_below_its_stages_and_between_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.02)
    say = ConsoleProgress()
    written = io.StringIO()
    say._console = Console(file=written, force_terminal=terminal, width=100, highlight=False)
    lines = iter(range(1, 1_000_000))
    with say.overall(lambda: f"checkpoint {next(lines)} of 9"):
        with say.stage("sample checkpoint-20", 4) as advance:
            advance(4)
            _wait_until(lambda: "sample checkpoint-20: 4 of 4" in written.getvalue() or terminal)
        before = next(lines)
        _wait_until(lambda: f"checkpoint {before + 1} of 9" in written.getvalue())  # no stage is running
    text = written.getvalue()
    assert "sample checkpoint-20: 4 done" in text
    if not terminal:
        assert re.search(r"^\d\d:\d\d checkpoint 1 of 9$", text, re.MULTILINE)
    time.sleep(0.1)
    assert written.getvalue() == text, "who has ended goes on"


def _wait_until(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def test_without_a_terminal_a_stage_at_work_says_how_far_it_is_and_stops_saying_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.02)
    say = ConsoleProgress()
    written = io.StringIO()
    say._console = Console(file=written, force_terminal=False, width=100)
    with say.stage("sample checkpoint-20", 400) as advance:
        advance(100)
        _wait_until(lambda: bool(written.getvalue()))
        advance(300)
    first, *_ = written.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d sample checkpoint-20: 100 of 400, [\d,.]+ per second, less than 1 min left", first)
    assert written.getvalue().endswith("sample checkpoint-20: 400 done\n")
    time.sleep(0.1)
    assert written.getvalue().endswith("sample checkpoint-20: 400 done\n")
