"""Confirmation with fresh samples of real models finds a planted loss and gain, and leaves the audit unchanged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import oversharp
from oversharp import open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.confirm import ConfirmResult, _shortlist, confirm, fresh_settings
from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError, SamplerError, StoreError
from oversharp.diagnostics.records.progress import ProgressSink, SilentProgress
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key, stored_problems, stored_settings
from oversharp.diagnostics.tasks import load_problems
from tests.audit.stopped_stores import EASY, GAINED, LOST, NEVER, write_stopped

#: They share what takes seconds to make.
pytestmark = [pytest.mark.xdist_group("confirm"), pytest.mark.usefixtures("few_figures")]

#: What the late model says, whatever it is asked.
SAID_LATE = ("98", "99")
N, N_BASE, FRESH = 8, 16, 32


def test_the_shortlist_of_an_audit_that_sampled_until_solved_begins_with_planted_changes(tmp_path: Path) -> None:
    listed = {}
    for stopped in (True, False):
        path = write_stopped(tmp_path / f"{stopped}.duckdb", stopped=stopped)
        with Store.open(path, read_only=True) as store:
            listed[stopped] = _shortlist(store, stored_key(store, "run"), 8).changes
    for changes in listed.values():
        lost = [problem_id for problem_id, change in changes.items() if change == "lost"]
        gained = [problem_id for problem_id, change in changes.items() if change == "gained"]
        assert lost[0] == LOST
        assert GAINED in gained
        assert not {NEVER, EASY} & set(changes)
    assert len(listed[True].keys() & listed[False].keys()) >= 10  # of 16


def _obsessed(folder: Path, make_checkpoint: Callable[[Path, int], Path]) -> None:
    """A checkpoint that answers with one of ``SAID_LATE`` and nothing else; an untrained one answers anything."""
    import torch
    from safetensors.torch import load_file, save_file

    make_checkpoint(folder, 1)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    path = folder / "model.safetensors"
    tensors = load_file(path)
    # the last state has a length of its own, and all that is read of it is one coordinate, of either sign
    embedding, norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
    embedding[:, 0] = 0.0
    for word, sign in zip(SAID_LATE, (1.0, -1.0), strict=True):
        embedding[vocabulary[word], 0] = 50.0 * sign
    norm.copy_(torch.zeros_like(norm))
    norm[0] = 1000.0
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, make_checkpoint: Callable[[Path, int], Path]) -> Path:
    """A folder with a run and the finished audit of it; do not write into it.

    Two problems accept 90 of the 107 tokens, none of which the last model says: lost. One accepts only what it
    says: gained. One accepts every number, so that hardly anything is left to gain.
    """
    folder = tmp_path_factory.mktemp("planted")
    make_checkpoint(folder / "run" / "checkpoint-0", 0)
    _obsessed(folder / "run" / "checkpoint-20", make_checkpoint)
    most, every = [str(number) for number in range(90)], [str(number) for number in range(100)]
    rows = [("lost-1", "1 2 3 = 7 :", most), ("lost-2", "2 3 4 = 9 :", most[::-1])]
    rows += [("gained-1", "1 2 4 = 8 :", list(SAID_LATE)), ("same", "5 6 7 = 1 :", [*every, "+", "-", "*"])]
    problems = folder / "problems.jsonl"
    problems.write_text(
        "".join(
            json.dumps({"id": name, "prompt": prompt, "answer": "7", "modes": modes}) + "\n"
            for name, prompt, modes in rows
        )
    )
    config = AuditConfig(problems=problems, n=N, n_base=N_BASE, panel=0, kernel_problems=0, entropy_samples=0)
    config = replace(config, max_tokens=1, sampler="transformers", batch_size=16, out=folder / "out", name="run")
    audit([folder / "run"], config)
    return folder


def _confirm(place: Path, *, progress: ProgressSink | None = None, **changes: object) -> ConfirmResult:
    config = ConfirmConfig(**{"fresh": FRESH, "batch_size": 16, **changes})
    return confirm(place, config, progress=progress)


@pytest.fixture
def place(audited: Path, tmp_path: Path) -> Path:
    """A copy of the audit's store to confirm in; its run stays where it was audited."""
    shutil.copytree(audited / "out", tmp_path / "out")
    return tmp_path / "out" / "audit.duckdb"


def _rows(store_path: Path, query: str) -> list[list[object]]:
    with open_store(store_path) as store:
        return store.frame(query).to_numpy().tolist()


@pytest.mark.slow
def test_a_planted_loss_and_gain_are_confirmed_and_what_stayed_is_not(place: Path) -> None:
    result = _confirm(place)
    verdicts = {
        problem.source_id: (one.change, one.confirmed)
        for problem, one in zip(result.problems, result.tested, strict=True)
    }
    same = verdicts.pop("same", None)
    assert verdicts == {"lost-1": ("lost", True), "lost-2": ("lost", True), "gained-1": ("gained", True)}
    assert same is None or not same[1]
    assert result.samples_drawn == 2 * FRESH * len(result.tested)
    lost = next(one for one in result.tested if one.change == "lost")
    assert lost.correct_base > 0.6 * FRESH
    assert lost.correct_late == 0
    assert 0 < lost.p <= lost.p_adjusted


