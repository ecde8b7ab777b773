"""Batches of samples for the store."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from oversharp.diagnostics.ingest import batch
from oversharp.diagnostics.ingest.batch import (
    SAMPLES_PER_COMMIT,
    AssignedRows,
    AssignedSamples,
    GradedPairs,
    IdPairs,
    SampleBatch,
    Texts,
)
from oversharp.diagnostics.ingest.formats.contract import Recorded, RecordedRows
from oversharp.diagnostics.records.types import NO_ANSWER, content_hash, response_id


def pairs_of(*numbers: tuple[int, int]) -> IdPairs:
    """Pairs of (problem, response) by number."""
    ids = {
        "problem_id": [content_hash("problem", problem) for problem, _ in numbers],
        "response_id": [content_hash("response", response) for _, response in numbers],
    }
    return IdPairs.from_rows(pa.table({name: pa.array(values, pa.string()) for name, values in ids.items()}))


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


def test_a_part_is_full_to_the_sample_and_copy_contiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "SAMPLES_PER_COMMIT", 5)
    part = SampleBatch(Texts())
    for items in ([sample(1), sample(2, "é\ud800")], [], [sample(3)]):
        placed = AssignedSamples()
        placed.add("checkpoint", "problem", items, range(len(items)))
        part.add_samples(placed, with_numbers=True)
    assert (part.n_samples, part.room) == (3, 2)
    texts = part.samples.column("text")
    assert texts.num_chunks == 1
    assert texts.to_pylist() == ["7", "é?", "7"]
    assert part.samples.column("response_id").to_pylist() == [response_id(text) for text in texts.to_pylist()]


def test_a_part_of_long_responses_is_full_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BYTES_PER_COMMIT", 8)
    part, placed = SampleBatch(Texts()), AssignedSamples()
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


@pytest.mark.slow
def test_pairs_are_new_once() -> None:
    graded = GradedPairs()
    new_N, unsure_N = graded.add_pairs(pairs_of((1, 1), (1, 2), (2, 1)))
    assert (new_N.all(), unsure_N.any()) == (True, False)
    new_N, unsure_N = graded.add_pairs(pairs_of((2, 1), (2, 2), (1, 1), (3, 3)))
    assert (new_N.tolist(), unsure_N.any()) == ([False, True, False, True], False)
    assert graded.add_pairs(pairs_of())[0].tolist() == []
    many = [(problem, response) for problem in range(100) for response in range(100)]
    assert int(graded.add_pairs(pairs_of(*many))[0].sum()) == 10_000 - 5
    assert not graded.add_pairs(pairs_of(*many))[0].any()


def test_nobody_can_tell_of_a_pair_that_shares_a_number_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_FACTORS", np.zeros(2, dtype=np.uint64))
    graded = GradedPairs()
    assert graded.add_pairs(pairs_of((1, 1), (2, 2)))[0].all()  # distinct within a call
    new_N, unsure_N = graded.add_pairs(pairs_of((3, 3), (1, 1)))
    assert (new_N.any(), unsure_N.tolist()) == (False, [True, False])


def test_each_pair_is_found_where_it_was_first() -> None:
    assert pairs_of((2, 1), (1, 1), (2, 1), (1, 2), (1, 1), (2, 1)).first_places().tolist() == [0, 1, 0, 3, 1, 0]
    assert pairs_of().first_places().tolist() == []
    table = pa.table({"problem_id": ["0" * 15 + "a", "f" * 16], "response_id": ["0" * 16, "8" + "0" * 15]})
    assert IdPairs.from_rows(table.slice(1)) == (np.array([2**64 - 1]), np.array([2**63]))


def test_pairs_with_equal_hashes_are_still_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_FACTORS", np.zeros(2, dtype=np.uint64))
    assert pairs_of((2, 1), (1, 1), (2, 1), (1, 2), (1, 1), (2, 1)).first_places().tolist() == [0, 1, 0, 3, 1, 0]


def test_repeated_and_distinct_texts_have_the_same_ids() -> None:
    for texts in (["a", "b", "a", "a", ""], [str(number) for number in range(1000)]):
        assert batch._response_ids(pa.array(texts, pa.string())).to_pylist() == [response_id(text) for text in texts]
    assert len(batch._response_ids(pa.array([], pa.string()))) == 0


def answered(line: int, response: str, reward: float | None, answer: str | None = None) -> Recorded:
    return Recorded(line, "1+1?", response, reward=reward, answer=answer, index=line)


ANSWERED = (
    answered(1, "It is 3.\nAnswer: 3", 0.0),
    answered(2, "\\boxed{2}", 1.0),
    answered(3, "It is 3.\nAnswer: 3", 1.0),  # another reward than the same response before
    answered(4, "two", 0.5, answer="2"),
    answered(5, "", 0.4),
    answered(6, "\\boxed{2}", 1.0),
)


def part_of(items: list[Recorded], *, as_rows: bool) -> SampleBatch:
    part = SampleBatch(Texts())
    for some in filter(None, (items[:2], items[2:])):
        if as_rows:
            columns = {
                "prompt": pa.array([one.prompt for one in some]),
                "response": pa.array(["before", *(one.response for one in some)]).slice(1),
                "reward": pa.array([one.reward for one in some], pa.float64()),
                "answer": pa.array([one.answer for one in some], pa.string()),
                "greedy": pa.array([one.greedy for one in some]),
            }
            rows = AssignedRows(rows=RecordedRows(first=some[0].line, columns=columns))
            rows.add("checkpoint", "b" * 16, range(len(some)), [one.index or 0 for one in some])
            part.add_rows(rows, with_numbers=True)
        else:
            placed = AssignedSamples()
            placed.add("checkpoint", "b" * 16, some, [one.index or 0 for one in some])
            part.add_samples(placed, with_numbers=True)
    return part


@pytest.mark.parametrize("as_rows", [False, True])
def test_a_response_has_one_grade_its_first_and_the_answer_in_it_or_beside_it(as_rows: bool) -> None:
    part = part_of(list(ANSWERED), as_rows=as_rows)
    grades = part.grades("recorded:some", 0.5, GradedPairs())
    assert (len(grades.unsure), grades.n_conflicting) == (0, 1)
    found = grades.new.select(["response_id", "answer", "reward", "correct"]).to_pylist()
    assert [tuple(one.values()) for one in found] == [
        (response_id("It is 3.\nAnswer: 3"), "3", 0.0, False),
        (response_id("\\boxed{2}"), "2", 1.0, True),
        (response_id("two"), "2", 0.5, True),
        (response_id(""), NO_ANSWER, 0.4, False),
    ]
    assert set(grades.new.column("verifier").to_pylist()) == {"recorded:some"}


def test_what_was_graded_before_is_graded_no_more_and_what_nobody_knows_is_asked_of_the_store() -> None:
    before = GradedPairs()
    part_of(list(ANSWERED[1:3]), as_rows=True).grades("v", 0.5, before)
    grades = part_of(list(ANSWERED), as_rows=True).grades("v", 0.5, before)
    assert grades.new.column("response_id").to_pylist() == [response_id("two"), response_id("")]
    grades = part_of(list(ANSWERED), as_rows=True).grades("v", 0.5, None)
    assert (len(grades.new), len(grades.unsure)) == (0, 4)


def test_rows_are_stored_as_samples_one_by_one_are() -> None:
    by_rows, one_by_one = (part_of(list(ANSWERED), as_rows=as_rows).samples for as_rows in (True, False))
    assert by_rows.to_pylist() == one_by_one.to_pylist()
