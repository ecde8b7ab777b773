"""The small part of ``make torture``, and that its trials can fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.torture.commands import Ended
from benchmarks.torture.faults import FAULTS, WrongError, _require_one_line
from benchmarks.torture.material import Bench, made
from benchmarks.torture.mutations import DUMPS, check
from benchmarks.torture.stages import STAGES
from benchmarks.torture.states import difference
from tests.preloaded import RunningServer

pytestmark = pytest.mark.xdist_group("torture")  # they share what takes seconds to make


@pytest.fixture(scope="module")
def bench(commands: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Without checkpoints: those take longer than all of these trials."""
    return made(commands, tmp_path_factory.mktemp("torture"), ("import", "regrade"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "stage", "number"),
    [
        ("killed", "import", 11),
        ("no file above a size", "import", 2),
        ("a damaged result", "import", 3),
        ("a damaged input", "regrade", 23),
    ],
)
def test_a_trial_ends_as_an_undisturbed_run_or_in_one_line(bench: Bench, fault: str, stage: str, number: int) -> None:
    FAULTS[fault][0](bench, STAGES[stage], number, np.random.default_rng(number))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DUMPS))
def test_a_damaged_dump_is_read_as_far_as_it_is_whole_or_refused_in_one_line(name: str) -> None:
    check(name, examples=8)


@pytest.mark.slow
def test_a_lost_sample_a_changed_number_and_a_lost_table_row_are_differences(bench: Bench) -> None:
    whole = bench.whole["import"].state
    assert difference(whole, whole) is None
    fewer = {**whole, "samples": whole["samples"].iloc[1:]}
    assert difference(fewer, whole) == f"samples: {len(whole['samples']) - 1} rows instead of {len(whole['samples'])}"
    findings = whole["findings"].copy()
    known = findings.index[findings["value"].notna()][0]
    findings.loc[known, "value"] += 2e-4
    assert "rows differ in value" in str(difference({**whole, "findings": findings}, whole))
    label = whole["checkpoints"]["checkpoint"].iloc[0]
    assert difference(fewer, whole, without=label, only=("counts",)) is None


@pytest.mark.parametrize(
    ("code", "said", "holds"),
    [
        (7, "note: x\nerror: /a/trial/audit.duckdb: damaged\n", True),
        (70, "error: /a/trial/audit.duckdb: KeyError; nobody foresaw this\n", False),
        (7, "Traceback (most recent call last):\nerror: /a/trial/audit.duckdb: damaged\n", False),
        (7, "error: /a/trial/audit.duckdb: damaged\nand more\n", False),
        (7, "error: something went wrong\n", False),
    ],
)
def test_one_line_names_the_file_and_nobody_sees_a_traceback(code: int, said: str, holds: bool) -> None:
    ended = Ended(code=code, said=said, wall_s=0.0)
    if holds:
        _require_one_line(ended, Path("/a/trial"), named=Path("/a/trial/audit.duckdb"))
        return
    with pytest.raises(WrongError):
        _require_one_line(ended, Path("/a/trial"), named=Path("/a/trial/audit.duckdb"))
