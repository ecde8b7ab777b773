"""Buffer imported samples as columns, and find responses that already have a grade."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int64, UInt8, UInt64
from pyarrow import compute

from oversharp.diagnostics.ingest.answers import exact_answers
from oversharp.diagnostics.ingest.formats.columns import text_bytes
from oversharp.diagnostics.ingest.formats.contract import Recorded, RecordedRows, text_offsets
from oversharp.diagnostics.ingest.trajectories import TrajectoryBatch
from oversharp.diagnostics.records.types import NO_ANSWER, Problem, response_digest
from oversharp.diagnostics.store.write_import import GRADES, PROBLEMS, SAMPLES

#: Size limits of a transaction: samples, and bytes of their texts. DuckDB row groups have 122,880 rows; a full one is
#: written directly to the file, bypassing the write-ahead log.
SAMPLES_PER_COMMIT = 122_880
BYTES_PER_COMMIT = 256 << 20
#: Size limits of a block of samples processed together. A block fits into the processor cache.
SAMPLES_PER_BLOCK = 512
CHARACTERS_PER_BLOCK = 1 << 20


@dataclass(kw_only=True)
class AssignedSamples:
    """Samples with the checkpoint, problem and index of each."""

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
class AssignedRows:
    """Rows of ``rows`` at ``places``, in runs with one checkpoint and one problem.

    ``lengths`` has the number of rows in each run.
    """

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
        """Number of samples with a reward but no text."""
        if "reward" not in self.rows.columns:
            return 0
        lengths = compute.binary_length(self.column("response", pa.string()))
        is_rewarded = self.column("reward", pa.float64()).is_valid()
        return int(compute.sum(compute.and_(compute.equal(lengths, 0), is_rewarded)).as_py() or 0)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a field of the samples as a column."""
        values = self.rows.columns.get(name)
        if values is None:
            return pa.nulls(len(self.places), kind)
        return values if len(self.places) == len(self.rows) else values.take(pa.array(self.places, pa.int32()))

    def repeat_ids(self, run_ids: Sequence[str]) -> pa.Array:
        """Return the id of each sample, given the id of each run."""
        run_N = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)
        return pa.array(run_ids, pa.string()).take(pa.array(run_N))


class Texts:
    """Concatenated UTF-8 texts in a reused buffer, because allocating memory is slower than copying."""

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
        """Return all texts as a column, valid until ``clear``."""
        lengths_N = np.concatenate([np.empty(0, dtype=np.int32), *self._lengths])
        offsets = np.zeros(len(lengths_N) + 1, dtype=np.int32)
        np.cumsum(lengths_N, out=offsets[1:])
        text_bytes = pa.py_buffer(self._bytes[: self.n_bytes])
        return pa.StringArray.from_buffers(len(lengths_N), pa.py_buffer(offsets), text_bytes)


@dataclass(frozen=True, kw_only=True)
class RecordedGrades:
    """The tool's grades of one part, as rows of ``GRADES``.

    The store has no grade for the rows in ``new``; it may have one for the rows in ``unsure``. ``n_conflicting`` counts
    samples whose response has another grade earlier in this part.
    """

    new: pa.Table
    unsure: pa.Table
    n_conflicting: int


#: Sample columns without the text, and grade columns.
_WITHOUT_TEXT = SAMPLES.remove(SAMPLES.get_field_index("text"))
_GRADED = pa.schema([("reward", pa.float64()), ("answer", pa.string())])


