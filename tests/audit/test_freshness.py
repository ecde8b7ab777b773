"""Findings, verdict and report are recomputed after a change of their inputs, and only then."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from oversharp.diagnostics.app.report import write_report
from oversharp.diagnostics.audit import freshness
from oversharp.diagnostics.audit.freshness import update_verdict
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import AuditKey, ForcedResponse, TrainingResponse, VerdictTerms
from oversharp.diagnostics.store import Store, derivations
from oversharp.diagnostics.store.derivations import Derivation, recorded_derivations, tree_hash
from tests.audit.test_counts import plant

pytestmark = pytest.mark.xdist_group("freshness")  # they share what takes seconds to make

RESPONSES = {(problem, step): "AB.a!?~." for problem in range(3) for step in (0, 20)}


class _Stages(SilentProgress):
    """Keeps which stages were gone through."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        self.titles.append(title)
        yield lambda count: None


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, AuditKey]:
    """An audit with findings, a verdict and a record. Do not write into it."""
    folder = tmp_path_factory.mktemp("audited")
    with Store.open(folder / "audit.duckdb") as store:
        key = plant(store, RESPONSES, n=8)
        problem_id = store.frame("SELECT min(problem_id) AS id FROM problems")["id"].iloc[0]
        tokens = {"token_logps": (-0.5, -0.5), "token_entropies": (0.25, 0.25)}
        score = ForcedResponse(problem_id=problem_id, response_id="A", logp_sum=-1.0, entropy_sum=0.5, **tokens)
        store.add_forced(key, "hash0", [score])
        update_verdict(store, key, {}, {}, SilentProgress())
    return folder, key


@pytest.fixture
def key(audited: tuple[Path, AuditKey], tmp_path: Path) -> AuditKey:
    """The key of an audit in ``tmp_path``, which is the test's own."""
    shutil.copytree(audited[0], tmp_path, dirs_exist_ok=True)
    return audited[1]


def _computed(folder: Path, key: AuditKey) -> bool:
    """Whether the audit measures and judges again."""
    stages = _Stages()
    with Store.open(folder / "audit.duckdb") as store:
        update_verdict(store, key, {}, {}, stages)
    return bool(stages.titles)


def _made(folder: Path, key: AuditKey, failed: dict[str, str] | None = None) -> Derivation:
    """What the record must say for findings and verdict to stand."""
    with Store.open(folder / "audit.duckdb") as store:
        evidence = freshness._hash_evidence(store, key, failed or {}, {})
        assert evidence is not None
        return freshness._derivation(store, key, evidence)


def _change(folder: Path, sql: str) -> None:
    with Store.open(folder / "audit.duckdb") as store, store._database.transaction():
        store._database.rows(sql)


@pytest.mark.slow
def test_what_rests_on_the_same_evidence_is_not_computed_again(tmp_path: Path, key: AuditKey) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        held = store.verdict("run")
        assert held is not None
        assert update_verdict(store, key, {}, {}, SilentProgress()) == held
    assert not _computed(tmp_path, key)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE samples SET text = 'other' WHERE checkpoint_id = 'hash20' AND sample_index = 7",
        "UPDATE samples SET n_tokens = 4 WHERE checkpoint_id = 'hash20' AND sample_index = 7",
        "UPDATE samples SET logp_sum_raw = -2 WHERE checkpoint_id = 'hash20' AND sample_index = 7",
        "DELETE FROM samples WHERE checkpoint_id = 'hash20' AND sample_index = 7",
        "UPDATE grades SET correct = NOT correct WHERE response_id = '?'",
        "UPDATE grades SET mode = NULL WHERE response_id = 'B'",
        "UPDATE problems SET verifier = 'other'",
        "UPDATE series_checkpoints SET checkpoint = 'another' WHERE step = 20",
        "INSERT INTO training_metrics VALUES ('run', 20, 'loss', 1.0)",
        "INSERT INTO stops SELECT 'run', 'hash20', 'settings', min(problem_id), 4 FROM problems",
        "UPDATE audit_findings SET value = 0.125 WHERE measure = 'pass_at_k' AND checkpoint_id = 'hash20'",
        "DELETE FROM audit_findings WHERE measure = 'k_star'",
        "UPDATE audit_verdicts SET sentence = 'another'",
        "DELETE FROM audit_verdicts",
        "UPDATE audit_problems SET cluster = 'page 1'",
        "DELETE FROM verdict_looks",
    ],
)
def test_any_change_of_evidence_or_result_is_seen(tmp_path: Path, key: AuditKey, sql: str) -> None:
    before = _made(tmp_path, key)
    _change(tmp_path, sql)
    assert _made(tmp_path, key) != before