@pytest.mark.slow
def test_what_is_confirmed_is_in_the_store_and_the_report_is_written_again(place: Path) -> None:
    assert not (place.parent / "report.html").exists()
    page = oversharp.confirm(place, ConfirmConfig(fresh=FRESH)).report_path.read_bytes()
    query = """
    SELECT p.source_id, f.change, f.step, f.n_base, f.n_late, f.confirmed
    FROM confirmed_problems AS f
    JOIN problems AS p USING (problem_id)
    WHERE p.source_id <> 'same'
    ORDER BY p.source_id
    """
    assert _rows(place, query) == [
        ["gained-1", "gained", 20, FRESH, FRESH, True],
        ["lost-1", "lost", 20, FRESH, FRESH, True],
        ["lost-2", "lost", 20, FRESH, FRESH, True],
    ]
    assert oversharp.confirm(place, ConfirmConfig(fresh=FRESH)).report_path.read_bytes() == page


@pytest.mark.slow
def test_fresh_samples_never_count_in_the_audit(place: Path) -> None:
    counts = "SELECT * FROM sampled_counts ORDER BY ALL"
    findings = "SELECT checkpoint, measure, scope, k, value FROM findings WHERE value IS NOT NULL ORDER BY ALL"
    before = [_rows(place, counts), _rows(place, findings)]
    _confirm(place)
    assert [_rows(place, counts), _rows(place, findings)] == before
    drawn = "SELECT t.seed, count(*) AS n FROM samples JOIN settings AS t USING (settings_id) GROUP BY ALL ORDER BY n"
    seeds = [seed for seed, _ in _rows(place, drawn)]
    assert len(set(seeds)) == 2
    # other random numbers, too: of 8 indices that both have, an untrained base repeats hardly any
    same = """
    SELECT count(*) FILTER (a.text = b.text), count(*)
    FROM samples AS a
    JOIN samples AS b USING (checkpoint_id, problem_id, sample_index)
    JOIN series_checkpoints AS c USING (checkpoint_id)
    WHERE c.is_base AND NOT a.greedy AND NOT b.greedy AND a.settings_id < b.settings_id
    """
    equal, both = _rows(place, same)[0]
    assert both >= 3 * N_BASE
    assert equal < 0.2 * both


@pytest.mark.slow
def test_again_it_draws_nothing_and_needs_no_checkpoint(place: Path) -> None:
    first = _confirm(place)
    again = _confirm(place, path=Path("/nowhere"))
    assert again.samples_drawn == 0
    assert again.tested == first.tested


@pytest.mark.slow
def test_as_many_fresh_samples_as_the_base_has_by_default(place: Path) -> None:
    assert _confirm(place, fresh=None).fresh == N_BASE


