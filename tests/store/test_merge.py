"""Merged stores: shards give the whole audit, no row is added twice, and mismatches are refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.audit.audit import audit, audit_shard
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.shard import Shard
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.merge import merge

pytestmark = pytest.mark.xdist_group("merging")

COUNTS = "SELECT step, problem_id, n, n_correct FROM problem_counts ORDER BY ALL"
FINDINGS = "SELECT step, measure, scope, k, value, low, high, n, why FROM findings ORDER BY ALL"
#: Measures of rounding errors, which depend on the shapes of batches.
OF_ROUNDING = ("scoring_noise", "sampler_scorer_gap")


def _config(out: Path, **changes: object) -> AuditConfig:
    small = {"task": "countdown", "limit": 5, "n": 8, "panel": 2, "entropy_samples": 4, "sampler": "transformers"}
    kernel = {"kernel_problems": 1, "kernel_responses": 3}
    return AuditConfig(**{**small, **kernel, "name": "run", "out": out, **changes})


@pytest.fixture(scope="module")
def run(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The series with training responses, one of them in two intervals."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    shutil.copytree(countdown_series, folder)
    (folder / "rollouts").mkdir()
    said = {"prompt": "1 2 3 = 7 :", "truncated": False, "correct": True}
    drawn = ((5, "1 + 2 * 3"), (6, "2 * 3 + 1"), (25, "1 + 2 * 3"))
    rows = [{"step": step, "response": text, **said} for step, text in drawn]
    pd.DataFrame(rows).to_parquet(folder / "rollouts" / "step_000040.parquet")
    return folder


@pytest.fixture(scope="module")
def shards(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The stores of an audit in two shards."""
    root = tmp_path_factory.mktemp("shards")
    results = [audit_shard([run], _config(root / str(index)), Shard(index=index, of=2)) for index in range(2)]
    assert [result.n_problems for result in results] == [3, 2]
    return [result.store_path for result in results]


def _contents(store_path: Path) -> dict[str, list[tuple]]:
    database = Database(store_path, read_only=True)
    try:
        database.frame("FROM response_tokens LIMIT 0", {})
        tables = sorted(row[0] for row in database.rows("SELECT table_name FROM duckdb_tables() WHERE NOT internal"))
        return {name: database.rows(f"FROM {name} ORDER BY ALL") for name in (*tables, "response_tokens")}
    finally:
        database.close()


@pytest.mark.slow
def test_two_shards_make_the_audit_of_one_process_without_drawing_again(
    run: Path, shards: list[Path], tmp_path: Path
) -> None:
    whole = audit([run], _config(tmp_path / "whole"))
    merged = merge(shards, tmp_path / "merged")
    assert merged.to_conclude == merged.series == ("run",)
    assert merged.samples_added == whole.samples_drawn
    with open_store(merged.store_path) as store:
        scored = store.frame("FROM response_logps ORDER BY ALL")
    concluded = audit([run], _config(tmp_path / "merged"))
    assert concluded.samples_drawn == 0
    with open_store(whole.store_path) as one, open_store(concluded.store_path) as other:
        assert other.frame("FROM response_logps ORDER BY ALL").equals(scored)
        assert len(scored) == len(one.frame("FROM response_logps"))
        doubled = "SELECT count(*) - count(DISTINCT (checkpoint_id, problem_id, response_id)) AS n FROM response_tokens"
        assert other.frame(doubled)["n"].iloc[0] == 0
        identities = "SELECT * EXCLUDE (logp_sum_raw) FROM samples ORDER BY ALL"
        assert other.frame(identities).astype(str).equals(one.frame(identities).astype(str))
        assert other.frame(COUNTS).equals(one.frame(COUNTS))
        found, expected = (side.frame(FINDINGS) for side in (other, one))
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-5)
    assert set(OF_ROUNDING) <= set(found["measure"])


