"""Test one program: run it in a jail, and compare its results here or in a second jail."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from oversharp.diagnostics.verifiers.code.compare import same_output, same_result
from oversharp.diagnostics.verifiers.code.task import CodeTask
from oversharp.diagnostics.verifiers.sandbox import guest, wire
from oversharp.diagnostics.verifiers.sandbox.jail import Jail, Pipes, SandboxError

#: Longest part of a result in a failure, in characters.
_SHOWN = 60
#: Number of jails that a program may break. The cause may be external, such as the out-of-memory killer.
TRIES = 2


class TaskFaultError(Exception):
    """The tests cannot be run with any program."""


def find_failure(task: CodeTask, program: str, jail: Jail, judge: Jail) -> str:
    """Return the first test that a program fails, and how; "" if it passes all tests.

    ``jail`` runs the program. ``judge`` runs scripts of tests, and never the program. Raises ``SandboxError`` if a jail
    cannot start, and ``TaskFaultError`` for tests that cannot be run. A program that ends its jail repeatedly fails.
    """
    for _ in range(TRIES):
        try:
            return _FORMS[task.form](task, [task.context, program], jail, judge)
        except SandboxError:
            jail.close()
            judge.close()
            jail.try_out()  # raises if the sandbox is broken, and not the program
    return "the program ended its jail"


def _run_stdio(task: CodeTask, sources: Sequence[str], jail: Jail, _judge: Jail) -> str:
    limits = jail.limits
    ends_at = time.monotonic() + limits.program_s
    for number, (given, wanted) in enumerate(task.cases, start=1):
        with Pipes() as pipes:
            requests, standard_input = pipes.to_jail(), pipes.to_jail()
            standard_output, errors = pipes.from_jail(), pipes.from_jail()
            with jail.job(guest.SCRIPT, pipes):
                late_at = min(time.monotonic() + limits.test_s, ends_at)
                try:
                    wire.send(requests, {"sources": list(sources)}, late_at)
                    printed = _converse(pipes, standard_input, given.encode(), standard_output, late_at)
                    _require_success(errors, late_at)
                except (wire.CandidateError, wire.Raised) as error:
                    return f"test {number}: {explain(error, limits.test_s)}"
                except OSError:
                    return f"test {number}: the program ended"
        if not same_output(wanted, printed):
            return f"test {number}: printed {shorten(wire.show(printed))}"
    return ""


def _converse(pipes: Pipes, standard_input: int, given: bytes, standard_output: int, late_at: float) -> str:
    """Write a program's input while its output is read, and return the output.

    Raises ``CandidateError`` if the output is too long or does not end in time.
    """
    os.set_blocking(standard_input, False)
    poll = select.poll()
    poll.register(standard_output, select.POLLIN)
    poll.register(standard_input, select.POLLOUT)
    rest, parts, n_bytes = memoryview(given), list[bytes](), 0
    while True:
        left_s = late_at - time.monotonic()
        events = dict(poll.poll(left_s * 1000)) if left_s > 0 else {}
        if not events:
            raise wire.CandidateError(wire.LATE)
        if standard_input in events:
            try:
                rest = rest[os.write(standard_input, rest[: 1 << 12]) :] if rest else rest
            except BrokenPipeError:  # the program has closed its input
                rest = rest[:0]
            if not rest:
                poll.unregister(standard_input)
                pipes.close(standard_input)
        if standard_output in events:
            part = os.read(standard_output, 1 << 16)
            if not part:
                return b"".join(parts).decode("utf-8", "replace")
            parts.append(part)
            n_bytes += len(part)
            if n_bytes > wire.MOST_BYTES:
                raise wire.CandidateError("its output exceeds 1 MiB")


def _require_success(errors: int, late_at: float) -> None:
    """Wait until a script has ended. Raises ``Raised`` for the exception that ended it."""
    try:
        reply = wire.Replies(errors).next(late_at)
    except wire.CandidateError as error:
        if str(error) != wire.ENDED:
            raise
    else:
        raise wire.Raised.from_reply({"raised": "an exception", **reply})


def _run_calls(task: CodeTask, sources: Sequence[str], jail: Jail, _judge: Jail) -> str:
    limits = jail.limits
    with Pipes() as pipes:
        requests, replies = pipes.to_jail(), pipes.from_jail()
        with jail.job(guest.CALLS, pipes):
            candidate = wire.RemoteProgram(requests, replies, limits.test_s, time.monotonic() + limits.program_s)
            number = 0
            try:
                candidate.load(sources)
                for number, (arguments, accepted) in enumerate(task.cases, start=1):
                    result, after = candidate.call(task.entry, arguments, {})
                    if failure := check_result(task, accepted, result, after):
                        return f"test {number}: {failure}"
            except (wire.CandidateError, wire.Raised) as error:
                where = f"test {number}: " if number else ""
                return f"{where}{explain(error, limits.test_s)}"
    return ""


def check_result(task: CodeTask, accepted: Sequence[Any], result: Any, after: Any) -> str:
    """Return how a call's result is wrong; "" if it is accepted. ``after`` has its arguments after the call."""
    if task.in_place and result is None and None not in accepted and isinstance(after, list) and after:
        result = after[0]
    if any(same_result(wanted, result) for wanted in accepted):
        return ""
    return f"returned {'an iterator' if hasattr(result, '__next__') else shorten(wire.show(result))}"


