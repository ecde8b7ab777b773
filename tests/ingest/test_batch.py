"""How samples are gathered on their way into the store."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from diagnostics.ingest import batch
from diagnostics.ingest.batch import SAMPLES_PER_COMMIT, GradedPairs, Placed, SampleBatch, Texts
from diagnostics.ingest.formats.contract import Recorded
from diagnostics.records.types import content_hash, response_id
from diagnostics.store.write_import import GRADES


def grades(*pairs: tuple[int, int]) -> pa.Table:
    """Grades of (problem, response) by number."""
    same = {"verifier": "v", "answer": "7", "reward": 1.0, "correct": True}
    rows = [
        {"problem_id": content_hash("problem", problem), "response_id": content_hash("response", response), **same}
        for problem, response in pairs
    ]
    return pa.Table.from_pylist(rows, schema=GRADES)


def sample(line: int, response: str = "7") -> Recorded:
    return Recorded(line, f"{line}?", response, reward=1.0)


def test_a_part_is_one_group_of_rows_to_the_database(tmp_path: Path) -> None:
    part = pa.table({"text": pa.array([f"text {number}" for number in range(SAMPLES_PER_COMMIT)])})
    with duckdb.connect(tmp_path / "some.duckdb") as connection:
        connection.execute("CREATE TABLE samples (text VARCHAR)")
        for _ in range(2):
            connection.register("incoming", part)
            connection.execute("INSERT INTO samples FROM incoming")
        groups = connection.execute(
            """
            SELECT row_group_id, sum(count) FROM pragma_storage_info('samples')
            WHERE segment_type = 'VARCHAR' GROUP BY ALL ORDER BY ALL
            """
        ).fetchall()
    assert groups == [(0, SAMPLES_PER_COMMIT), (1, SAMPLES_PER_COMMIT)]


def test_a_part_is_full_to_the_sample_and_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SAMPLES_PER_COMMIT", 5)
    part = SampleBatch(Texts())
    for items in ([sample(1), sample(2, "é\ud800")], [], [sample(3)]):
        placed = Placed()
        placed.add("checkpoint", "problem", items, range(len(items)))
        part.add_samples(placed, with_numbers=True)
    assert (part.n_samples, part.room) == (3, 2)
    texts = part.samples.column("text")
    assert texts.num_chunks == 1
    assert texts.to_pylist() == ["7", "é?", "7"]
    assert part.samples.column("response_id").to_pylist() == [response_id(text) for text in texts.to_pylist()]


def test_a_part_of_long_responses_is_full_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BYTES_PER_COMMIT", 8)
    part, placed = SampleBatch(Texts()), Placed()
    placed.add("checkpoint", "problem", [sample(1, "€€€")], [0])
    part.add_samples(placed, with_numbers=True)
    assert part.room == 0


def test_texts_outgrow_their_memory_and_use_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BYTES_PER_COMMIT", 4)
    texts = Texts()
    for _ in range(2):
        texts.clear()
        for said in (["one", ""], ["€" * 100], ["two"], []):
            texts.add([text.encode() for text in said])
        assert texts.column().to_pylist() == ["one", "", "€" * 100, "two"]
    texts.clear()
    assert texts.column().to_pylist() == []


def test_pairs_are_new_once() -> None:
    pairs = GradedPairs()
    new_N, unsure_N = pairs.seen_or_new(grades((1, 1), (1, 2), (2, 1)))
    assert (new_N.all(), unsure_N.any()) == (True, False)
    new_N, unsure_N = pairs.seen_or_new(grades((2, 1), (2, 2), (1, 1), (3, 3)))
    assert (new_N.tolist(), unsure_N.any()) == ([False, True, False, True], False)
    assert pairs.seen_or_new(grades())[0].tolist() == []
    many = [(problem, response) for problem in range(100) for response in range(100)]
    assert int(pairs.seen_or_new(grades(*many))[0].sum()) == 10_000 - 5
    assert not pairs.seen_or_new(grades(*many))[0].any()


def test_nobody_can_tell_of_a_pair_that_shares_a_number_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_FACTORS", np.zeros(2, dtype=np.uint64))
    pairs = GradedPairs()
    assert pairs.seen_or_new(grades((1, 1), (2, 2)))[0].all()  # whoever wrote them knows that they are two
    new_N, unsure_N = pairs.seen_or_new(grades((3, 3), (1, 1)))
    assert (new_N.any(), unsure_N.tolist()) == (False, [True, False])
