"""Problem files: valid rows, and the error of each fault."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems

GOOD = {"prompt": "2 + 3 =", "answer": "5"}


def write(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def load(tmp_path: Path, *rows: object) -> tuple[Problem, ...]:
    return load_problems(write(tmp_path / "own.jsonl", rows), None)


def test_a_plain_row_becomes_a_math_problem_named_after_its_file(tmp_path: Path) -> None:
    [problem] = load(tmp_path, GOOD)
    assert problem == Problem(task="own", prompt="2 + 3 =", gold="5", verifier="math")


def test_every_field_finds_its_place(tmp_path: Path) -> None:
    row = {"prompt": "6 7 12 = 54 :", "answer": 54, "id": 17, "verifier": "expression", "task": "mini"}
    [problem] = load(tmp_path, row | {"difficulty": 2, "numbers": [6, 7, 12], "source": None})
    named = {"task": "mini", "source_id": "17", "difficulty": 2.0, "meta": {"numbers": [6, 7, 12]}}
    assert problem == Problem(prompt="6 7 12 = 54 :", gold="54", verifier="expression", **named)


def test_listed_modes_decide_whatever_the_verifier_says(tmp_path: Path) -> None:
    [problem] = load(tmp_path, GOOD | {"modes": ["5", "five"], "verifier": "math"})
    assert (problem.verifier, problem.modes) == ("modes", ("5", "five"))


def test_parquet_and_jsonl_give_the_same_problems(tmp_path: Path) -> None:
    rows = [GOOD | {"id": "a", "modes": ["5"]}, {"prompt": "1 + 1 =", "answer": "2", "id": "b", "modes": None}]
    parquet = tmp_path / "own.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), parquet)
    assert load_problems(parquet, None) == load(tmp_path, *rows)


def test_the_limit_keeps_the_first_problems_and_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", [GOOD, {"prompt": "1", "answer": "1"}, "not JSON"])
    assert [problem.gold for problem in load_problems(path, None, limit=2)] == ["5", "1"]


def test_the_same_problem_has_the_same_id_in_every_file(tmp_path: Path) -> None:
    first = load_problems(write(tmp_path / "one.jsonl", [GOOD]), None)
    second = load_problems(write(tmp_path / "two.jsonl", ["", GOOD | {"id": "x"}]), None)
    assert first[0].problem_id == second[0].problem_id


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([GOOD, '{"prompt": "x",'], "line 2: not valid JSON"),
        (
            ['{"prompt": "x", "answer": ' + "9" * 5000 + "}"],
            "line 1: a number of more than 4,300 digits; write it as text",
        ),
        (["", "[1]"], "line 2: is a list, not an object"),
        (['{"prompt": "x", "answer": NaN}'], "line 1: not valid JSON .NaN"),
        ([{"prompt": "x"}], 'line 1: no "answer"; a problem is'),
        ([{"question": "x", "answer": "1"}], 'line 1: no "prompt"; rename "question" to "prompt"'),
        ([{"prompt": "x", "solution": "1"}], 'line 1: no "answer"; rename "solution" to "answer"'),
        ([{"prompt": ["x"], "answer": "1"}], 'line 1: "prompt" is a list'),
        ([{"prompt": " ", "answer": "1"}], 'line 1: "prompt" is blank'),
        ([{"prompt": "x", "answer": True}], 'line 1: "answer" is true or false; give text or a number'),
        ([{"prompt": "x", "answer": []}], 'line 1: "answer" is an empty list'),
        ([{"prompt": "x", "answer": [[1]]}], 'line 1: "answer" is a list'),
        ([{"prompt": "x", "answer": ""}], 'line 1: "answer" is blank'),
        ([GOOD | {"modes": []}], 'line 1: "modes" must be a list'),
        ([GOOD | {"modes": "5"}], 'line 1: "modes" must be a list'),
        ([GOOD | {"modes": ["5", 5]}], 'line 1: "modes" must be a list'),
        ([GOOD | {"modes": ["5 ", "x", " 5"]}], 'line 1: "modes" 1 and 3 are the same response'),
        ([GOOD | {"id": {}}], 'line 1: "id" is an object'),
        ([GOOD | {"difficulty": "hard"}], 'line 1: "difficulty" is text; give a number'),
        ([GOOD | {"verifier": "maths"}], "line 1: verifier 'maths' is unknown; use one of: math"),
        ([GOOD | {"verifier": 3}], 'line 1: "verifier" is a number'),
        (
            [GOOD | {"verifier": "reasoning_gym"}],
            "line 1: the verifier .reasoning_gym. needs the generator's entry in .meta.",
        ),
        ([GOOD, {"prompt": "y", "answer": "foo!@#"}], "line 2: answer 'foo!@#' cannot be graded .*\"exact\""),
        ([{"prompt": "y", "answer": "x", "verifier": "expression"}], "line 1: answer 'x' is not a number"),
        ([GOOD | {"id": "a"}, "", {"prompt": "y", "answer": 1, "id": "a"}], "line 3: the same id 'a' as line 1"),
        ([GOOD | {"id": 1}, GOOD | {"id": 2, "source": "x"}], "line 2: the same problem as line 1"),
        ([], "contains no problems"),
        (["", " "], "contains no problems"),
    ],
)
def test_each_fault_names_its_line_and_the_mend(tmp_path: Path, rows: list[object], message: str) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        load(tmp_path, *rows)
    assert "own.jsonl" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"prompt": "a \ud800"}, "'prompt'"),
        ({"answer": "\udfff"}, "'answer'"),
        ({"id": "\ud800"}, "'id'"),
        ({"task": "\ud800"}, "'task'"),
        ({"verifier": "\ud800"}, "'verifier'"),
        ({"modes": ["5", "\ud800"]}, "'modes'"),
        ({"source": {"deep": ["\ud800"]}}, "'source'"),
        ({"source": {"\ud800": 1}}, "'source'"),
        ({"\ud800": 1}, r"'\ud800'"),
    ],
)
def test_half_a_character_is_refused_wherever_it_stands(tmp_path: Path, fields: dict[str, object], place: str) -> None:
    with pytest.raises(ProblemError) as caught:
        load(tmp_path, GOOD, {"prompt": "y", "answer": "5"} | fields)
    message = str(caught.value)
    assert f"own.jsonl line 2: {place} is not valid Unicode" in message
    assert message.isprintable()


def test_a_long_whole_number_is_an_answer_but_no_difficulty(tmp_path: Path) -> None:
    digits = "7" * 4000
    [problem] = load(tmp_path, f'{{"prompt": "x", "answer": {digits}, "verifier": "exact"}}')
    assert problem.gold == digits
    with pytest.raises(ProblemError, match=r'line 1: "difficulty" exceeds the range of floats; give a finite number'):
        load(tmp_path, GOOD | {"difficulty": 10**400})


@pytest.mark.parametrize("verifier", ["math", "expression"])
def test_a_long_whole_number_is_refused_in_one_line_by_verifiers_of_values(tmp_path: Path, verifier: str) -> None:
    with pytest.raises(ProblemError, match=r"own\.jsonl line 1: .*answer"):
        load(tmp_path, f'{{"prompt": "x", "answer": {"7" * 4000}, "verifier": "{verifier}"}}')


@pytest.mark.parametrize("levels", [101, 900, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, levels: int) -> None:
    row = '{"prompt": "x", "answer": "1", "tree": ' + "[" * levels + "]" * levels + "}"
    with pytest.raises(ProblemError, match=r"line 2: (nested too deeply|'tree' is nested deeper than 100 levels)"):
        load(tmp_path, GOOD, row)


def test_a_fault_in_parquet_names_its_row(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([GOOD, {"prompt": "x", "answer": None}]), path)
    with pytest.raises(ProblemError, match=r'own\.parquet row 2: no "answer"'):
        load_problems(path, None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("latin.jsonl", r"latin.jsonl: not UTF-8 text \(byte 0xe9\); save it as UTF-8"),
        ("latin.parquet", r"latin\.parquet: not a readable Parquet file"),
        ("none.jsonl", "no such file"),
        (".", "is a directory"),
    ],
)
def test_files_that_are_no_text_or_not_there_are_answered_in_one_line(tmp_path: Path, name: str, said: str) -> None:
    for suffix in ("jsonl", "parquet"):
        (tmp_path / f"latin.{suffix}").write_bytes('{"prompt": "é", "answer": "1"}\n'.encode("latin-1"))
    with pytest.raises(ProblemError, match=said):
        load_problems(tmp_path / name, None)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "bom.jsonl"
    path.write_text(json.dumps(GOOD), encoding="utf-8-sig")
    assert len(load_problems(path, None)) == 1


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_git_lfs_pointer_is_named_with_its_fix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"problems.{suffix}"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(ProblemError, match=r"is a Git LFS pointer, not the file; run `git lfs pull` in its repository"):
        load_problems(path, None)
