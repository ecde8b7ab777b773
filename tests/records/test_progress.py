"""What a long run says while it works, also where several stages are open at a time."""

from __future__ import annotations

import io
from contextlib import ExitStack

import pytest
from rich.console import Console

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
