"""Grade responses in blocks, during sampling or for all ungraded responses of a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType

import pandas as pd

from oversharp.diagnostics.engine.first_look import FirstLook
from oversharp.diagnostics.engine.grading_doubts import GradeFault
from oversharp.diagnostics.engine.grading_parts import GradingThread, PartGrader
from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.records.types import AuditKey, Grade, Problem, Sample
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.missing import Ungraded, find_graded, find_ungraded
from oversharp.diagnostics.store.ways import BLOCK_CHARACTERS
from oversharp.diagnostics.verifiers import Verifiers, is_from_file

GRADES_PER_COMMIT = 4096
#: Before the check of the first grades is final, a block ends after this many responses or seconds.
FIRST_RESPONSES, FIRST_S = 512, 30.0


def grade_responses(
    store: Store, problems: Sequence[Problem], pending: Ungraded, *, key: AuditKey, progress: ProgressSink
) -> None:
    """Grade distinct responses and commit them in parts. One block is in memory at a time.

    Prints the number of responses that could not be graded, with the first reason.
    """
    if not len(pending):
        return
    if n_outdated := pending.n_outdated:
        graded = "1 response was graded" if n_outdated == 1 else f"{n_outdated:,} responses were graded"
        progress.note(f"{graded} by the rules of another version of oversharp; grading again with the current rules")
    by_id = {problem.problem_id: problem for problem in problems}
    n_failed, fault = 0, None
    start = time.perf_counter()
    with progress.stage("grade", len(pending)) as advance, Verifiers() as verifiers:
        parts = PartGrader(verifiers)
        for block in pending.blocks(GRADES_PER_COMMIT):
            identities = list(zip(block["problem_id"], block["response_id"], block["verifier"], strict=True))
            items = [(by_id[row.problem_id], row.text) for row in block.itertuples()]
            for grades in parts.grade(items):
                part, identities = identities[: len(grades)], identities[len(grades) :]
                store.add_grades((*identity, grade) for identity, grade in zip(part, grades, strict=True))
                n, part_fault = _count_faults(part, grades)
                n_failed, fault = n_failed + n, fault or part_fault
                advance(len(grades))
    store.log_event(key, "grade", wall_s=time.perf_counter() - start, rows=len(pending))
    if fault is not None:
        progress.note(_fault_warning(n_failed, len(pending), fault))


def grade_planned(
    store: Store, problems: Sequence[Problem], key: AuditKey, *, progress: ProgressSink
) -> tuple[int, pd.DataFrame]:
    """Grade the ungraded samples of an audit, and those whose grading failed.

    With a stopping rule, the grades may plan further rounds, whose existing samples are then graded too.

    Returns:
        Number of graded responses, and the rows of ``Store.plan_rounds``.
    """
    planned, n_graded = store.plan_rounds(key), 0
    pending = find_ungraded(store, key, with_errors=True)
    while len(pending):
        grade_responses(store, problems, pending, key=key, progress=progress)
        n_graded += len(pending)
        if key.enough is None:
            break
        planned = store.plan_rounds(key)
        pending = find_ungraded(store, key)  # without errors: these may be permanent
    return n_graded, planned


def _count_faults(identities: Iterable[tuple[str, str, str]], grades: Iterable[Grade]) -> tuple[int, GradeFault | None]:
    """Return the number of grades with state ``error``, and the first of them."""
    faults = [
        GradeFault(verifier=verifier, reason=grade.reason)
        for (_, _, verifier), grade in zip(identities, grades, strict=True)
        if grade.state == "error"
    ]
    return len(faults), faults[0] if faults else None


def _fault_warning(n_failed: int, n: int, fault: GradeFault) -> str:
    responses = plural(n, "response")
    return f"warning: {n_failed:,} of {responses} could not be graded and count as wrong ({fault.text})"


class Grader:
    """Grades samples while others are drawn, each distinct response once, in blocks.

    It receives committed samples. After a kill, ``grade_responses`` grades the rest. Functions in users' files grade in
    a thread while the caller samples, because they may wait for a judge. Only the caller's thread uses the store.

    ``look`` checks the base's first grades, for which the caller waits. ``note`` prints the first reason why a response
    could not be graded. Use it as a context manager, or call ``close()``.
    """

    def __init__(
        self,
        store: Store,
        key: AuditKey,
        problems: Sequence[Problem],
        *,
        look: FirstLook | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.look = look
        self._note = note
        self._store, self._key = store, key
        self._by_id: Mapping[str, Problem] = {problem.problem_id: problem for problem in problems}
        self._verifiers = Verifiers()
        self._parts, self._thread = PartGrader(self._verifiers), GradingThread(self._verifiers)
        self._has_only_own = all(is_from_file(problem.verifier) for problem in problems)
        self._waiting: dict[tuple[str, str, str], str] = {}
        #: Responses of the block that is being graded, in order, without those that are committed.
        self._block: dict[tuple[str, str, str], str] = {}
        self._characters = self._n_taken = self._n_graded = 0
        self._graded_s = 0.0
        self._since = time.monotonic()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the verifiers' processes. They are started again for the next samples."""
        self._thread.stop()
        self._block = {}
        self._verifiers.close()

    def add(self, samples: Iterable[Sample]) -> None:
        """Add responses to the next block. Grades the block if it is full.

        Raises ``UnreadableError`` if the check of the first grades stops the audit.
        """
        for sample in samples:
            identity = (sample.problem_id, sample.response_id, self._by_id[sample.problem_id].verifier)
            self._n_taken += 1
            if identity not in self._waiting and identity not in self._block:
                self._waiting[identity] = sample.text
                self._characters += len(sample.text)
        if self._uses_thread:
            self._commit_parts(wait=self._is_full())
            if not self._thread.is_busy:
                self._grade()
        elif self._is_full():
            self._grade()

    def finish(self) -> float:
        """Grade the remaining responses.

        Logs and returns the seconds for which the caller waited for grades since the last call.
        """
        self._commit_parts(wait=True)
        self._grade()
        self._commit_parts(wait=True)
        wall_s, n_graded = self._graded_s, self._n_graded
        self._graded_s, self._n_graded = 0.0, 0
        if n_graded:
            self._store.log_event(self._key, "grade", wall_s=wall_s, rows=n_graded)
        return wall_s

    @property
    def _uses_thread(self) -> bool:
        return self._has_only_own and (self.look is None or self.look.is_final)

    def _is_full(self) -> bool:
        if self.look is not None and not self.look.is_final:
            return self._n_taken >= FIRST_RESPONSES or time.monotonic() - self._since >= FIRST_S
        return len(self._waiting) >= GRADES_PER_COMMIT or self._characters >= BLOCK_CHARACTERS

    def _grade(self) -> None:
        """Grade the waiting responses, or let the thread start to grade them."""
        if not self._waiting:
            return
        start = time.perf_counter()
        graded = find_graded(self._store, list(self._waiting))
        self._block = {identity: text for identity, text in self._waiting.items() if identity not in graded}
        self._waiting, self._characters, self._n_taken, self._since = {}, 0, 0, time.monotonic()
        items = [(self._by_id[problem_id], text) for (problem_id, _, _), text in self._block.items()]
        if self._uses_thread:
            self._thread.start(items)
            return
        for grades in self._parts.grade(items):
            self._commit(grades)
        self._graded_s += time.perf_counter() - start
        if self.look is not None:
            self.look.check()

    def _commit_parts(self, *, wait: bool) -> None:
        """Commit the parts that the thread has graded; with ``wait`` its whole block."""
        start = time.perf_counter()
        for grades in self._thread.take(wait=wait):
            self._commit(grades)
        self._graded_s += time.perf_counter() - start

    def _commit(self, grades: Sequence[Grade]) -> None:
        """Commit the grades of the next responses of the block."""
        identities = list(islice(self._block, len(grades)))
        self._store.add_grades((*identity, grade) for identity, grade in zip(identities, grades, strict=True))
        for identity in identities:
            del self._block[identity]
        self._n_graded += len(grades)
        n_failed, fault = _count_faults(identities, grades)
        if fault is not None and self._note is not None:
            self._note(_fault_warning(n_failed, len(grades), fault))
            self._note = None
