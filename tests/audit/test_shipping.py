"""Which checkpoint of a store to ship: which series are compared, what the view says, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from oversharp import merge, open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit import freshness
from oversharp.diagnostics.audit.audit import AuditResult, reload_verdicts
from oversharp.diagnostics.audit.controls import control_settings
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.audit.measure import conclude
from oversharp.diagnostics.audit.shipping import ship
from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import AuditKey, Sample
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.verdict.counts import SeriesCounts
from tests.audit.test_plan import SETTINGS
from tests.audit.test_plan import _plant as plant_counts

pytestmark = pytest.mark.xdist_group("shipping")  # they share what takes seconds to make

#: Of 16 samples of the base, 8 of every other checkpoint: 40 problems half solved, and all but one of them always.
BASE, RISEN, ONE_LOST = [8] * 40, [6] * 40, [0] + [8] * 39
DEAD = [0] * 20 + [8] * 20
DRAWN = {"greedy": False, "logp_sum_raw": -1.0}


def _audited(folder: Path, runs: dict[str, Sequence[Sequence[int]]]) -> Path:
    """A store with these series, each its base first, up to the verdict."""
    for name, correct_TP in runs.items():
        path = plant_counts(folder, correct_TP, name=name, n_base=16)
    with Store.open(path) as store:
        for name in runs:
            conclude(store, stored_key(store, name), {}, {}, SilentProgress())
    return path


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two series of bases that are not known to be the same, although they said the same."""
    return _audited(tmp_path_factory.mktemp("two"), {"grpo": [BASE, RISEN, DEAD], "iac": [BASE, RISEN, ONE_LOST]})


def _changed(audited: Path, folder: Path, *statements: str) -> Path:
    path = folder / "audit.duckdb"
    path.write_bytes(audited.read_bytes())
    with Store.open(path) as store:
        for statement in statements:
            store._database.rows(statement)
    return path


@pytest.mark.slow
def test_view_and_python_say_of_every_series_what_the_command_says_of_all(audited: Path, tmp_path: Path) -> None:
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    with Store.open(path) as store:
        conclude(store, stored_key(store, "iac"), {}, {}, SilentProgress())
    (said,) = ship(path)
    assert said.series == ("grpo", "iac")
    for name, roles in (
        ("grpo", ["candidate", "candidate", "out"]),
        ("iac", ["candidate", "candidate", "recommended"]),
    ):
        with open_store(path) as store:
            frame = store.frame(f"FROM shipping WHERE series = '{name}' ORDER BY step")
            stored = store.ship(name)
        assert stored is not None
        assert (stored.sentence, stored.guarantee) == (said.sentence, said.guarantee)
        rows = list(frame.astype(object).replace({np.nan: None}).itertuples())
        assert [row.role for row in rows] == roles
        own = [one for one in said.steps if one.is_base or one.series == name]
        for row, one in zip(rows, own, strict=True):
            assert (row.step, row.checkpoint, row.is_base, row.path) == (one.step, one.checkpoint, one.is_base, "/x")
            assert (row.pass_at_1, row.may_be_best, row.why) == (one.pass_at_1, one.may_be_best, one.why)
            assert (row.temperature, row.out_by) == (None, one.out_by)
            if one.first is not None and one.worst is not None:
                assert (row.change, row.low, row.high) == (one.first.change, one.first.low, one.first.high)
                worst = (one.worst.k, one.worst.change, one.loss_at_most)
                assert (row.worst_k, row.worst_change, row.loss_at_most) == worst


@pytest.mark.slow
def test_series_that_were_merged_are_asked_together_what_to_ship(audited: Path, tmp_path: Path) -> None:
    ended = 'UPDATE audits SET provenance = \'{"command": "oversharp audit"}\''
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base", ended)
    with open_store(path) as store:  # each was audited alone
        before = [store.ship(name) for name in ("grpo", "iac")]
    assert [one.series for one in before if one is not None] == [("grpo",), ("iac",)]
    out = merge([path], tmp_path / "joined").store_path
    (said,) = ship(out)
    assert said.series == ("grpo", "iac")
    with open_store(out) as store:
        after = [store.ship(name) for name in ("grpo", "iac")]
    assert [one.sentence for one in after if one is not None] == [said.sentence] * 2


