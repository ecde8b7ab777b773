"""Worker processes of a user's function: a call that ends, hangs or takes too much memory costs its own grade alone."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

Grader = Callable[..., list[Grade]]


@pytest.fixture
def grader(tmp_path: Path) -> Grader:
    """Writes a file, names its function ``grade`` and grades responses to a problem whose answer is "a"."""

    def graded(code: str, *responses: str, limits: GraderLimits | None = None) -> list[Grade]:
        path = tmp_path / "reward.py"
        path.write_text(textwrap.dedent(code))
        name = named_verifier(f"{path}:grade", limits or GraderLimits(timeout_s=1.0, memory_gib=1.0))
        problem = Problem(task="t", prompt="?", gold="a", verifier=name)
        with Verifiers() as verifiers:
            return verifiers.grade([(problem, response) for response in responses])

    return graded


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize(
    ("does", "state", "reason"),
    [
        ("import sys; sys.exit('bye')", "error", "SystemExit: bye, line 4"),
        ("exit()", "error", "SystemExit: None, line 4"),
        ("import os; os._exit(0)", "error", "the grader ended its process (exit code 0)"),
        ("import ctypes; ctypes.string_at(0)", "error", "the grader ended its process (signal SIGSEGV)"),
        ("import os; os.kill(os.getpid(), 9)", "error", "the grader ended its process (signal SIGKILL)"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt, line 4"),
        ("raise GeneratorExit('over')", "error", "GeneratorExit: over, line 4"),
        ("raise Silent", "error", "Silent: its message is unavailable, line 4"),
        ("raise ValueError('\\ud800\\n\\0')", "error", "ValueError: ? ?, line 4"),
        ("raise ValueError('x' * 10**6)", "error", f"ValueError: {'x' * 180}, line 4"),
        (
            "return float('nan')",
            "error",
            "ValueError: returned nan, which is not a finite number, by the function in line 2",
        ),
        (
            "return None",
            "error",
            "TypeError: returned NoneType instead of a number, or a number and a text, by the function in line 2",
        ),
        ("return 10**400", "error", "OverflowError: int too large to convert to float"),
        ("return {'score': 1.0}", "error", "TypeError: returned dict"),
        ("while True: pass", "timeout", "no result within 1"),
        ("import time; time.sleep(60)", "timeout", "no result within 1"),
        ("return 3 ** 10**9", "timeout", "no result within 1"),
        ("[0] * 10**10", "error", "MemoryError, line 4; its limit is --grader-memory-gib 1"),
        ("import os; os.closerange(3, 100)", "error", "the grader ended its process"),
    ],
)
def test_a_response_that_breaks_the_grader_is_ungraded_and_its_siblings_are_graded(
    does: str, state: str, reason: str, workers: int, grader: Grader
) -> None:
    code = f"""
    def grade(response, answer):
        if response == "breaks":
            {does}
        return response == answer
    class Silent(Exception):
        def __str__(self):
            raise self
    """
    limits = GraderLimits(timeout_s=1.0, memory_gib=1.0, workers=workers)
    grades = grader(code, *"ab" * 5, "breaks", *"ab" * 5, limits=limits)
    assert [grade.correct for grade in grades] == [True, False] * 5 + [False] + [True, False] * 5
    broken = grades.pop(10)
    assert {grade.state for grade in grades} == {"ok"}
    assert (broken.state, broken.reason[: len(reason)]) == (state, reason)
    assert len(broken.reason) <= 200


@pytest.mark.slow
def test_the_first_call_that_dies_is_to_blame_and_the_next_is_not(grader: Grader) -> None:
    code = """
    import os
    def grade(response, answer):
        if response == "x":
            os._exit(3)
        return response == answer
    """
    states = [grade.state for grade in grader(code, "x", "a", "x", "x", "a")]
    assert states == ["error", "ok", "error", "error", "ok"]


@pytest.mark.slow
def test_a_thread_that_a_call_left_behind_costs_the_next_call_nothing(grader: Grader) -> None:
    code = """
    import os, threading, time
    def late():
        time.sleep(0.3)
        os._exit(0)
    def grade(response, answer):
        if response == "leaves":
            threading.Thread(target=late, daemon=True).start()
        if response == "slow":
            time.sleep(0.6)
        return 1
    """
    assert [grade.state for grade in grader(code, "leaves", "slow", "a")] == ["ok", "ok", "ok"]


def test_a_worker_stays_warm_and_one_process_answers_in_turn(grader: Grader) -> None:
    code = """
    import os
    calls = 0
    def grade(response):
        global calls
        calls += 1
        return calls, str(os.getpid())
    """
    limits = GraderLimits()
    first = grader(code, *"abc", limits=limits)
    second = grader(code, *"abc", limits=limits)  # another part of an audit, with verifiers of its own
    assert [grade.reward for grade in (*first, *second)] == [1, 2, 3, 4, 5, 6]
    assert len({grade.answer for grade in (*first, *second)}) == 1


@pytest.mark.slow
def test_several_workers_answer_in_order(grader: Grader) -> None:
    code = """
    import os, time
    def grade(response):
        time.sleep(0.01)
        return float(response), str(os.getpid())
    """
    grades = grader(code, *map(str, range(100)), limits=GraderLimits(workers=2))
    assert [grade.reward for grade in grades] == list(range(100))
    assert len({grade.answer for grade in grades}) == min(2, len(os.sched_getaffinity(0)))
    assert str(os.getpid()) not in {grade.answer for grade in grades}


@pytest.mark.slow
def test_a_model_that_the_first_call_loads_may_take_longer_than_a_call(grader: Grader) -> None:
    code = """
    import time
    model = None
    def grade(response, answer):
        global model
        if model is None:
            time.sleep(1.2)
            model = 1
        if response == "hangs":
            time.sleep(60)
        return response == answer
    """
    limits = GraderLimits(timeout_s=0.5)
    grades = grader(code, "a", "hangs", "a", "a", limits=limits)
    assert [grade.state for grade in grades] == ["ok", "timeout", "ok", "ok"]


def test_what_a_grader_prints_does_not_come_to_standard_output(
    grader: Grader, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
    import os, subprocess, sys
    print("loaded")
    def grade(response, answer):
        print("printed", "\\ud800")
        os.write(1, b"\\xff written\\n")
        subprocess.run(["echo", "by a child"])
        return response == answer and sys.stdin.read() == ""
    """
    assert grader(code, "a")[0].correct
    out, err = capfd.readouterr()
    assert out == ""
    assert all(text in err for text in ("loaded", "printed \\ud800", "written", "by a child"))