def test_every_table_is_evidence_or_named_as_none(tmp_path: Path) -> None:
    with Store.open(tmp_path / "audit.duckdb") as store:
        tables = set(store.frame("SELECT table_name FROM duckdb_tables() WHERE NOT internal")["table_name"])
    assert set(freshness.NO_EVIDENCE) == tables - set(freshness.EVIDENCE)
    assert set(freshness.EVIDENCE) - tables == {"response_tokens"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE grades SET correct = NOT correct WHERE response_id = '?'",
        "UPDATE audit_findings SET value = 0.125 WHERE why IS NULL",
        "DELETE FROM audit_verdicts",
    ],
)
def test_what_somebody_changed_is_computed_anew_and_then_stands(tmp_path: Path, key: AuditKey, sql: str) -> None:
    before = _made(tmp_path, key)
    _change(tmp_path, sql)
    assert _computed(tmp_path, key)
    assert not _computed(tmp_path, key)
    assert (_made(tmp_path, key) == before) == ("grades" not in sql)  # results are as they were where evidence is


@pytest.mark.slow
def test_training_responses_count_without_an_event(tmp_path: Path, key: AuditKey) -> None:
    before = _made(tmp_path, key)
    with Store.open(tmp_path / "audit.duckdb") as store:
        one = TrainingResponse(step=20, prompt="0 =", text="0", truncated=False, correct=True, draws=1)
        store.add_training_responses("run", [one])
    after = _made(tmp_path, key)
    assert after != before
    with Store.open(tmp_path / "audit.duckdb") as store:
        store.add_training_responses("run", [one])  # the same again, as every audit does
    assert _made(tmp_path, key) == after


@pytest.mark.slow
def test_tokens_beside_the_store_count_too(tmp_path: Path, key: AuditKey) -> None:
    _change(tmp_path, "UPDATE audits SET panel = 1")
    before = _made(tmp_path, key)
    (tokens,) = (tmp_path / "audit.tokens").iterdir()
    tokens.unlink()
    assert _made(tmp_path, key) != before


@pytest.mark.slow
def test_settings_and_what_was_left_out_count(tmp_path: Path, key: AuditKey) -> None:
    made = {
        _made(tmp_path, key),
        _made(tmp_path, replace(key, ks=(1, 2))),
        _made(tmp_path, replace(key, terms=VerdictTerms(guess_rate=0.25))),
        _made(tmp_path, replace(key, terms=VerdictTerms(looks=None))),
        _made(tmp_path, key, {"hash20": "no weights"}),
        _made(tmp_path, key, {"hash20": "other weights"}),
    }
    assert len(made) == 6


@pytest.mark.slow
def test_another_series_in_the_store_changes_nothing_for_this_one(tmp_path: Path, key: AuditKey) -> None:
    before = _made(tmp_path, key)
    _change(tmp_path, "INSERT INTO training_metrics VALUES ('other', 20, 'loss', 1.0)")
    assert _made(tmp_path, key) == before


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "{", "[]", '{"findings of run": 3}', '{"findings of run": {"made": "x"}}'])
def test_a_damaged_record_is_no_record(tmp_path: Path, key: AuditKey, text: str) -> None:
    record = tmp_path / "audit.made.json"
    assert recorded_derivations(tmp_path / "audit.duckdb")
    record.write_text(text)
    assert not recorded_derivations(tmp_path / "audit.duckdb")


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_other_code_measures_anew(tmp_path: Path, key: AuditKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "_CODE", "edited")
    assert _computed(tmp_path, key)


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_measures_of_other_packages_never_stand(tmp_path: Path, key: AuditKey, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = EntryPoint(name="outside", value="outside:MEASURE", group=derivations.ENTRY_POINT_GROUP)
    monkeypatch.setattr(derivations, "entry_points", lambda group: (outside,) if group == outside.group else ())
    monkeypatch.setattr(freshness, "_CODE", derivations.code_hash("oversharp.diagnostics"))
    assert _computed(tmp_path, key)
    assert _computed(tmp_path, key)


def test_the_hash_of_the_source_sees_every_file_its_name_and_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    rule, schema = (tmp_path / "part" / name for name in ("rule.py", "schema.sql"))
    rule.write_text("k = 1\n")
    seen = {tree_hash(tmp_path)}
    rule.write_text("k = 2\n")
    seen.add(tree_hash(tmp_path))
    rule.rename(schema)
    seen.add(tree_hash(tmp_path))
    (tmp_path / "empty.css").touch()
    seen.add(tree_hash(tmp_path))
    assert len(seen) == 4
    (tmp_path / "part" / "rule.pyc").write_bytes(b"compiled")
    assert tree_hash(tmp_path) in seen


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_a_report_is_written_again_only_where_it_or_its_store_changed(tmp_path: Path, key: AuditKey) -> None:
    store_path, page = tmp_path / "audit.duckdb", tmp_path / "report.html"

    def written_again() -> bool:
        before_ns = page.stat().st_mtime_ns
        write_report(store_path, page)
        return page.stat().st_mtime_ns != before_ns

    write_report(store_path, page)
    first = page.read_bytes()
    assert not written_again()
    page.write_bytes(first + b"<!-- by hand -->")
    assert written_again()
    assert page.read_bytes() == first
    _change(tmp_path, 'UPDATE audits SET provenance = \'{"command": "another"}\'')
    assert written_again()
    assert page.read_bytes() != first
    assert not written_again()