def _run_script(task: CodeTask, sources: Sequence[str], jail: Jail, judge: Jail) -> str:
    limits = jail.limits
    with Pipes() as pipes, Pipes() as judge_pipes:
        calls, replies = pipes.to_jail(), pipes.from_jail()
        requests, verdicts = judge_pipes.to_jail(), judge_pipes.from_jail()
        judge_pipes.share(replies)
        judge_pipes.share(calls)
        with jail.job(guest.CALLS, pipes), judge.job(guest.JUDGE, judge_pipes):
            job = {
                "context": task.test_context,
                "tests": task.tests,
                "remote": list(task.remote),
                "in_place": task.in_place,
                "sources": list(sources),
                "call_limit_s": limits.test_s,
                "limit_s": limits.program_s,
            }
            late_at = time.monotonic() + limits.program_s
            try:
                wire.send(requests, job, late_at)
                verdict = wire.Replies(verdicts).next(late_at)
                found = wire.decode(verdict)
            except wire.CandidateError as error:
                return f"its tests: {explain(error, limits.program_s)}"
            except (OSError, TypeError, ValueError) as error:
                raise TaskFaultError(f"the tests ended their process ({error})") from error
    return read_verdict(task, found)


def read_verdict(task: CodeTask, found: Mapping[str, object]) -> str:
    """Return the failure in a verdict of ``run_script_of_tests``; "" if all tests passed.

    Raises ``TaskFaultError`` if the tests cannot run.
    """
    line = found.get("line")
    source = task.tests.splitlines()[line - 1].strip() if isinstance(line, int) and line else ""
    if "fault" in found:
        at = f" in {shorten(source)}" if source else ""
        raise TaskFaultError(f"the tests fail before they call the program, or cannot call it{at}: {found['fault']}")
    if "wrong" not in found:
        return ""
    return ": ".join(part for part in (shorten(source), shorten(str(found["wrong"]))) if part)


def explain(error: BaseException, limit_s: float) -> str:
    """Return how a program failed. ``limit_s`` is the limit that it may have exceeded."""
    if isinstance(error, wire.Raised):
        return shorten(f"{error.kind}: {error.text}".rstrip(": "))
    return f"no result within {limit_s:g} s" if str(error) == wire.LATE else str(error)


def shorten(text: str) -> str:
    """Return the start of a text."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_FORMS: Mapping[str, Callable[[CodeTask, Sequence[str], Jail, Jail], str]] = MappingProxyType(
    {"stdio": _run_stdio, "calls": _run_calls, "script": _run_script}
)
