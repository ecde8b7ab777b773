"""Without removed series a store is like one that never had them; a copy of the old store is kept."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet
import pytest

import oversharp
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import drop as module
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.token_files import TOKEN_IDENTITY
from tests.reports.conftest import write_store

pytestmark = [pytest.mark.xdist_group("dropping"), pytest.mark.usefixtures("few_figures"), pytest.mark.slow]
#: Columns that depend on time or machine, and tables with only such columns.
TIMES = {"applied_at", "logged_at", "updated_at", "wall_s", "provenance"}
OF_ONE_RUN = {"events", "schema_version", "token_files"}


def small(out: Path, name: str, **changes: object) -> AuditConfig:
    sizes = {"task": "countdown", "limit": 4, "n": 8, "panel": 2, "entropy_samples": 4, "sampler": "transformers"}
    kernel = {"kernel_problems": 1, "kernel_responses": 3}
    return AuditConfig(**{**sizes, **kernel, "name": name, "out": out, **changes})


@pytest.fixture(scope="module")
def runs(countdown_series: Path) -> dict[str, list[Path]]:
    """Two runs from the same base, one checkpoint each."""
    base = countdown_series / "checkpoint-0"
    return {name: [base, countdown_series / f"checkpoint-{step}"] for name, step in (("first", 20), ("second", 40))}


@pytest.fixture(scope="module")
def alone(runs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of only the first run."""
    out = tmp_path_factory.mktemp("alone")
    audit(runs["first"], small(out, "first"))
    return out / "audit.duckdb"


