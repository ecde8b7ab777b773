"""Grade a block of responses in parts, each of which is committed, so that a kill loses seconds of slow grading.

A part takes about ``PART_S`` seconds. ``GradingThread`` grades the parts of functions in users' files, which may wait
for a judge, while the caller continues to sample.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence

from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers import Verifiers

#: Number of responses in the first part, the smallest and the largest number, and the estimated duration in seconds.
FIRST_RESPONSES, LEAST_RESPONSES, MOST_RESPONSES, PART_S = 32, 8, 4096, 10.0


class PartGrader:
    """Grades blocks in parts.

    The size of a part is adapted to the speed of the one before. It is never below the number of calls at a time.
    """

    def __init__(self, verifiers: Verifiers) -> None:
        self._verifiers = verifiers
        self._n = FIRST_RESPONSES

    def grade(self, block: Sequence[tuple[Problem, str]]) -> Iterator[list[Grade]]:
        """Yield the grades of consecutive parts of ``block``, which has (problem, response text)."""
        first, least = 0, max(LEAST_RESPONSES, self._verifiers.most_calls({problem.verifier for problem, _ in block}))
        while first < len(block):
            part, start = block[first : first + max(least, self._n)], time.monotonic()
            grades = self._verifiers.grade(part)
            n = int(len(part) * PART_S / max(time.monotonic() - start, 1e-6))
            self._n = min(MOST_RESPONSES, n)
            first += len(part)
            yield grades


class GradingThread:
    """Grades one block at a time in a thread.

    The thread does not use the store: the caller takes the grades and commits them. It is a daemon that waits for the
    next block until the process ends, because the verifiers' processes end with the thread that started them.
    """

    def __init__(self, verifiers: Verifiers) -> None:
        self._verifiers = verifiers
        self._blocks: queue.SimpleQueue[Sequence[tuple[Problem, str]]] = queue.SimpleQueue()
        self._parts: queue.SimpleQueue[list[Grade] | BaseException] = queue.SimpleQueue()
        self._n_left = 0
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether grades of the last block were not taken."""
        return self._n_left > 0

    def start(self, block: Sequence[tuple[Problem, str]]) -> None:
        """Start to grade a block. All grades of the block before must have been taken."""
        assert not self.is_busy
        if self._thread is None:
            grader = PartGrader(self._verifiers)
            self._thread = threading.Thread(
                target=_serve, args=(grader, self._blocks, self._parts), name="oversharp-grading", daemon=True
            )
            self._thread.start()
        self._n_left = len(block)
        self._blocks.put(block)

    def take(self, *, wait: bool) -> Iterator[list[Grade]]:
        """Yield the grades of the next parts of the block: those that are graded, or with ``wait`` all.

        Raises the error that stopped the thread, such as a ``VerifierError``.
        """
        while self.is_busy:
            try:
                part = self._parts.get(block=wait)
            except queue.Empty:
                return
            if isinstance(part, BaseException):
                self._n_left = 0
                raise part
            self._n_left -= len(part)
            yield part

    def stop(self) -> None:
        """Stop the block that is being graded, without its grades."""
        if self.is_busy:
            self._verifiers.interrupt(is_on=True)
            while self.is_busy:
                part = self._parts.get()
                self._n_left = 0 if isinstance(part, BaseException) else self._n_left - len(part)
            self._verifiers.interrupt(is_on=False)


def _serve(
    grader: PartGrader,
    blocks: queue.SimpleQueue[Sequence[tuple[Problem, str]]],
    parts: queue.SimpleQueue[list[Grade] | BaseException],
) -> None:
    while True:
        try:
            for grades in grader.grade(blocks.get()):
                parts.put(grades)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            parts.put(error)
