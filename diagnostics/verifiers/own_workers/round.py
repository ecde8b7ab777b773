"""One batch of calls, distributed over the workers.

A message contains many calls, and each is answered in a separate reply, so that a hanging call can be identified. Only
ending its process ends a call that hangs. The rules for the other calls of that process:

- A process that runs several calls only settles the calls that it answers. If it ends, or a call is late, its running
  calls are called again, each alone in a process: a neighbor that keeps the interpreter busy makes all others late.
- Alone, a call that hangs is a timeout. A call in which its process ends is an error if it was the first call of that
  process. Otherwise an earlier call may be the cause, and it is called again as the first call of a new process.
- Calls that have not begun are not affected.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from signal import SIGKILL
from typing import Any

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.verifiers.killable import TRIES, Outcome
from oversharp.diagnostics.verifiers.own_workers.process import GraderProcess, await_any, describe_exit
from oversharp.diagnostics.verifiers.own_workers.team import END_S, GraderTeam
from oversharp.diagnostics.verifiers.own_workers.worker import LATE, LATER, MAIN, MEMORY, OK

#: Number of workers that must die in the same call before the call is an error.
MOST_DEATHS = 2
#: Number of tries of a call that raises ``RetryLater``, seconds before the second try (they double with each try), and
#: most seconds before a try.
MOST_TRIES, FIRST_WAIT_S, MOST_WAIT_S = 6, 1.0, 300.0

#: Reward and final answer of one call.
Reward = tuple[float, str | None]


class Round:
    """The calls of one ``map``, and their outcomes so far. A call is identified by its position."""

    def __init__(self, team: GraderTeam, calls: Sequence[Mapping[str, Any]]) -> None:
        self._team, self._calls = team, calls
        self._outcomes: dict[int, Outcome[Reward]] = {}
        self._queue = deque(range(len(calls)))
        #: Calls that were running with others when their process ended, was late, or failed as a batch.
        self._suspects: deque[int] = deque()
        #: Calls in which a process ended that had answered others. Each is called first in a new process.
        self._first: deque[int] = deque()
        self._later: list[tuple[float, int]] = []  # heap of calls to repeat, with the time in monotonic seconds
        self._n_deaths: Counter[int] = Counter()
        self._n_retries: Counter[int] = Counter()
        self._n_refusals = 0  # number of consecutive workers that accepted no message

    def run(self) -> list[Outcome[Reward]]:
        """Call the function for all, and return the outcomes in order."""
        while len(self._outcomes) < len(self._calls):
            if self._team.is_interrupted:
                raise VerifierError("grading was interrupted")
            while self._later and self._later[0][0] <= time.monotonic():
                self._queue.appendleft(heapq.heappop(self._later)[1])
            workers = self._team.staffed(len(self._calls) - len(self._outcomes))
            for worker in workers:
                self._ask(worker)
            busy = [worker for worker in workers if worker.n_open]
            if busy or self._later:
                await_any(busy, self._later[0][0] if self._later else float("inf"))
            for worker in busy:
                self._collect_replies(worker)
        return [self._outcomes[place] for place in range(len(self._calls))]

    def _ask(self, worker: GraderProcess) -> None:
        """Send calls to a worker that has few."""
        if worker.width > self._team.most_width:
            if not worker.n_open:
                self._team.dismiss(worker, END_S)
            return
        if worker.is_sending or (worker.n_open and (worker.is_alone or worker.n_answered == 0)):
            return
        is_alone = not worker.n_open and bool(self._first or self._suspects)
        units: list[tuple[int, ...]]
        if is_alone and self._first and (worker.n_answered == 0 or not (self._queue or self._suspects)):
            worker = worker if worker.n_answered == 0 else self._team.replaced(worker)
            units = [(self._first.popleft(),)]
        elif is_alone and self._suspects:
            units = [(self._suspects.popleft(),)]
        else:
            is_alone, units = False, self._next_units(worker)
        if units:
            worker.is_alone = is_alone
            worker.give(units, self._calls, limit_s=self._team.limit_s(worker), cancel_s=self._team.cancel_s(worker))

    def _next_units(self, worker: GraderProcess) -> list[tuple[int, ...]]:
        """Take calls from the queue: as many as the worker can run, and some ahead, but no more than its share."""
        ahead, n_responses = self._team.calls_ahead(), self._team.batch_responses
        n_parallel = worker.width if worker.width > 1 else 0  # with one, calls are sent when all before are answered
        if worker.n_open > (n_parallel + ahead // 2 if n_parallel else 0):
            return []
        share = -(-len(self._queue) // (n_responses * self._team.n_processes))
        n_units = 1 if worker.n_answered == 0 else min(n_parallel + ahead - worker.n_open, share)
        units: list[tuple[int, ...]] = []
        while self._queue and len(units) < n_units:
            units.append(tuple(self._queue.popleft() for _ in range(min(n_responses, len(self._queue)))))
        return units

    def _collect_replies(self, worker: GraderProcess) -> None:
        has_ended = worker.has_ended()  # check before reading, so that all replies of an ended worker are read
        worker.send_rest(self._team.limit_s(worker))
        replies = worker.replies()
        took_s = (time.monotonic() - worker.since) / max(1, len(replies))
        for reply in replies:
            if reply["state"] == MEMORY:
                limit = f"its limit is --grader-memory-gib {self._team.limits.memory_gib:g}"
                self._lose(worker, f"{reply['fault']}; {limit}")
                return
            self._team.add_duration(worker, took_s)
            worker.left_threads = reply["left_threads"]
            unit = worker.take(reply["unit"], self._team.limit_s(worker))
            if unit is not None:
                self._settle(unit.places, reply)
        if worker.n_open and (has_ended or worker.has_ended()):
            self._lose(worker, None)
        elif worker.n_open and time.monotonic() > worker.deadline:
            self._give_up(worker)

    def _settle(self, places: Sequence[int], reply: Mapping[str, Any]) -> None:
        self._n_refusals = 0
        if reply["state"] == OK:
            for place, (reward, text) in zip(places, reply["results"], strict=True):
                if reward is None:
                    self._fail(place, text)
                else:
                    self._outcomes[place] = Outcome(value=(reward, text), state="ok")
        elif reply["state"] == LATER:
            for place in places:
                self._repeat_later(place, reply)
        elif reply["state"] == MAIN:
            self._team.use_main_threads()
            self._queue.extendleft(reversed(places))
        elif len(places) > 1 or reply["state"] == LATE:
            self._suspects.extend(places)
        else:
            self._fail(places[0], reply["fault"])

    def _fail(self, place: int, reason: str) -> None:
        self._outcomes[place] = Outcome(value=None, state="error", reason=reason)

    def _repeat_later(self, place: int, reply: Mapping[str, Any]) -> None:
        self._n_retries[place] += 1
        if self._n_retries[place] >= MOST_TRIES:
            self._fail(place, f"{reply['fault']}; {MOST_TRIES} tries")
            return
        after_s = reply["after_s"]
        if not isinstance(after_s, int | float) or not after_s >= 0:
            after_s = FIRST_WAIT_S * 2 ** (self._n_retries[place] - 1)
        heapq.heappush(self._later, (time.monotonic() + min(after_s, MOST_WAIT_S), place))

    def _lose(self, worker: GraderProcess, why: str | None) -> None:
        """Handle a dead worker.

        A call that it ran alone failed if it was the worker's first call, or if a second worker died in it.
        """
        running = self._requeue(worker)
        code = self._team.dismiss(worker, END_S)
        if not running:
            self._refuse(code)
        elif len(running) > 1 or worker.is_shared:
            self._suspects.extend(running)
        else:
            [place] = running
            self._n_deaths[place] += 1
            is_to_blame = worker.n_answered == 0 and (why is not None or code != -SIGKILL)
            if is_to_blame or self._n_deaths[place] >= MOST_DEATHS:
                self._fail(place, why or f"the grader ended its process ({describe_exit(code)})")
            else:
                self._first.append(place)

    def _give_up(self, worker: GraderProcess) -> None:
        """Handle a late call or message.

        If an earlier call left a thread running, a call that ran alone is called again in a new worker.
        """
        late, running = worker.late_unit, self._requeue(worker)
        code = self._team.dismiss(worker)
        if not running:
            self._refuse(code)
        elif len(running) > 1 or worker.is_shared or late is None:
            self._suspects.extend(running)
        elif worker.left_threads and worker.n_answered:
            self._first.extend(running)
        else:
            self._outcomes[running[0]] = Outcome(
                value=None, state="timeout", reason=f"no result within {late.limit_s:g} s"
            )

    def _requeue(self, worker: GraderProcess) -> list[int]:
        """Return the running calls, and put those that have not begun back into the queue."""
        running, later = worker.clear()
        self._queue.extendleft(reversed(later))
        return running

    def _refuse(self, code: int) -> None:
        """Count a worker that accepted no message.

        Raises ``VerifierError`` if several in a row did not.
        """
        self._n_refusals += 1
        if self._n_refusals > TRIES:
            raise self._team.cannot_go_on(f"ends its process between calls ({describe_exit(code)})")
