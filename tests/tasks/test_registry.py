"""Tasks by name."""

from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks import load_problems, task_names


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
        ("zzz", "known names: .*countdown"),
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
