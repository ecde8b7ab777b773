"""Changes between checkpoints of an audit that sampled each problem until it was solved."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pytest

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.changes.read import checkpoint_at, checkpoints_of, read_pair
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.store import Store
from tests.audit.stopped_stores import CAP, EASY, FIRST, GAINED, LOST, NEVER, RARE, success_rates, write_stopped

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stopped changes")]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One stream of samples, stopped and drawn up to the caps."""
    folder = tmp_path_factory.mktemp("stopped")
    for name in ("stopped", "capped"):
        (folder / name).mkdir()
    return {
        "stopped": write_stopped(folder / "stopped" / "audit.duckdb"),
        "capped": write_stopped(folder / "capped" / "audit.duckdb", stopped=False),
    }


def test_problems_are_lost_and_gained_as_with_all_samples_up_to_the_cap(paths: dict[str, Path]) -> None:
    stopped, capped = (oversharp.diff(paths[name], steps=(0, 40)) for name in ("stopped", "capped"))
    for state in ("lost", "gained"):
        ids = [{one.problem_id for one in found.of_state(state)} for found in (stopped, capped)]
        assert ids[0] == ids[1]
    states = {one.problem_id: one for one in stopped.problems}
    assert (states[LOST].state, states[LOST].sure, states[LOST].n_before, states[LOST].n_after) == ("lost", True, 8, 64)
    assert (states[GAINED].state, states[GAINED].n_before) == ("gained", 128)
    assert not {NEVER, EASY} & set(states)
    assert stopped.lost_by_chance == pytest.approx(capped.lost_by_chance, abs=1.0)
    assert "expected by chance" in stopped.sentences[-1]


def test_pass_at_k_is_compared_by_the_estimates_without_bias(paths: dict[str, Path]) -> None:
    stopped, capped = (oversharp.diff(paths[name], steps=(0, 40)).changes for name in ("stopped", "capped"))
    assert [row.k for row in stopped] == [row.k for row in capped] == list(inference_ks(CAP))
    for ours, theirs in zip(stopped, capped, strict=True):
        width = theirs.high - theirs.low
        assert ours.first == pytest.approx(theirs.first, abs=0.05)
        assert ours.difference == pytest.approx(theirs.difference, abs=0.2 * width)
        assert 0.9 * width < ours.high - ours.low < 1.5 * width
    true = success_rates()
    at_32 = (1 - (1 - true[40]) ** 32).mean() - (1 - (1 - true[0]) ** 32).mean()
    assert stopped[-1].low < at_32 < stopped[-1].high < 0


def test_between_late_checkpoints_the_losses_by_chance_are_unknown(paths: dict[str, Path]) -> None:
    found = oversharp.diff(paths["stopped"], steps=(20, 40))
    assert found.lost_by_chance is None
    assert "expected by chance" not in found.sentences[-1]
    assert "fell significantly" in found.sentences[-1]
    assert "expected by chance" not in oversharp.lost(paths["stopped"], since=20).sentence
    assert oversharp.diff(paths["capped"], steps=(20, 40)).lost_by_chance > 0


def test_the_commands_print_the_counts_at_which_a_problem_stopped(
    paths: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["lost"], ["lost", "--since", "20"], ["diff", "--steps", "20", "40"], ["lost", "--answers"]):
        with pytest.raises(SystemExit) as stop:
            main([arguments[0], str(paths["stopped"]), *arguments[1:]])
        assert not stop.value.code
        printed = capsys.readouterr().out
        assert "None" not in printed
    assert "What is 0 + 0?" in printed
    lost = oversharp.lost(paths["stopped"], answers=True)
    answers = {one.change.problem_id: one for one in lost.problems}
    rare = next(one for one in answers.values() if one.change.n_before == 128)  # solved after the first round
    assert sum(answer.n for answer in rare.before if answer.correct) == rare.change.correct_before
    assert "by chance" in lost.sentence


def test_a_problem_without_all_samples_of_the_rule_is_left_out(paths: dict[str, Path], tmp_path: Path) -> None:
    path = Path(shutil.copy(paths["stopped"], tmp_path))
    with duckdb.connect(str(path)) as database:
        chosen = [RARE, LOST]
        delete = (
            "DELETE FROM samples WHERE checkpoint_id = 'run-40' AND list_contains(?, problem_id) AND sample_index > 3"
        )
        database.execute(delete, [chosen])
    with Store.open(path, read_only=True) as store:
        points = checkpoints_of(store, "run")
        pair = read_pair(store, "run", *(checkpoint_at(points, "", step) for step in (None, 40)))
        assert len(pair.problem_ids) == 38
        assert not set(chosen) & set(pair.problem_ids)
        assert pair.notes[0] == "2 problems without all samples of the stopping rule at both checkpoints left out."
    with duckdb.connect(str(path)) as database:
        database.execute(f"DELETE FROM samples WHERE checkpoint_id = 'run-40' AND sample_index >= {FIRST - 1}")
    with pytest.raises(StoreError, match="no problem has all samples of the stopping rule"):
        oversharp.diff(path, steps=(0, 40))


def test_the_viewer_lists_the_counts_at_which_a_problem_stopped(paths: dict[str, Path]) -> None:
    from oversharp.diagnostics.records.progress import SilentProgress
    from oversharp.diagnostics.viewer.listing import list_problems, open_viewed
    from oversharp.diagnostics.viewer.records import ViewSelection
    from oversharp.diagnostics.viewer.responses import load_problem, view_problem

    selection = ViewSelection(series="run", before="base", after="40")
    with open_viewed(paths["stopped"], lambda total: SilentProgress().stage("count", total)) as store:
        listed = {one.problem_id: one for one in list_problems(store, selection).problems}
        viewed = view_problem(store, load_problem(store, "run", LOST), selection)
    assert listed[LOST].n == (8, 64)
    assert (listed[LOST].state, listed[LOST].sure) == ("lost", True)
    assert [side.n for side in viewed.sides] == [8, 64]
    assert [point.n for point in viewed.course] == [8, 16, 64]
    for side in viewed.sides:
        assert sum(answer.n for answer in side.answers) == side.n
    assert np.all([one.n[1] in (8, 16, 32, 64) for one in listed.values()])