def test_texts_that_no_store_can_hold_are_cleaned(grader: Grader) -> None:
    code = """
    def grade(response):
        return 1, {"half": "a\\ud800b", "null": "a\\0b", "long": "x" * 10**7, "blank": ""}.get(response)
    """
    answers = [grade.answer for grade in grader(code, "half", "null", "long", "blank", "y" * 5000)]
    assert answers == ["a?b", "a?b", "x" * 1000, "NA", "y" * 1000]


def test_large_responses_pass_while_answers_come_back(grader: Grader) -> None:
    code = """
    def grade(response):
        return len(response), "x" * 1000
    """
    responses = ["é" * 300_000, *(["z" * 2000] * 2000)]
    assert [grade.reward for grade in grader(code, *responses)] == [300_000, *([2000] * 2000)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 8])
def test_a_grader_may_start_processes_and_forks_and_all_end_with_it(workers: int, grader: Grader) -> None:
    code = """
    import multiprocessing, os, subprocess, time
    def work(queue):
        queue.put("right")
    def grade(response, answer):
        if response == "forks" and os.fork() == 0:
            return 0
        if response == "hangs":
            child = subprocess.Popen(["sleep", "100"])
            with open(__file__ + ".pid", "w") as file:
                file.write(str(child.pid))
            child.wait()
        queue = multiprocessing.Queue()
        process = multiprocessing.Process(target=work, args=(queue,))
        process.start()
        said = queue.get()
        process.join()
        return 1, said
    """
    limits = GraderLimits(timeout_s=1.0, memory_gib=1.0, workers=workers)
    grades = grader(code, "forks", "hangs", "a", limits=limits)
    assert [grade.state for grade in grades] == ["ok", "timeout", "ok"]
    assert grades[0].answer == grades[2].answer == "right"
    child = Path(grader.__closure__[0].cell_contents, "reward.py.pid")  # type: ignore[index,attr-defined]
    stat = Path(f"/proc/{child.read_text()}/stat")
    deadline = time.monotonic() + 10
    while stat.exists() and ") Z " not in stat.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not stat.exists() or ") Z " in stat.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('bye')", r"cannot be loaded \(SystemExit: bye, line 1\)"),
        ("import os; os._exit(3)", r"ends its process while it is loaded \(exit code 3\)"),
        ("def f(:", r"cannot be loaded \(SyntaxError: .*line 1\)"),
        ("x = [0] * 10**10", r"cannot be loaded \(MemoryError, line 1\)"),
        ("raise KeyboardInterrupt", r"cannot be loaded \(KeyboardInterrupt, line 1\)"),
        ("grade = dict.fromkeys", r"cannot be called \(|requires the parameter 'iterable'"),
    ],
)
def test_a_file_that_does_not_load_is_one_line(code: str, message: str, grader: Grader) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        grader(code, "a")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_file_that_hangs_as_it_is_loaded_is_one_line(grader: Grader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversharp.diagnostics.verifiers.own_workers.team.LEAST_LOAD_S", 0.5)
    with pytest.raises(ConfigError, match=r"is not loaded within 0\.5 s; a longer --grader-timeout"):
        grader("while True: pass", "a", limits=GraderLimits(timeout_s=0.1))


def test_the_code_that_was_hashed_grades_also_in_a_new_worker(tmp_path: Path) -> None:
    path = tmp_path / "reward.py"
    path.write_text("import os\ndef grade(response):\n    return 1 if response != 'dies' else os._exit(1)\n")
    name = named_verifier(f"{path}:grade")
    path.write_text("def grade(response):\n    return 0\n")
    problem = Problem(task="t", prompt="?", gold="a", verifier=name)
    states = [(grade.state, grade.reward) for grade in get_verifier(name).grade([(problem, "dies"), (problem, "a")])]
    assert states == [("error", 0.0), ("ok", 1.0)]


SCRIPT = """
import os, sys, threading
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import get_verifier, named_verifier

name = named_verifier(sys.argv[1])  # no guard: workers do not read the script again
problem = Problem(task="t", prompt="?", gold="a", verifier=name)
print(get_verifier(name).grade([(problem, "a")])[0].answer, flush=True)
if sys.argv[2] == "killed":
    threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()
    get_verifier(name).grade([(problem, "hangs")])
"""


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["itself", "killed"])
def test_workers_end_with_the_command(ends: str, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(
        "import atexit, os, time\natexit.register(lambda: open('ended', 'w').close())\n"
        "def grade(response):\n    while response == 'hangs': pass\n    return 1, str(os.getpid())\n"
    )
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "script.py", "reward.py:grade", ends],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (-9 if ends == "killed" else 0, "")
    worker = Path(f"/proc/{int(run.stdout)}")
    deadline = time.monotonic() + 10
    while worker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not worker.exists()
    assert (tmp_path / "ended").exists() == (ends == "itself")


