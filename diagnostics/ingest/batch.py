"""Gathers samples column by column into the tables that the store writes in one transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, UInt64

from diagnostics.ingest.formats.contract import Recorded
from diagnostics.records.types import NO_ANSWER, response_id
from diagnostics.store.write_import import GRADES, PROBLEMS, SAMPLES
from diagnostics.verifiers.exact import exact_answer

#: A part of a file that is written at once: samples, and bytes of their texts. So many samples are what DuckDB
#: stores as one group of rows: it writes them to the file as they come, neither to its log first nor once more later.
SAMPLES_PER_COMMIT = 122_880
BYTES_PER_COMMIT = 256 << 20
#: Samples that are looked at together, so few that they stay in the processor's cache until all is done with them.
SAMPLES_PER_BLOCK = 512
CHARACTERS_PER_BLOCK = 1 << 20
#: Odd numbers of 64 bits without a pattern.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


@dataclass(kw_only=True)
class Placed:
    """Samples, and the checkpoint, the problem and the number of each."""

    items: list[Recorded] = field(default_factory=list)
    checkpoint_ids: list[str] = field(default_factory=list)
    problem_ids: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)

    def add(self, checkpoint_id: str, problem_id: str, items: Sequence[Recorded], indices: Sequence[int]) -> None:
        """Samples of one checkpoint and problem."""
        self.items += items
        self.checkpoint_ids += [checkpoint_id] * len(items)
        self.problem_ids += [problem_id] * len(items)
        self.indices += indices


class Texts:
    """Texts in UTF-8 one after the other, in memory that is used again: fresh memory costs more than a copy."""

    def __init__(self, n_bytes: int = BYTES_PER_COMMIT) -> None:
        self._bytes = np.empty(n_bytes, dtype=np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget them: columns that were taken before are of no use any more."""
        self.n_bytes = 0
        self._lengths: list[int] = []

    def add(self, texts: Sequence[bytes]) -> None:
        """More texts."""
        joined = np.frombuffer(b"".join(texts), dtype=np.uint8)
        end = self.n_bytes + len(joined)
        if end > len(self._bytes):
            self._bytes = np.concatenate([self._bytes[: self.n_bytes], np.empty(2 * len(joined), dtype=np.uint8)])
        self._bytes[self.n_bytes : end] = joined
        self.n_bytes = end
        self._lengths += map(len, texts)

    def column(self) -> pa.StringArray:
        """All of them, until ``clear``."""
        offsets = np.zeros(len(self._lengths) + 1, dtype=np.int32)
        np.cumsum(self._lengths, out=offsets[1:])
        text_bytes = pa.py_buffer(self._bytes[: self.n_bytes])
        return pa.StringArray.from_buffers(len(self._lengths), pa.py_buffer(offsets), text_bytes)


class SampleBatch:
    """Rows of ``PROBLEMS``, ``SAMPLES`` and ``GRADES`` that are written in one transaction."""

    def __init__(self, texts: Texts) -> None:
        texts.clear()
        self._texts = texts
        self._problems = _Rows(PROBLEMS)
        self._samples = _Rows(SAMPLES.remove(SAMPLES.get_field_index("text")))
        self._grades = _Rows(GRADES)
        self._graded: dict[str, bool] = {}

    @property
    def n_samples(self) -> int:
        """Samples that were added."""
        return len(self._samples)

    @property
    def room(self) -> int:
        """How many samples it takes until it is worth a transaction."""
        return SAMPLES_PER_COMMIT - self.n_samples if self._texts.n_bytes < BYTES_PER_COMMIT else 0

    @property
    def problems(self) -> pa.Table:
        """Rows of ``PROBLEMS``."""
        return self._problems.table()

    @property
    def samples(self) -> pa.Table:
        """Rows of ``SAMPLES``, until another part begins."""
        table = self._samples.table()
        return table.add_column(SAMPLES.get_field_index("text"), SAMPLES.field("text"), self._texts.column())

    @property
    def grades(self) -> pa.Table:
        """Rows of ``GRADES``, no two of one response to one problem."""
        return self._grades.table()

    def add_problem(self, *row: str | None) -> None:
        """One row of ``PROBLEMS``."""
        self._problems.add(*([value] for value in row))

    def add_samples(self, placed: Placed, *, with_numbers: bool) -> list[str]:
        """Samples, without log-probability and entropy unless ``with_numbers``; returns the ids of their responses."""
        items = placed.items
        texts = [item.response.encode("utf-8", "replace") for item in items]
        response_ids = list(map(response_id, texts))
        self._samples.add(
            placed.checkpoint_ids,
            placed.problem_ids,
            [item.greedy for item in items],
            placed.indices,
            response_ids,
            [item.n_tokens for item in items],
            [item.finish_reason for item in items],
            [item.logp_sum if with_numbers else None for item in items],
            [item.entropy_sum if with_numbers else None for item in items],
        )
        self._texts.add(texts)
        return response_ids

    def add_grades(self, placed: Placed, response_ids: Sequence[str], verifier: str, least: float) -> int:
        """The tool's own rewards of these samples, of each response once; from ``least`` on they are correct.

        Returns how many of them are not graded as their response was before in this part.
        """
        new: list[int] = []
        n_otherwise = 0
        right = [item.reward is not None and item.reward >= least for item in placed.items]
        for place, pair in enumerate(map(add, placed.problem_ids, response_ids)):
            held = self._graded.get(pair)
            if held is None:
                self._graded[pair] = right[place]
                new.append(place)
            elif held != right[place]:
                n_otherwise += 1
        items = [placed.items[place] for place in new]
        said = [exact_answer(item.response) if item.answer is None else item.answer for item in items]
        self._grades.add(
            [placed.problem_ids[place] for place in new],
            [response_ids[place] for place in new],
            [verifier] * len(new),
            [storable(answer or NO_ANSWER) for answer in said],
            [item.reward for item in items],
            [right[place] for place in new],
        )
        return n_otherwise


