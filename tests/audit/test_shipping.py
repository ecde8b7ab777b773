"""Which checkpoint of a store to ship: which series are compared, what the view says, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from diagnostics.app.cli import main
from diagnostics.audit.measure import conclude
from diagnostics.audit.shipping import ship
from diagnostics.records.errors import ConfigError, OversharpError
from diagnostics.records.progress import SilentProgress
from diagnostics.store import Store
from diagnostics.store.load import stored_key
from oversharp import open_store
from tests.audit.test_plan import _plant as plant_counts

#: Of 16 samples of the base, 8 of every other checkpoint: 40 problems half solved, and all but one of them always.
BASE, RISEN, ONE_LOST = [8] * 40, [6] * 40, [0] + [8] * 39
DEAD = [0] * 20 + [8] * 20


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


def test_the_view_says_of_a_series_what_the_command_says_of_it_alone(audited: Path) -> None:
    (said,) = ship(audited, series=["grpo"])
    with open_store(audited) as store:
        rows = store.frame("FROM shipping WHERE series = 'grpo' ORDER BY step").astype(object).replace({np.nan: None})
        stored = store.ship("grpo")
    assert stored is not None
    assert (stored.sentence, stored.guarantee) == (said.sentence, said.guarantee)
    assert [row.role for row in rows.itertuples()] == [one.role for one in said.steps]
    assert [row.role for row in rows.itertuples()] == ["candidate", "recommended", "out"]
    for row, one in zip(rows.itertuples(), said.steps, strict=True):
        assert (row.step, row.checkpoint, row.is_base, row.path) == (one.step, one.checkpoint, one.is_base, "/x")
        assert (row.pass_at_1, row.may_be_best, row.why) == (one.pass_at_1, one.may_be_best, one.why)
        if one.first is not None and one.worst is not None:
            assert (row.change, row.low, row.high) == (one.first.change, one.first.low, one.first.high)
            worst = (one.worst.k, one.worst.change, one.loss_at_most)
            assert (row.worst_k, row.worst_change, row.loss_at_most) == worst


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


def test_a_store_without_a_verdict_or_without_checkpoints_gives_a_reason(audited: Path, tmp_path: Path) -> None:
    (none,) = ship(_changed(audited, tmp_path, "DELETE FROM audit_verdicts"), series=["iac"])
    assert none.sentence == "No recommendation: there is no verdict yet; run the audit to its end."
    (alone,) = ship(_audited(tmp_path / "base", {"run": [BASE]}))
    assert alone.sentence == "No recommendation: the series has no checkpoint after the base."


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"allow_loss_points": -1.0}, "--allow-loss -1: must be 0 or more"),
        ({"allow_loss_points": 100.0}, "--allow-loss 100: must be 0 or more and below 100"),
        ({"allow_loss_points": float("nan")}, "--allow-loss nan"),
        ({"series": ["walk"]}, "no audit of it; there is: grpo, iac"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(audited: Path, asked: dict[str, object], message: str) -> None:
    with pytest.raises(OversharpError, match=message) as error:
        ship(audited, **asked)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ConfigError) or "series" in asked


def test_a_missing_store_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(OversharpError, match=r"is a directory; pass the audit\.duckdb in it"):
        ship(tmp_path)
    with pytest.raises(OversharpError, match=r"nowhere\.duckdb: no such store"):
        ship(tmp_path / "nowhere.duckdb")


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
    assert text.startswith("2 recommendations, each sure by itself")
    assert "of grpo:\nShip checkpoint-20: pass@1 50.0 % → 75.0 %; surely up by" in text
    assert "surely fell" in text
    assert text.count("◀") == 2