@pytest.fixture(scope="module")
def joined(alone: Path, runs: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store after an audit of the second run at another temperature, and one with its settings."""
    out = tmp_path_factory.mktemp("joined") / "audit"
    shutil.copytree(alone.parent, out)
    audit(runs["second"], small(out, "iac-7", temperature=0.7, top_p=0.9))
    audit(runs["second"], small(out, "dlc-9"))
    return out / "audit.duckdb"


@pytest.fixture
def both(joined: Path, tmp_path: Path) -> Path:
    """A writable copy of that store."""
    shutil.copytree(joined.parent, tmp_path / "both")
    return tmp_path / "both" / "audit.duckdb"


def contents(path: Path) -> dict[str, list[tuple]]:
    """Return every table of a store, without times, and the identities of its token scores."""
    with duckdb.connect(str(path), read_only=True) as connection:
        names = [row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]
        held = {}
        for name in sorted(set(names) - OF_ONE_RUN):
            known = [row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()]
            columns = ", ".join(f'"{column}"' for column in known if column not in TIMES)
            held[name] = connection.execute(f"SELECT {columns} FROM {name} ORDER BY ALL").fetchall()
        files = [row[0] for row in connection.execute("SELECT file FROM token_files").fetchall()]
    tables = [pyarrow.parquet.read_table(path.with_suffix(".tokens") / name).to_pylist() for name in files]
    held["tokens"] = sorted(tuple(row[key] for key in TOKEN_IDENTITY) for rows in tables for row in rows)
    return held


@pytest.mark.usefixtures("no_report")
def test_a_store_without_the_other_series_is_the_one_in_which_they_never_were(alone: Path, both: Path) -> None:
    before = contents(both)
    assert len(before["samples"]) > len(contents(alone)["samples"])
    result = oversharp.drop(both, ["iac-7", "dlc-9"])
    assert (result.series, result.series_left, result.checkpoints) == (("iac-7", "dlc-9"), ("first",), 1)
    after = contents(both)
    for table, rows in contents(alone).items():
        assert after[table] == rows, table
    assert after.keys() == contents(alone).keys()
    assert contents(result.copy_path) == before
    assert result.samples + result.samples_left == len(before["samples"])
    assert result.samples_left == len(after["samples"])


def test_verdict_findings_shipping_and_report_of_what_is_left_are_as_before(alone: Path, both: Path) -> None:
    with oversharp.open_store(alone) as store:
        verdict, findings = store.verdict("first"), store.frame("FROM findings ORDER BY ALL")
    oversharp.drop(both, ["iac-7", "dlc-9"])
    with oversharp.open_store(both) as store:
        assert store.verdict("first") == verdict
        assert store.frame("FROM findings ORDER BY ALL").equals(findings)
    assert oversharp.ship(both) == oversharp.ship(alone)
    text = (both.parent / "report.html").read_text(encoding="utf-8")
    assert "first" in text
    assert "iac-7" not in text


@pytest.mark.usefixtures("no_report")
def test_rows_that_another_series_uses_stay(both: Path) -> None:
    before = contents(both)
    result = oversharp.drop(both, "iac-7")  # the third has its checkpoints, the first its base and settings
    after = contents(both)
    assert result.checkpoints == 0
    gone = {"series": 1, "audits": 1, "series_checkpoints": 2}
    assert {table: len(before[table]) - len(after[table]) for table in gone} == gone
    assert after["checkpoints"] == before["checkpoints"]
    of_iac = {row[2] for row in before["samples"]} - {row[2] for row in after["samples"]}
    assert len(of_iac) == 1, "its temperature"
    assert after["samples"] == [row for row in before["samples"] if row[2] not in of_iac]


@pytest.mark.usefixtures("few_measures", "no_report")
def test_token_files_of_the_series_alone_go_and_the_next_audit_draws_nothing(
    runs: dict[str, list[Path]], both: Path
) -> None:
    oversharp.drop(both, ["iac-7", "dlc-9"])
    again = audit(runs["first"], small(both.parent, "first"))
    assert again.samples_drawn == 0
    with duckdb.connect(str(both), read_only=True) as connection:
        known = {row[0] for row in connection.execute("SELECT file FROM token_files").fetchall()}
    assert {path.name for path in both.with_suffix(".tokens").iterdir()} == known
    assert audit(runs["second"], small(both.parent, "iac-7", temperature=0.7, top_p=0.9)).samples_drawn > 0


@pytest.mark.usefixtures("no_report")
def test_the_old_store_can_be_put_back(both: Path) -> None:
    before = contents(both)
    copy = oversharp.drop(both, "dlc-9").copy_path
    assert copy is not None
    with pytest.raises(
        ConfigError, match=r"before-drop\.duckdb: a copy of an earlier drop exists; .* or pass replace="
    ):
        oversharp.drop(both, "iac-7")
    shutil.rmtree(both.with_suffix(".tokens"))
    copy.replace(both)
    copy.with_suffix(".tokens").rename(both.with_suffix(".tokens"))
    assert contents(both) == before
    oversharp.drop(both, "dlc-9")
    assert oversharp.drop(both, "iac-7", replace=True).series_left == ("first",)


@pytest.mark.usefixtures("no_report")
def test_a_preview_counts_the_same_and_changes_nothing(both: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in both.parent.rglob("*")}
    preview = oversharp.drop(both, ["iac-7", "dlc-9"], dry_run=True)
    assert {path: path.stat().st_mtime_ns for path in both.parent.rglob("*")} == files
    assert preview.copy_path is None
    done = oversharp.drop(both, ["iac-7", "dlc-9"])
    assert (preview.samples, preview.samples_left, preview.checkpoints) == (
        done.samples,
        done.samples_left,
        done.checkpoints,
    )


@pytest.mark.usefixtures("no_report")
def test_what_cannot_be_removed_is_one_line_and_a_failure_leaves_the_store_as_it_was(
    alone: Path, both: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(both)
    for series, message in (
        ("iac-8", r"has no series 'iac-8'; did you mean: iac-7"),
        (["first", "iac-7", "dlc-9"], r"has no other series than dlc-9, first, iac-7; remove the file itself"),
        ([], r"name the series to remove; series in .* dlc-9, first, iac-7"),
    ):
        with pytest.raises((ConfigError, StoreError), match=message):
            oversharp.drop(both, series)
    with pytest.raises(StoreError, match="no such store"):
        oversharp.drop(tmp_path / "nothing.duckdb", "iac-7")
    with pytest.raises(ConfigError, match="has no other series than first"):
        oversharp.drop(alone, "first")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_take_tokens", fail)
    with pytest.raises(KeyboardInterrupt):
        oversharp.drop(both, "iac-7")
    assert contents(both) == before
    assert not [path for path in both.parent.iterdir() if "drop" in path.name]


def test_every_table_of_a_store_is_either_filtered_or_of_the_store_itself(alone: Path) -> None:
    with duckdb.connect(str(alone), read_only=True) as connection:
        names = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    assert names == {*module._CONDITIONS, "schema_version", "token_files"}


@pytest.mark.usefixtures("no_report")
def test_of_a_token_file_that_several_series_share_the_rows_of_the_removed_one_go(tmp_path: Path) -> None:
    path = write_store(tmp_path / "audit.duckdb")  # series grpo and iac, from one base
    scores = {"problem_id": "p", "settings_id": "s", "response_id": "r", "token_logps": [[-0.5, -1.0]] * 3}
    scored = pd.DataFrame(
        {"checkpoint_id": ["base-0", "grpo-10", "iac-10"], **scores, "token_entropies": [[0.5, 0.25]] * 3}
    )
    with closing(Database(path, read_only=False)) as database, database.transaction():
        database.write_tokens(scored)
        database.write_tokens(scored[:1].assign(response_id="of the base alone"))
        database.write_tokens(scored[2:].assign(response_id="of iac alone"))
    with closing(Database(path, read_only=True)) as database:
        assert len(database.rows("FROM token_files")) == 3
    oversharp.drop(path, "iac")
    with oversharp.open_store(path) as store:
        left = store.frame("SELECT checkpoint_id, response_id, token_logps FROM response_tokens ORDER BY ALL")
    assert left["checkpoint_id"].tolist() == ["base-0", "base-0", "grpo-10"]
    assert left["response_id"].tolist() == ["of the base alone", "r", "r"]
    assert [list(one) for one in left["token_logps"]] == [[-0.5, -1.0]] * 3
    assert len(list(path.with_suffix(".tokens").iterdir())) == 2
