"""The lines that an audit prints about its series."""

from __future__ import annotations

from pathlib import Path

import pytest

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.prepare import _announce
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import Checkpoint, Series


class _Lines(SilentProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(("first", "base", "is_named"), [(20, None, True), (0, None, False), (20, Path("base"), False)])
def test_a_line_names_the_base_where_there_is_no_step_0_and_none_was_named(
    first: int, base: Path | None, is_named: bool
) -> None:
    checkpoints = tuple(
        Checkpoint(step=step, label=f"step_{step}", path=Path(f"run/step_{step}"), kind="full", weights_hash=f"h{step}")
        for step in (first, 40)
    )
    progress = _Lines()
    series = Series(name="run", path=Path("run"), layout="folders", checkpoints=checkpoints)
    _announce(AuditConfig(problems=Path("p.jsonl"), base=base), series, {}, progress)
    line = "base: step_20, the first step, because there is no step 0; --base PATH sets another base"
    assert (line in progress.lines) is is_named
