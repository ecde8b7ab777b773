"""States, limits and reasons of the verifier "code", and what it does without a working sandbox."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oversharp.diagnostics.app.doctor import run_checks
from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.code.verifier import PASSES, CodeVerifier
from oversharp.diagnostics.verifiers.sandbox import backends, jail
from oversharp.diagnostics.verifiers.sandbox.backends import Backend
from tests.verifiers.code.programs import code_problem, fenced

pytestmark = pytest.mark.xdist_group("sandbox")

DOUBLE = code_problem(entry_point="f", tests=[{"args": [1], "result": 2}, {"args": [3], "result": 6}])
RIGHT = fenced("def f(x):\n    return 2 * x")


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    if all(fault for _, fault in jail.backend_states()):
        reason = f"no sandbox works here: {jail.backend_states()}"
        (pytest.fail if os.environ.get("REQUIRE_ALL") == "1" else pytest.skip)(reason)
    with CodeVerifier(timeout_s=20.0, workers=1) as opened:
        yield opened


def grade_program(verifier: CodeVerifier, problem: Problem, program: str) -> Grade:
    (grade,) = verifier.grade([(problem, fenced(program))])
    return grade


def test_the_answer_is_the_first_failed_test_and_the_reason_has_the_back_end(verifier: CodeVerifier) -> None:
    used = next(name for name, fault in jail.backend_states() if not fault)
    right, wrong = (grade_program(verifier, DOUBLE, f"def f(x):\n    return {body}") for body in ("2 * x", "x + 1"))
    assert (right.answer, right.correct, right.reason) == (PASSES, True, f"ran in {used}")
    assert (wrong.answer, wrong.correct, wrong.state) == ("test 2: returned 4", False, "ok")
    assert wrong.reason == f"test 2: returned 4; ran in {used}"


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("def g(x):\n    return 2 * x", "test 1: NameError: name 'f' is not defined"),
        ("def f(x):\n    return g(x)", "test 1: NameError: name 'g' is not defined"),
        ("def f(x):\n    raise ValueError('no')", "test 1: ValueError: no"),
        ("def f():\n    return 2", "test 1: TypeError: f() takes 0 positional arguments but 1 was given"),
        ("def f(x):\n    return object()", "test 1: TypeError: object is not plain data"),
        ("import numpi\ndef f(x):\n    return 2 * x", "ModuleNotFoundError: No module named 'numpi'"),
        ("import os\ndef f(x):\n    os._exit(0)", "test 1: the program ended"),
        ("def f(x):\n    return 2.0 * x", PASSES),
        ("def f(x):\n    return 'x' * (2 << 20)", "test 1: its result exceeds 1 MiB"),
    ],
)
def test_a_failure_is_explained(verifier: CodeVerifier, program: str, answer: str) -> None:
    grade = grade_program(verifier, DOUBLE, program)
    assert (grade.answer, grade.state) == (answer, "ok")


@pytest.mark.slow
def test_a_late_program_is_wrong_and_its_neighbours_are_graded() -> None:
    start = time.monotonic()
    with CodeVerifier(timeout_s=1.0, workers=2) as verifier:
        items = [(DOUBLE, RIGHT), (DOUBLE, fenced("def f(x):\n    while True: pass")), (DOUBLE, RIGHT)]
        grades = verifier.grade(items)
    assert [grade.correct for grade in grades] == [True, False, True]
    assert (grades[1].answer, grades[1].state) == ("test 1: no result within 1 s", "ok")
    assert time.monotonic() - start < 20


@pytest.mark.slow
def test_many_short_calls_end_at_the_limit_of_the_program() -> None:
    problem = code_problem(entry_point="f", tests=[{"args": [1], "result": 2}] * 1000)
    with CodeVerifier(timeout_s=0.2, workers=1) as verifier:
        grade = grade_program(verifier, problem, "import time\ndef f(x):\n    time.sleep(.1)\n    return 2")
    assert not grade.correct
    assert "no result within" in grade.answer


def test_the_same_program_gives_the_same_output_in_every_jail(verifier: CodeVerifier) -> None:
    problem = code_problem(tests=[{"input": "", "output": "?"}])
    program = "print(list({'a', 'b', 'c', 'd', 'e'}), hash('x'))"
    with CodeVerifier(timeout_s=20.0, workers=1) as other:
        assert grade_program(verifier, problem, program).answer == grade_program(other, problem, program).answer


def test_programs_leave_nothing_to_the_next_one(verifier: CodeVerifier) -> None:
    leave = "import math\nmath.leak = 1\nopen('/tmp/leak', 'w')\ndef f(x):\n    return 2 * x"
    look = "import math, os\ndef f(x):\n    return 2 * x if not (hasattr(math, 'leak') or os.listdir('/tmp')) else 0"
    assert not grade_program(verifier, DOUBLE, leave).correct
    assert grade_program(verifier, DOUBLE, look).correct


@pytest.mark.parametrize("is_in_place", [False, True])
def test_a_changed_argument_counts_only_if_the_task_says_so(verifier: CodeVerifier, is_in_place: bool) -> None:
    tests = "xs = [2, 1]\nf(xs)\nassert xs == [1, 2]\nds = {}\nf([], ds)\nassert ds == {1: 2}"
    program = "def f(xs, ds=None):\n    xs.sort()\n    if ds is not None: ds[1] = 2"
    script = code_problem(tests=tests, in_place=is_in_place)
    calls = code_problem(entry_point="f", tests=[{"args": [[2, 1]], "result": [1, 2]}], in_place=is_in_place)
    assert [grade_program(verifier, problem, program).correct for problem in (script, calls)] == [is_in_place] * 2
    # an empty list equals the sorted argument if the argument was cleared
    cheat = code_problem(tests="xs = [2, 1]\nassert f(xs) == sorted(xs)")
    assert not grade_program(verifier, cheat, "def f(xs):\n    xs.clear()\n    return []").correct


def test_exceptions_of_a_program_reach_its_tests(verifier: CodeVerifier) -> None:
    tests = "try:\n    f(-1)\nexcept ValueError as error:\n    assert 'no' in str(error)\nelse:\n    assert False\n"
    problem = code_problem(tests=f"{tests}assert f(4, y=1)")
    program = "def f(x, y=0):\n    if x < 0: raise {}('no')\n    return y"
    assert grade_program(verifier, problem, program.format("ValueError")).correct
    assert not grade_program(verifier, problem, program.format("KeyError")).correct
    # a test that catches everything cannot pass a program that ended
    problem = code_problem(tests="try:\n    f(1)\nexcept:\n    pass")
    assert grade_program(verifier, problem, "def f(x):\n    return 1").correct
    assert not grade_program(verifier, problem, "import os\ndef f(x):\n    os._exit(0)").correct


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("class Node: pass\nassert f(Node()) == 1", "a test passes a value that is not plain data"),
        ("assert f(lambda x: x) == 1", "a test passes a value that is not plain data"),
        ("import nothing_like_this\nassert f(1) == 2", "ModuleNotFoundError"),
    ],
)
def test_tests_that_cannot_run_are_an_error_and_not_a_wrong_program(
    verifier: CodeVerifier, tests: str, reason: str
) -> None:
    grade = grade_program(verifier, code_problem(tests=tests), "def f(x):\n    return 1")
    assert (grade.state, grade.reward, grade.correct) == ("error", 0.0, False)
    assert reason in grade.reason


def test_a_jail_that_is_killed_from_outside_is_replaced(verifier: CodeVerifier) -> None:
    assert grade_program(verifier, DOUBLE, "def f(x):\n    return 2 * x").correct
    for own in verifier._jails:
        assert own._process is not None or own is verifier._jails[1]
        if own._process is not None:
            os.kill(own._process.pid, signal.SIGKILL)
    assert grade_program(verifier, DOUBLE, "def f(x):\n    return 2 * x").correct


@pytest.fixture
def no_back_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which bubblewrap is not permitted, and without unshare."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        command = Path(folder) / "bwrap"
        command.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
        for path in (command, Path(folder)):
            path.chmod(0o755)
        monkeypatch.setenv("PATH", folder)
        monkeypatch.setattr(backends, "_allows_unsandboxed", False)
        jail.backend_states.cache_clear()
        yield
    jail.backend_states.cache_clear()


@pytest.mark.slow
def test_without_a_sandbox_nothing_runs(no_back_end: None) -> None:
    with (
        Verifiers() as verifiers,
        pytest.raises(VerifierError, match=r"No permissions to create new namespace.*--allow"),
    ):
        verifiers.grade([(DOUBLE, RIGHT)])
    (check,) = (check for check in run_checks() if check.name == "sandbox")
    assert check.state == "note"
    assert "code tasks need --allow-unsandboxed, or bubblewrap" in check.text


def test_without_a_sandbox_the_flag_runs_programs_and_every_grade_says_so(
    no_back_end: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_allows_unsandboxed", True)
    with Verifiers() as verifiers:
        (grade,) = verifiers.grade([(DOUBLE, RIGHT)])
    assert (grade.correct, grade.reason) == (True, "ran in unsandboxed")


def test_the_flag_does_not_replace_a_sandbox_that_works(
    verifier: CodeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_allows_unsandboxed", True)
    assert jail.choose_backend().name in ("bubblewrap", "namespaces")


def test_a_sandbox_that_breaks_is_an_error_and_not_a_wrong_program() -> None:
    broken = Backend(name="broken", command=("/bin/false",))
    with CodeVerifier(backend=broken, workers=1) as verifier:
        (grade,) = verifier.grade([(DOUBLE, RIGHT)])
    assert (grade.state, grade.correct) == ("error", False)
    assert "broken does not start" in grade.reason