@pytest.mark.slow
def test_a_store_that_was_merged_adds_nothing_and_a_killed_merge_goes_on(shards: list[Path], tmp_path: Path) -> None:
    once = merge(shards, tmp_path / "once")
    before = _contents(once.store_path)
    assert merge([shards[1], shards[0], shards[0]], tmp_path / "once").samples_added == 0
    assert _contents(once.store_path) == before

    class KilledError(Exception):
        pass

    killed = tmp_path / "killed"
    with pytest.MonkeyPatch.context() as planted:
        taken = Database.import_tokens

        def then_die(database: Database, folder: Path, names: list[str]) -> None:
            taken(database, folder, names)
            if folder.parent == shards[1].parent:
                raise KilledError

        planted.setattr(Database, "import_tokens", then_die)
        with pytest.raises(KilledError):
            merge(shards, killed)
    assert 0 < len(_contents(killed / "audit.duckdb")["samples"]) < len(before["samples"])
    merge(shards, killed)
    after = _contents(killed / "audit.duckdb")
    same = [name for name in before if name not in ("audits", "schema_version", "token_files")]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert len(list((killed / "audit.tokens").iterdir())) == len(after["token_files"])


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_series_of_different_stores_stand_side_by_side_with_their_verdicts(
    run: Path, countdown_series: Path, tmp_path: Path
) -> None:
    stores = [
        audit([series], _config(tmp_path / name, name=name, limit=2, n=4, kernel_problems=0)).store_path
        for name, series in (("one", countdown_series), ("two", run))
    ]
    result = merge(stores, tmp_path / "both")
    assert (result.series, result.to_conclude) == (("one", "two"), ())
    with open_store(result.store_path) as store:
        for name, path in zip(("one", "two"), stores, strict=True):
            with open_store(path) as own:
                query = "FROM findings WHERE series = $name ORDER BY ALL"
                assert store.frame(query, name=name).astype(str).equals(own.frame(query, name=name).astype(str))
                assert store.verdict(name) == own.verdict(name)
        # both series have the same base, sampled and scored twice
        common = ["checkpoint_id", "settings_id", "problem_id"]
        assert not store.frame("FROM samples").duplicated([*common, "greedy", "sample_index"]).any()
        assert not store.frame("FROM response_tokens").duplicated([*common, "response_id"]).any()


def refused(stores: list[Path], out: Path) -> str:
    with pytest.raises(StoreError) as error:
        merge(stores, out)
    assert not out.exists()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "message"),
    [
        ("UPDATE settings SET temperature = 0.5 FROM audits AS a WHERE settings.settings_id = a.settings_id",
         "with --temperature 0.5"),
        ("UPDATE settings SET temperature = 0.5 FROM audits AS a WHERE settings.settings_id = a.panel_settings_id",
         "with --panel-temperature 0.5"),
        ("UPDATE audits SET n = 4", "with --n 4"),
        ("UPDATE audits SET first_round = 4, enough = 2", "with --until-solved 2, in "),
        ("DELETE FROM series_checkpoints WHERE step = 40", "checkpoint-40 of series 'run' is not in"),
        ("UPDATE series_checkpoints SET checkpoint_id = 'x' WHERE step = 40", "checkpoint-40 has other weights"),
        ("UPDATE series_checkpoints SET checkpoint_id = 'x' WHERE is_base", "has another base"),
        ("UPDATE audits SET provenance = '{}'", "did not end; run its command again"),
        ("UPDATE schema_version SET version = 1000", "written by newer oversharp"),
        ("ALTER TABLE schema_version ALTER version TYPE VARCHAR; UPDATE schema_version SET version = 'ten'",
         "its schema_version is 'ten', not a number: the store is damaged"),
        ("DELETE FROM series_checkpoints", "the audit of series 'run' has no checkpoints, so the store is damaged"),
        ("UPDATE series_checkpoints SET is_base = false", "has no base among its checkpoints"),
        ("DROP TABLE grades", "table grades missing: the store is damaged"),
        ("ALTER TABLE samples RENAME TO s; CREATE VIEW samples AS FROM s", "table samples missing"),
    ],
    ids=["temperature", "panel", "n", "rule", "fewer checkpoints", "weights", "base", "unfinished", "newer", "text",
         "nothing", "no base", "no grades", "a view"],
)  # fmt: skip
def test_a_shard_that_does_not_fit_is_refused_in_one_line(
    shards: list[Path], tmp_path: Path, planted: str, message: str
) -> None:
    other = Path(shutil.copy(shards[1], tmp_path / "other.duckdb"))
    with Store.open(other) as store:
        store._database.rows(planted)
    assert message in refused([shards[0], other], tmp_path / "out")


@pytest.mark.slow
def test_shards_with_different_stopping_rules_are_refused(shards: list[Path], tmp_path: Path) -> None:
    stores = [Path(shutil.copy(path, tmp_path / f"{index}.duckdb")) for index, path in enumerate(shards)]
    for path, (first_round, enough) in zip(stores, ((4, 2), (2, 2)), strict=True):
        with Store.open(path) as store:
            store._database.rows("UPDATE audits SET first_round = ?, enough = ?", [first_round, enough])
    assert "with --first 2, in " in refused(stores, tmp_path / "out")
    with Store.open(stores[1]) as store:
        store._database.rows("UPDATE audits SET first_round = 4")
    assert merge(stores, tmp_path / "out").samples_added > 0