@pytest.mark.slow
def test_a_verdict_stands_when_another_series_moves_the_choice(audited: Path, tmp_path: Path) -> None:
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    with Store.open(path) as store:
        key = stored_key(store, "grpo")
        before = freshness._derivation(store, key, "evidence")
        conclude(store, stored_key(store, "iac"), {}, {}, SilentProgress())
        assert freshness._derivation(store, key, "evidence") == before
        store._database.rows("UPDATE audit_verdicts SET document = json_merge_patch(document, '{\"p_exact\": 0.5}')")
        assert freshness._derivation(store, key, "evidence") != before


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_a_process_that_audits_many_runs_reads_each_of_them_once_until_it_changes(
    audited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    read: list[str] = []

    def counted(store: Store, key: AuditKey, *left_out: dict[str, str]) -> SeriesCounts:
        read.append(key.series)
        return read_counts(store, key, *left_out)

    monkeypatch.setattr("oversharp.diagnostics.audit.counts.series.read_counts", counted)
    with Store.open(path) as store:
        keys = {name: stored_key(store, name) for name in ("grpo", "iac")}
        freshness.update_verdict(store, keys["grpo"], {}, {}, SilentProgress())
        read.clear()
        for _ in range(3):
            conclude(store, keys["iac"], {}, {}, SilentProgress())
        assert read == ["grpo"]
        late = "SELECT checkpoint_id FROM series_checkpoints WHERE series = 'grpo' AND step = 20"
        store._database.rows(f"UPDATE samples SET n_tokens = n_tokens + 1 WHERE checkpoint_id = ({late})")
        conclude(store, keys["iac"], {}, {}, SilentProgress())
        assert read == ["grpo", "grpo"]


@pytest.mark.slow
def test_results_of_several_audits_say_in_the_end_what_the_store_says(audited: Path, tmp_path: Path) -> None:
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    nothing = {"report_path": path, "left_out": {}, "without_kernel": {}, "samples_drawn": 0}
    with Store.open(path) as store:
        early = [
            AuditResult(
                series=name,
                verdict=conclude(store, stored_key(store, name), {}, {}, SilentProgress()),
                store_path=path,
                **nothing,
            )
            for name in ("grpo", "iac")
        ]
        store._database.rows(
            'UPDATE audit_verdicts SET document = json_merge_patch(document, \'{"sentence": "later"}\')'
        )
    assert [one.verdict.sentence for one in reload_verdicts(early)] == ["later", "later"]


@pytest.mark.slow
def test_the_base_at_a_lower_temperature_is_an_answer_and_told_once_for_both_series(
    audited: Path, tmp_path: Path
) -> None:
    path = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    colder = control_settings(SETTINGS, 0.5)
    with Store.open(path) as store:
        ids = store.frame("SELECT problem_id FROM problems")["problem_id"]
        always = [
            Sample(problem_id=one, sample_index=i, text="1", token_ids=(1,), finish_reason="stop", **DRAWN)
            for one in ids
            for i in range(8)
        ]
        for name in ("grpo", "iac"):
            store.add_control(stored_key(store, name), "iac0", colder, 8)
        store.add_samples(colder.settings_id, "iac0", always)
    (said,) = ship(path)
    assert said.recommended is not None
    assert (said.recommended.is_base, said.recommended.temperature) == (True, 0.5)
    assert [one.temperature for one in said.steps].count(0.5) == 1
    assert "Ship the base sampled at T = 0.5, without any training: pass@1 50.0 % → 100.0 %" in said.sentence
    assert "checkpoint-40 of iac, has no higher expected pass@1 (97.5 %)" in said.sentence


@pytest.mark.slow
def test_series_of_one_base_are_compared_with_each_other_and_of_others_not(audited: Path, tmp_path: Path) -> None:
    apart = ship(audited)
    assert [one.series for one in apart] == [("grpo",), ("iac",)]
    same = _changed(audited, tmp_path, "UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
    (both,) = ship(same)
    assert both.series == ("grpo", "iac")
    assert both.recommended is not None
    assert (both.recommended.series, both.recommended.step, both.recommended.path) == ("iac", 40, "/x")
    assert "95 % over 4 checkpoints and all k" in both.sentence
    (one,) = ship(same, series=["grpo"])
    assert one.recommended is not None
    assert one.recommended.step == 20


@pytest.mark.slow
def test_imported_samples_have_one_base_where_it_said_the_same_and_no_path(audited: Path, tmp_path: Path) -> None:
    recorded = "UPDATE checkpoints SET kind = 'recorded'"
    (both,) = ship(_changed(audited, tmp_path, recorded))
    assert both.series == ("grpo", "iac")
    assert both.recommended is not None
    assert both.recommended.path is None
    other = "UPDATE samples SET response_id = 'x' WHERE checkpoint_id = 'iac0' AND sample_index = 15"
    assert len(ship(_changed(audited, tmp_path, recorded, other))) == 2
    with open_store(tmp_path / "audit.duckdb") as store:
        assert store.frame("FROM shipping")["path"].isna().all()


@pytest.mark.slow
def test_a_store_without_a_verdict_or_without_checkpoints_gives_a_reason(
    audited: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (none,) = ship(_changed(audited, tmp_path, "DELETE FROM audit_verdicts"), series=["iac"])
    assert none.sentence == "No recommendation: there is no verdict yet; run the audit to its end."
    with pytest.raises(SystemExit) as stop:
        main(["ship", str(tmp_path / "audit.duckdb"), "--series", "iac"])
    assert stop.value.code == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert printed == "ship no recommendation: there is no verdict yet; run the audit to its end"
    (alone,) = ship(_audited(tmp_path / "base", {"run": [BASE]}))
    assert alone.sentence == "No recommendation: the series has no checkpoint after the base."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"allow_loss_points": -1.0}, "--allow-loss -1: must be 0 or more"),
        ({"allow_loss_points": 100.0}, "--allow-loss 100: must be 0 or more and below 100"),
        ({"allow_loss_points": float("nan")}, "--allow-loss nan"),
        ({"series": ["walk"]}, "has no audit of this series; audited series: grpo, iac"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(audited: Path, asked: dict[str, object], message: str) -> None:
    with pytest.raises(OversharpError, match=message) as error:
        ship(audited, **asked)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ConfigError) or "series" in asked


def test_a_missing_store_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(OversharpError, match=r"is a directory without an audit\.duckdb; name the file"):
        ship(tmp_path)
    with pytest.raises(OversharpError, match=r"nowhere\.duckdb: no such store"):
        ship(tmp_path / "nowhere.duckdb")


@pytest.mark.slow
def test_the_command_prints_the_choice_and_what_the_others_trade(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, expected in ((["--series", "grpo"], 1), ([], 2)):
        with pytest.raises(SystemExit) as stop:
            main(["ship", str(audited), "--json", *flags])
        assert not stop.value.code
        made = json.loads(capsys.readouterr().out)["recommendations"]
        assert len(made) == expected
        assert made[0]["recommended"]["step"] == 20
    with pytest.raises(SystemExit):
        main(["ship", str(audited)])
    text = capsys.readouterr().out
    assert text.startswith("note          2 recommendations: ")
    assert "series        grpo\nship          checkpoint-20\n" in text
    assert "pass@1         50.0 →  75.0   +25.0 [" in text
    assert "guarantee     pass@1 up by at least " in text
    assert "out           significant: some pass@k fell" in text
    # paths and commands stay on one line: they are copied
    assert max(len(line) for line in text.splitlines() if not line.startswith(("path", "next"))) <= 80
    assert text.count("◀") == 2
