"""Ways in the store: each text is parsed once, and new ones are merged with existing ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import duckdb
import pytest

from oversharp.diagnostics.engine.ways import read_ways
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.ways.reader import NO_STEP, StepsReader
from tests.audit.small_audits import Notes

KEY = SimpleNamespace(series="run", audit_id="audit")
TEXTS = {
    "base": ("16 - 3 = 13, 13 * 2 = 26", "13 * 2 = 26 since 16 - 3 = 13", "16 * 2 = 32, 3 * 2 = 6, 32 - 6 = 26", "27"),
    "late": ("16 - 3 = 13, 13 * 2 = 26", "It is 26.", "16 - 3 = 13, 13 * 2 = 26", "28"),
}


def filled(path: Path, texts=TEXTS) -> Path:
    """One problem, four samples of each checkpoint, the last one wrong."""
    Store.open(path).close()
    with duckdb.connect(str(path)) as db:
        for step, (name, own) in enumerate(texts.items()):
            db.execute("INSERT INTO series_checkpoints VALUES ('run', ?, ?, ?, ?, '')", [name, step, name, step == 0])
            for index, text in enumerate(own):
                row = [name, index, text, text]
                db.execute("INSERT INTO samples VALUES (?, 'q', 's', false, ?, ?, ?, NULL, 3, NULL, NULL, NULL)", row)
                db.execute(
                    "INSERT INTO grades SELECT 'q', $1, 'exact', '', NULL, $2::INT, $2, 'ok', '', NULL, 1, NULL, NULL "
                    "WHERE NOT EXISTS (FROM grades WHERE response_id = $1)",
                    [text, index < 3],
                )
        db.execute("INSERT INTO problems VALUES ('q', 't', '', '26', 'exact', NULL, NULL, '{}')")
        db.execute("INSERT INTO audit_problems VALUES ('audit', 0, 'q', NULL)")
        db.execute("""
            INSERT INTO audits BY NAME
            SELECT 'audit' AS audit_id, 'run' AS series, 's' AS settings_id, 4 AS n, 4 AS n_base, 0 AS entropy_samples,
                   [1] AS ks, '' AS strategy_regex, now()::TIMESTAMP AS updated_at, '{}' AS provenance, 0 AS panel,
                   0 AS kernel_problems, 0 AS kernel_responses, 1 AS runs""")
    return path


class CountingReader(StepsReader):
    def __init__(self, version: int = 1) -> None:
        self.version, self.texts = version, []

    def read(self, texts):
        self.texts += texts
        return super().read(texts)


@pytest.mark.slow
def test_each_correct_text_is_read_once_and_nearly_equal_ones_are_one_way(tmp_path: Path) -> None:
    reader = CountingReader()
    with Store.open(filled(tmp_path / "audit.duckdb")) as store:
        read_ways(store, KEY, SilentProgress(), reader)
        read_ways(store, KEY, SilentProgress(), reader)
        assert sorted(reader.texts) == sorted({text for own in TEXTS.values() for text in own[:3]})
        rows = store.frame(
            "SELECT way, first_half, checkpoint, n, why FROM way_counts WHERE level = 'way' ORDER BY ALL"
        )
    assert rows.astype(object).where(rows.notna(), None).to_numpy().tolist() == [
        ["arithmetic: 13 26", False, "late", 1, None],
        ["arithmetic: 13 26", True, "base", 2, None],
        ["arithmetic: 13 26", True, "late", 1, None],
        ["arithmetic: 26 32 6", False, "base", 1, None],
        [None, True, "late", 1, NO_STEP],
    ]


@pytest.mark.slow
def test_levels_are_nested(tmp_path: Path) -> None:
    code = "```python\nprint((16 - 3) * 2)\n```"
    texts = {
        "base": (code, "16 - 3 = 13, 13 * 2 = 26", "5 * 4 = 20", "x"),
        "late": ("2 + 4 = 6", "3 * 8 = 24", "1", "x"),
    }
    with Store.open(filled(tmp_path / "audit.duckdb", texts)) as store:
        read_ways(store, KEY, SilentProgress(), CountingReader())
        rows = store.frame("SELECT level, way FROM way_counts WHERE way IS NOT NULL")
    classes = {level: set(own["way"]) for level, own in rows.groupby("level")}
    assert {name.partition(": ")[0] for name in classes["written"]} == classes["strategy"] == {"code", "arithmetic"}
    assert classes["way"] == classes["written"] == {
        "code: 13 26", "arithmetic: 13 26", "arithmetic: 20", "arithmetic: 6", "arithmetic: 24",
    }  # fmt: skip
    assert classes["operations"] == {"code: *1 +1", "arithmetic: *1 +1", "arithmetic: *1", "arithmetic: +1"}


@pytest.mark.slow
def test_a_reader_of_another_version_reads_anew_and_nothing_is_there_twice(tmp_path: Path) -> None:
    later = CountingReader(version=2)
    with Store.open(filled(tmp_path / "audit.duckdb")) as store:
        read_ways(store, KEY, SilentProgress(), CountingReader())
        read_ways(store, KEY, SilentProgress(), later)
        held = store.frame("SELECT reader, count(*) AS n FROM response_ways GROUP BY ALL").to_numpy().tolist()
    assert len(later.texts) == 4
    assert held == [["steps 2", 4]]


def test_a_killed_reading_goes_on_where_it_was(tmp_path: Path) -> None:
    class Dying(CountingReader):
        joined_from = property(lambda self: (_ for _ in ()).throw(KeyboardInterrupt))

    with Store.open(filled(tmp_path / "audit.duckdb")) as store:
        with pytest.raises(KeyboardInterrupt):
            read_ways(store, KEY, SilentProgress(), Dying())
        again = CountingReader()
        read_ways(store, KEY, SilentProgress(), again)
        assert again.texts == []
        assert store.frame("SELECT count(way) AS n FROM response_ways")["n"].item() == 3


def test_of_more_samples_than_would_be_worth_it_none_is_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, progress = CountingReader(), Notes()
    with Store.open(filled(tmp_path / "audit.duckdb")) as store:
        monkeypatch.setattr("oversharp.diagnostics.engine.ways.MOST_SAMPLES", 7)  # there are 8
        read_ways(store, KEY, progress, reader)
        assert reader.texts == []
        assert progress.notes == ["ways of solving are skipped: 8 samples are more than 7"]
        assert not store.ways.has_any()
        monkeypatch.setattr("oversharp.diagnostics.engine.ways.MOST_SAMPLES", 8)
        read_ways(store, KEY, progress, reader)
        assert store.ways.has_any()
