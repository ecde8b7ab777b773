"""The fields of HumanEval, MBPP, LiveCodeBench and APPS files, and of problems of our own."""

import base64
import json
import os
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verifiers.code.extract import extract_program
from oversharp.diagnostics.verifiers.code.task import CodeTask, code_task
from oversharp.diagnostics.verifiers.code.verifier import CodeVerifier
from oversharp.diagnostics.verifiers.sandbox.jail import backend_states
from tests.verifiers.code.programs import fenced

pytestmark = pytest.mark.xdist_group("sandbox")

HUMANEVAL = {
    "task_id": "Ours/0",
    "prompt": (
        "from typing import List\n\ndef shift(text: str) -> str:\n    return text[1:] + text[:1]\n\n\n"
        'def unshift(text: str) -> str:\n    """Undo shift."""\n'
    ),
    "entry_point": "unshift",
    "canonical_solution": "    return text[-1:] + text[:-1]\n",
    "test": "def check(candidate):\n    for text in ('a', 'abc'):\n        assert candidate(shift(text)) == text\n",
}
MBPP = {
    "task_id": 601,
    "text": "Write a function to swap a pair.",
    "code": "def swap(pair):\n    return pair[1], pair[0]",
    "test_setup_code": "import math",
    "test_list": ["assert swap((1, 2)) == (2, 1)", "assert math.isclose(swap((0.5, 1))[1], 0.5)"],
    "challenge_test_list": [],
}
STDIN_TESTS = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]
LIVECODEBENCH = {
    "question_id": "ours_a",
    "question_content": "Print the sum of two numbers.",
    "starter_code": "",
    "difficulty": "easy",
    "metadata": "{}",
    "public_test_cases": json.dumps(STDIN_TESTS),
    "private_test_cases": base64.b64encode(
        zlib.compress(pickle.dumps(json.dumps([{"input": "-1 1", "output": "0", "testtype": "stdin"}])))
    ).decode(),
}
LEETCODE = {
    "question_id": "ours_b",
    "question_content": "Return the sum of a list.",
    "starter_code": "class Solution:\n    def total(self, xs: List[int], first: int) -> int:\n",
    "metadata": json.dumps({"func_name": "total"}),
    "public_test_cases": json.dumps([{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]),
}
APPS_STDIN = {
    "problem_id": 7,
    "question": "Print the sum of two numbers, which may be on two lines.",
    "solutions": '["print(1)"]',
    "input_output": json.dumps({"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}),
    "difficulty": "introductory",
}
APPS_CALLS = {
    "problem_id": 8,
    "question": "Return the sum of two numbers.",
    "starter_code": "def add(a, b):\n",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, [7]]}),
}
OURS = {
    "prompt": "Reverse in place.",
    "entry_point": "turn",
    "in_place": True,
    "tests": [{"args": [[1, 2]], "result": [2, 1]}],
}
ROWS = (HUMANEVAL, MBPP, LIVECODEBENCH, LEETCODE, APPS_STDIN, APPS_CALLS, OURS)
SUM = "a, b = map(int, open(0).read().split())\nprint(a + b)"
#: For each row a right and a wrong response.
RESPONSES = (
    (HUMANEVAL["canonical_solution"], "    return text[::-1]\n"),
    (fenced(str(MBPP["code"])), fenced("def swap(pair):\n    return [pair[1], pair[0]]")),
    (fenced(SUM), fenced(SUM.replace("+", "*"))),
    (
        fenced(
            "class Solution:\n    def total(self, xs: List[int], first: int) -> int:\n        return sum(xs) + first"
        ),
        fenced("class Solution:\n    def total(self, xs, first):\n        return sum(xs)"),
    ),
    (fenced(SUM), fenced("print(3)")),
    (fenced("def add(a, b):\n    return a + b"), fenced("def add(a, b):\n    return 3")),
    (fenced("def turn(xs):\n    xs.reverse()"), fenced("def turn(xs):\n    xs = xs[::-1]")),
)


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def verifier() -> Iterator[CodeVerifier]:
    if all(fault for _, fault in backend_states()):
        reason = f"no sandbox works here: {backend_states()}"
        (pytest.fail if os.environ.get("REQUIRE_ALL") == "1" else pytest.skip)(reason)
    with CodeVerifier(timeout_s=20.0, workers=1) as opened:
        yield opened


