"""Test one program on a SandboxFusion server, which runs whole scripts. Results are compared here, as in ``run``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from oversharp.diagnostics.verifiers.code.compare import same_output
from oversharp.diagnostics.verifiers.code.run import TaskFaultError, check_result, explain, read_verdict, shorten
from oversharp.diagnostics.verifiers.code.task import CodeTask
from oversharp.diagnostics.verifiers.sandbox import wire
from oversharp.diagnostics.verifiers.sandbox.replay import RecordedProgram
from oversharp.diagnostics.verifiers.sandbox.server import SandboxServer, replay_code

#: Largest number of calls of a script of tests. Each takes two requests.
MOST_CALLS = 200


def find_failure_remotely(task: CodeTask, program: str, server: SandboxServer) -> str:
    """Return the first test that a program fails, as ``find_failure`` does."""
    sources = [task.context, program]
    limit_s = server.limits.test_s if task.form == "stdio" else server.limits.program_s
    try:
        if task.form == "stdio":
            return _test_output(task, program, server)
        return (_test_calls if task.form == "calls" else _test_script)(task, sources, server)
    except (wire.CandidateError, wire.Raised) as error:
        return explain(error, limit_s)


def _test_output(task: CodeTask, program: str, server: SandboxServer) -> str:
    for number, (given, wanted) in enumerate(task.cases, start=1):
        try:
            printed = server.run(program, given, server.limits.test_s, is_program=True)
        except (wire.CandidateError, wire.Raised) as error:
            return f"test {number}: {explain(error, server.limits.test_s)}"
        if not same_output(wanted, printed):
            return f"test {number}: printed {shorten(wire.show(printed))}"
    return ""


def _test_calls(task: CodeTask, sources: Sequence[str], server: SandboxServer) -> str:
    calls = [{"name": task.entry, "arguments": tuple(arguments), "options": {}} for arguments, _ in task.cases]
    program = RecordedProgram(_run_program(sources, [json.loads(wire.encode(call)) for call in calls], server))
    program.load(sources)
    for number, (arguments, accepted) in enumerate(task.cases, start=1):
        try:
            result, after = program.call(task.entry, arguments, {})
        except (wire.CandidateError, wire.Raised) as error:
            return f"test {number}: {explain(error, server.limits.program_s)}"
        if failure := check_result(task, accepted, result, after):
            return f"test {number}: {failure}"
    return ""


def _test_script(task: CodeTask, sources: Sequence[str], server: SandboxServer) -> str:
    calls: list[Any] = []
    while len(calls) <= MOST_CALLS:
        replies = _run_program(sources, calls, server)
        job = {
            "context": task.test_context, "tests": task.tests, "remote": list(task.remote), "in_place": task.in_place,
            "sources": [], "replies": replies,
        }  # fmt: skip
        found = _lines(server.run(replay_code(), json.dumps(job), server.limits.program_s))
        if len(found) != 1:
            raise TaskFaultError("the tests ended their process")
        if "call" not in found[0]:
            return read_verdict(task, wire.decode(found[0]))
        if len(replies) <= len(calls):  # the program ended before this call
            raise wire.CandidateError(wire.ENDED)
        calls.append(found[0]["call"])
    raise TaskFaultError(f"the tests call the program more than {MOST_CALLS} times; use a local sandbox")


def _run_program(sources: Sequence[str], calls: Sequence[Any], server: SandboxServer) -> list[dict[str, Any]]:
    """Return the program's replies: to loading it, and to each call. There are fewer if it ended."""
    job = {"sources": list(sources), "calls": list(calls)}
    replies = _lines(server.run(replay_code(), json.dumps(job), server.limits.program_s))
    if not replies:
        raise wire.CandidateError(wire.ENDED)
    return replies[: len(calls) + 1]


def _lines(printed: str) -> list[dict[str, Any]]:
    """Return the JSON objects of an output, up to the first line that is none."""
    found: list[dict[str, Any]] = []
    for line in printed.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict):
            break
        found.append(value)
    return found
