"""``ship`` uses the recommendation in the verdicts until a sample, grade or setting changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from oversharp.diagnostics.audit.counts import recorded
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.audit.measure import conclude
from oversharp.diagnostics.audit.shipping import ship
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.verdict.counts import SeriesCounts
from tests.audit.test_plan import _plant as plant_counts
from tests.audit.test_shipping import BASE, DEAD, ONE_LOST, RISEN

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("recorded")]

LATE = "(SELECT checkpoint_id FROM series_checkpoints WHERE series = 'iac' AND step = 40)"
FIRST = "(SELECT min(problem_id) FROM problems)"
#: What happened → statements after which a recorded recommendation must not be used.
CHANGES = {
    "a new sample": f"""
        INSERT INTO samples SELECT * REPLACE (99 AS sample_index) FROM samples
        WHERE checkpoint_id = {LATE} AND problem_id = {FIRST} AND sample_index = 0""",
    "deleted samples": f"DELETE FROM samples WHERE checkpoint_id = {LATE} AND problem_id = {FIRST}",
    "another response": f"UPDATE samples SET response_id = 'other' WHERE checkpoint_id = {LATE} AND sample_index = 1",
    "samples exchanged": f"""
        UPDATE samples SET sample_index = CASE sample_index WHEN 0 THEN 7 ELSE 0 END
        WHERE checkpoint_id = {LATE} AND sample_index IN (0, 7)""",
    "grades in place": f"UPDATE grades SET correct = NOT correct WHERE problem_id = {FIRST}",
    "deleted grades": f"DELETE FROM grades WHERE problem_id = {FIRST}",
    "another problem set": f"DELETE FROM audit_problems WHERE problem_id = {FIRST} AND audit_id = 'iac'",
    "a cluster": "UPDATE audit_problems SET cluster = 'one' WHERE audit_id = 'iac' AND position < 2",
    "another audit of the series": """
        INSERT INTO audits SELECT * REPLACE ('later' AS audit_id, updated_at + INTERVAL 1 DAY AS updated_at)
        FROM audits WHERE audit_id = 'iac';
        INSERT INTO audit_problems SELECT * REPLACE ('later' AS audit_id) FROM audit_problems WHERE audit_id = 'iac';
        INSERT INTO audit_verdicts SELECT * REPLACE ('later' AS audit_id) FROM audit_verdicts WHERE audit_id = 'iac'""",
    "a base": "UPDATE series_checkpoints SET checkpoint_id = 'grpo0' WHERE series = 'grpo' AND is_base",
    "a left-out checkpoint": """
        UPDATE audits SET provenance = '{"left_out": {"checkpoint-40": "killed"}}' WHERE audit_id = 'iac'""",
    "an edited verdict": """
        UPDATE audit_verdicts SET document = json_merge_patch(document, '{"label": "no_verdict"}')""",
    "no verdict": "DELETE FROM audit_verdicts WHERE audit_id = 'iac'",
}


@pytest.fixture(scope="module")
def concluded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two comparable series up to their verdicts."""
    folder = tmp_path_factory.mktemp("recorded")
    for name, correct_TP in {"grpo": [BASE, RISEN, DEAD], "iac": [BASE, RISEN, ONE_LOST]}.items():
        path = plant_counts(folder, correct_TP, name=name, n_base=16)
    with Store.open(path) as store:
        store._database.rows("UPDATE series_checkpoints SET checkpoint_id = 'iac0' WHERE is_base")
        for name in ("grpo", "iac"):
            conclude(store, stored_key(store, name), {}, {}, SilentProgress())
    return path


@pytest.fixture
def path(concluded: Path, tmp_path: Path) -> Path:
    """A copy of the store with its record."""
    for suffix in (".duckdb", ".made.json"):
        shutil.copy(concluded.with_suffix(suffix), tmp_path)
    return tmp_path / concluded.name


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Series whose samples were counted, in order."""
    names: list[str] = []

    def read(store: Store, key: AuditKey, failed: dict[str, str], skipped: dict[str, str]) -> SeriesCounts:
        names.append(key.series)
        return read_counts(store, key, failed, skipped)

    monkeypatch.setattr("oversharp.diagnostics.audit.counts.series.read_counts", read)
    return names


def test_an_unchanged_store_gives_the_recommendation_without_counting(path: Path, counted: list[str]) -> None:
    (quick,) = ship(path)
    assert (quick.series, counted) == (("grpo", "iac"), [])
    assert ship(path, series=["iac", "grpo"]) == (quick,)
    assert counted == []
    path.with_suffix(".made.json").unlink()  # as in a store of an earlier version
    assert ship(path) == (quick,)
    assert counted == ["grpo", "iac"]


def test_every_other_question_counts_the_samples(path: Path, counted: list[str]) -> None:
    for asked in ({"series": ["iac"]}, {"allow_loss_points": 1.0}, {"held_out": True}):
        counted.clear()
        ship(path, **asked)
        assert counted, asked


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_store_is_counted_again(path: Path, counted: list[str], change: str) -> None:
    with Store.open(path) as store:
        for statement in CHANGES[change].split(";"):
            store._database.rows(statement)
    now = ship(path)
    assert set(counted) == {"grpo", "iac"}
    path.with_suffix(".made.json").unlink()
    assert ship(path) == now


def test_a_change_that_was_undone_needs_no_count(path: Path, counted: list[str]) -> None:
    flip = f"UPDATE grades SET correct = NOT correct WHERE problem_id = {FIRST}"
    for _ in range(2):
        with Store.open(path) as store:
            store._database.rows(flip)
    ship(path)
    assert counted == []


def test_a_new_series_is_counted_until_it_has_a_verdict(path: Path, counted: list[str]) -> None:
    plant_counts(path.parent, [BASE, RISEN], name="third", n_base=16)
    assert len(ship(path)) == 2  # it has another base
    assert counted == ["grpo", "iac", "third"]
    with Store.open(path) as store:
        conclude(store, stored_key(store, "third"), {}, {}, SilentProgress())
    counted.clear()
    quick = ship(path)
    assert ([one.series for one in quick], counted) == ([("grpo", "iac"), ("third",)], [])
    path.with_suffix(".made.json").unlink()
    assert ship(path) == quick


def test_a_recommendation_of_other_code_is_computed_again(
    path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in ("edited", None):  # None: a package adds measures, whose code is not hashed
        monkeypatch.setattr(recorded, "CODE", code)
        counted.clear()
        ship(path)
        assert set(counted) == {"grpo", "iac"}


def test_a_damaged_record_is_not_used(path: Path, counted: list[str]) -> None:
    record = path.with_suffix(".made.json")
    entries = json.loads(record.read_text())
    entries["recommendation of grpo, iac"]["made_from"] = "0"
    record.write_text(json.dumps(entries))
    ship(path)
    assert set(counted) == {"grpo", "iac"}
