"""What a long run says while it works, also where several stages are open at a time."""

from __future__ import annotations

import io
import re
import time
from contextlib import ExitStack

import pytest
from rich.console import Console

from diagnostics.records import progress
from diagnostics.records.progress import ConsoleProgress


@pytest.mark.parametrize("terminal", [True, False])
def test_stages_that_overlap_are_all_shown_in_whatever_order_they_end(terminal: bool) -> None:
    say = ConsoleProgress()
    written = io.StringIO()
    say._console = Console(file=written, force_terminal=terminal, width=100)
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
    if terminal:
        assert "4/4" in text
        assert "2/2" in text
        assert "1/1" in text
    else:
        lines = [
            "sample checkpoint-20: 4 done",
            "checkpoint-40: a note",
            "sample checkpoint-40: 2 done",
            "verify: 1 done",
        ]
        assert text.splitlines() == lines


def test_without_a_terminal_a_stage_at_work_says_how_far_it_is_and_stops_saying_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_S", 0.02)
    say = ConsoleProgress()
    written = io.StringIO()
    say._console = Console(file=written, force_terminal=False, width=100)
    with say.stage("sample checkpoint-20", 400) as advance:
        advance(100)
        for _ in range(500):
            if written.getvalue():
                break
            time.sleep(0.02)
    first, *_ = written.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d sample checkpoint-20: 100 of 400, [\d.]+ per second, about 1 min left", first)
    assert written.getvalue().endswith("sample checkpoint-20: 400 done\n")
    time.sleep(0.1)
    assert written.getvalue().endswith("sample checkpoint-20: 400 done\n")
