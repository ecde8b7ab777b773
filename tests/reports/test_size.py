"""How large a report is: what every one holds, and what a problem adds, so that none outgrows its bounds unseen.

The bounds are 1 MB for two series of 100 problems with kernels, and 600 kB for 500 problems at 11 checkpoints. To build
those takes minutes; what is held here are their parts, as large as they were when both bounds were met.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import oversharp
from oversharp.reports.records import Page
from oversharp.reports.render import render_page

pytestmark = pytest.mark.slow


@pytest.mark.xdist_group("audited_store")
def test_a_report_of_few_problems_leaves_room_for_a_hundred(audited_store: Path, tmp_path: Path) -> None:
    """Two series of 4 problems at 3 checkpoints, with kernels: 277 kB, when the demo's two of 100 at 9 took 967."""
    report = oversharp.report(audited_store, out=tmp_path / "report.html")
    assert report.stat().st_size < 290_000


def test_a_problem_adds_a_row_and_no_more(page_of: Callable[..., Page]) -> None:
    """125 bytes here, where rows are short, and 216 in a report of 500 problems, whose bound would bear 350."""
    few, many = (len(render_page(page_of(names=("grpo",), n_problems=n)).encode()) for n in (60, 180))
    assert 100 < (many - few) / 120 < 200
