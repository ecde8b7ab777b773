"""A kept series has the same rows as its views, and is dropped after the block."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.store import Store, kept
from oversharp.diagnostics.store.kept import KEPT_COLUMNS, NOT_KEPT, OF_TEXTS
from oversharp.diagnostics.store.kept import count_samples as counted_samples
from tests.audit.test_counts import plant

pytestmark = pytest.mark.slow

VIEWS = ("graded_samples", "problem_counts", "sampled_counts", "answer_counts", "greedy_grades", "base_responses")
#: Letters are correct, capitals are modes; !, ? and ~ are unparsed.
RESPONSES = {
    (0, 0): "ABAa!?~.", (0, 20): "AA.a", (1, 0): "BBBBcccc", (1, 20): "bB!a", (2, 0): "........", (2, 20): "aaaa",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of the series "run" and of "other", with the same checkpoints and another verifier."""
    place = tmp_path / "audit.duckdb"
    with Store.open(place) as store:
        plant(store, RESPONSES, n=4, n_base=8, planned={(1, 20): 3})
        run = store._database.rows
        run("INSERT INTO samples SELECT * REPLACE (true AS greedy) FROM samples WHERE sample_index = 0")
        run("UPDATE samples SET text = '```' || text WHERE text = 'A'")
        run("INSERT INTO series SELECT * REPLACE ('other' AS series) FROM series")
        run("INSERT INTO series_checkpoints SELECT * REPLACE ('other' AS series) FROM series_checkpoints")
        run("INSERT INTO audits SELECT * REPLACE ('other' AS series, 'b' AS audit_id, 'v' AS verifier) FROM audits")
        run("INSERT INTO audit_problems SELECT * REPLACE ('b' AS audit_id) FROM audit_problems")
        run("INSERT INTO grades SELECT * REPLACE ('v' AS verifier, true AS correct) FROM grades WHERE answer <> '~'")
    return place


@pytest.fixture(params=[False, True], ids=["writer", "reader of a store with other views"])
def store(path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Joined in parts of one problem or two."""
    monkeypatch.setattr(kept, "SAMPLES_PER_PART", 24)
    if request.param:
        with duckdb.connect(path) as connection:
            connection.execute("UPDATE schema_version SET views_hash = 'older'")
            connection.execute("CREATE OR REPLACE VIEW graded_samples AS SELECT 1 AS one")
    with Store.open(path, read_only=request.param) as opened:
        yield opened


def rows(store: Store, view: str) -> pd.DataFrame:
    columns = ", ".join(KEPT_COLUMNS) if view == "graded_samples" else "*"
    return store.frame(f"SELECT {columns} FROM {view} ORDER BY ALL")


@pytest.mark.slow
def test_a_view_says_of_kept_series_and_of_others_what_it_says_without(store: Store) -> None:
    before = {view: rows(store, view) for view in VIEWS}
    assert [set(said["series"]) for said in before.values()] == [{"run", "other"}] * len(VIEWS)

    def require_as_before() -> None:
        for view in VIEWS:
            pd.testing.assert_frame_equal(rows(store, view), before[view], obj=view)

    with store.kept.keep("run"):
        require_as_before()
        with store.kept.keep("other"), store.kept.keep("run"):
            require_as_before()
        with store.kept.bypass():
            assert len(store.frame("SELECT text FROM graded_samples"))
        require_as_before()
    require_as_before()


@pytest.mark.slow
def test_what_is_read_of_texts_is_no_column_where_no_text_was_read(store: Store) -> None:
    less = ", ".join(name for name in KEPT_COLUMNS if name not in OF_TEXTS)
    before = store.frame(f"SELECT {less} FROM graded_samples ORDER BY ALL")
    with store.kept.keep("run", texts=False):
        pd.testing.assert_frame_equal(store.frame("FROM graded_samples ORDER BY ALL"), before)
        with store.kept.keep("run", texts=False), pytest.raises(StoreError, match="strategy"):
            store.frame("SELECT strategy FROM graded_samples")
        with pytest.raises(ValueError, match="without the columns derived from texts"), store.kept.keep("run"):
            pass
    with store.kept.keep("run"):
        assert set(store.frame("SELECT strategy FROM graded_samples")["strategy"]) == {"code", "prose"}


@pytest.mark.slow
def test_what_is_kept_is_said_and_nothing_is_left_of_it(store: Store) -> None:
    columns = set(store.frame("FROM graded_samples LIMIT 0"))
    assert columns == {*KEPT_COLUMNS, *NOT_KEPT}
    with store.kept.keep("run"), pytest.raises(StoreError, match="text"):
        store.frame("SELECT text FROM graded_samples")
    assert set(store.frame("FROM graded_samples LIMIT 0")) == columns
    left = store.frame("SELECT table_name AS name FROM duckdb_tables() WHERE table_name LIKE 'kept%'")
    assert left.empty


def test_the_strategy_follows_the_pattern_of_its_audit(store: Store) -> None:
    shares = "SELECT text LIKE '```%' AS fenced, strategy FROM graded_samples GROUP BY ALL ORDER BY ALL"
    assert store.frame(shares).to_numpy().tolist() == [[False, "prose"], [True, "code"]]


@pytest.mark.slow
def test_counts_that_are_made_once_are_those_of_the_views(store: Store) -> None:
    views = ("sampled_counts", "problem_counts", "read_counts")
    run = store._database.rows
    if not store._database._read_only:
        run("UPDATE samples SET finish_reason = 'stop' WHERE finish_reason IS NULL")
        run("UPDATE samples SET finish_reason = 'length' WHERE text IN ('?', '!')")
    before = {view: rows(store, view) for view in views}
    assert not before["sampled_counts"].equals(before["problem_counts"])
    store.kept.count(lambda total: SilentProgress().stage("count", total))
    for view in views:
        pd.testing.assert_frame_equal(rows(store, view), before[view])


@pytest.mark.parametrize("query", ["SELECT sum(n) AS n FROM problem_counts", "SELECT sum(n) AS n FROM Read_Counts"])
def test_a_user_who_asks_a_large_store_for_counts_has_all_samples_counted_in_parts_once(
    path: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    monkeypatch.setattr(kept, "count_samples", lambda *of: counted.append(of) or counted_samples(*of))
    with Store.open_for_user(path) as store:
        small = store.frame(query)["n"].item()
        assert not counted
        monkeypatch.setattr(kept, "COUNTED_FROM", 0)
        store.frame("SELECT count(*) FROM graded_samples")
        assert not counted
        assert store.frame(query)["n"].item() == small > 0
        assert next(iter(store.parts(query)))["n"].item() == small
        assert len(counted) == 1
