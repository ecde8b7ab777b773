"""Results that Python cannot print or compare, and errors of the grading itself, never end an audit."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oversharp.diagnostics.verifiers.code import verifier as module
from oversharp.diagnostics.verifiers.code.run import check_result
from oversharp.diagnostics.verifiers.code.task import CodeTask
from oversharp.diagnostics.verifiers.code.verifier import CodeVerifier
from oversharp.diagnostics.verifiers.sandbox import wire
from oversharp.diagnostics.verifiers.sandbox.backends import Backend
from oversharp.diagnostics.verifiers.sandbox.jail import Jail, JailLimits, backend_states
from tests.verifiers.code.programs import code_problem, fenced

pytestmark = pytest.mark.xdist_group("sandbox")

ODD = st.sampled_from([float("inf"), float("nan"), 1 << 64, "\ud800", "\x1b[2J", b"\xff"])
HUGE = st.integers().map(lambda number: number << 20_000)
KEYS = st.one_of(ODD, HUGE, st.none(), st.booleans(), st.integers(), st.text(max_size=3))
PLAIN = st.recursive(
    KEYS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.lists(parts, max_size=3).map(tuple),
        st.sets(KEYS, max_size=3),
        st.dictionaries(KEYS, parts, max_size=3),
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    if all(fault for _, fault in backend_states()):
        pytest.skip(f"no sandbox works here: {backend_states()}")
    with CodeVerifier(timeout_s=20.0, workers=1) as opened:
        yield opened


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(expected=PLAIN, result=PLAIN)
def test_every_plain_result_is_compared_and_shown(expected: Any, result: Any) -> None:
    received = wire.decode(json.loads(wire.encode(result)))
    failure = check_result(CodeTask(form="calls", entry="f"), [expected], received, [])
    assert failure == "" or (failure.startswith("returned ") and len(failure) <= 80)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("10 ** 5000", "test 1: returned "),
        ("[{1: (10 ** 5000,)}]", "test 1: returned "),
        ("'\\ud800'", "test 1: returned "),
        ("set(range(50000))", "test 1: returned "),
        ("[10 ** 5000][10 ** 5000]", "test 1: IndexError"),
        ("{}[10 ** 5000]", "test 1: KeyError"),
    ],
)
def test_a_result_that_python_does_not_print_is_wrong(verifier: CodeVerifier, body: str, shown: str) -> None:
    calls = code_problem(entry_point="f", tests=[{"args": [1], "result": 2}])
    asserts = code_problem(tests="want = {2: 1}\nassert want[f(1)] == 1")
    text = fenced(f"def f(x):\n    return {body}")
    first, second = verifier.grade([(calls, text), (asserts, text)])
    assert (first.state, first.correct, first.answer[: len(shown)]) == ("ok", False, shown)
    assert (second.state, second.correct) == ("ok", False), second.reason


@pytest.mark.parametrize("nested", ["[" * 900 + "]" * 900, '{"tuple":[' * 400 + "]}" * 400])
def test_forged_replies_that_are_nested_deeply_are_not_plain_data(nested: str) -> None:
    with pytest.raises(ValueError, match="nested deeper"):
        wire.decode(json.loads(nested))
    assert wire.show(json.loads(nested), str)


def test_an_exception_in_one_grade_is_the_error_of_that_response(
    verifier: CodeVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, problem = module.find_failure, code_problem(entry_point="f", tests=[{"args": [1], "result": 2}])

    def fail(task: Any, program: str, *jails: Any) -> str:
        if "fault" in program:
            raise LookupError("a fault\x1b[2J\nof the host")
        return find(task, program, *jails)

    monkeypatch.setattr(module, "find_failure", fail)
    texts = [fenced(f"def f(x):\n    return 2  # {word}") for word in ("right", "fault", "right")]
    grades = verifier.grade([(problem, text) for text in texts])
    assert [grade.state for grade in grades] == ["ok", "error", "ok"]
    assert grades[1].reason.startswith(r"LookupError: a fault\x1b[2J\nof the host; ran in ")


def test_control_characters_of_an_exception_are_escaped(verifier: CodeVerifier) -> None:
    problem = code_problem(entry_point="f", tests=[{"args": [1], "result": 2}])
    (grade,) = verifier.grade([(problem, fenced("def f(x):\n    raise ValueError('\\x1b[2J\\nx')"))])
    assert grade.answer == r"test 1: ValueError: \x1b[2J\nx"
    assert grade.reason.isprintable()


def test_a_jail_that_is_ended_while_it_closes_is_closed_once() -> None:
    jail = Jail(Backend(name="none", command=()), JailLimits())
    jail.try_out()
    process = jail._process
    assert process is not None
    wait, waiting = process.wait, threading.Event()

    def wait_for_the_other(timeout: float | None = None) -> int:
        waiting.set()
        jail._process = None  # as ``end`` of another thread does
        return wait(timeout)

    process.wait = wait_for_the_other  # type: ignore[method-assign]
    jail.close()
    assert waiting.is_set()
    jail.close()
    assert process.returncode == 0
