"""Gathers samples column by column into the tables that the store writes in one transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int64, UInt8
from pyarrow import compute

from oversharp.diagnostics.ingest.formats.columns import text_bytes
from oversharp.diagnostics.ingest.formats.contract import Recorded, RecordedRows
from oversharp.diagnostics.ingest.pairs import GradedPairs, IdPairs
from oversharp.diagnostics.records.types import NO_ANSWER, response_digest
from oversharp.diagnostics.store.write_import import GRADES, PROBLEMS, SAMPLES
from oversharp.diagnostics.verifiers.exact import exact_answer

#: A part of a file that is written at once: samples, and bytes of their texts. So many samples are what DuckDB
#: stores as one group of rows: it writes them to the file as they come, neither to its log first nor once more later.
SAMPLES_PER_COMMIT = 122_880
BYTES_PER_COMMIT = 256 << 20
#: Samples that are looked at together, so few that they stay in the processor's cache until all is done with them.
SAMPLES_PER_BLOCK = 512
CHARACTERS_PER_BLOCK = 1 << 20


@dataclass(kw_only=True)
class Placed:
    """Samples with checkpoint, problem and number of each."""

    items: list[Recorded] = field(default_factory=list)
    checkpoint_ids: list[str] = field(default_factory=list)
    problem_ids: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)

    def add(self, checkpoint_id: str, problem_id: str, items: Sequence[Recorded], indices: Sequence[int]) -> None:
        """Add samples of one checkpoint and problem."""
        self.items += items
        self.checkpoint_ids += [checkpoint_id] * len(items)
        self.problem_ids += [problem_id] * len(items)
        self.indices += indices


@dataclass(kw_only=True)
class PlacedRows:
    """Rows with checkpoint and problem: those of ``rows`` at ``places``, in runs of ``lengths`` each."""

    rows: RecordedRows
    places: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    checkpoint_ids: list[str] = field(default_factory=list)
    problem_ids: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add(self, checkpoint_id: str, problem_id: str, places: Sequence[int], indices: Sequence[int]) -> None:
        """Add rows of one checkpoint and problem."""
        self.places += places
        self.indices += indices
        self.checkpoint_ids.append(checkpoint_id)
        self.problem_ids.append(problem_id)
        self.lengths.append(len(places))

    @property
    def n_empty(self) -> int:
        """Number of samples with a reward and no text."""
        if "reward" not in self.rows.columns:
            return 0
        lengths = compute.binary_length(self.column("response", pa.string()))
        is_rewarded = self.column("reward", pa.float64()).is_valid()
        return int(compute.sum(compute.and_(compute.equal(lengths, 0), is_rewarded)).as_py() or 0)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a field of the samples."""
        values = self.rows.columns.get(name)
        if values is None:
            return pa.nulls(len(self.places), kind)
        return values if len(self.places) == len(self.rows) else values.take(pa.array(self.places, pa.int32()))

    def ids(self, of_runs: Sequence[str]) -> pa.Array:
        """Return the id of each sample, given those of the runs."""
        run_N = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)
        return pa.array(of_runs, pa.string()).take(pa.array(run_N))


class Texts:
    """Texts in UTF-8 one after the other, in memory that is used again: fresh memory costs more than a copy."""

    def __init__(self, n_bytes: int = BYTES_PER_COMMIT) -> None:
        self._bytes = np.empty(n_bytes, dtype=np.uint8)
        self.clear()

    def clear(self) -> None:
        """Remove all texts; columns returned before become invalid."""
        self.n_bytes = 0
        self._lengths: list[Sequence[int] | np.ndarray] = []

    def add(self, texts: Sequence[bytes]) -> None:
        """Add texts."""
        self._append(np.frombuffer(b"".join(texts), dtype=np.uint8), list(map(len, texts)))

    def add_column(self, texts: pa.StringArray) -> None:
        """Add a column of texts without nulls."""
        self._append(*text_bytes(texts))

    def _append(self, joined: UInt8[np.ndarray, " byte"], lengths: Sequence[int] | np.ndarray) -> None:
        end = self.n_bytes + len(joined)
        if end > len(self._bytes):
            self._bytes = np.concatenate([self._bytes[: self.n_bytes], np.empty(2 * len(joined), dtype=np.uint8)])
        self._bytes[self.n_bytes : end] = joined
        self.n_bytes = end
        self._lengths.append(lengths)

    def column(self) -> pa.StringArray:
        """Return all of them, until ``clear``."""
        lengths_N = np.concatenate([np.empty(0, dtype=np.int32), *self._lengths])
        offsets = np.zeros(len(lengths_N) + 1, dtype=np.int32)
        np.cumsum(lengths_N, out=offsets[1:])
        text_bytes = pa.py_buffer(self._bytes[: self.n_bytes])
        return pa.StringArray.from_buffers(len(lengths_N), pa.py_buffer(offsets), text_bytes)


@dataclass(frozen=True, kw_only=True)
class RecordedGrades:
    """The tool's own grades of a part, as rows of ``GRADES``: ``new`` ones, and ``unsure`` ones that may be stored.

    ``n_otherwise`` samples are not graded as their response was before in this part.
    """

    new: pa.Table
    unsure: pa.Table
    n_otherwise: int


#: Columns of a sample without its text, and those of its grade.
_HELD = SAMPLES.remove(SAMPLES.get_field_index("text"))
_SAID = pa.schema([("reward", pa.float64()), ("answer", pa.string())])