class _Rows:
    """Rows of a table, as a list for each column."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, *columns: Sequence[Any]) -> None:
        """More rows."""
        for column, values in zip(self._columns, columns, strict=True):
            column += values

    def table(self) -> pa.Table:
        """All of them, in one piece."""
        columns = [pa.array(values, type=kind) for values, kind in zip(self._columns, self._schema.types, strict=True)]
        return pa.Table.from_arrays(columns, schema=self._schema)


class GradedPairs:
    """Which (problem, response) were written before, by two numbers of 64 bits for each: of 5 million, 80 MB."""

    def __init__(self) -> None:
        self._runs: list[_SortedPairs] = []  # sorted, each less than half as long as the one before

    def seen_or_new(self, grades: pa.Table) -> tuple[Bool[np.ndarray, " grade"], Bool[np.ndarray, " grade"]]:
        """Which were surely not seen before, and which nobody can tell; no two grades are of one pair.

        All have been seen after this.
        """
        mark_N, response_N = _marks(grades)
        order_N = np.argsort(mark_N, kind="stable")
        run = _SortedPairs(mark_N[order_N], response_N[order_N])
        same_mark_N = np.zeros(len(mark_N), dtype=bool)
        seen_N = np.zeros(len(mark_N), dtype=bool)
        for earlier in self._runs:
            place_N = np.minimum(np.searchsorted(earlier.mark, run.mark), len(earlier.mark) - 1)
            same_N = earlier.mark[place_N] == run.mark
            same_mark_N |= same_N
            seen_N |= same_N & (earlier.response[place_N] == run.response)
        if len(run.mark):
            self._add(run)
        new_N, unsure_N = np.empty_like(seen_N), np.empty_like(seen_N)
        new_N[order_N], unsure_N[order_N] = ~same_mark_N, same_mark_N & ~seen_N
        return new_N, unsure_N

    def _add(self, run: _SortedPairs) -> None:
        while self._runs and len(self._runs[-1].mark) < 2 * len(run.mark):
            earlier = self._runs.pop()
            mark = np.concatenate([earlier.mark, run.mark])
            order = np.argsort(mark, kind="stable")
            run = _SortedPairs(mark[order], np.concatenate([earlier.response, run.response])[order])
        self._runs.append(run)


class _SortedPairs(NamedTuple):
    """Pairs in the order of their marks. The response's own number tells pairs of one mark apart."""

    mark: UInt64[np.ndarray, " pair"]
    response: UInt64[np.ndarray, " pair"]


def _marks(grades: pa.Table) -> tuple[UInt64[np.ndarray, " grade"], UInt64[np.ndarray, " grade"]]:
    """A number for each pair and that of its response: together they are the pair, as both ids are 16 hex digits."""
    numbers = []
    for name in ("problem_id", "response_id"):
        digits = "".join(grades.column(name).to_pylist())
        numbers.append(np.frombuffer(bytes.fromhex(digits), dtype=">u8").astype(np.uint64))
    problem_N, response_N = numbers
    return problem_N * _FACTORS[0] + response_N * _FACTORS[1], response_N


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
