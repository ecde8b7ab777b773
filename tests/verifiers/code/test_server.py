"""Code tasks on a SandboxFusion server: a stub that runs scripts as its API describes, and misbehaves on request."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers.code.verifier import PASSES, CodeVerifier
from oversharp.diagnostics.verifiers.sandbox import backends, server
from tests.verifiers.code.programs import code_problem, fenced, load_programs

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sandbox")]

PROMPT = 'import math\n\ndef half(x):\n    return x / 2\n\ndef top(xs, k):\n    """The k largest."""\n'
CHECK = """
import random
def check(candidate):
    xs = [random.randint(0, 99) for _ in range(9)]
    assert candidate(xs, 2) == sorted(xs)[::-1][:2]
    assert half(4) == 2 and candidate((5,), 1) == [5]
"""
SCRIPT = code_problem(prompt=PROMPT, entry_point="top", test=CHECK)
CALLS = code_problem(
    entry_point="top", tests=[{"args": [[3, 9, 4], 2], "result": [9, 4]}, {"args": [[], 1], "result": []}]
)
OUTPUT = code_problem(tests=[{"input": "1 2 3\n", "output": "6\n"}, {"input": "-4 4\n", "output": "0"}])


class Stub(BaseHTTPRequestHandler):
    """Runs scripts in a process, without a sandbox. ``faults`` are the next replies, which are wrong."""

    faults: list[str]
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/run_code"
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        reply = fault.encode() if fault and fault != "cut" else json.dumps(self.answer(request)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply[: len(reply) // 2] if fault == "cut" else reply)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = [sys.executable, "-I", "-S", "-c", request["code"]]
        try:
            done = subprocess.run(
                command, input=request["stdin"].encode(), capture_output=True, timeout=request["run_timeout"]
            )
        except subprocess.TimeoutExpired:
            return {"status": "Failed", "message": "", "run_result": {"status": "TimeLimitExceeded", "stdout": ""}}
        printed = done.stdout.decode("utf-8", "replace")
        result = {
            "status": "Finished",
            "return_code": done.returncode,
            "stdout": printed,
            "stderr": done.stderr.decode(),
        }
        return {"status": "Failed" if done.returncode else "Success", "message": "", "run_result": result}

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Stub]]:
    class Own(Stub):
        faults: list[str] = []  # noqa: RUF012 - of this test alone
        requests: list[dict[str, Any]] = []  # noqa: RUF012

    monkeypatch.setattr(server, "_FIRST_WAIT_S", 0.01)
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        monkeypatch.setattr(backends, "_server_url", f"http://127.0.0.1:{listening.server_port}")
        yield Own
        listening.shutdown()


RIGHT = "def top(xs, k):\n    return sorted(xs, reverse=True)[:k]"
SUM = "print(sum(map(int, input().split())))"


def test_right_programs_pass_and_wrong_ones_fail_in_every_form(stub: type[Stub]) -> None:
    wrong = RIGHT.replace("reverse=True", "reverse=False")
    noisy = f"print('noise')\n{RIGHT}"
    items = [(SCRIPT, RIGHT), (CALLS, RIGHT), (OUTPUT, SUM), (SCRIPT, noisy), (CALLS, noisy)]
    items += [(SCRIPT, wrong), (CALLS, wrong), (OUTPUT, SUM.replace("sum", "max"))]
    with CodeVerifier(timeout_s=20.0, workers=2) as verifier:
        grades = verifier.grade([(problem, fenced(code)) for problem, code in items])
    assert [grade.correct for grade in grades] == [True] * 5 + [False] * 3, [grade.reason for grade in grades]
    assert grades[6].answer == "test 1: returned [3, 4]"
    assert {grade.reason.rpartition("; ")[2] for grade in grades} == {"ran in sandboxfusion"}


def test_a_script_that_an_exception_ends_is_wrong(stub: type[Stub]) -> None:
    endings = ("1 / 0", "raise SystemExit(3)", "raise SystemExit")
    with CodeVerifier(timeout_s=20.0, workers=1) as verifier:
        grades = verifier.grade([(OUTPUT, fenced(f"{SUM}\n{ending}")) for ending in endings])
    answers = ["test 1: ZeroDivisionError: division by zero", "test 1: exit code 3", PASSES]
    assert [grade.answer for grade in grades] == answers


def test_a_request_with_the_program_has_no_expected_result(stub: type[Stub]) -> None:
    problem = code_problem(entry_point="top", tests=[{"args": [[3], 1], "result": "a result that is expected"}])
    script = code_problem(tests="assert top([3], 1) == 'a result that is expected'")
    with CodeVerifier(timeout_s=20.0, workers=1) as verifier:
        grades = verifier.grade([(problem, fenced(RIGHT)), (script, fenced(RIGHT))])
    assert not any(grade.correct for grade in grades)
    with_program = [request for request in stub.requests if "reverse=True" in json.dumps(request)]
    assert len(with_program) == 3
    assert "expected" not in "".join(request["stdin"] for request in with_program)


def test_hostile_programs_do_not_pass(stub: type[Stub]) -> None:
    names = (
        "exit with success while loading", "end the process in a call", "object equal to everything",
        "integers equal to everything", "tests in frames", "tests in collected objects", "printed verdict",
        "forged replies before any call", "reply with an unknown tag", "everything caught",
        "functions of the caller patched",
        "encoder writes two replies", "result nested deeply", "json patched", "exception called AssertionError",
    )  # fmt: skip
    programs = load_programs("hostile_functions")
    items = [(problem, fenced(programs[name])) for name in names for problem in (SCRIPT, CALLS)]
    with CodeVerifier(timeout_s=0.3, workers=2) as verifier:
        grades = verifier.grade(items)
    assert [grade.reason for grade in grades if grade.correct] == []
    assert {grade.state for grade in grades} == {"ok"}


@pytest.mark.parametrize(
    "fault", ["503", "429", "cut", "{}", "[", "[1]", '{"status": "SandboxError", "message": "no"}']
)
def test_a_server_that_fails_for_a_moment_is_asked_again(stub: type[Stub], fault: str) -> None:
    stub.faults[:] = [fault, fault]
    with CodeVerifier(timeout_s=20.0, workers=1) as verifier:
        (grade,) = verifier.grade([(OUTPUT, fenced(SUM))])
    assert (grade.correct, len(stub.requests)) == (True, 4)


@pytest.mark.parametrize(("fault", "n_requests"), [("503", 4), ("404", 1), ('{"status": "Success"}', 4)])
def test_a_server_that_does_not_run_programs_is_an_error(stub: type[Stub], fault: str, n_requests: int) -> None:
    stub.faults[:] = [fault] * 8
    with CodeVerifier(timeout_s=20.0, workers=1) as verifier:
        (grade,) = verifier.grade([(OUTPUT, fenced(SUM))])
    assert (grade.state, grade.correct, len(stub.requests)) == ("error", False, n_requests)
    assert "run_code" in grade.reason


def test_tests_that_cannot_run_are_an_error(stub: type[Stub]) -> None:
    problem: Problem = code_problem(tests="assert top(object(), 1) == 1")
    with CodeVerifier(timeout_s=20.0, workers=1) as verifier:
        (grade,) = verifier.grade([(problem, fenced(RIGHT))])
    assert grade.state == "error"
    assert "not plain data" in grade.reason


def test_an_address_is_checked() -> None:
    with pytest.raises(ConfigError, match="--sandbox-url localhost: not an address; give http"):
        backends.use_server("localhost")