@pytest.mark.slow
def test_every_format_is_read_and_graded_from_one_file(tmp_path: Path, verifier: CodeVerifier) -> None:
    problems = load_problems(write(tmp_path / "code.jsonl", *ROWS), None)
    assert {problem.verifier for problem in problems} == {"code"}
    assert [problem.source_id for problem in problems] == ["Ours/0", "601", "ours_a", "ours_b", "7", "8", None]
    items = [(problem, text) for problem, texts in zip(problems, RESPONSES, strict=True) for text in map(str, texts)]
    grades = verifier.grade(items)
    assert [grade.state for grade in grades] == ["ok"] * 14
    assert [grade.correct for grade in grades] == [True, False] * 7, [grade.answer for grade in grades]


def test_a_gold_is_the_files_solution_and_the_tests_are_no_part_of_the_prompt(tmp_path: Path) -> None:
    humaneval, mbpp, stdin = load_problems(write(tmp_path / "code.jsonl", HUMANEVAL, MBPP, LIVECODEBENCH), None)
    assert humaneval.gold == f"{HUMANEVAL['prompt']}{HUMANEVAL['canonical_solution']}"
    assert (mbpp.gold, stdin.gold) == (MBPP["code"], "passes all tests")
    (named,) = load_problems(write(tmp_path / "apps.jsonl", {**APPS_CALLS, "starter_code": ""}), None)
    assert named.prompt.endswith("\nWrite a Python function named add.\n")
    assert "assert swap((1, 2)) == (2, 1)" in mbpp.prompt
    assert "isclose" not in mbpp.prompt
    assert (stdin.meta["level"], stdin.difficulty) == ("easy", None)
    assert code_task(stdin).cases == [["1 2\n", "3\n"], ["-1 1", "0"]]


@pytest.mark.slow
def test_a_tested_function_may_have_the_name_of_a_builtin(tmp_path: Path, verifier: CodeVerifier) -> None:
    code = "def sum(a, b):\n    return a * b"
    row = {
        "task_id": 1,
        "text": "Multiply.",
        "code": code,
        "test_list": ["assert sum(2, 3) == 6", "assert max(1, 2) == 2"],
    }
    (problem,) = load_problems(write(tmp_path / "code.jsonl", row), None)
    assert code_task(problem).remote == ["sum"]
    grades = verifier.grade([(problem, fenced(text)) for text in (code, code.replace("*", "+"), "x = 1")])
    assert [grade.correct for grade in grades] == [True, False, False]


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/oversharp_unpickled",)


def packed(content: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(content))).decode()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**HUMANEVAL, "test": "def check(candidate:"}, 'line 1: "test" is not Python'),
        ({**HUMANEVAL, "prompt": ""}, 'line 1: no "prompt"'),
        ({**MBPP, "test_list": "assert swap(1)"}, 'line 1: "test_list" must be a list of asserts'),
        ({**MBPP, "test_list": ["assert 1 == 1"]}, 'line 1: "test_list" calls no function'),
        ({**LIVECODEBENCH, "private_test_cases": "%"}, 'line 1: "private_test_cases" is neither JSON nor a compressed'),
        ({**LIVECODEBENCH, "private_test_cases": packed(Payload())}, r"it contains posix\.system"),
        ({**LIVECODEBENCH, "public_test_cases": "[1]"}, 'line 1: "public_test_cases" must be a list of'),
        ({**LEETCODE, "metadata": "{}"}, '"func_name" in "metadata"'),
        ({**APPS_STDIN, "input_output": "{}"}, 'line 1: "input_output" must have "inputs" and "outputs"'),
        ({**APPS_STDIN, "input_output": "{"}, 'line 1: "input_output" is not valid JSON'),
        ({"prompt": "?", "verifier": "code", "tests": [{"args": [1]}]}, 'line 1: "tests" must be asserts as text'),
        ({"prompt": "?", "tests": [{"args": [1], "result": 1}]}, 'line 1: "tests" with "args" need "entry_point"'),
        ({"prompt": "?", "answer": "1", "verifier": "code"}, 'line 1: the verifier "code" needs tests'),
        ({**OURS, "in_place": 1}, 'line 1: "in_place" must be true or false'),
    ],
)
def test_tests_that_cannot_be_read_are_refused_with_line_and_field(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ProblemError, match=message):
        load_problems(write(tmp_path / "code.jsonl", row), None)
    assert not Path("/tmp/oversharp_unpickled").exists()


