"""The store: identity, idempotence, older schemas and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from tempfile import gettempdir

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import oversharp
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    Finding,
    ForcedResponse,
    Grade,
    Problem,
    Sample,
    SamplingSettings,
    Series,
    TrainingResponse,
)
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.load import finished_samples
from oversharp.diagnostics.store.merge import merge
from oversharp.diagnostics.store.missing import find_unforced, find_ungraded, find_unrepeated, missing_samples
from oversharp.diagnostics.store.plan.samples import OtherDraw, planned_samples, samples_to_draw
from oversharp.diagnostics.store.schema import SCHEMA_VERSION, script, view_scripts
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import RULES
from oversharp.reports import build_report, require_place

PROBLEM = Problem(task="toy", prompt="1 + 1 =", gold="2", verifier="exact", modes=("2", "two"))
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=4)
PANEL_SETTINGS = replace(SETTINGS, temperature=0.9)


def _series(*steps: int) -> Series:
    checkpoints = tuple(
        Checkpoint(step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full", weights_hash=f"hash{step}")
        for step in steps
    )
    return Series(name="run", path=Path("/x"), layout="hf", checkpoints=checkpoints)


def _sample(index: int, text: str = "2", *, greedy: bool = False) -> Sample:
    return Sample(
        problem_id=PROBLEM.problem_id, sample_index=index, greedy=greedy, text=text, token_ids=(5, 1),
        finish_reason="stop", logp_sum_raw=-0.5,
    )  # fmt: skip


def _begin(
    store: Store,
    *,
    n: int = 4,
    n_base: int | None = None,
    panel: int = 0,
    settings: SamplingSettings = SETTINGS,
    audit_id: str = "a",
) -> AuditKey:
    store.add_series(_series(0, 20))
    store.add_problems([PROBLEM])
    key = AuditKey(
        audit_id=audit_id, series="run", settings_id=settings.settings_id, n=n, n_base=n if n_base is None else n_base,
        entropy_samples=2, panel=panel, panel_settings_id=PANEL_SETTINGS.settings_id, kernel_problems=0,
        kernel_responses=0, ks=(1, 2), strategy_regex="```",
    )  # fmt: skip
    store.begin_audit(key, settings=settings, panel_settings=PANEL_SETTINGS, problem_ids=[PROBLEM.problem_id])
    return key


def _missing(store: Store, key: AuditKey, checkpoint_id: str) -> dict[str, tuple[tuple[int, ...], bool]]:
    planned = planned_samples(store, key, checkpoint_id)
    return missing_samples(store, key.settings_id, checkpoint_id, planned, greedy=True)


def _scores(response_ids: Iterable[str], *, problem_id: str = PROBLEM.problem_id) -> list[ForcedResponse]:
    one = ForcedResponse(
        problem_id=problem_id, response_id="", logp_sum=-1.5, entropy_sum=2.0, token_logps=(-1.0, -0.5),
        token_entropies=(1.0, 1.0),
    )  # fmt: skip
    return [replace(one, response_id=identity) for identity in sorted(response_ids)]


def _texts_without_grade(store: Store, key: AuditKey) -> pd.DataFrame:
    none = pd.DataFrame(columns=["problem_id", "response_id", "verifier", "text", "outdated"])
    return pd.concat([none, *find_ungraded(store, key).blocks(1)])


def _grade_all(store: Store, key: AuditKey) -> None:
    """Grade responses: 2 is correct."""
    grades = []
    for row in _texts_without_grade(store, key).itertuples():
        grade = Grade(answer=row.text, mode=row.text, reward=float(row.text == "2"))
        grades.append((row.problem_id, row.response_id, row.verifier, grade))
    store.add_grades(grades)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


def test_only_missing_samples_are_asked_for(store: Store) -> None:
    key = _begin(store)
    assert _missing(store, key, "hash0") == {PROBLEM.problem_id: ((0, 1, 2, 3), True)}
    store.add_samples(key.settings_id, "hash0", [_sample(1), _sample(3), _sample(0, greedy=True)])
    assert _missing(store, key, "hash0") == {PROBLEM.problem_id: ((0, 2), False)}
    assert PROBLEM.problem_id in _missing(store, key, "hash20")


def test_an_audit_that_was_stopped_between_a_problems_greedy_response_and_its_samples_goes_on(store: Store) -> None:
    key = _begin(store)
    store.add_samples(
        key.settings_id,
        "hash0",
        [_sample(0, greedy=True), replace(_sample(1), problem_id="other"), replace(_sample(0), problem_id="other")],
    )
    planned = {PROBLEM.problem_id: 2, "other": 3}
    assert missing_samples(store, key.settings_id, "hash0", planned, greedy=True) == {
        PROBLEM.problem_id: ((0, 1), False),
        "other": ((2,), True),
    }


def test_of_every_checkpoint_the_samples_that_it_lacks_are_counted(store: Store) -> None:
    key = _begin(store)
    assert samples_to_draw(store, key) == {"hash0": 5, "hash20": 5}  # the greedy response too
    store.add_samples(key.settings_id, "hash0", [_sample(1), _sample(3), _sample(0, greedy=True)])
    assert samples_to_draw(store, key) == {"hash0": 2, "hash20": 5}
    store.add_samples(key.settings_id, "hash20", [_sample(i) for i in range(6)])  # more than this audit wants
    assert samples_to_draw(store, key) == {"hash0": 2, "hash20": 1}
    store.add_samples(key.settings_id, "hash20", [_sample(0, greedy=True)])
    assert samples_to_draw(store, key) == {"hash0": 2}
    panel = (OtherDraw("hash0", "another", 3), OtherDraw("hash20", key.settings_id, 6))
    assert samples_to_draw(store, key, panel) == {"hash0": 5}


def test_the_same_batch_twice_adds_nothing(store: Store) -> None:
    key = _begin(store)
    assert store.add_samples(key.settings_id, "hash0", [_sample(0), _sample(1)]) == 2
    assert store.add_samples(key.settings_id, "hash0", [_sample(0), _sample(1), _sample(2)]) == 1
    assert len(store.frame("FROM samples")) == 3


def test_a_larger_n_continues_the_same_samples_and_other_settings_never_mix_with_them(store: Store) -> None:
    key = _begin(store, n=2)
    store.add_samples(key.settings_id, "hash0", [_sample(0), _sample(1), _sample(0, greedy=True)])
    more = _begin(store, n=3, audit_id="b")
    assert _missing(store, more, "hash0") == {PROBLEM.problem_id: ((2,), False)}
    other = _begin(store, settings=replace(SETTINGS, temperature=0.6), audit_id="c")
    assert _missing(store, other, "hash0")[PROBLEM.problem_id] == ((0, 1, 2, 3), True)


def test_equal_texts_are_graded_once_across_checkpoints(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key.settings_id, "hash0", [_sample(0, "2"), _sample(1, "2"), _sample(2, "3")])
    store.add_samples(key.settings_id, "hash20", [_sample(0, "2")])
    assert sorted(_texts_without_grade(store, key)["text"]) == ["2", "3"]
    _grade_all(store, key)
    assert not len(find_ungraded(store, key))
    counts = store.frame("SELECT step, n, n_correct FROM problem_counts ORDER BY step")
    assert counts.to_numpy().tolist() == [[0, 3, 2], [20, 1, 1]]


def test_a_grade_by_other_rules_is_made_again_and_that_of_another_tool_never(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = _begin(store)
    store.add_samples(key.settings_id, "hash0", [_sample(0), _sample(1, "3")])
    _grade_all(store, key)
    assert store.frame("SELECT DISTINCT verifier, rules FROM grades").to_numpy().tolist() == [["exact", RULES["exact"]]]

    other = {"exact": RULES["exact"] + 1}
    for module in ("missing", "write_audit"):
        monkeypatch.setattr(f"oversharp.diagnostics.store.{module}.RULES", other)
    pending = _texts_without_grade(store, key)
    assert find_ungraded(store, key).n_outdated == 2
    assert sorted(zip(pending["text"], pending["outdated"], strict=True)) == [("2", True), ("3", True)]
    _grade_all(store, key)
    assert not len(find_ungraded(store, key))
    assert store.frame("SELECT rules, count(*) FROM grades GROUP BY ALL").to_numpy().tolist() == [[other["exact"], 2]]

    for module in ("missing", "write_audit"):
        monkeypatch.setattr(
            f"oversharp.diagnostics.store.{module}.RULES", {"math": 7}
        )  # "exact" is now another package's
    assert not len(find_ungraded(store, key))


def test_modes_and_first_samples_are_scored_once(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key.settings_id, "hash0", [_sample(0), _sample(1, "3"), _sample(2, "4")])
    pending = find_unforced(store, key, "hash0")
    texts = dict(zip(pending["text"], pending["token_ids"], strict=True))
    assert sorted(texts) == ["2", "3", "two"]  # entropy_samples is 2, and the first of them reads like a mode
    assert [text for text, ids in texts.items() if pd.api.types.is_list_like(ids)] == ["3"]
    store.add_forced(key, "hash0", _scores(pending["response_id"]))
    assert find_unforced(store, key, "hash0").empty
    assert len(store.frame("FROM mode_logps")) == 2


def test_samples_whose_entropy_is_known_are_not_scored_for_it(store: Store) -> None:
    key = _begin(store, n=2)
    store.add_samples(key.settings_id, "hash0", [replace(_sample(i, f"{i}"), entropy_sum=0.5) for i in range(2)])
    assert sorted(find_unforced(store, key, "hash0")["text"]) == ["2", "two"]
    assert store.frame("SELECT sum(entropy_sum) AS nats FROM sample_entropies")["nats"].iloc[0] == 1.0


def test_the_panel_is_scored_everywhere_and_own_samples_by_the_base(store: Store) -> None:
    key = _begin(store, panel=1)
    store.add_samples(PANEL_SETTINGS.settings_id, "hash0", [_sample(0, "panel"), _sample(1, "beyond")])
    for checkpoint, text in (("hash0", "of base"), ("hash20", "of late")):
        store.add_samples(key.settings_id, checkpoint, [_sample(0, text)])
    wanted = {checkpoint: set(find_unforced(store, key, checkpoint)["text"]) for checkpoint in ("hash0", "hash20")}
    assert wanted["hash0"] == {"2", "two", "panel", "of base", "of late"}
    assert wanted["hash20"] == {"2", "two", "panel", "of late"}
    assert find_unrepeated(store, key, "hash0", 9).empty  # not scored once yet
    pending = find_unforced(store, key, "hash0")
    store.add_forced(key, "hash0", _scores(pending["response_id"]))
    again = find_unrepeated(store, key, "hash0", 9)
    assert again["text"].tolist() == ["panel"]
    store.add_forced_again(key, "hash0", _scores(again["response_id"]))
    assert find_unrepeated(store, key, "hash0", 9).empty
    assert store.frame("SELECT logp_sum, second_logp_sum FROM repeated_logps").to_numpy().tolist() == [[-1.5, -1.5]]


@pytest.mark.slow
def test_samples_beyond_this_audits_n_are_left_alone(store: Store) -> None:
    key = _begin(store, n=4, panel=4)
    for checkpoint in ("hash0", "hash20"):
        store.add_samples(key.settings_id, checkpoint, [_sample(i, f"{checkpoint} {i}") for i in range(4)])
        store.add_forced(key, checkpoint, _scores(find_unforced(store, key, checkpoint)["response_id"]))
    smaller = _begin(store, n=1, panel=4, audit_id="b")
    _grade_all(store, smaller)
    assert store.frame("SELECT DISTINCT sample_index FROM own_tokens")["sample_index"].tolist() == [0]
    assert store.frame("SELECT DISTINCT sample_index FROM own_logps")["sample_index"].tolist() == [0]
    assert not set(find_unforced(store, smaller, "hash0")["text"]) & {"hash20 1", "hash20 2", "hash20 3"}


def test_another_panel_is_scored_twice_as_well(store: Store) -> None:
    for panel, text in ((1, "first"), (2, "second")):
        key = _begin(store, panel=panel, audit_id=text)
        store.add_samples(PANEL_SETTINGS.settings_id, "hash0", [_sample(panel - 1, text)])
        store.add_forced(key, "hash0", _scores(find_unforced(store, key, "hash0")["response_id"]))
        again = find_unrepeated(store, key, "hash0", 9)
        assert again["text"].tolist() == [text]
        store.add_forced_again(key, "hash0", _scores(again["response_id"]))
        assert len(store.frame("FROM repeated_logps")) == panel


def test_training_responses_are_scored_before_and_after_them(store: Store) -> None:
    key = _begin(store)
    said = TrainingResponse(step=20, prompt="1 + 2 =", text="3", truncated=True, correct=True)
    store.add_training_responses("run", [said])
    for checkpoint in ("hash0", "hash20"):
        (row,) = find_unforced(store, key, checkpoint).query("prompt == '1 + 2 ='").itertuples()
        assert (row.text, row.ends) == ("3", False)
        store.add_forced(key, checkpoint, _scores([row.response_id], problem_id=row.problem_id))
    (tokens,) = store.frame("FROM training_tokens").itertuples()
    assert (tokens.step, list(tokens.token_logps), list(tokens.token_logps_before)) == (20, [-1, -0.5], [-1, -0.5])


def test_token_scores_move_with_the_store_and_a_reader_reads_nothing_else(tmp_path: Path) -> None:
    with Store.open(tmp_path / "old" / "audit.duckdb") as store:
        key = _begin(store)
        store.add_forced(key, "hash0", _scores(["r"]))
    (tmp_path / "old").rename(tmp_path / "it's new")
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("a\n1\n")
    with Store.open(tmp_path / "it's new" / "audit.duckdb", read_only=True) as store:
        assert store.frame("SELECT token_logps FROM response_tokens")["token_logps"].iloc[0].tolist() == [-1, -0.5]
        with pytest.raises(StoreError, match="disabled"):
            store.frame(f"FROM '{foreign}'")


def test_token_files_are_opened_only_by_queries_that_may_use_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        store.add_forced(_begin(store), "hash0", _scores(["r"]))
    opened: list[str] = []
    refresh = Database._refresh_token_views

    def counted(database: Database) -> None:
        opened.append("tokens")
        refresh(database)

    monkeypatch.setattr(Database, "_refresh_token_views", counted)
    with Store.open(path, read_only=True) as store:
        store.frame("SELECT sum(n_tokens) FROM samples")
        assert opened == []
        for query in ("FROM Panel_Tokens", "FROM own_tokens", "FROM training_tokens", "FROM response_tokens"):
            store.frame(query)
        assert opened == ["tokens"]
    for query in ("FROM duckdb_views()", "FROM information_schema.tables"):
        with Store.open(path, read_only=True) as store:
            assert "own_tokens" in store.frame(query).to_string()
    with Store.open_for_user(path) as store:  # a user's view may have any name
        opened.clear()
        store.frame("SELECT 1")
        assert opened == ["tokens"]


def test_views_are_split_as_by_the_parser_of_duckdb() -> None:
    statements = [statement.query for statement in duckdb.extract_statements(script("views.sql"))]
    temporary = [statement for statement in statements if "CREATE OR REPLACE TEMP VIEW" in statement]
    assert len(temporary) == 3
    assert view_scripts() == (";".join(one for one in statements if one not in temporary), ";".join(temporary))


@pytest.mark.slow
def test_token_files_of_a_killed_writer_are_forgotten_and_lost_ones_only_missed(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        store.add_forced(_begin(store), "hash0", _scores(["r"]))
    folder = tmp_path / "audit.tokens"
    (committed,) = folder.iterdir()
    for name in (f"{'a' * 32}.parquet", f"{'b' * 32}.parquet.partial", "somebody's.parquet"):
        (folder / name).write_bytes(b"PAR1 cut short")
    with Store.open(path, read_only=True) as store:
        assert len(store.frame("FROM response_tokens")) == 1
    with Store.open(path) as store:
        assert sorted(folder.iterdir()) == sorted([committed, folder / "somebody's.parquet"])
    for damage in (lambda: committed.write_bytes(b"PAR1 cut short"), committed.unlink):
        damage()
        with Store.open(path, read_only=True) as store:
            assert store.frame("FROM response_tokens").empty
            assert len(store.frame("FROM response_logps")) == 1


@pytest.mark.slow
def test_scores_whose_tokens_were_lost_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        key = _begin(store)
        store.add_forced(key, "hash0", _scores(find_unforced(store, key, "hash0")["response_id"]))
        assert find_unforced(store, key, "hash0").empty
    for file in (tmp_path / "audit.tokens").iterdir():
        file.unlink()
    with Store.open(path) as store:
        pending = find_unforced(store, key, "hash0")
        assert len(pending) == 2
        store.add_forced(key, "hash0", _scores(pending["response_id"]))
        assert find_unforced(store, key, "hash0").empty
        assert len(store.frame("FROM response_tokens")) == len(store.frame("FROM response_logps")) == 2


def test_a_reader_writes_no_file_not_even_beside_the_store(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        store.add_forced(_begin(store), "hash0", _scores(["r"]))
    (committed,) = (tmp_path / "audit.tokens").iterdir()
    before = committed.read_bytes()
    with Store.open(path, read_only=True) as store:
        for target in (committed, committed.with_name("x.parquet"), tmp_path / "x.csv"):
            with pytest.raises(StoreError, match="disabled"):
                store.frame(f"COPY (SELECT 1) TO '{target}'")
        assert len(store.frame("FROM response_tokens")) == 1
    assert list(committed.parent.iterdir()) == [committed]
    assert committed.read_bytes() == before


@pytest.mark.slow
def test_a_token_file_that_was_written_over_is_named_left_out_and_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        key = _begin(store)
        store.add_forced(key, "hash0", _scores(find_unforced(store, key, "hash0")["response_id"]))
    (committed,) = (tmp_path / "audit.tokens").iterdir()
    parquet.write_table(pa.Table.from_pylist([{"token_logps": [0.5]}]), committed)
    with Store.open(path, read_only=True) as store:
        assert store.frame("FROM response_tokens").empty
        assert [str(committed) in note for note in store.notes] == [True]
    with Store.open(path) as store:
        assert [str(committed) in note for note in store.notes] == [True]
        store.add_forced(key, "hash0", _scores(find_unforced(store, key, "hash0")["response_id"]))
    with Store.open(path) as store:
        assert store.notes == ()
        assert len(store.frame("FROM response_tokens")) == 2
    assert committed.with_suffix(".damaged").exists()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_strangers_store_leads_to_no_file_outside_of_its_own(tmp_path: Path, read_only: bool) -> None:
    path, letter = tmp_path / "there" / "audit.duckdb", tmp_path / "letter.txt"
    Store.open(path).close()
    letter.write_text("private")
    with duckdb.connect(path) as stranger:  # with the hash of today's views
        stranger.execute("INSERT INTO token_files VALUES ($1, 'x'), ('../../letter.txt', 'x')", [str(letter)])
        stranger.execute(f"CREATE OR REPLACE VIEW graded_samples AS SELECT content FROM read_text('{letter}')")
    with Store.open(path, read_only=read_only) as store:
        assert store.notes == ()
        with pytest.raises(StoreError, match="disabled"):
            store.frame("FROM graded_samples")
        for sql in (f"COPY (SELECT 1) TO '{tmp_path}/new.csv'", f"ATTACH '{tmp_path}/new.duckdb'"):
            with pytest.raises(StoreError):
                store._database.rows(sql)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["letter.txt", "there"]
    assert letter.read_text() == "private"


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("MACRO current_setting(name) AS 0", "macro 'current_setting'"),  # as if file access were disabled already
        ('MACRO "MAX"(version) AS 7', "macro 'MAX'"),
        ("MACRO duckdb_tables() AS TABLE SELECT 'schema_version' AS table_name", "macro 'duckdb_tables'"),
        (
            "TRIGGER less AFTER INSERT ON samples REFERENCING NEW TABLE AS new FOR EACH STATEMENT DELETE FROM grades",
            "trigger 'less'",
        ),
    ],
)
def test_a_store_whose_macros_or_triggers_stand_in_for_what_is_asked_of_duckdb_is_refused(
    tmp_path: Path, made: str, named: str, read_only: bool
) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    with duckdb.connect(path) as stranger:
        stranger.execute(f"CREATE {made}")
    with pytest.raises(StoreError, match=f"contains the {named}.*oversharp merge"):
        Store.open(path, read_only=read_only)
    merge([path], tmp_path / "renewed")
    Store.open(tmp_path / "renewed" / "audit.duckdb", read_only=read_only).close()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_is_checked_again_only_after_somebody_else_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    checks: list[Path] = []
    monkeypatch.setattr(
        "oversharp.diagnostics.store.database.require_builtin_functions", lambda path, _: checks.append(path)
    )
    path, copy = tmp_path / "audit.duckdb", tmp_path / "copy.duckdb"
    with Store.open(path) as store:  # a new file has no functions
        _begin(store)
    Store.open(path, read_only=read_only).close()
    assert checks == []
    with duckdb.connect(path) as user:
        user.execute("CREATE MACRO share(part, whole) AS part / whole")
    Store.open(path, read_only=read_only).close()
    Store.open(path, read_only=read_only).close()
    assert checks == [path]
    copyfile(path, copy)
    copy.replace(path)
    Store.open(path, read_only=read_only).close()
    assert checks == [path, path]


def test_a_log_of_somebody_else_is_checked(tmp_path: Path) -> None:
    path, stranger = tmp_path / "audit.duckdb", tmp_path / "stranger.duckdb"
    Store.open(path).close()
    copyfile(path, stranger)
    with duckdb.connect(stranger) as connection:
        connection.execute("SET checkpoint_threshold = '1GB'; CREATE MACRO max(x) AS 7")
        copyfile(f"{stranger}.wal", f"{path}.wal")
    with pytest.raises(StoreError, match="contains the macro 'max'"):
        Store.open(path, read_only=True)


def test_a_users_own_macro_that_hides_none_of_duckdbs_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    with duckdb.connect(path) as user:
        user.execute("CREATE MACRO share(part, whole) AS part / whole")
    with Store.open(path, read_only=True) as store:
        assert store.frame("SELECT share(1, 4) AS share")["share"].tolist() == [0.25]


@pytest.mark.slow
def test_a_writer_that_reaches_no_file_still_spills_beside_its_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        store.bound_memory(0.125)
        sorted_rows = "SELECT md5(range::VARCHAR) AS h, row_number() OVER (ORDER BY h) AS n FROM range(2_000_000)"
        assert store.frame(f"SELECT max(n) AS n FROM ({sorted_rows})")["n"].tolist() == [2_000_000]
        told = store.frame("SELECT current_setting('temp_directory') AS folder")["folder"].item()
        assert str(told).startswith(str(tmp_path))


def test_a_damaged_page_leaves_its_file_out_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversharp.diagnostics.store.token_files._END_BYTES", 64)  # only its end is checked
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        store.add_forced(_begin(store), "hash0", _scores(["r"]))
    (committed,) = (tmp_path / "audit.tokens").iterdir()
    held = bytearray(committed.read_bytes())
    held[len(held) // 8] ^= 1
    committed.write_bytes(held)
    with Store.open(path, read_only=True) as store:
        assert store.frame("FROM response_tokens").empty


def test_one_statement_is_answered_and_two_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        assert store.frame("SELECT 'a;b' AS text ; ")["text"].tolist() == ["a;b"]
        with pytest.raises(StoreError, match="several statements"):
            store.frame("SELECT 1; SELECT 2")


@pytest.mark.parametrize("folder", ["a[1]", "st*r", "why?"])
def test_a_path_that_duckdb_would_take_for_a_pattern_is_refused(tmp_path: Path, folder: str) -> None:
    with pytest.raises(StoreError, match="pass another --out"):
        Store.open(tmp_path / folder / "audit.duckdb")
    assert not (tmp_path / folder).exists()


def test_a_directory_named_like_a_store_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"joined\.duckdb: --out takes a directory"):
        Store.open(tmp_path / "joined.duckdb" / "audit.duckdb")
    assert not list(tmp_path.iterdir())


def _concluded(path: Path) -> AuditKey:
    """Build a small audit with samples, grades, scores, training responses, findings and a verdict."""
    with Store.open(path) as store:
        key = _begin(store, n=2)
        for checkpoint, texts in (("hash0", "22"), ("hash20", "23")):
            store.add_samples(key.settings_id, checkpoint, [_sample(i, text) for i, text in enumerate(texts)])
            store.add_forced(key, checkpoint, _scores(find_unforced(store, key, checkpoint)["response_id"]))
        _grade_all(store, key)
        said = TrainingResponse(step=20, prompt="1 + 2 =", text="3", truncated=True, correct=True)
        store.add_training_responses("run", [said])
        lost = Finding(checkpoint_id="hash20", measure="problems_lost", unit="problems", value=1.0, n=1)
        kept = Finding(checkpoint_id="hash20", measure="pass_at_k", unit="p", k=1, value=0.5, n=1)
        store.replace_findings(key, [lost, kept])
        store.replace_verdict(key, Verdict(series="run", label="no_verdict", sentence="No verdict.", why="no data"))
        store.log_event(key, "teacher-force", wall_s=1.0, rows=4, checkpoint_id="hash0")
        store.end_audit(key, {"command": "first"})
    return key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "age", "remedy"), [(10, "older", "audit again"), (1000, "newer", "upgrade oversharp")]
)
def test_a_store_of_another_schema_is_refused_by_every_entrance(
    tmp_path: Path, schema: int, age: str, remedy: str
) -> None:
    path = tmp_path / "other.duckdb"
    _concluded(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET version = ?", [schema])
    before = path.read_bytes()
    found = rf"written by {age} oversharp \(schema {schema}, this version uses {SCHEMA_VERSION}\); {remedy}"
    message = rf"other\.duckdb: {found}"
    for read_only in (True, False):
        with pytest.raises(StoreError, match=message):
            Store.open(path, read_only=read_only)
    with pytest.raises(StoreError, match=message):
        merge([path], tmp_path / "new")
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_store_of_schema_13_is_complete_and_rejects_only_scores_without_entropies(tmp_path: Path) -> None:
    path = tmp_path / "older.duckdb"
    key = _concluded(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET version = 13")
    with Store.open(path) as store:
        (with_entropy,) = _scores(["new"])
        store.add_forced(key, "hash0", [with_entropy])
        without = replace(with_entropy, response_id="newer", entropy_sum=None, token_entropies=None)
        with pytest.raises(StoreError, match=r"older oversharp \(schema 13\).* without entropies; pass another --out"):
            store.add_forced(key, "hash0", [without])
        assert list(
            store.frame("SELECT response_id FROM response_logps WHERE response_id LIKE 'new%'")["response_id"]
        ) == ["new"]


@pytest.mark.slow
def test_scores_without_entropies_are_unknown_not_zero(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    key = _concluded(path)
    with Store.open(path) as store:
        (one,) = _scores(["new"])
        store.add_forced(key, "hash0", [replace(one, entropy_sum=None, token_entropies=None)])
    with Store.open(path) as store:
        (row,) = store.frame("FROM response_logps WHERE response_id = 'new'").to_dict("records")
        (tokens,) = store.frame("FROM response_tokens WHERE response_id = 'new'").to_dict("records")
    assert (row["logp_sum"], row["n_tokens"]) == (-1.5, 2)
    assert pd.isna(row["entropy_sum"])
    assert tokens["token_entropies"] is None
    assert list(tokens["token_logps"]) == [-1.0, -0.5]


@pytest.mark.slow
def test_views_that_another_version_wrote_are_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    _concluded(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE schema_version SET views_hash = 'of another version'")
        connection.execute("CREATE OR REPLACE VIEW findings AS SELECT 1 AS one")
    with Store.open(path, read_only=True) as store:  # a reader has them for itself
        assert len(store.frame("SELECT measure, value FROM findings")) == 2
        columns = set(store.columns().query("name == 'findings'")["column"])
        assert columns & {"value", "one"} == {"value"}
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("FROM findings").fetchall() == [(1,)]
    Store.open(path).close()
    with duckdb.connect(str(path), read_only=True) as connection:
        assert len(connection.execute("SELECT measure, value FROM findings").fetchall()) == 2


def test_more_samples_of_the_base_enter_pass_at_k_but_no_comparison_of_counts(store: Store) -> None:
    key = _begin(store, n=2, n_base=4)
    for checkpoint, n in (("hash0", 4), ("hash20", 2)):
        assert len(_missing(store, key, checkpoint)[PROBLEM.problem_id][0]) == n
        store.add_samples(key.settings_id, checkpoint, [_sample(i, "2") for i in range(n)])
    _grade_all(store, key)
    assert store.frame("SELECT n FROM problem_counts ORDER BY step")["n"].tolist() == [2, 2]
    assert store.frame("SELECT n FROM sampled_counts ORDER BY step")["n"].tolist() == [4, 2]
    assert store.frame("SELECT sum(n) AS n FROM answer_counts")["n"].iloc[0] == 4


def test_the_last_finished_audit_tells_how_many_samples_there_are(store: Store) -> None:
    key = _begin(store, n=2, n_base=4)
    asked = (store, "run", key.settings_id, [PROBLEM.problem_id])
    assert finished_samples(*asked) is None
    store.end_audit(key, {"command": "first"})
    _begin(store, n=3, audit_id="killed")
    assert finished_samples(*asked) == (2, 4, None, None)
    assert finished_samples(store, "run", "other settings", [PROBLEM.problem_id]) is None
    assert finished_samples(store, "run", key.settings_id, [PROBLEM.problem_id, "more"]) is None


def test_another_series_of_the_same_name_is_refused(store: Store) -> None:
    _begin(store)
    elsewhere = replace(_series(0, 30), path=Path("/y"))
    with pytest.raises(StoreError, match="--name"):
        store.add_series(elsewhere)
    store.add_series(replace(_series(0, 20, 30), path=Path("/moved")))
    assert store.frame("SELECT path FROM series")["path"].tolist() == ["/moved"]


def test_findings_of_an_audit_replace_its_earlier_ones(store: Store) -> None:
    key = _begin(store)
    known = Finding(checkpoint_id="hash20", measure="m", unit="nats", value=1.5, n=3)
    unknown = Finding(checkpoint_id="hash0", measure="m", unit="nats", why="no data")
    store.replace_findings(key, [known])
    store.replace_findings(key, [unknown, known])
    rows = store.frame("SELECT step, value, why FROM findings ORDER BY step")
    assert rows["step"].tolist() == [0, 20]
    assert rows["why"].tolist()[0] == "no data"
    assert rows["value"].tolist()[1] == 1.5


def test_a_rejected_batch_leaves_the_committed_rows(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key.settings_id, "hash0", [_sample(0)])
    bad = replace(_sample(1), logp_sum_raw=float("nan"))
    with pytest.raises(StoreError, match=r"audit\.duckdb"):
        store.add_samples(key.settings_id, "hash0", [_sample(2), bad])
    assert store.frame("SELECT sample_index FROM samples")["sample_index"].tolist() == [0]


def _of_a_newer_version(path: Path) -> None:
    Store.open(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "INSERT INTO schema_version (version, oversharp_version, views_hash) VALUES (?, 'x', '')",
            [SCHEMA_VERSION + 1],
        )


def _foreign(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine (x INTEGER)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_of_a_newer_version, "newer oversharp"),
        (_foreign, "not an oversharp store"),
        (lambda path: path.write_text("hello " * 4000), "not a DuckDB file"),
        (Path.mkdir, r"is a directory without an audit\.duckdb; name the file"),
        (lambda path: None, "oversharp audit"),
    ],
    ids=["newer", "foreign", "text", "directory", "missing"],
)
def test_what_is_no_store_of_this_version_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "audit.duckdb")
    with pytest.raises(StoreError, match=message):
        Store.open(tmp_path / "audit.duckdb", read_only=True)


@pytest.mark.slow
def test_a_store_locked_by_another_process_says_so(store: Store) -> None:
    probe = (
        "from pathlib import Path; from oversharp.diagnostics.store import Store\n"
        "from oversharp.diagnostics.records.errors import StoreError\n"
        f"try: Store.open(Path({str(store.path)!r}))\n"
        "except StoreError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "locked by another process" in answer.stdout


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        key = _begin(store, n=10**6)
        store.add_samples(key.settings_id, "hash0", [_sample(0)])
    limit = path.stat().st_size + 2**16
    probe = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the kernel then answers "file too large", as a full disk would
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from shutil import copyfile
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store import Store
from test_store import _begin, _sample
try:
    with Store.open(Path({str(path)!r})) as store:
        key = _begin(store, n=10**6)
        for first in range(1, 10**6, 5000):
            batch = [_sample(i, f"{{i}} " * 20) for i in range(first, first + 5000)]
            store.add_samples(key.settings_id, "hash0", batch)
except StoreError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, timeout=120)
    assert "the disk is full" in answer.stdout, answer.stdout + answer.stderr
    assert len(answer.stdout.strip().splitlines()) == 1
    with Store.open(path) as store:
        assert 0 in store.frame("SELECT sample_index FROM samples")["sample_index"].tolist()


def test_a_store_can_be_read_twice_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    with Store.open(path, read_only=True) as one, Store.open(path, read_only=True) as other:
        for store in (one, other):
            assert store.frame("SELECT 1 AS one")["one"].tolist() == [1]
            with pytest.raises(StoreError, match=r"disabled|Permission"):
                store.frame("SELECT * FROM read_csv('/etc/passwd')")


def test_a_report_does_not_replace_the_store_it_is_made_of(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="is the store itself"):
        build_report(path, tmp_path / "." / "audit.duckdb")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("held", "is_refused"), [("my thesis", True), ("", False), ("<title>Over-sharpening report: a", False)]
)
def test_a_report_takes_the_place_of_reports_and_of_empty_files_alone(
    tmp_path: Path, held: str, is_refused: bool
) -> None:
    out = tmp_path / "page.html"
    out.write_text(held)
    if not is_refused:
        require_place(tmp_path / "audit.duckdb", out)
        return
    with pytest.raises(ConfigError, match=r"page.html: exists and is not an oversharp report.*--replace"):
        require_place(tmp_path / "audit.duckdb", out)
    require_place(tmp_path / "audit.duckdb", out, replace=True)
    out.rename(tmp_path / "report.html")
    with pytest.raises(ConfigError, match="not an oversharp report"):  # before a run is looked for
        oversharp.audit("no such run", oversharp.AuditConfig(task="countdown", out=tmp_path))


def test_a_query_that_outgrows_its_memory_says_what_to_do(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        store._database.rows("SET max_temp_directory_size = '0KiB'")
        store.bound_memory(0.125)
        with pytest.raises(
            StoreError, match=r"exceeds its memory limit .* stop other programs, .* --memory-gib"
        ) as raised:
            store.frame("SELECT list(range) FROM range(100_000_000)")
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_result_that_memory_does_not_hold_is_one_line_and_comes_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    query = "SELECT range AS i, md5(range::VARCHAR) AS s FROM range(300_000)"
    with Store.open_for_user(path, 0.01) as store:  # of the result half: 5 MiB
        with pytest.raises(
            StoreError, match=r"exceeds its limit of 0.005 GiB .*select fewer rows.*--memory-gib.*Store.parts"
        ):
            store.frame(query)
        parts = list(store.parts(query))
        assert [part["i"].iloc[0] for part in parts] == [0, 262_144]
        assert sum(map(len, parts)) == 300_000
        assert [len(part) for part in store.parts("SELECT 1 AS one WHERE false")] == [0]
    with Store.open_for_user(path, 1.0) as store:
        frame = store.frame(query)
        pd.testing.assert_frame_equal(frame, pd.concat(parts, ignore_index=True))
    with pytest.raises(ConfigError, match="--memory-gib 0: must be a number above 0"):
        Store.open_for_user(path, 0.0)


def test_whoever_opens_a_store_is_bounded_by_half_of_what_is_free(tmp_path: Path) -> None:
    path, limit = tmp_path / "audit.duckdb", "SELECT current_setting('memory_limit') AS most"
    with pytest.MonkeyPatch.context() as planted:
        planted.setattr("oversharp.diagnostics.records.memory.free_bytes", lambda: 3 * 2**30)
        with Store.open(path) as store:
            assert store.frame(limit)["most"].tolist() == ["1.5 GiB"]
        for opened in (Store.open(path, read_only=True), Store.open_for_user(path)):
            assert opened.frame(limit)["most"].tolist() == ["1.5 GiB"]
            opened.close()


def test_what_failed_in_a_transaction_is_told_and_not_what_followed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        database, rows = store._database, pd.DataFrame({"number": ["no number"]})
        with pytest.raises(StoreError, match="Could not convert string"), database.transaction():
            database.insert("INSERT INTO schema_version SELECT number::INTEGER, '', '', ''", rows)
        with database.transaction():
            database.delete("schema_version", rows, where="false")


@pytest.mark.slow
def test_a_reader_of_a_folder_that_takes_no_files_spills_into_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, where = tmp_path / "audit.duckdb", "SELECT current_setting('temp_directory') AS folder"
    Store.open(path).close()
    with Store.open_for_user(path) as store:
        assert store.frame(where)["folder"].tolist() == [f"{path}.tmp"]
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store.open_for_user(path, 0.15) as store:
        (folder,) = store.frame(where)["folder"].tolist()
        assert Path(folder).parent == Path(gettempdir())
        assert len(store.frame("SELECT count(*) FROM (SELECT DISTINCT md5(range::VARCHAR) FROM range(4_000_000))"))
        assert not Path(f"{path}.tmp").exists()
    assert not Path(folder).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SET memory_limit = '500GB'",
        "SET threads = 64",
        "PRAGMA enable_profiling = 'json'",
        "CALL enable_logging('QueryLog', storage = 'file', storage_path = 'logs')",
        "CREATE TEMP VIEW findings AS SELECT 1 AS n",
        "CREATE TEMP TABLE samples AS SELECT 1 AS n",
        "BEGIN",
        "USE system",
    ],
)
def test_a_reader_answers_queries_alone_so_that_the_next_one_is_answered_as_before(
    tmp_path: Path, statement: str
) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path):
        pass
    with Store.open_for_user(path) as store:
        before = store.frame("FROM findings")
        for read in (store.frame, lambda sql: next(iter(store.parts(sql)))):
            with pytest.raises(StoreError, match="is not a query; use SELECT, EXPLAIN or PIVOT"):
                read(statement)
        pd.testing.assert_frame_equal(store.frame("FROM findings"), before)
        assert store.frame("PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)").to_numpy().tolist() == [[2]]
        for asked in ("EXPLAIN FROM findings", "DESCRIBE findings", "SUMMARIZE findings", "SHOW TABLES", "VALUES (1)"):
            assert len(store.frame(asked))