class SampleBatch:
    """Rows of ``PROBLEMS``, ``SAMPLES``, ``TRAJECTORIES`` and ``GRADES`` for one transaction."""

    def __init__(self, texts: Texts) -> None:
        texts.clear()
        self._texts = texts
        self.trajectories = TrajectoryBatch()
        self._problems = _Rows(PROBLEMS)
        #: New problems of ``--problems``, which have fields that ``PROBLEMS`` lacks.
        self.file_problems: list[Problem] = []
        self._samples = _Rows(pa.schema([*_WITHOUT_TEXT, *_GRADED]))

    @property
    def n_samples(self) -> int:
        """Number of samples in the batch."""
        return len(self._samples)

    @property
    def room(self) -> int:
        """Number of samples that still fit into the transaction; 0 once the texts exceed ``BYTES_PER_COMMIT``."""
        n_bytes = self._texts.n_bytes + self.trajectories.n_bytes
        return SAMPLES_PER_COMMIT - self.n_samples if n_bytes < BYTES_PER_COMMIT else 0

    @property
    def problems(self) -> pa.Table:
        """Rows of ``PROBLEMS``."""
        return self._problems.table()

    @property
    def samples(self) -> pa.Table:
        """Rows of ``SAMPLES``, valid until the next batch begins."""
        table = self._samples.table().select(_WITHOUT_TEXT.names)
        return table.add_column(SAMPLES.get_field_index("text"), SAMPLES.field("text"), self._texts.column())

    def add_problem(self, *row: str | None) -> None:
        """Add a row of ``PROBLEMS``."""
        self._problems.add(*([value] for value in row))

    def add_samples(self, placed: AssignedSamples, *, with_numbers: bool) -> None:
        """Add samples. Log-probability and entropy are added only if ``with_numbers``."""
        items = placed.items
        texts = [item.response.encode("utf-8", "replace") for item in items]
        self._samples.add(
            placed.checkpoint_ids,
            placed.problem_ids,
            [item.greedy for item in items],
            placed.indices,
            [
                response_digest(text).hex() if item.turns is None else self.trajectories.add(item.turns)
                for item, text in zip(items, texts, strict=True)
            ],
            [item.n_tokens for item in items],
            [item.finish_reason for item in items],
            [item.logp_sum if with_numbers else None for item in items],
            [item.entropy_sum if with_numbers else None for item in items],
            [item.reward for item in items],
            [None if item.answer is None else storable(item.answer) for item in items],
        )
        self._texts.add(texts)

    def add_rows(self, placed: AssignedRows, *, with_numbers: bool) -> None:
        """Add rows. The arguments are those of ``add_samples``."""
        texts = placed.column("response", pa.string())
        given: dict[str, pa.Array] = {
            "checkpoint_id": placed.repeat_ids(placed.checkpoint_ids),
            "problem_id": placed.repeat_ids(placed.problem_ids),
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
        """Return the tool's grades: the first reward of each response, correct if it is at least ``least``.

        Pairs (problem, response) in ``before`` are excluded. With ``before`` None, all rows are ``unsure``.
        """
        samples = self._samples.table()
        pairs = IdPairs.from_rows(samples)
        first_N = pairs.first_places()
        reward = samples.column("reward")
        right_N = compute.greater_equal(reward, least).fill_null(False).to_numpy()
        places_M = np.flatnonzero(first_N == np.arange(len(first_N)))
        if before is None:
            new_M, unsure_M = np.zeros(len(places_M), dtype=bool), np.ones(len(places_M), dtype=bool)
        else:
            new_M, unsure_M = before.add_pairs(pairs.take(places_M))
        new, unsure = (self._graded(samples, places_M[chosen_M], verifier, right_N) for chosen_M in (new_M, unsure_M))
        return RecordedGrades(new=new, unsure=unsure, n_conflicting=int((right_N != right_N[first_N]).sum()))

    def _graded(
        self,
        samples: pa.Table,
        places_M: Int64[np.ndarray, " grade"],
        verifier: str,
        right_N: Bool[np.ndarray, " sample"],
    ) -> pa.Table:
        """Return rows of ``GRADES`` for the samples at these places."""
        taken = pa.array(places_M)
        columns: dict[str, pa.Array] = {
            name: samples.column(name).take(taken) for name in ("problem_id", "response_id", "reward")
        }
        columns["verifier"] = pa.repeat(pa.scalar(verifier, pa.string()), len(taken))
        columns["answer"] = self._answers(samples.column("answer"), places_M)
        columns["correct"] = pa.array(right_N[places_M])
        return pa.Table.from_arrays([columns[name] for name in GRADES.names], schema=GRADES)

    def _answers(self, given: pa.ChunkedArray, places_M: Int64[np.ndarray, " grade"]) -> pa.ChunkedArray:
        """Return the tool's answer, else the parsed one, of the samples at these places."""
        listed, texts = given.take(pa.array(places_M)), self._texts.column()
        unanswered_M = places_M[listed.is_null().to_numpy()]
        parts = [pa.array([], pa.string())]
        ends_M = np.cumsum(np.diff(text_offsets(texts))[unanswered_M], dtype=np.int64)
        while len(unanswered_M):  # in blocks to limit memory, since texts may be long
            n = max(1, int(ends_M.searchsorted(ends_M[0] + CHARACTERS_PER_BLOCK)))
            parts.append(exact_answers(texts.take(pa.array(unanswered_M[:n]))))
            unanswered_M, ends_M = unanswered_M[n:], ends_M[n:]
        parsed = pa.concat_arrays(parts)
        answers = compute.replace_with_mask(listed.combine_chunks(), listed.is_null().combine_chunks(), parsed)
        return compute.if_else(compute.equal(answers, "").fill_null(True), NO_ANSWER, answers)


def _response_ids(texts: pa.StringArray) -> pa.StringArray:
    n_first = min(len(texts), SAMPLES_PER_BLOCK)
    if 2 * len(texts.slice(0, n_first).unique()) <= n_first:  # hash repeated texts once
        distinct = texts.dictionary_encode()
        return _ids_of(distinct.dictionary).take(distinct.indices)
    return _ids_of(texts)


def _ids_of(texts: pa.StringArray) -> pa.StringArray:
    digits = b"".join(map(response_digest, texts.cast(pa.binary()).to_pylist())).hex().encode("ascii")
    offsets = np.arange(0, 16 * len(texts) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(digits))


class _Rows:
    """Rows of one table: finished record batches, followed by rows that are still lists of values."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._batches: list[pa.RecordBatch] = []
        self._n_batched = 0

    def __len__(self) -> int:
        return self._n_batched + len(self._columns[0])

    def add(self, *columns: Sequence[Any]) -> None:
        """Add rows as lists of values."""
        for column, values in zip(self._columns, columns, strict=True):
            column += values

    def add_batch(self, rows: pa.RecordBatch) -> None:
        """Add rows as columns."""
        self._close()
        self._batches.append(rows)
        self._n_batched += len(rows)

    def table(self) -> pa.Table:
        """Return all rows as a table with one chunk."""
        self._close()
        whole = pa.Table.from_batches(self._batches, schema=self.schema).combine_chunks()
        self._batches = whole.to_batches()  # keep the result, so that the next call concatenates nothing
        return whole

    def _close(self) -> None:
        """Convert the pending lists to a record batch."""
        if not self._columns[0]:
            return
        columns = [pa.array(values, kind) for values, kind in zip(self._columns, self.schema.types, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        self._n_batched += len(self._columns[0])
        self._columns = [[] for _ in self.schema]


@contextmanager
def pause_collection() -> Iterator[None]:
    """Disable garbage collection: the import creates no cycles, and each collection would traverse all samples."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def storable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with question marks."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


# ---------------------------------------------------------------- pairs (problem, response) with a grade

#: Odd 64-bit multipliers of the pair hash.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


class IdPairs(NamedTuple):
    """Pairs (problem id, response id).

    Each id of 16 hexadecimal digits is stored as a 64-bit integer.
    """

    problem_N: UInt64[np.ndarray, " pair"]
    response_N: UInt64[np.ndarray, " pair"]

    @classmethod
    def from_rows(cls, rows: pa.Table) -> IdPairs:
        """Return the pairs of a table with columns ``problem_id`` and ``response_id``."""
        return cls(*(_id_numbers(rows.column(name)) for name in ("problem_id", "response_id")))

    def take(self, places_M: Int64[np.ndarray, " taken"]) -> IdPairs:
        """Return the pairs at the positions ``places_M``."""
        return IdPairs(self.problem_N[places_M], self.response_N[places_M])

    @property
    def hashes(self) -> UInt64[np.ndarray, " pair"]:
        """Hash of each pair. Hash and response id together identify the pair."""
        return self.problem_N * _FACTORS[0] + self.response_N * _FACTORS[1]

    def first_places(self) -> Int64[np.ndarray, " pair"]:
        """Return for each pair the position of its first occurrence."""
        order_N = np.argsort(self.hashes)  # five times as fast as a sort by two keys
        ordered = self.take(order_N)
        is_equal_N = (np.diff(ordered.problem_N) == 0) & (np.diff(ordered.response_N) == 0)
        if (is_equal_N != (np.diff(ordered.hashes) == 0)).any():  # different pairs have the same hash
            order_N = np.lexsort((self.response_N, self.problem_N))
            ordered = self.take(order_N)
            is_equal_N = (np.diff(ordered.problem_N) == 0) & (np.diff(ordered.response_N) == 0)
        begins_N = np.ones(len(order_N), dtype=bool)
        begins_N[1:] = ~is_equal_N
        first_N = np.empty_like(order_N)
        if len(order_N):
            least = np.minimum.reduceat(order_N, np.flatnonzero(begins_N))
            first_N[order_N] = least[np.cumsum(begins_N) - 1]
        return first_N


def _id_numbers(ids: pa.ChunkedArray) -> UInt64[np.ndarray, " id"]:
    digits = b"".join(_id_digits(chunk) for chunk in ids.chunks)
    return np.frombuffer(bytes.fromhex(digits.decode("ascii")), dtype=">u8").astype(np.uint64)


def _id_digits(ids: pa.StringArray) -> memoryview | bytes:
    """Return the 16 digits of every id, concatenated."""
    digits = ids.buffers()[2]
    start = int(np.frombuffer(ids.buffers()[1], dtype=np.int32)[ids.offset]) if len(ids) else 0
    return b"" if digits is None else memoryview(digits)[start : start + 16 * len(ids)]


class GradedPairs:
    """Pairs that are already graded. Each pair takes two 64-bit integers: 80 MB for 5 million pairs."""

    def __init__(self) -> None:
        self._runs: list[_SortedPairs] = []  # each run is less than half as long as the run before it

    def add_pairs(self, pairs: IdPairs) -> tuple[Bool[np.ndarray, " pair"], Bool[np.ndarray, " pair"]]:
        """Add distinct pairs; return which are new, and which may be new because another pair has the same hash."""
        hash_N = pairs.hashes
        order_N = np.argsort(hash_N)
        run = _SortedPairs(hash_N[order_N], pairs.response_N[order_N])
        same_hash_N = np.zeros(len(hash_N), dtype=bool)
        seen_N = np.zeros(len(hash_N), dtype=bool)
        for earlier in self._runs:
            place_N = np.minimum(np.searchsorted(earlier.hash_N, run.hash_N), len(earlier.hash_N) - 1)
            same_N = earlier.hash_N[place_N] == run.hash_N
            same_hash_N |= same_N
            seen_N |= same_N & (earlier.response_N[place_N] == run.response_N)
        if len(run.hash_N):
            self._add(run)
        new_N, unsure_N = np.empty_like(seen_N), np.empty_like(seen_N)
        new_N[order_N], unsure_N[order_N] = ~same_hash_N, same_hash_N & ~seen_N
        return new_N, unsure_N

    def _add(self, run: _SortedPairs) -> None:
        while self._runs and len(self._runs[-1].hash_N) < 2 * len(run.hash_N):
            earlier = self._runs.pop()
            hash_N = np.concatenate([earlier.hash_N, run.hash_N])
            order_N = np.argsort(hash_N, kind="stable")
            run = _SortedPairs(hash_N[order_N], np.concatenate([earlier.response_N, run.response_N])[order_N])
        self._runs.append(run)


class _SortedPairs(NamedTuple):
    """Pairs sorted by hash. The response id distinguishes pairs with the same hash."""

    hash_N: UInt64[np.ndarray, " pair"]
    response_N: UInt64[np.ndarray, " pair"]
