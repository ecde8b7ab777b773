"""Tasks by name."""

import subprocess
import sys
from pathlib import Path

import pytest

from diagnostics.records.errors import ProblemError
from diagnostics.tasks import load_problems, task_names
from diagnostics.verifiers import Verifiers


def test_the_built_in_task_is_there_and_its_modes_are_accepted() -> None:
    problems = load_problems(None, "countdown", limit=3)
    assert len(problems) == 3
    with Verifiers() as verifiers:
        grades = verifiers.grade([(problem, problem.modes[0]) for problem in problems])
    assert all(grade.correct for grade in grades)


def test_names_are_sorted_and_hold_the_built_in_task() -> None:
    names = task_names()
    assert list(names) == sorted(names)
    assert {"countdown", "benchmark:gsm8k", "reasoning_gym:NAME"} <= set(names)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("countdwn", "task 'countdwn' is unknown; did you mean: countdown"),
        ("countdown:hard", "task 'countdown:hard' is unknown"),
        ("benchmark:gsm", "did you mean: benchmark:gsm8k"),
        ("benchmark", "task 'benchmark:' is unknown"),
        ("zzz", "known are: .*countdown"),
    ],
)
def test_an_unknown_task_is_answered_with_the_nearest(task: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        load_problems(None, task)


def test_a_file_and_a_task_at_once_or_neither_is_refused() -> None:
    with pytest.raises(ProblemError, match="not both"):
        load_problems(None, None)
    with pytest.raises(ProblemError, match="not both"):
        load_problems(Path("x.jsonl"), "countdown")


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ProblemError, match="at least 1"):
        load_problems(None, "countdown", limit=0)


PLUGIN = """
from diagnostics.records.types import Problem

def doubles(argument, *, limit, seed):
    for number in range(limit):
        gold = "x y" if argument == "bad" else str(2 * number)
        yield Problem(task="doubles", prompt=f"2*{number}", gold=gold, verifier="expression")
"""

CALL = """
from diagnostics.tasks import load_problems, task_names
from diagnostics.records.errors import ProblemError
assert "doubles" in task_names()
assert [p.gold for p in load_problems(None, "doubles:x", limit=3)] == ["0", "2", "4"]
try:
    load_problems(None, "doubles:bad", limit=3)
except ProblemError as error:
    assert "task 'doubles:bad', problem 1: answer 'x y' is no number" in str(error), error
else:
    raise SystemExit("a bad gold passed")
"""


def test_an_outside_package_adds_a_task_by_entry_point(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(PLUGIN)
    info = tmp_path / "outside-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[oversharp.tasks]\ndoubles = outside:doubles\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{CALL}"
    subprocess.run([sys.executable, "-c", code], check=True)
