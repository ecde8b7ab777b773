"""Verifier "code", which runs the program in a response against the problem's tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType

from oversharp.diagnostics.records.errors import ProblemError, VerifierError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.code.extract import extract_program
from oversharp.diagnostics.verifiers.code.run import TaskFaultError, find_failure
from oversharp.diagnostics.verifiers.code.run_remote import find_failure_remotely
from oversharp.diagnostics.verifiers.code.task import PASSES, code_task
from oversharp.diagnostics.verifiers.own_workers.worker import MAX_REASON_CHARACTERS, storable
from oversharp.diagnostics.verifiers.sandbox import wire
from oversharp.diagnostics.verifiers.sandbox.backends import Backend, server_url
from oversharp.diagnostics.verifiers.sandbox.jail import FILTERS_CALLS, Jail, JailLimits, SandboxError, choose_backend
from oversharp.diagnostics.verifiers.sandbox.server import SANDBOX_FUSION, SandboxServer


class CodeVerifier:
    """Accept a response whose program passes all tests of its problem.

    The program runs in a jail of the strongest back end of this machine, or of ``backend``, or on the server of
    ``--sandbox-url``. Its expected results are
    never in its process. The answer is ``PASSES``, or the first failed test with its result, so that programs with the
    same first failure have the same answer. A program that is late, prints too much or ends its jail is wrong. The
    state is ``error`` only if the sandbox breaks, the tests cannot be run, or grading fails. ``reason`` contains the
    back end.

    ``timeout_s`` limits each test in wall seconds, and ten times as much a program. ``workers`` is the number of
    programs at a time; it defaults to the CPUs that this process may use, at most 8. With ``is_warm`` False each
    program gets a new jail; that is the default where jails filter no system calls.
    """

    name = "code"

    def __init__(
        self,
        *,
        timeout_s: float = 5.0,
        workers: int | None = None,
        backend: Backend | None = None,
        is_warm: bool = FILTERS_CALLS,
    ) -> None:
        self._limits = JailLimits(test_s=timeout_s, program_s=10 * timeout_s)
        self._workers = workers or min(8, len(os.sched_getaffinity(0)))
        self._backend, self._is_warm = backend, is_warm
        self._server: SandboxServer | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._own = threading.local()
        self._jails: list[Jail] = []

    def __enter__(self) -> CodeVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the jails. They start again if the verifier is used again."""
        while self._jails:
            self._jails.pop().end()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self._threads, self._own = None, threading.local()

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the problem has no tests."""
        task = code_task(problem)
        if not (task.cases or task.tests):
            raise ProblemError('the verifier "code" needs at least one test')

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order.

        Raises ``VerifierError`` if programs cannot be isolated on this machine and ``--allow-unsandboxed`` is missing.
        """
        if self._backend is None:
            url = server_url()
            if url is None:
                self._backend = choose_backend()
            else:
                self._server = SandboxServer(url, self._limits)
        if self._threads is None:
            # a jail ends with the thread that started it, so the threads are kept
            self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="oversharp-code")
        return list(self._threads.map(self._grade, items))

    def _grade(self, item: tuple[Problem, str]) -> Grade:
        problem, text = item
        task = code_task(problem)
        ran = f"ran in {SANDBOX_FUSION if self._backend is None else self._backend.name}"
        try:
            program = extract_program(task, text, prompt=problem.prompt)
            if program is None:
                return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason="no program")
            if self._server is not None:
                failure = find_failure_remotely(task, program, self._server)
            else:
                failure = find_failure(task, program, *self._own_jails())
        except (SandboxError, TaskFaultError, VerifierError) as error:
            return _error(str(error), ran)
        except Exception as error:  # noqa: BLE001 - one response must not end an audit
            return _error(f"{type(error).__name__}: {wire.show(error, str)}", ran)
        reason = f"{failure}; {ran}" if failure else ran
        return _storable(Grade(answer=failure or PASSES, mode=None, reward=float(not failure), reason=reason))

    def _own_jails(self) -> tuple[Jail, Jail]:
        """Return this thread's jails: for programs, and for scripts of tests."""
        if not hasattr(self._own, "jails"):
            assert self._backend is not None
            jails = (
                Jail(self._backend, self._limits, is_warm=self._is_warm),
                # one in which no program runs, so that it may stay
                Jail(self._backend, self._limits),
            )
            self._own.jails = jails
            self._jails += jails
        own: tuple[Jail, Jail] = self._own.jails
        return own


def _error(fault: str, ran: str) -> Grade:
    return _storable(Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="error", reason=f"{fault}; {ran}"))


def _storable(grade: Grade) -> Grade:
    answer, reason = (_escape(storable(text, MAX_REASON_CHARACTERS)) for text in (grade.answer, grade.reason))
    return replace(grade, answer=answer, reason=reason)


def _escape(text: str) -> str:
    r"""Return the text with control characters escaped, because a terminal would obey them.

    >>> _escape("a\x1b[2J\n")
    'a\\x1b[2J\\n'
    """
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
