"""Several calls at a time: threads, coroutines and batches; a call that hangs or dies blames no neighbor."""

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
from oversharp.diagnostics.verifiers import Verifiers, named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

Grader = Callable[..., list[Grade]]
LIMITS = GraderLimits(timeout_s=1.0, memory_gib=1.0, workers=16)


@pytest.fixture
def grader(tmp_path: Path) -> Grader:
    """Writes a file, and grades responses to a problem whose answer is "a" with its function ``grade``."""

    def grade_with(code: str, *responses: str, limits: GraderLimits = LIMITS) -> list[Grade]:
        path = tmp_path / "reward.py"
        path.write_text(textwrap.dedent(code))
        problem = Problem(task="t", prompt="?", gold="a", verifier=named_verifier(f"{path}:grade", limits))
        with Verifiers() as verifiers:
            verifiers.check_gold(problem)
            return verifiers.grade([(problem, response) for response in responses])

    return grade_with


WAITS = """
import asyncio, os, time
{}def grade(response, answer):
    {}sleep(0.1)
    return response == "a", str(os.getpid())
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [("", "time."), ("async ", "await asyncio.")])
def test_calls_that_wait_overlap_in_at_most_one_process_per_core(words: tuple[str, str], grader: Grader) -> None:
    code = WAITS.format(*words)
    grader(code, *"ab" * 20)  # the workers start
    start = time.monotonic()
    grades = grader(code, *"ab" * 80)
    assert time.monotonic() - start < 8.0  # 16 s one after the other
    assert [grade.correct for grade in grades] == [True, False] * 80
    assert len({grade.answer for grade in grades}) <= len(os.sched_getaffinity(0))


@pytest.mark.slow
@pytest.mark.parametrize("is_async", [False, True])
def test_hangs_deaths_and_errors_are_named_and_neighbors_are_graded(is_async: bool, grader: Grader) -> None:
    code = f"""
    import asyncio, os, time
    {"async " * is_async}def grade(response, answer):
        {"await asyncio.sleep(0.01)" if is_async else "time.sleep(0.01)"}
        match response:
            case "hangs": {"await asyncio." if is_async else "time."}sleep(600)
            case "holds": 3 ** 10**9
            case "loops":
                while True: pass
            case "raises": raise ValueError("odd")
            case "exits": os._exit(3)
            case "nan": return float("nan")
            case "two": return 2.0
            case "none": return None
            case "text": return "yes"
        return response == answer
    """
    responses = ["a", "b"] * 60
    odd = {
        7: ("hangs", "timeout", "no result within 1"),
        30: ("holds", "timeout", "no result within 1"),
        45: ("raises", "error", "ValueError: odd, line 10"),
        70: ("exits", "error", "the grader ended its process (exit code 3)"),
        71: ("loops", "timeout", "no result within 1"),
        80: ("nan", "error", "ValueError: returned nan"),
        81: ("none", "error", "TypeError: returned NoneType"),
        82: ("text", "error", "TypeError: returned str"),
        83: ("two", "ok", ""),
    }
    for place, (response, _, _) in odd.items():
        responses[place] = response
    grades = grader(code, *responses)
    for place, (_, state, reason) in odd.items():
        assert (grades[place].state, grades[place].reason[: len(reason)]) == (state, reason), grades[place]
    assert grades[83].reward == 2.0
    others = [(grade.state, grade.correct) for place, grade in enumerate(grades) if place not in odd]
    assert others == [("ok", text == "a") for place, text in enumerate(responses) if place not in odd]


@pytest.mark.slow
def test_a_task_that_hangs_is_canceled_and_its_neighbors_are_called_once(grader: Grader, tmp_path: Path) -> None:
    code = """
    import asyncio
    async def grade(response, answer):
        with open(__file__ + ".calls", "a") as calls:
            calls.write(response + "\\n")
        await asyncio.sleep({"hangs": 600, "slow": 0.6}.get(response.split("-")[0], 0.05))
        return True
    """
    grader(code, *map(str, range(40)))  # all processes start
    (tmp_path / "reward.py.calls").unlink()
    responses = ["slow-0", "hangs", "slow-1", "slow-2", "slow-3"]
    assert [grade.state for grade in grader(code, *responses)] == ["ok", "timeout", "ok", "ok", "ok"]
    calls = (tmp_path / "reward.py.calls").read_text().split()
    assert sorted(calls) == sorted(["a", *responses, "hangs"])


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "if response != 'a': "])
def test_a_function_that_uses_signals_gets_main_threads(first: str, grader: Grader) -> None:
    code = f"""
    import os, signal, time
    def grade(response, answer):
        try:
            {first}signal.alarm(30)
            time.sleep(0.05)
            {first}signal.alarm(0)
        except Exception:
            return 0.0, "no alarm"
        return True, str(os.getpid())
    """
    grades = grader(code, "a", *"bcde" * 8, limits=GraderLimits(workers=6))
    assert [grade.correct for grade in grades] == [True] * 33
    if not first:
        assert len({grade.answer for grade in grades}) == 6


BATCH = """
def grade(responses, answers, prompts, metas):
    assert len(responses) == len(answers) == len(prompts) == len(metas) <= 32
    if "breaks" in responses:
        {}
    return [(response == answer, str(len(responses))) for response, answer in zip(responses, answers)]
