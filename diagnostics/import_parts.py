"""Samples on their way from a file into the store, gathered column by column until a part is worth a transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, UInt64

from diagnostics.importers.contract import Recorded
from diagnostics.recording import GRADES, PROBLEMS, SAMPLES
from diagnostics.types import NO_ANSWER, response_id
from diagnostics.verifiers.exact import exact_answer

#: A part of a file that is written at once: samples, and characters of their texts. So many samples are what DuckDB
#: stores as one group of rows: it writes them to the file as they come, neither to its log first nor once more later.
SAMPLES_PER_COMMIT = 122_880
CHARACTERS_PER_COMMIT = 256 << 20
#: Samples that are looked at together; a part is a whole number of such blocks. DuckDB closes a group of rows early if
#: it would have to put a block of fewer than 20,000 into two.
SAMPLES_PER_BLOCK = 20_480
CHARACTERS_PER_BLOCK = 64 << 20
#: Odd numbers of 64 bits without a pattern.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], dtype=np.uint64)


#: A sample, and the checkpoint, the problem and the number that it has.
Placed = tuple[Recorded, str, str, int]


class Part:
    """Rows of ``PROBLEMS``, ``SAMPLES`` and ``GRADES`` that are written in one transaction."""

    def __init__(self) -> None:
        self.n_samples = 0
        self._n_characters = 0
        self._problems: list[tuple[str | None, ...]] = []
        self._samples: list[pa.RecordBatch] = []
        self._grades: list[pa.RecordBatch] = []
        self._graded: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether it is worth a transaction."""
        return self.n_samples >= SAMPLES_PER_COMMIT or self._n_characters >= CHARACTERS_PER_COMMIT

    @property
    def problems(self) -> pa.Table:
        """Rows of ``PROBLEMS``."""
        columns = zip(*self._problems, strict=True) if self._problems else [()] * len(PROBLEMS)
        return pa.Table.from_batches([_batch(PROBLEMS, columns)])

    @property
    def samples(self) -> pa.Table:
        """Rows of ``SAMPLES``."""
        return pa.Table.from_batches(self._samples, schema=SAMPLES)

    @property
    def grades(self) -> pa.Table:
        """Rows of ``GRADES``, no two of one response to one problem."""
        return pa.Table.from_batches(self._grades, schema=GRADES)

    def add_problem(self, *row: str | None) -> None:
        """One row of ``PROBLEMS``."""
        self._problems.append(row)

    def add_samples(self, placed: Sequence[Placed], *, with_numbers: bool) -> tuple[list[str], list[str]]:
        """Samples, without log-probability and entropy unless ``with_numbers``; their texts as stored and their ids."""
        items, checkpoint_ids, problem_ids, numbers = zip(*placed, strict=True)
        texts = [storable(item.response) for item in items]
        response_ids = list(map(response_id, texts))
        columns = (
            checkpoint_ids,
            problem_ids,
            [item.greedy for item in items],
            numbers,
            response_ids,
            texts,
            [item.n_tokens for item in items],
            [item.finish_reason for item in items],
            [item.logp_sum if with_numbers else None for item in items],
            [item.entropy_sum if with_numbers else None for item in items],
        )
        self._samples.append(_batch(SAMPLES, columns))
        self.n_samples += len(items)
        self._n_characters += sum(map(len, texts))
        return texts, response_ids

    def add_grades(
        self, placed: Sequence[Placed], texts: Sequence[str], response_ids: Sequence[str], verifier: str, least: float
    ) -> None:
        """The tool's own scores of these samples, of each response once; from ``least`` on they are correct."""
        new = []
        for (item, _, problem_id, _), text, response in zip(placed, texts, response_ids, strict=True):
            pair = problem_id + response
            if pair not in self._graded:
                self._graded.add(pair)
                said = exact_answer(text) if item.answer is None else item.answer
                correct = item.score is not None and item.score >= least
                new.append((problem_id, response, verifier, storable(said or NO_ANSWER), item.score, correct))
        if new:
            self._grades.append(_batch(GRADES, zip(*new, strict=True)))


class GradedPairs:
    """Which (problem, response) were written before, by a number of 64 bits for each: of 5 million, 40 MB."""

    def __init__(self) -> None:
        self._marks = np.empty(0, dtype=np.uint64)

    def surely_new(self, grades: pa.Table) -> Bool[np.ndarray, " grade"]:
        """False where it may have been seen before, as two may share a number; all have been seen after this."""
        mark_N = _marks(grades)
        sorted_M, first_M = np.unique(mark_N, return_index=True)
        place_M = np.searchsorted(self._marks, sorted_M)
        known_M = np.zeros(len(sorted_M), dtype=bool)
        inside_M = place_M < len(self._marks)
        known_M[inside_M] = self._marks[place_M[inside_M]] == sorted_M[inside_M]
        new_N = np.zeros(len(mark_N), dtype=bool)
        new_N[first_M[~known_M]] = True
        self._marks = np.sort(np.concatenate([self._marks, sorted_M[~known_M]]), kind="stable")
        return new_N


def _marks(grades: pa.Table) -> UInt64[np.ndarray, " grade"]:
    """A number for each pair; equal pairs have equal ones. Both ids are of 16 characters."""
    words = [
        np.frombuffer("".join(grades.column(name).to_pylist()).encode("ascii"), dtype=np.uint64).reshape(-1, 2)
        for name in ("problem_id", "response_id")
    ]
    return (np.hstack(words) * _FACTORS).sum(axis=1, dtype=np.uint64)


@contextmanager
def collector_off() -> Iterator[None]:
    """Reading makes no cycles, and the collector of garbage would go through all samples at hand again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def storable(text: str) -> str:
    """The text itself; half a surrogate pair, which no file can hold, becomes a question mark."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _batch(schema: pa.Schema, columns: Iterable[Sequence[object]]) -> pa.RecordBatch:
    arrays = [pa.array(values, type=kind) for values, kind in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
