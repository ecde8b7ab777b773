"""Right programs in unusual forms pass, and wrong ones next to them do not."""

import os
from collections.abc import Iterator

import pytest

from oversharp.diagnostics.verifiers.code.verifier import PASSES, CodeVerifier
from oversharp.diagnostics.verifiers.sandbox.jail import FILTERS_CALLS, backend_states
from tests.verifiers.code.programs import code_problem, fenced

pytestmark = pytest.mark.xdist_group("sandbox")

ECHO = code_problem(tests=[{"input": "5\n", "output": "5\n"}])


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    if all(fault for _, fault in backend_states()):
        reason = f"no sandbox works here: {backend_states()}"
        (pytest.fail if os.environ.get("REQUIRE_ALL") == "1" else pytest.skip)(reason)
    with CodeVerifier(timeout_s=20.0, workers=1) as opened:
        yield opened


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("import fileinput\nfor line in fileinput.input(): print(line)", PASSES),
        ("import sys\nprint(input() if sys.argv == ['program.py'] else 0)", PASSES),
        ("print(input())\nraise SystemExit", PASSES),
        ("import os\nprint(input(), flush=True)\nos._exit(0)", PASSES),
        ("print(input())\n1 / 0", "test 1: ZeroDivisionError: division by zero"),
        ("1 / 0", "test 1: ZeroDivisionError: division by zero"),
        ("print(input())\nraise SystemExit(3)", "test 1: SystemExit: 3"),
        ("print(input()", "test 1: SyntaxError: '(' was never closed (program.py, line 1)"),
        ("import os\nprint(input(), flush=True)\nfor n in range(3, 60):\n  try: os.write(n, b'{}\\n')\n"
         "  except OSError: pass", "test 1: an exception"),
    ],
)  # fmt: skip
def test_a_script_passes_if_its_output_is_right_and_no_exception_ends_it(
    verifier: CodeVerifier, program: str, answer: str
) -> None:
    (grade,) = verifier.grade([(ECHO, fenced(program))])
    assert (grade.answer, grade.state) == (answer, "ok")


def test_a_forged_report_does_not_make_wrong_output_right(verifier: CodeVerifier) -> None:
    forge = "import os\nfor n in range(3, 60):\n  try: {}\n  except OSError: pass\nprint(6)"
    items = [(ECHO, fenced(forge.format(write))) for write in ("os.close(n)", "os.write(n, b'{}\\n')")]
    assert [grade.correct for grade in verifier.grade(items)] == [False, False]


def test_event_loops_run_and_other_sockets_are_denied(verifier: CodeVerifier) -> None:
    loop = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print(input())\nasyncio.run(main())"
    denied = "import socket\ntry: {}\nexcept PermissionError: print(input())"
    calls = ["socket.socketpair(type=socket.SOCK_DGRAM)", "socket.socket()", "socket.socket(socket.AF_UNIX)"]
    programs = [loop, *(denied.format(call) for call in calls if FILTERS_CALLS)]
    grades = verifier.grade([(ECHO, fenced(program)) for program in programs])
    assert {grade.answer for grade in grades} == {PASSES}


def test_an_exception_reaches_the_test_as_its_nearest_builtin_base(verifier: CodeVerifier) -> None:
    tests = "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\nelse:\n    assert False\n"
    program = "class Bad({}): pass\nclass Worse(Bad): pass\ndef f(x): raise Worse('no')"
    problem = code_problem(tests=tests)
    bases = ("ValueError", "KeyError, ValueError", "KeyError", "Exception")
    grades = verifier.grade([(problem, fenced(program.format(base))) for base in bases])
    assert [grade.correct for grade in grades] == [True, False, False, False]
    assert grades[3].answer.endswith("RuntimeError: Worse: no")


@pytest.mark.parametrize(
    ("program", "right", "wrong"),
    [
        ("return range(x)", "list(f(3)) == [0, 1, 2] and f(3) == range(3)", "f(3) == [0, 1, 2]"),
        ("return map(str, range(x))", "list(f(2)) == ['0', '1']", "f(2) == ['0', '1']"),
        ("yield from 'ab'", "next(f(2)) == 'a' and sorted(f(2)) == ['a', 'b']", "f(2)[0] == 'a'"),
        ("import collections\n    return collections.deque([x])", "list(f(2)) == [2]", "f(2) == [2]"),
        ("return {frozenset([x])}", "f(2) == {frozenset([2])}", "f(2) == {2}"),
        ("return {x: float('inf')}", "f(2) == {2: float('inf')}", "f(2) == {2: 1e308}"),
    ],
)
def test_results_keep_their_type_for_asserts(verifier: CodeVerifier, program: str, right: str, wrong: str) -> None:
    text = fenced(f"def f(x):\n    {program}")
    grades = verifier.grade([(code_problem(tests=f"assert {test}"), text) for test in (right, wrong)])
    assert [grade.correct for grade in grades] == [True, False], [grade.reason for grade in grades]
    assert {grade.state for grade in grades} == {"ok"}


def test_an_iterator_is_no_list_and_an_endless_one_is_wrong(verifier: CodeVerifier) -> None:
    problem = code_problem(entry_point="f", tests=[{"args": [2], "result": [0, 1]}])
    programs = ("def f(x): return iter(range(x))", "import itertools\ndef f(x): return itertools.count()")
    grades = verifier.grade([(problem, fenced(program)) for program in programs])
    assert grades[0].answer == "test 1: returned an iterator"
    assert grades[1].answer == "test 1: ValueError: an iterator yields 131072 values or more"


def test_a_call_in_place_may_be_expected_to_return_nothing(verifier: CodeVerifier) -> None:
    problem = code_problem(entry_point="f", tests=[{"args": [[1]], "result": None}], in_place=True)
    grades = verifier.grade([(problem, fenced(f"def f(x): {body}")) for body in ("x.clear()", "return x")])
    assert [grade.correct for grade in grades] == [True, False]