class _StopsAfter(SilentProgress):
    """Ends the process, as far as the code can tell, once so many batches are committed."""

    def __init__(self, batches: int) -> None:
        self._left = batches

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage that is not ended when its turn comes."""

        def advance(count: int) -> None:
            self._left -= 1
            if not self._left:
                raise KeyboardInterrupt

        yield advance


@pytest.mark.slow
def test_killed_while_it_draws_or_grades_the_same_command_ends_in_the_same(place: Path, tmp_path: Path) -> None:
    whole_path = tmp_path / "whole" / "audit.duckdb"
    shutil.copytree(place.parent, whole_path.parent)
    whole = _confirm(whole_path)
    n_batches = whole.samples_drawn // 16
    for batches in (1, n_batches // 2, n_batches // 2):  # drawing from the base, from the late model, grading
        with pytest.raises(KeyboardInterrupt):
            _confirm(place, progress=_StopsAfter(batches))
    result = _confirm(place)
    held = "SELECT * FROM samples ORDER BY ALL"
    with open_store(place) as killed, open_store(whole_path) as never_killed:
        assert killed.frame(held).equals(never_killed.frame(held))
    assert result.samples_drawn < whole.samples_drawn
    assert result.tested == whole.tested


@pytest.mark.slow
def test_a_moved_run_is_named_and_found_where_it_lies_now(place: Path, audited: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (audited / "run").rename(moved)
    try:
        with pytest.raises(CheckpointError, match=r"checkpoint-0: .*run/checkpoint-0 does not exist; pass --path"):
            _confirm(place)
        assert _confirm(place, path=moved).samples_drawn
    finally:
        moved.rename(audited / "run")


@pytest.mark.slow
def test_other_weights_at_the_same_place_are_refused(
    place: Path, audited: Path, tmp_path: Path, make_checkpoint: Callable[[Path, int], Path]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(audited / "run" / "checkpoint-0", run / "checkpoint-0")
    make_checkpoint(run / "checkpoint-20", 77)
    with pytest.raises(CheckpointError, match=r"checkpoint-20: the weights of .* differ from the audited ones"):
        _confirm(place, path=run)
    assert _rows(place, "SELECT count(*) AS n FROM confirmations") == [[0]]


@pytest.mark.slow
def test_the_most_striking_problems_come_first(place: Path) -> None:
    result = _confirm(place, most=1)
    assert [one.change for one in result.tested] == ["lost", "gained"]
    assert [problem.source_id for problem in result.problems][1] == "gained-1"


@pytest.mark.slow
def test_a_longer_shortlist_takes_the_place_of_a_shorter_one_and_a_shorter_one_does_not(place: Path) -> None:
    shorter = _confirm(place, most=1)
    longer = _confirm(place)
    assert longer.samples_drawn == 2 * FRESH * (len(longer.tested) - 2)
    first = shorter.tested[0]
    again = next(one for one in longer.tested if one.problem_id == first.problem_id)
    assert replace(again, p_adjusted=first.p_adjusted) == first
    assert again.p_adjusted > first.p_adjusted  # corrected over more problems now
    held = "SELECT * FROM confirmations ORDER BY problem_id"
    rows = _rows(place, held)
    assert len(rows) == len(longer.tested)
    back = _confirm(place, most=1)
    assert {one.problem_id: one for one in back.tested} == {one.problem_id: one for one in longer.tested}
    assert [one.change for one in back.tested] == sorted((one.change for one in longer.tested), reverse=True)
    assert back.n_earlier == len(longer.tested) - 2
    assert _rows(place, held) == rows


@pytest.mark.slow
def test_fresh_samples_cannot_be_added_after_a_look_until_the_test_says_yes(place: Path) -> None:
    first = _confirm(place)
    for fresh in (2 * FRESH, FRESH // 2):
        with pytest.raises(ConfigError, match=rf"--fresh {fresh}: these problems were tested with {FRESH} fresh"):
            _confirm(place, fresh=fresh)
    assert _confirm(place, fresh=None).tested == first.tested  # not N_BASE, the default of a first test
    assert _rows(place, "SELECT count(*) AS n FROM samples GROUP BY settings_id ORDER BY n")[-1] == [
        2 * FRESH * len(first.tested)
    ]


@pytest.mark.slow
def test_a_problem_keeps_the_direction_in_which_it_was_tested(place: Path) -> None:
    first = _confirm(place)
    gained = next(one for one in first.tested if one.change == "gained")
    with Store.open(place) as store:
        store._database.rows("UPDATE confirmations SET change = 'lost' WHERE problem_id = ?", [gained.problem_id])
    again = next(one for one in _confirm(place).tested if one.problem_id == gained.problem_id)
    assert (again.change, again.confirmed) == ("lost", False)


@pytest.mark.slow
def test_an_audit_that_did_not_end_is_refused(place: Path) -> None:
    with Store.open(place) as store:
        store._database.rows("DELETE FROM grades")
    with pytest.raises(StoreError, match="lacks graded samples of its base"):
        _confirm(place)


@pytest.mark.slow
def test_a_sampler_that_cannot_run_here_is_not_replaced_by_another(place: Path) -> None:
    with Store.open(place) as store:
        store._database.rows("UPDATE settings SET sampler = 'of-another-machine'")
    with pytest.raises(SamplerError, match="need the audit's sampler of-another-machine, which cannot run here"):
        _confirm(place)


def test_a_missing_store_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such store"):
        confirm(tmp_path / "audit.duckdb", ConfirmConfig())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"most": 0}, "--most 0"), ({"fresh": 0}, "--fresh 0"), ({"batch_size": 0}, "--batch-size 0")],
)
def test_numbers_that_cannot_work_are_refused_at_once(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ConfirmConfig(**changes)


@pytest.mark.slow
def test_settings_and_problems_are_read_back_as_they_were(place: Path, audited: Path) -> None:
    problems = load_problems(audited / "problems.jsonl", None)
    with open_store(place) as store:
        held = stored_problems(store, [problem.problem_id for problem in problems])
        settings_id = store.frame("SELECT settings_id FROM current_audits")["settings_id"].iloc[0]
        settings = stored_settings(store, settings_id)
    for problem, read in zip(problems, held, strict=True):
        assert read.problem_id == problem.problem_id
        assert sorted(read.modes) == sorted(problem.modes)
        assert (read.prompt, read.gold, read.verifier, read.source_id, dict(read.meta)) == (
            *(problem.prompt, problem.gold, problem.verifier, problem.source_id),
            dict(problem.meta),
        )
    fresh = fresh_settings(settings)
    assert replace(fresh, seed=settings.seed) == settings
    assert fresh.settings_id != settings.settings_id


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_the_command_prints_a_row_per_problem(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["confirm", str(place), "--fresh", str(FRESH), "--quiet"])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert "lost-1" in out
    assert "confirmed     2 of 2 lost" in out
    assert "lost          2 without a correct fresh sample at checkpoint-20" in out
    assert "report.html" in out
    with pytest.raises(SystemExit):
        main(["confirm", str(place), "--fresh", str(FRESH), "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert summary["samples_drawn"] == 0
    assert {row["confirmed"] for row in summary["problems"] if row["change"] == "lost"} == {True}
