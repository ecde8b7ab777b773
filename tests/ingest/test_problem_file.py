"""Imports with ``--problems``: samples get tests and golds from a problem file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.ingest.ingest import ImportResult, import_samples
from oversharp.diagnostics.ingest.problem_file import ALONE, NOT_BY_ID, NOT_BY_TEXT, TWICE, ProblemFile
from oversharp.diagnostics.records.errors import ConfigError, ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.tasks.files import load_problem_file

pytestmark = pytest.mark.usefixtures("few_measures")

SUM = {"prompt": "What is 1 + 1?", "answer": "2", "id": "a", "cluster": "sums"}
LONGER = {"prompt": "What is 1 + 1? Then add 5.", "answer": "7", "id": "b", "cluster": "sums"}
PRODUCT = {"prompt": "What is 6 times 7?", "answer": "42", "id": "c"}
HUMANEVAL = [
    {
        "task_id": f"Test/{number}",
        "prompt": f'def add_{number}(a, b):\n    """Return a + b + {number}."""\n',
        "entry_point": f"add_{number}",
        "canonical_solution": f"    return a + b + {number}\n",
        "test": f"def check(candidate):\n    assert candidate(1, 2) == {3 + number}\n",
    }
    for number in range(4)
]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def opened(tmp_path: Path, *rows: Mapping[str, Any], verifier: str | None = None, by_id: bool = False) -> ProblemFile:
    return ProblemFile(write(tmp_path / "problems.jsonl", rows), verifier=verifier, by_id=by_id)


def found(file: ProblemFile, *prompts: str) -> list[str]:
    """Return the id of the problem of each prompt, or the fault, as of prompts of one step."""
    file.learn((0, prompt) for prompt in prompts)
    return [_found(file, prompt) for prompt in prompts]


def _found(file: ProblemFile, prompt: str, problem: str | None = None) -> str:
    match file.find(Recorded(line=1, prompt=prompt, response="", problem=problem)):
        case Fault(why=why):
            return why
        case Problem(source_id=source_id):
            return str(source_id)


def imported(tmp_path: Path, rows: Iterable[Mapping[str, Any]], problems: Path, **more: Any) -> ImportResult:
    dump = write(tmp_path / "dump.jsonl", rows)
    fields = {"prompt": "p", "response": "r", "step": "s", **more.pop("map", {})}
    config = ImportConfig(store=tmp_path / "out" / "audit.duckdb", map=fields, problems=problems, **more)
    return import_samples([dump], config)


def grades(tmp_path: Path) -> dict[tuple[int, str], float]:
    """Return the mean reward by step and id of the problem."""
    with Store.open(tmp_path / "out" / "audit.duckdb", read_only=True) as store:
        rows = store.frame(
            "SELECT step, source_id, avg(reward) AS share FROM graded_samples JOIN problems USING (problem_id) "
            "GROUP BY ALL"
        )
    return {(int(row.step), str(row.source_id)): float(row.share) for row in rows.itertuples()}


def test_a_prompt_is_found_with_its_white_space_and_inside_a_template(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT)
    assert found(file, " What is  1 + 1?\n") == ["a"]
    prompts = [f"<user>What is {what}?<end>" for what in ("1 + 1", "6 times 7", "8 times 9")]
    assert found(file, *prompts) == ["a", "c", NOT_BY_TEXT]


def test_two_templates_are_found_such_as_those_of_base_and_chat(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT)
    templates = ("Question: {}\nAnswer:", "<user>{}<end>")
    texts = [(step, one.format(row["prompt"])) for step, one in enumerate(templates) for row in (SUM, PRODUCT)]
    file.learn(texts)
    assert [_found(file, prompt) for _, prompt in texts] == ["a", "c", "a", "c"]


def test_an_example_in_the_prompt_is_not_the_problem_also_of_a_problem_that_is_unknown(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT, LONGER)
    shot = "Q: What is 6 times 7?\nA: 42\n\nQ: "
    prompts = [f"{shot}{what}\nA:" for what in ("What is 8 times 9?", SUM["prompt"], LONGER["prompt"])]
    assert found(file, *prompts) == [ALONE, "a", "b"]


def test_a_prompt_that_continues_or_begins_otherwise_is_another_problem(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT)
    prompts = ["<user>What is 1 + 1?<end>", "<user>What is 6 times 7?<end>", "<user>What is 1 + 1? Then add 5.<end>"]
    assert found(file, *prompts) == ["a", "c", ALONE]
    assert found(opened(tmp_path, {"prompt": "Add 1 and 1", "answer": "2"}), "Add 1 and 12") == [NOT_BY_TEXT]


def test_an_equal_prompt_excludes_longer_ones_of_its_step(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT)
    plain = [str(row["prompt"]) for row in (SUM, PRODUCT)]
    longer = [f"Multiply the result by three. {prompt}" for prompt in plain]
    assert found(file, *plain, *longer) == ["a", "c", TWICE, TWICE]
    one, other = [f"<user>{prompt}" for prompt in plain], [f"Double it. {prompt}" for prompt in plain]
    assert found(opened(tmp_path, SUM, PRODUCT), *one, *other) == [TWICE] * 4


def test_the_longest_prompt_is_the_problem(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, LONGER, PRODUCT)
    assert found(file, "<user>What is 1 + 1? Then add 5.<end>", "<user>What is 6 times 7?<end>") == ["b", "c"]


def test_ids_find_problems_whatever_the_prompt(tmp_path: Path) -> None:
    file = opened(tmp_path, SUM, PRODUCT, by_id=True)
    assert _found(file, "anything", "c") == "c"
    assert _found(file, "What is 1 + 1?", "z") == _found(file, "What is 1 + 1?") == NOT_BY_ID


def mbpp(number: int) -> dict[str, Any]:
    return {
        "task_id": number,
        "text": f"Write a function that multiplies x by {number}.",
        "test_list": [f"assert f_{number}(1) == {number}"],
        "code": f"def f_{number}(x): return {number} * x",
    }


def test_the_statement_of_a_code_task_is_enough_and_examples_are_no_problems(tmp_path: Path) -> None:
    def ask(number: int) -> str:
        row = mbpp(number)
        return f"You are an expert. Task: {row['text']} Your code should pass: {row['test_list'][0]}\n[BEGIN]\n"

    shot = f"{ask(2)}{mbpp(2)['code']}\n[DONE]\n"
    file = opened(tmp_path, *map(mbpp, (2, 3, 4)))
    assert found(file, *(shot + ask(number) for number in (2, 3, 4, 5))) == ["2", "3", "4", ALONE]


def test_a_statement_of_two_tasks_is_the_statement_of_neither(tmp_path: Path) -> None:
    twin = {**mbpp(3), "task_id": 33, "test_list": ["assert other(1) == 4"], "code": "def other(x): return 4 * x"}
    file = opened(tmp_path, *map(mbpp, (2, 3, 4)), twin)
    assert found(file, *(f"Task: {mbpp(number)['text']} Tests follow." for number in (2, 3, 4))) == [
        "2",
        NOT_BY_TEXT,
        "4",
    ]


def test_statements_count_also_if_a_function_of_the_user_grades(tmp_path: Path) -> None:
    file = opened(tmp_path, *map(mbpp, (2, 3)), verifier="exact")
    assert found(file, *(f"Task: {mbpp(number)['text']} Tests follow." for number in (2, 3))) == ["2", "3"]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({**PRODUCT, "id": "a"}, "problems.jsonl line 2: the same id 'a' as line 1; remove or change one"),
        ({**SUM, "answer": "3", "id": "z"}, "problems.jsonl line 2: the same prompt, with another answer, as line 1"),
    ],
)
def test_problems_that_cannot_be_told_apart_are_an_error(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(why)):
        opened(tmp_path, SUM, row)
    assert opened(tmp_path, SUM, SUM).verifier == "math", "the same problem twice is one"


def test_a_file_of_several_verifiers_needs_the_flag(tmp_path: Path) -> None:
    rows = [SUM, {**PRODUCT, "verifier": "exact"}]
    with pytest.raises(ConfigError, match="several verifiers \\(exact, math\\); pass --verifier"):
        opened(tmp_path, *rows)
    assert opened(tmp_path, *rows, verifier="exact").verifier == "exact"


def test_a_problem_that_cannot_be_graded_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"problems\.jsonl line 2"):
        opened(tmp_path, SUM, {"prompt": "x", "verifier": "code", "answer": "y"})


def test_programs_of_another_tool_are_graded_by_the_tests_of_the_file(tmp_path: Path) -> None:
    problems = write(tmp_path / "humaneval.jsonl", HUMANEVAL)
    rows = [
        {
            "p": f"Complete this function:\n```python\n{task['prompt']}```",
            "r": task["canonical_solution"] if right else "    return 0\n",
            "s": step,
        }
        for step, n_right in ((0, 3), (1, 1))
        for task in HUMANEVAL
        for right in [True] * n_right + [False] * (4 - n_right)
    ]
    result = imported(tmp_path, rows, problems)
    assert result.series[0].verdict is not None
    assert grades(tmp_path) == {
        (step, str(task["task_id"])): share for step, share in ((0, 0.75), (1, 0.25)) for task in HUMANEVAL
    }
    with Store.open(tmp_path / "out" / "audit.duckdb", read_only=True) as store:
        ids = store.frame("SELECT problem_id FROM problems ORDER BY ALL")["problem_id"].tolist()
    assert ids == sorted(problem.problem_id for problem in load_problem_file(problems)), "the ids of an audit"


def test_golds_modes_and_clusters_come_from_the_file_and_other_prompts_are_left_out(tmp_path: Path) -> None:
    listed = {"prompt": "Name a prime below 5.", "answer": "2", "modes": ["2", "3"], "id": "m", "cluster": "primes"}
    problems = write(
        tmp_path / "problems.jsonl", [listed, {**listed, "prompt": "Name an even prime.", "modes": ["2"], "id": "e"}]
    )
    rows = [
        {"p": prompt, "r": response, "s": step}
        for step in (0, 1)
        for prompt in ("Name a prime below 5.", "Name an even prime.", "Name a city.")
        for response in ("2", "3", "3", "4")
    ]
    result = imported(tmp_path, rows, problems)
    assert grades(tmp_path) == {(0, "m"): 0.75, (1, "m"): 0.75, (0, "e"): 0.25, (1, "e"): 0.25}
    assert result.files[0].faults[NOT_BY_TEXT].n == 8
    with Store.open(tmp_path / "out" / "audit.duckdb", read_only=True) as store:
        assert store.frame("SELECT DISTINCT cluster FROM audit_problems WHERE cluster IS NOT NULL")[
            "cluster"
        ].tolist() == ["primes"]


def test_a_second_import_adds_nothing_and_another_file_is_refused(tmp_path: Path) -> None:
    problems = write(tmp_path / "problems.jsonl", [SUM, PRODUCT])
    rows = [
        {"p": row["prompt"], "r": f"\\boxed{{{row['answer'] if i else 0}}}", "s": step}
        for step in (0, 1)
        for row in (SUM, PRODUCT)
        for i in range(4)
    ]
    before = imported(tmp_path, rows, problems)
    assert imported(tmp_path, rows, problems).series[0].verdict == before.series[0].verdict
    other = imported(tmp_path, rows, write(tmp_path / "other.jsonl", [SUM]))
    assert "another --map, --match, --reward, --correct-at, --step, --steps, --window or --problems" in str(
        other.files[0].why
    )


def test_the_tools_rewards_are_kept_unless_regrade(tmp_path: Path) -> None:
    problems = write(tmp_path / "problems.jsonl", [SUM, PRODUCT])
    rows = [
        {"p": row["prompt"], "r": f"\\boxed{{{row['answer']}}}", "s": step, "score": i % 2}
        for step in (0, 1)
        for row in (SUM, PRODUCT)
        for i in range(4)
    ]
    for number, row in enumerate(rows):
        row["r"] += " " * number  # one grade per text
    imported(tmp_path, rows, problems, map={"reward": "score"})
    assert set(grades(tmp_path).values()) == {0.5}
    (tmp_path / "out" / "audit.duckdb").unlink()
    result = imported(tmp_path, rows, problems, map={"reward": "score"}, regrade=True)
    assert set(grades(tmp_path).values()) == {1.0}
    assert result.series[0].disagreements, "half of the tool's scores differ"