@pytest.mark.parametrize(
    ("limits", "flag"),
    [
        (GraderLimits(timeout_s=0.0), "--grader-timeout 0"),
        (GraderLimits(timeout_s=float("nan")), "--grader-timeout nan"),
        (GraderLimits(memory_gib=-1.0), "--grader-memory-gib -1"),
        (GraderLimits(workers=0), "--grader-workers 0"),
    ],
)
def test_limits_that_allow_nothing_are_refused(limits: GraderLimits, flag: str) -> None:
    from oversharp.diagnostics.verifiers.own_workers.config import require_limits

    with pytest.raises(ConfigError, match=flag):
        require_limits(limits)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["return 1", "time.sleep(60)", "raise MemoryError"])
def test_a_process_that_a_call_detached_ends_with_the_command(tmp_path: Path, then: str) -> None:
    reward, pid = tmp_path / "reward.py", tmp_path / "pid"
    reward.write_text(
        f"""
import pathlib, subprocess, sys, time
def grade(response):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    pathlib.Path({str(pid)!r}).write_text(str(child.pid))
    {then}
"""
    )
    command = f"""
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import Verifiers, named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

name = named_verifier("{reward}:grade", GraderLimits(timeout_s=1.0, memory_gib=2.0))
with Verifiers() as verifiers:
    print(verifiers.grade([(Problem(task="t", prompt="?", gold="a", verifier=name), "a")])[0].state)
"""
    state = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.strip()
    assert state == ("ok" if then == "return 1" else "timeout" if "sleep" in then else "error")
    assert not is_running(int(pid.read_text()))


def is_running(process_id: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