"""


def test_a_batch_function_gets_lists_and_returns_one_reward_per_response(grader: Grader) -> None:
    grades = grader(BATCH.format("pass"), *"ab" * 40, limits=GraderLimits())
    assert [grade.correct for grade in grades] == [True, False] * 40
    assert max(int(grade.answer) for grade in grades) == 32
    code = "async def grade(responses, answers):\n    return [r == a for r, a in zip(responses, answers)]"
    assert [grade.correct for grade in grader(code, *"ab" * 40)] == [True, False] * 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "state", "reason"),
    [
        ("raise KeyError('x')", "error", "KeyError: 'x', line 5"),
        ("import os; os._exit(2)", "error", "the grader ended its process (exit code 2)"),
        ("while True: pass", "timeout", "no result within 1 s"),
        ("[0] * 10**10", "error", "MemoryError, line 5; its limit is --grader-memory-gib 1"),
        ("return [None if r == 'breaks' else r == 'a' for r in responses]", "error", "TypeError: returned NoneType"),
    ],
)
def test_a_response_that_breaks_a_batch_is_ungraded_and_the_others_are_graded(
    does: str, state: str, reason: str, grader: Grader
) -> None:
    limits = GraderLimits(timeout_s=1.0, memory_gib=1.0)
    grades = grader(BATCH.format(does), *"ab" * 20, "breaks", *"ab" * 20, limits=limits)
    broken = grades.pop(40)
    assert (broken.state, broken.reason[: len(reason)]) == (state, reason)
    assert [(grade.state, grade.correct) for grade in grades] == [("ok", True), ("ok", False)] * 40


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return [1.0]", r"ValueError: returned 1 results for 2 responses, by the function in line 1"),
        ("return [1.0] * 3", r"ValueError: returned 3 results for 2 responses, by the function in line 1"),
        ("return 1.0", r"TypeError: returned float instead of a list of results"),
        ("return {'a': 1.0}", r"TypeError: returned dict instead of a list"),
    ],
)
def test_a_batch_function_that_returns_another_number_of_results_is_one_line(
    code: str, message: str, grader: Grader
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        grader(f"def grade(responses, answers): {code}", "a")
    assert "\n" not in str(caught.value)


def test_names_that_mix_one_response_and_a_batch_are_one_line(grader: Grader) -> None:
    message = r"requires the parameter 'answer'; allowed are responses, answers, prompts, metas$"
    with pytest.raises(ConfigError, match=message):
        grader("def grade(responses, answer): return 1.0", "a")


RETRIES = """
import oversharp
tries = {{}}
{}def grade(response, answer):
    tries[response] = tries.get(response, 0) + 1
    if response == "busy" and tries[response] < 3 or response == "down":
        raise oversharp.RetryLater("rate limit", after_s=0.05)
    return response != "wrong", str(tries[response])
"""


@pytest.mark.slow
@pytest.mark.parametrize("word", ["", "async "])
def test_retry_later_repeats_the_call_a_few_times(word: str, grader: Grader) -> None:
    limits = GraderLimits(workers=8)
    # one process: the counts of tries are in its memory
    right, busy, down, wrong = grader(RETRIES.format(word), "right", "busy", "down", "wrong", limits=GraderLimits())
    assert (right.correct, right.answer, wrong.correct) == (True, "1", False)
    assert (busy.correct, busy.answer) == (True, "3")
    assert (down.state, down.reason) == ("error", "RetryLater: rate limit, line 7; 6 tries")
    grades = grader(RETRIES.format(word), "right", "busy", "down", "wrong", limits=limits)
    assert [grade.state for grade in grades] == ["ok", "ok", "error", "ok"]


def test_retry_later_without_a_time_waits_twice_as_long_at_each_try(
    grader: Grader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.verifiers.own_workers.round.FIRST_WAIT_S", 0.02)
    code = """
    import oversharp, time
    times = []
    def grade(response, answer):
        if response == "down":
            times.append(time.monotonic())
            raise oversharp.RetryLater
        return True, " ".join(f"{after - before:.3f}" for before, after in zip(times, times[1:]))
    """
    down = grader(code, "down", limits=GraderLimits())
    assert down[0].reason.startswith("RetryLater, line 7; 6 tries")
    waits = list(map(float, grader(code, "x", limits=GraderLimits())[0].answer.split()))
    assert [wait >= 0.02 * 2**place - 0.001 for place, wait in enumerate(waits)] == [True] * 5


def test_the_public_exception_is_imported_without_heavy_packages() -> None:
    code = "import sys; from oversharp import RetryLater; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"torch", "duckdb", "pandas", "numpy", "scipy", "pebble"} & set(modules)