@pytest.mark.slow
def test_a_shard_of_other_problems_a_missing_one_and_one_that_is_the_target_are_refused(
    run: Path, shards: list[Path], tmp_path: Path
) -> None:
    more = audit_shard([run], _config(tmp_path, limit=6, kernel_problems=0), Shard(index=1, of=2)).store_path
    one, out = shards[0], tmp_path / "out"
    assert "with --kernel-problems 0" in refused([one, more], out)
    with Store.open(more) as store:
        store._database.rows("UPDATE audits SET kernel_problems = 1")
    assert "on other problems" in refused([one, more], out)
    assert "shard 2/2 is missing" in refused([one], out)
    assert "no such store" in refused([one, tmp_path / "nowhere.duckdb"], out)
    with pytest.raises(ConfigError, match="one of the stores to merge"):
        merge(shards, shards[1].parent)


@pytest.mark.slow
def test_a_locked_store_is_named(shards: list[Path], tmp_path: Path) -> None:
    locked = Path(shutil.copy(shards[1], tmp_path / "locked.duckdb"))
    hold = "import duckdb, sys, time; c = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", hold, str(locked)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "held"
        with pytest.raises(StoreError, match=r"locked\.duckdb: locked by another process"):
            merge([shards[0], locked], tmp_path / "out")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "/", "1/2/3"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--shard {text}: "):
        Shard.from_text("--shard", text)


def test_more_shards_than_problems_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the problem set has 2 problems"):
        audit_shard([run], _config(tmp_path, limit=2), Shard(index=2, of=3))


@pytest.mark.slow
def test_views_of_a_strangers_store_are_made_anew_before_others_come_into_it(tmp_path: Path) -> None:
    other, path = tmp_path / "other.duckdb", tmp_path / "audit.duckdb"
    for one in (other, path):
        Store.open(one).close()
    with duckdb.connect(path) as stranger:  # with the hash of today's views
        stranger.execute("CREATE OR REPLACE VIEW graded_samples AS SELECT content FROM read_text('/etc/hostname')")
        stranger.execute("INSERT INTO token_files VALUES ('../other.duckdb', 'x')")
    merge([other], tmp_path)
    with Store.open(path) as store:
        assert "content" not in store.frame("FROM graded_samples").columns
    assert other.is_file()


def test_a_view_in_the_place_of_a_strangers_table_is_no_table(tmp_path: Path) -> None:
    path, letter = tmp_path / "stranger.duckdb", tmp_path / "letter.txt"
    letter.write_text("private")
    Store.open(path).close()
    reading = f"SELECT 'audit' AS audit_id, 'draw' AS stage, content AS note FROM read_text('{letter}')"
    with duckdb.connect(path) as stranger:
        stranger.execute("CREATE SCHEMA aside; CREATE TABLE aside.events AS FROM main.events; DROP TABLE main.events")
        stranger.execute(f"CREATE VIEW events AS {reading}")
    with pytest.raises(StoreError, match="table events missing: the store is damaged"):
        merge([path], tmp_path)


@pytest.mark.slow
def test_who_merges_reaches_the_stores_that_are_named_and_no_other_file(tmp_path: Path) -> None:
    other, letter = tmp_path / "other.duckdb", tmp_path / "letter.txt"
    letter.write_text("private")
    Store.open(other).close()
    with closing(Database(tmp_path / "audit.duckdb", read_only=False, others=[other])) as database:
        with database.attach(other):
            assert database.rows("FROM other.samples") == []
        with pytest.raises(StoreError, match="disabled"):
            database.rows(f"FROM read_text('{letter}')")


def test_a_store_of_an_earlier_version_lacks_trajectories_and_is_read_extended_and_merged(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path):
        pass
    with duckdb.connect(str(path)) as database:  # as an earlier version wrote it
        for view in ("turns", "calls"):
            database.execute(f"DROP VIEW {view}")
        database.execute("DROP TABLE trajectories")
        database.execute("DROP TABLE agent_settings")
        database.execute("UPDATE schema_version SET views_hash = 'earlier'")
    with Store.open(path, read_only=True) as store:
        assert store.frame("SELECT * FROM calls").empty
    with (
        closing(Database(tmp_path / "new.duckdb", read_only=False, others=[path])) as database,
        database.attach(path),
    ):
        assert database.rows("SELECT * FROM other.trajectories") == []
    with Store.open(path) as store:
        assert store.frame("SELECT * FROM turns").empty
    with duckdb.connect(str(path), read_only=True) as database:
        assert database.execute("SELECT count(*) FROM trajectories").fetchall() == [(0,)]
