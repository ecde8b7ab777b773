"""The store: identity, idempotence, migrations and errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from diagnostics.database import SCHEMA_VERSION
from diagnostics.errors import StoreError
from diagnostics.store import Store
from diagnostics.types import (
    AuditKey,
    Checkpoint,
    Finding,
    Grade,
    Problem,
    ResponseScore,
    Sample,
    SamplingSettings,
    Series,
)

PROBLEM = Problem(task="toy", prompt="1 + 1 =", gold="2", verifier="exact", modes=("2", "two"))
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=4)


def _series(*steps: int) -> Series:
    checkpoints = tuple(
        Checkpoint(step=step, label=f"checkpoint-{step}", path=Path("/x"), kind="full", weights_hash=f"hash{step}")
        for step in steps
    )
    return Series(name="run", path=Path("/x"), layout="hf", checkpoints=checkpoints)


def _sample(index: int, text: str = "2", *, greedy: bool = False) -> Sample:
    return Sample(
        problem_id=PROBLEM.problem_id,
        sample_index=index,
        greedy=greedy,
        text=text,
        token_ids=(5, 1),
        finish_reason="stop",
        logp_sum_raw=-0.5,
    )


def _begin(store: Store, *, n: int = 4, settings: SamplingSettings = SETTINGS, audit_id: str = "a") -> AuditKey:
    store.add_series(_series(0, 20))
    store.add_problems([PROBLEM])
    key = AuditKey(
        audit_id=audit_id,
        series="run",
        settings_id=settings.settings_id,
        n=n,
        entropy_samples=2,
        ks=(1, 2),
        strategy_regex="```",
    )
    store.begin_audit(key, settings=settings, problem_ids=[PROBLEM.problem_id])
    return key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


def test_only_missing_samples_are_asked_for(store: Store) -> None:
    key = _begin(store)
    assert store.missing_samples(key, "hash0", [PROBLEM.problem_id]) == {PROBLEM.problem_id: ((0, 1, 2, 3), True)}
    store.add_samples(key, "hash0", [_sample(1), _sample(3), _sample(0, greedy=True)])
    assert store.missing_samples(key, "hash0", [PROBLEM.problem_id]) == {PROBLEM.problem_id: ((0, 2), False)}
    assert PROBLEM.problem_id in store.missing_samples(key, "hash20", [PROBLEM.problem_id])


def test_the_same_batch_twice_adds_nothing(store: Store) -> None:
    key = _begin(store)
    assert store.add_samples(key, "hash0", [_sample(0), _sample(1)]) == 2
    assert store.add_samples(key, "hash0", [_sample(0), _sample(1), _sample(2)]) == 1
    assert len(store.frame("FROM samples")) == 3


def test_samples_under_other_settings_never_mix(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key, "hash0", [_sample(0)])
    warmer = SamplingSettings(sampler="transformers", max_tokens=4, temperature=0.6)
    other = _begin(store, settings=warmer, audit_id="b")
    assert store.missing_samples(other, "hash0", [PROBLEM.problem_id])[PROBLEM.problem_id] == ((0, 1, 2, 3), True)


def test_a_larger_n_continues_the_same_samples(store: Store) -> None:
    key = _begin(store, n=2)
    store.add_samples(key, "hash0", [_sample(0), _sample(1), _sample(0, greedy=True)])
    more = _begin(store, n=3, audit_id="b")
    assert store.missing_samples(more, "hash0", [PROBLEM.problem_id]) == {PROBLEM.problem_id: ((2,), False)}


def test_equal_texts_are_graded_once_across_checkpoints(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key, "hash0", [_sample(0, "2"), _sample(1, "2"), _sample(2, "3")])
    store.add_samples(key, "hash20", [_sample(0, "2")])
    pending = store.ungraded(key)
    assert sorted(pending["text"]) == ["2", "3"]
    rows = zip(pending["problem_id"], pending["response_id"], pending["verifier"], strict=True)
    store.add_grades([(*row, Grade(answer="2", mode="2", reward=1.0)) for row in rows])
    assert store.ungraded(key).empty
    counts = store.frame("SELECT step, n, n_correct FROM problem_counts ORDER BY step")
    assert counts.to_numpy().tolist() == [[0, 3, 3], [20, 1, 1]]


def test_modes_and_first_samples_are_scored_once(store: Store) -> None:
    key = _begin(store)
    store.add_samples(key, "hash0", [_sample(0), _sample(1, "3"), _sample(2, "4")])
    own, modes = store.unscored_samples(key, "hash0"), store.unscored_modes(key, "hash0")
    assert len(own) == 2  # entropy_samples
    assert sorted(modes["mode"]) == ["2", "two"]
    identities = {*own["response_id"], *modes["response_id"]}
    scores = [
        ResponseScore(problem_id=PROBLEM.problem_id, response_id=identity, logp_sum=-1, entropy_sum=2, n_tokens=2)
        for identity in sorted(identities)
    ]
    store.add_scores(key, "hash0", scores)
    assert store.unscored_samples(key, "hash0").empty
    assert store.unscored_modes(key, "hash0").empty
    assert len(store.frame("FROM mode_scores")) == 2


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
    store.add_samples(key, "hash0", [_sample(0)])
    bad = Sample(
        problem_id=PROBLEM.problem_id,
        sample_index=1,
        greedy=False,
        text="2",
        token_ids=(1,),
        finish_reason="stop",
        logp_sum_raw=float("nan"),
    )
    with pytest.raises(StoreError, match=r"audit\.duckdb"):
        store.add_samples(key, "hash0", [_sample(2), bad])
    assert store.frame("SELECT sample_index FROM samples")["sample_index"].tolist() == [0]


def test_a_newer_store_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    Store.open(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "INSERT INTO schema_version (version, oversharp_version) VALUES (?, 'x')", [SCHEMA_VERSION + 1]
        )
    with pytest.raises(StoreError, match="newer oversharp"):
        Store.open(path)


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE mine (x INTEGER)")
    with pytest.raises(StoreError, match="not an oversharp store"):
        Store.open(path)
    text = tmp_path / "text.duckdb"
    text.write_text("hello " * 4000)
    with pytest.raises(StoreError, match="not a DuckDB file"):
        Store.open(text)


def test_a_missing_store_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="oversharp audit"):
        Store.open(tmp_path / "audit.duckdb", read_only=True)


def test_a_store_locked_by_another_process_says_so(store: Store) -> None:
    probe = (
        "from pathlib import Path; from diagnostics.store import Store; from diagnostics.errors import StoreError\n"
        f"try: Store.open(Path({str(store.path)!r}))\n"
        "except StoreError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert "locked by another process" in answer.stdout


def test_a_full_disk_is_one_line_and_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "audit.duckdb"
    with Store.open(path) as store:
        key = _begin(store, n=10**6)
        store.add_samples(key, "hash0", [_sample(0)])
    limit = path.stat().st_size + 2**16
    probe = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the kernel then answers "file too large", as a full disk would
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from diagnostics.errors import StoreError
from diagnostics.store import Store
from test_store import _begin, _sample
try:
    with Store.open(Path({str(path)!r})) as store:
        key = _begin(store, n=10**6)
        for first in range(1, 10**6, 5000):
            store.add_samples(key, "hash0", [_sample(i, f"{{i}} " * 20) for i in range(first, first + 5000)])
except StoreError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, timeout=120)
    assert "the disk is full" in answer.stdout, answer.stdout + answer.stderr
    assert len(answer.stdout.strip().splitlines()) == 1
    with Store.open(path) as store:
        assert 0 in store.frame("SELECT sample_index FROM samples")["sample_index"].tolist()
