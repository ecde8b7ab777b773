"""What ``plan`` and ``confirm`` print is right at any width, and repeats of weights change no shortlist."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from diagnostics.app.console_tables import print_confirmations
from diagnostics.audit.confirm import ConfirmResult, _shortlist
from diagnostics.audit.plan import plan
from diagnostics.records.errors import ConfigError
from diagnostics.records.types import Confirmation, Problem
from diagnostics.store import Store
from tests.audit.test_counts import plant


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    problem = Problem(task="t", prompt="a long prompt " * 9, gold="1", verifier="exact", source_id="a-long-name" * 3)
    tested = Confirmation(
        problem_id=problem.problem_id, change="lost", n_base=1024, correct_base=1000, n_late=1024, correct_late=0,
        p=1.234e-10, p_adjusted=8.02e-10,
    )  # fmt: skip
    result = ConfirmResult(
        series="run", checkpoint="checkpoint-20", step=20, fresh=1024, samples_drawn=0, n_earlier=0,
        problems=(problem,), tested=(tested,), store_path=Path("s"), report_path=Path("r"),
    )  # fmt: skip
    out = io.StringIO()
    print_confirmations(result, Console(file=out, width=width, highlight=False))
    for said in ("1000/1024", "0/1024", "1.2e-10", "8e-10", "confirmed", "yes"):
        assert said in out.getvalue()


def test_weights_that_come_again_change_no_shortlist(tmp_path: Path) -> None:
    def listed(name: str, same_weights: dict[int, int]) -> object:
        with Store.open(tmp_path / f"{name}.duckdb") as store:
            responses = {(i, step): "A" * 8 if step < 20 or i else "." * 8 for i in range(6) for step in (0, 10, 20)}
            return _shortlist(store, plant(store, responses, n=8, same_weights=same_weights), 5)

    assert listed("once", {}) == listed("base_again", {30: 0}) == listed("late_again", {30: 20})


def test_a_plan_of_a_million_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 10,000"):
        plan(tmp_path / "audit.duckdb", n_checkpoints=1_000_000)
