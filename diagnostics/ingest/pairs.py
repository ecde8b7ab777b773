"""Which responses to which problems were graded before: pairs of ids, as numbers of 64 bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int64, UInt64

#: Odd numbers of 64 bits without a pattern.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


class IdPairs(NamedTuple):
    """Pairs of a problem and a response by the numbers that their ids are: 16 hexadecimal digits each."""

    problem_N: UInt64[np.ndarray, " pair"]
    response_N: UInt64[np.ndarray, " pair"]

    @classmethod
    def from_rows(cls, rows: pa.Table) -> IdPairs:
        """Return the pairs of a table with both ids."""
        return cls(*(_numbers(rows.column(name)) for name in ("problem_id", "response_id")))

    def take(self, places_M: Int64[np.ndarray, " taken"]) -> IdPairs:
        """Those at these places."""
        return IdPairs(self.problem_N[places_M], self.response_N[places_M])

    @property
    def marks(self) -> UInt64[np.ndarray, " pair"]:
        """A number for each pair; with that of its response it is the pair."""
        return self.problem_N * _FACTORS[0] + self.response_N * _FACTORS[1]

    def first_of_each(self) -> Int64[np.ndarray, " pair"]:
        """Return where each pair is for the first time."""
        order_N = np.lexsort((self.response_N, self.problem_N))  # stable
        ordered = self.take(order_N)
        begins_N = np.ones(len(order_N), dtype=bool)
        begins_N[1:] = (np.diff(ordered.problem_N) != 0) | (np.diff(ordered.response_N) != 0)
        first_N = np.empty_like(order_N)
        first_N[order_N] = order_N[begins_N][np.cumsum(begins_N) - 1]
        return first_N


def _numbers(ids: pa.ChunkedArray) -> UInt64[np.ndarray, " id"]:
    digits = b"".join(_ascii(chunk) for chunk in ids.chunks)
    return np.frombuffer(bytes.fromhex(digits.decode("ascii")), dtype=">u8").astype(np.uint64)


def _ascii(ids: pa.StringArray) -> memoryview | bytes:
    """Return the digits of all of them, 16 each, as they lie there."""
    digits = ids.buffers()[2]
    start = int(np.frombuffer(ids.buffers()[1], dtype=np.int32)[ids.offset]) if len(ids) else 0
    return b"" if digits is None else memoryview(digits)[start : start + 16 * len(ids)]


class GradedPairs:
    """Pairs that were written before, as two 64-bit numbers each: 80 MB for 5 million."""

    def __init__(self) -> None:
        self._runs: list[_SortedPairs] = []  # sorted, each less than half as long as the one before

    def seen_or_new(self, pairs: IdPairs) -> tuple[Bool[np.ndarray, " pair"], Bool[np.ndarray, " pair"]]:
        """Return which pairs are new, and which are unknown; the pairs must be distinct.

        Marks all of them as seen.
        """
        mark_N = pairs.marks
        order_N = np.argsort(mark_N, kind="stable")
        run = _SortedPairs(mark_N[order_N], pairs.response_N[order_N])
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
    """Pairs in the order of their marks. The response's number separates pairs of one mark."""

    mark: UInt64[np.ndarray, " pair"]
    response: UInt64[np.ndarray, " pair"]
