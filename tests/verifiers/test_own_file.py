"""Code of the user's own as a verifier: its name, what it may ask for and give, and that no data runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError, ProblemError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verifiers import Verifiers, get_verifier, named_verifier
from oversharp.trainers.config import TrainConfig

CODE = """
def half(response, answer):
    return 0.5 * (response == answer)

def told(response, prompt, meta, *, strict=True):
    return (meta["points"], prompt + "!")

def fails(response, answer):
    if response != answer:
        raise ValueError("no such response")
    return True

def words(response):
    return "yes"

def odd(response, target):
    return 1.0
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "reward.py"
    path.write_text(CODE)
    return path


def problem(verifier: str) -> Problem:
    return Problem(task="t", prompt="1+1?", gold="2", verifier=verifier, meta={"points": 3})


def grades(verifier: str, *responses: str) -> list[Grade]:
    with Verifiers() as verifiers:
        return verifiers.grade([(problem(verifier), one) for one in responses])


@pytest.mark.slow
def test_a_function_gives_the_reward_and_if_it_likes_the_answer(code: Path) -> None:
    right, wrong = grades(named_verifier(f"{code}:half"), "2", "the answer is 3")
    assert (right.reward, right.correct, right.answer, right.state) == (0.5, False, "2", "ok")
    assert (wrong.reward, wrong.answer) == (0.0, "3")
    (told,) = grades(named_verifier(f"{code}:told"), "x")
    assert (told.reward, told.answer) == (3.0, "1+1?!")


def test_a_threshold_in_the_file_decides_which_rewards_are_correct(code: Path) -> None:
    plain = named_verifier(f"{code}:half")
    code.write_text(f"CORRECT_AT = 0.5\n{CODE}")
    name = named_verifier(f"{code}:half")
    assert name.endswith(">=0.5")
    assert name.split(">=")[0] != plain
    right, wrong = grades(name, "2", "3")
    assert (right.reward, right.correct, wrong.reward, wrong.correct) == (0.5, True, 0.0, False)
    assert named_verifier(f"{code}:half") == named_verifier(f"{code.parent}/{name}") == name
    code.write_text(f"CORRECT_AT = 'half'\n{CODE}")
    with pytest.raises(ConfigError, match=r"reward\.py has CORRECT_AT = 'half'; it must be a number"):
        named_verifier(f"{code}:half")


def test_what_it_raises_or_gives_that_is_no_reward_leaves_that_response_ungraded(code: Path) -> None:
    good, bad = grades(named_verifier(f"{code}:fails"), "2", "3")
    assert good.correct
    assert (bad.state, bad.reason) == ("error", "ValueError: no such response, line 10")
    assert "returned str instead of a number" in grades(named_verifier(f"{code}:words"), "2")[0].reason


def test_changed_code_is_another_verifier_and_a_moved_file_the_same(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    os.utime(code, (1, 1))
    name = named_verifier(f"{code}:half")
    moved = tmp_path / "elsewhere" / "reward.py"
    moved.parent.mkdir()
    moved.write_text(CODE)
    assert named_verifier(f"{moved}:half") == name
    assert name.startswith("reward.py:half@")
    code.write_text(CODE.replace("0.5", "1.0"))
    os.utime(code, (1, 1))  # bytecode is cached by second and size, which are those of before
    other = named_verifier(f"{code}:half")
    assert other != name
    assert [grades(one, "2")[0].reward for one in (name, other)] == [0.5, 1.0]
    assert problem(name).problem_id != problem(other).problem_id


def test_a_run_goes_on_only_with_the_code_that_it_began_with(code: Path) -> None:
    config = TrainConfig(model="m", problems=code, verifier=f"{code}:half")
    assert config.verifier is not None
    assert TrainConfig(model="m", problems=code, verifier=config.verifier) == config
    code.write_text(CODE + "\n")
    with pytest.raises(ConfigError, match=r"reward\.py has changed since"):
        TrainConfig(model="m", problems=code, verifier=config.verifier)


def test_no_file_of_data_runs_code_and_a_flag_does(code: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ran.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef f(answer): return 1\n")
    row = {"prompt": "1+1?", "answer": "2", "verifier": "ran.py:f"}
    (tmp_path / "own.jsonl").write_text(json.dumps(row))
    with pytest.raises(ConfigError, match="is user code, which a data file cannot load; pass it with"):
        load_problems(Path("own.jsonl"), None)
    assert not (tmp_path / "ran").exists()
    (found,) = load_problems(Path("own.jsonl"), None, verifier="ran.py:f")
    assert (tmp_path / "ran").exists()
    assert get_verifier(found.verifier).grade([(found, "x")])[0].correct


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("none.py:half", r"none\.py cannot be read \(No such file"),
        ("reward.py:hlf", r"no function hlf in that file; did you mean: half"),
        ("reward.py:odd", r"requires the parameter 'target'; allowed are response, answer, prompt, meta"),
        ("broken.py:half", r"broken\.py cannot be loaded \(ModuleNotFoundError: No module named 'not_there', line 2\)"),
        ("reward.py:half@00ff", r"reward\.py has changed since"),
    ],
)
def test_what_cannot_be_called_is_said_in_one_line(
    code: Path, monkeypatch: pytest.MonkeyPatch, named: str, message: str
) -> None:
    monkeypatch.chdir(code.parent)
    Path("broken.py").write_text("\nimport not_there\n")
    with pytest.raises(ConfigError, match=message) as caught:
        named_verifier(named)
    assert "\n" not in str(caught.value)


def test_a_function_that_fails_with_the_answer_itself_stops_before_anything_is_drawn(code: Path) -> None:
    rows = code.with_name("own.jsonl")
    rows.write_text('{"prompt": "1+1?", "answer": "2"}\n')
    with pytest.raises(
        ConfigError, match=r"words@\w+: fails with the first problem's answer .* returned str instead of a number"
    ):
        load_problems(rows, None, verifier=f"{code}:words")
    rows.write_text('{"prompt": "1+1?", "answer": "2", "modes": ["2"]}\n')
    with pytest.raises(ProblemError, match=r"line 1: the problem lists its modes, which override any verifier"):
        load_problems(rows, None, verifier=f"{code}:half")