def test_a_row_with_another_verifier_is_no_code_task(tmp_path: Path) -> None:
    row = {"prompt": "6 * 7?", "answer": "42", "verifier": "math", "test": "easy", "tests": "two"}
    (problem,) = load_problems(write(tmp_path / "math.jsonl", row), None)
    assert (problem.verifier, problem.meta) == ("math", {"test": "easy", "tests": "two"})


COMPLETION = CodeTask(form="script", entry="f", prefix="def f(x):\n    '''Double.'''\n")
WHOLE = CodeTask(form="calls", entry="f")


@pytest.mark.parametrize(
    ("task", "text", "program"),
    [
        (COMPLETION, "    return 2 * x\n", f"{COMPLETION.prefix}    return 2 * x\n"),
        (COMPLETION, "    return 2 * x\n\nprint(f(2)", f"{COMPLETION.prefix}    return 2 * x\n\n"),
        (COMPLETION, "    return g(x)\n\ndef g(x):\n    return 2 * x\n\nThis is it.", None),
        (COMPLETION, "    return (\n", f"{COMPLETION.prefix}    return (\n"),
        (COMPLETION, "Sure:\n```python\ndef f(x):\n    return 2 * x\n```", "def f(x):\n    return 2 * x\n"),
        (COMPLETION, "```python\n    return 2 * x\n```", None),
        (WHOLE, "```\nf = abs\n```\n```text\nf(1)\n```", "f = abs\n"),
        (WHOLE, "```python\nf = abs\n```\nor\n```python\nf = int\n```", "f = int\n"),
        (WHOLE, "1. this:\n   ```python\n   def f(x):\n       return x\n   ```", "def f(x):\n    return x\n"),
        (WHOLE, "~~~py\nf = abs\n~~~", "f = abs\n"),
        (WHOLE, "```python\nf = abs\n", "f = abs\n"),
        (WHOLE, "<think>```python\nf = abs\n```</think>```python\nf = int\n```<|im_end|>", "f = int\n"),
        (WHOLE, "def f(x):\n    return x\n\nExplanation: it is x.", "def f(x):\n    return x\n\n"),
    ],
)
def test_a_program_is_extracted(task: CodeTask, text: str, program: str | None) -> None:
    extracted = extract_program(task, text, prompt="")
    if program is None:  # a body that continues the prompt
        assert extracted is not None
        assert extracted.startswith(task.prefix)
        assert "return" in extracted
        assert "This is it" not in extracted
    else:
        assert extracted == program


@pytest.mark.parametrize("text", ["", "I cannot do this.", "<think>```python\nf = abs\n```", "```python\n```"])
def test_a_response_without_a_program_is_unparsed(text: str, verifier: CodeVerifier) -> None:
    problem = Problem(task="t", prompt="?", gold="?", verifier="code", meta={"code": dict(WHOLE.to_meta())})
    (grade,) = verifier.grade([(problem, text)])
    assert (grade.state, grade.reward, grade.reason) == ("parse_fail", 0.0, "no program")
