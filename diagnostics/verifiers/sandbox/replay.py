"""Run a program's calls, or a script of tests, as a whole script: on a server that only runs scripts.

A script of tests ends at its first call without a recorded reply. Then the program runs with all calls so far, and the
tests run again with its replies. The program's script contains its calls, and never the tests.
"""

from __future__ import annotations

import json
import os
import sys

from oversharp.diagnostics.verifiers.sandbox.guest import (
    answer_call,
    load_sources,
    new_module,
    reply_to,
    run_script_of_tests,
)
from oversharp.diagnostics.verifiers.sandbox.wire import (
    ENDED,
    UNSENDABLE,
    CandidateError,
    RemoteProgram,
    UnsendableError,
    decode,
    encode,
    write_all,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class RecordedProgram(RemoteProgram):
    """A program whose replies are recorded. ``next_call`` is the first call without a reply, encoded."""

    def __init__(self, replies: Sequence[dict[str, Any]]) -> None:
        super().__init__(-1, -1, 0.0, 0.0)
        self._recorded = list(replies)
        self.next_call = ""

    def _exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._recorded:
            return self._recorded.pop(0)
        try:
            self.next_call = encode(message)
        except (TypeError, ValueError):
            raise UnsendableError(UNSENDABLE) from None
        self.failure = ENDED
        raise CandidateError(self.failure)


def main() -> None:
    """Run the job in standard input, and write its result to standard output, which the program does not get."""
    job = json.load(sys.stdin)
    output = os.dup(1)
    devnull = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(devnull, standard)
    if "calls" in job:
        space = new_module("candidate")
        write_all(output, reply_to(lambda: load_sources(space, job["sources"])).encode() + b"\n")
        for call in job["calls"]:
            message = decode(call)
            reply = reply_to(lambda message=message: answer_call(space, **message))  # type: ignore[misc]
            write_all(output, reply.encode() + b"\n")
    else:
        random = __import__("random")
        random.seed(0)  # tests that draw arguments draw the same ones each time
        program = RecordedProgram(job["replies"])
        verdict = run_script_of_tests(job, program)
        result = f'{{"call":{program.next_call}}}' if program.next_call else encode(verdict)
        write_all(output, result.encode() + b"\n")
    os._exit(0)