class SampleBatch:
    """Rows of ``PROBLEMS``, ``SAMPLES`` and ``GRADES`` that are written in one transaction."""

    def __init__(self, texts: Texts) -> None:
        texts.clear()
        self._texts = texts
        self._problems = _Rows(PROBLEMS)
        self._samples = _Rows(pa.schema([*_HELD, *_SAID]))

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
        table = self._samples.table().select(_HELD.names)
        return table.add_column(SAMPLES.get_field_index("text"), SAMPLES.field("text"), self._texts.column())

    def add_problem(self, *row: str | None) -> None:
        """Return one row of ``PROBLEMS``."""
        self._problems.add(*([value] for value in row))

    def add_samples(self, placed: Placed, *, with_numbers: bool) -> None:
        """Samples, without log-probability and entropy unless ``with_numbers``."""
        items = placed.items
        texts = [item.response.encode("utf-8", "replace") for item in items]
        self._samples.add(
            placed.checkpoint_ids,
            placed.problem_ids,
            [item.greedy for item in items],
            placed.indices,
            [response_digest(text).hex() for text in texts],
            [item.n_tokens for item in items],
            [item.finish_reason for item in items],
            [item.logp_sum if with_numbers else None for item in items],
            [item.entropy_sum if with_numbers else None for item in items],
            [item.reward for item in items],
            [None if item.answer is None else storable(item.answer) for item in items],
        )
        self._texts.add(texts)

    def add_rows(self, placed: PlacedRows, *, with_numbers: bool) -> None:
        """The same, of rows."""
        texts = placed.column("response", pa.string())
        given: dict[str, pa.Array] = {
            "checkpoint_id": placed.ids(placed.checkpoint_ids),
            "problem_id": placed.ids(placed.problem_ids),
            "sample_index": pa.array(placed.indices, pa.int32()),
            "response_id": _response_ids(texts),
        }
        if not with_numbers:
            given |= dict.fromkeys(("logp_sum", "entropy_sum"), pa.nulls(len(texts), pa.float64()))
        schema = self._samples.schema
        columns = [given.get(name, placed.column(name, schema.field(name).type)) for name in schema.names]
        self._samples.add_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        self._texts.add_column(texts)

    def grades(self, verifier: str, least: float, before: GradedPairs | None) -> RecordedGrades:
        """Return the tool's own rewards, of each response once, its first; from ``least`` on they are correct.

        Pairs in ``before`` are left out; None means that earlier pairs are unknown.
        """
        samples = self._samples.table()
        pairs = IdPairs.from_rows(samples)
        first_N = pairs.first_of_each()
        reward = samples.column("reward")
        right_N = compute.greater_equal(reward, least).fill_null(False).to_numpy()
        places_M = np.flatnonzero(first_N == np.arange(len(first_N)))
        if before is None:
            new_M, unsure_M = np.zeros(len(places_M), dtype=bool), np.ones(len(places_M), dtype=bool)
        else:
            new_M, unsure_M = before.seen_or_new(pairs.take(places_M))
        new, unsure = (self._graded(samples, places_M[chosen_M], verifier, right_N) for chosen_M in (new_M, unsure_M))
        return RecordedGrades(new=new, unsure=unsure, n_otherwise=int((right_N != right_N[first_N]).sum()))

    def _graded(
        self,
        samples: pa.Table,
        places_M: Int64[np.ndarray, " grade"],
        verifier: str,
        right_N: Bool[np.ndarray, " sample"],
    ) -> pa.Table:
        """Return the rows of ``GRADES`` of the samples at these places."""
        taken, texts, answers = pa.array(places_M), self._texts.column(), []
        for start in range(0, len(taken), SAMPLES_PER_BLOCK):  # few at a time: they may be long
            some = taken.slice(start, SAMPLES_PER_BLOCK)
            listed_answers = samples.column("answer").take(some).to_pylist()
            for text, answer in zip(texts.take(some).to_pylist(), listed_answers, strict=True):
                answers.append((exact_answer(text) if answer is None else answer) or NO_ANSWER)
        columns: dict[str, pa.Array] = {
            name: samples.column(name).take(taken) for name in ("problem_id", "response_id", "reward")
        }
        columns["verifier"] = pa.repeat(pa.scalar(verifier, pa.string()), len(taken))
        columns["answer"] = pa.array(answers, pa.string())
        columns["correct"] = pa.array(right_N[places_M])
        return pa.Table.from_arrays([columns[name] for name in GRADES.names], schema=GRADES)


def _response_ids(texts: pa.StringArray) -> pa.StringArray:
    digits = b"".join(map(response_digest, texts.cast(pa.binary()).to_pylist())).hex().encode("ascii")
    offsets = np.arange(0, 16 * len(texts) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(digits))


class _Rows:
    """Rows of a table, as a list for each column, behind those that came as columns before."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._batches: list[pa.RecordBatch] = []
        self._n_behind = 0

    def __len__(self) -> int:
        return self._n_behind + len(self._columns[0])

    def add(self, *columns: Sequence[Any]) -> None:
        """More rows."""
        for column, values in zip(self._columns, columns, strict=True):
            column += values

    def add_batch(self, rows: pa.RecordBatch) -> None:
        """More rows, as columns."""
        self._close()
        self._batches.append(rows)
        self._n_behind += len(rows)

    def table(self) -> pa.Table:
        """Return all of them, in one piece."""
        self._close()
        whole = pa.Table.from_batches(self._batches, schema=self.schema).combine_chunks()
        self._batches = whole.to_batches()  # so that no query has to join them again
        return whole

    def _close(self) -> None:
        """Make columns of the lists."""
        if not self._columns[0]:
            return
        columns = [pa.array(values, kind) for values, kind in zip(self._columns, self.schema.types, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        self._n_behind += len(self._columns[0])
        self._columns = [[] for _ in self.schema]


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
    """Return the text itself; half a surrogate pair, which no file can hold, becomes a question mark."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text
