"""Every benchmark: its fields, its prompts, its golds and who grades them.

benchmarks/NAME.jsonl stands in for each data set: three rows of our own under the hub's column names.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.benchmark_sources import FOLDER_VARIABLE
from oversharp.diagnostics.tasks.benchmarks import (
    BENCHMARKS,
    LETTER_REQUEST,
    AnswerForm,
    benchmark_answer,
    lettered_options,
    text_answers_note,
)
from oversharp.diagnostics.verifiers import Verifiers

pytestmark = pytest.mark.xdist_group("benchmarks")  # they share what takes seconds to make

COPIES = Path(__file__).parent / "benchmarks"
DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"

#: (gold, a right answer in other words, a wrong answer) of each row, without the box around answers.
ANSWERS = {
    "aime24": [("024", "24", "25"), ("200", "200", "2000"), ("243", "3^5", "234")],
    "aime25": [("143", "143", "134"), ("360^\\circ", "360", "180"), ("121", "121", "120")],
    "amc23": [("27", "27.0", "9"), ("-4", "-4", "4"), ("2.5", "\\frac{5}{2}", "5")],
    "arc_c": [("B", "(B)", "C"), ("A", "\\text{A}", "1"), ("C", "C. Sun", "A")],
    "gsm8k": [("27", "27", "24"), ("1300", "1,300", "650"), ("-7", "-7", "7")],
    "math": [("13", "13", "12"), ("$2\\sqrt{3}$", "\\sqrt{12}", "3\\sqrt{2}"), ("1", "1", "2")],
    "math500": [("\\frac{3}{4}", "0.75", "\\frac{3}{2}"), ("(0,3)", "(0, 3)", "(3,0)"), ("42", "42", "38")],
    "minerva": [
        ("6000", "6000", "600"),
        ("4.5 \\times 10^{57}", "45 \\times 10^{56}", "4.5 \\times 10^{56}"),
        ("2x", "2 \\cdot x", "x"),
    ],
    "mmlu_pro": [("C", "C", "10"), ("I", "I", "1"), ("C", "c", "D")],
    "olympiadbench": [
        ("$\\sqrt{2}$, $-\\sqrt{2}$", "-\\sqrt{2}, \\sqrt{2}", "\\sqrt{2}"),
        ("63", "63", "16"),
        ("$\\frac{n(n+1)}{2}$", "\\frac{n^2+n}{2}", "\\frac{n(n-1)}{2}"),
    ],
}


@pytest.fixture(scope="module")
def verifiers() -> Iterator[Verifiers]:
    with Verifiers(timeout_s=30.0, workers=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def loaded() -> dict[str, tuple[Problem, ...]]:
    """Every benchmark from its copy, by the variable that names their directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(COPIES))
        return {name: load_problems(None, f"benchmark:{name}") for name in BENCHMARKS}


def test_every_benchmark_has_a_copy_and_answers_to_test() -> None:
    assert set(ANSWERS) == set(BENCHMARKS) == {path.stem for path in COPIES.glob("*.jsonl")}


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHMARKS)
def test_golds_are_extracted_and_right_answers_accepted_and_wrong_ones_refused(
    name: str, loaded: dict[str, tuple[Problem, ...]], verifiers: Verifiers
) -> None:
    problems = loaded[name]
    assert [problem.gold for problem in problems] == [gold for gold, _, _ in ANSWERS[name]]
    assert {(problem.task, problem.verifier) for problem in problems} == {
        (f"benchmark:{name}", BENCHMARKS[name].verifier)
    }
    for place in range(3):
        responses = [f"We think.\nThus \\boxed{{{answers[place]}}}." for answers in ANSWERS[name]]
        grades = verifiers.grade(list(zip(problems, responses, strict=True)))
        assert [grade.correct for grade in grades] == [place < 2] * 3, responses


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, known in BENCHMARKS.items() if known.options is None])
def test_the_question_is_the_prompt(name: str, loaded: dict[str, tuple[Problem, ...]]) -> None:
    rows = [json.loads(line) for line in (COPIES / f"{name}.jsonl").read_text().splitlines()]
    context = [f"{row['context']}\n\n" if row.get("context") else "" for row in rows]
    questions = [row[BENCHMARKS[name].question] for row in rows]
    assert [problem.prompt for problem in loaded[name]] == [a + b for a, b in zip(context, questions, strict=True)]


@pytest.mark.slow
def test_options_are_lettered_in_the_prompt_whatever_the_data_set_calls_them(
    loaded: dict[str, tuple[Problem, ...]],
) -> None:
    assert loaded["arc_c"][1].prompt == (
        f"What do plants take from the air?\n\nA. carbon dioxide\nB. iron\nC. sand\nD. salt\n\n{LETTER_REQUEST}"
    )
    assert "\nI. neon\nJ. zinc\n\n" in loaded["mmlu_pro"][1].prompt


@pytest.mark.slow
def test_levels_become_difficulties_and_an_unknown_level_none(loaded: dict[str, tuple[Problem, ...]]) -> None:
    assert [problem.difficulty for problem in loaded["math"]] == [1.0, 4.0, None]
    assert [problem.difficulty for problem in loaded["math500"]] == [1.0, 2.0, 5.0]
    assert {problem.difficulty for problem in loaded["gsm8k"]} == {None}


@pytest.mark.parametrize(
    ("value", "form", "answer"),
    [
        ("so\n#### -1,234", "hashes", "-1234"),
        ("no hashes", "hashes", None),
        (27.0, "plain", "27"),
        (0.5, "plain", "0.5"),
        (1e-9, "plain", "1 \\times 10^{-9}"),
        ("3e5 m", "plain", "3e5 m"),
        (True, "plain", None),
        (None, "plain", None),
        (["$1$", "$2$"], "list", "$1$, $2$"),
        ([], "list", None),
        (r"\boxed{1} or $\boxed 7$", "boxed", "1"),
        ("no box", "boxed", None),
        (r"\boxed{}", "boxed", None),
    ],
)
def test_answers_are_read_in_the_form_the_benchmark_has(value: object, form: AnswerForm, answer: str | None) -> None:
    assert benchmark_answer(value, form) == answer


@pytest.mark.parametrize(
    "value", ["red, blue", ["red"], ["x"] * 27, {"text": ["a", "b"]}, {"text": ["a", "b"], "label": ["A"]}]
)
def test_what_is_no_list_of_options_is_none(value: object) -> None:
    assert lettered_options(value) is None


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_gold_that_math_cannot_read_is_graded_as_text_and_a_repeated_problem_left_out(tmp_path: Path) -> None:
    odd: dict[str, object] = {"problem": "who?", "answer": "foo!@#", "level": 1}
    copy = write(tmp_path / "copy.jsonl", [odd, odd, {"problem": "x?", "answer": "5", "level": 1}])
    problems = load_problems(None, f"benchmark:math500={copy}", limit=2)
    assert [(problem.prompt, problem.verifier) for problem in problems] == [("who?", "exact"), ("x?", "math")]


def test_a_limit_takes_the_first_or_draws_by_the_seed_and_a_larger_one_keeps_them(tmp_path: Path) -> None:
    row: dict[str, object] = {"options": ["a", "b"], "answer": "A"}
    copy = write(tmp_path / "copy.jsonl", [row | {"question": f"question {number}"} for number in range(40)])

    def prompts(limit: int | None, seed: int = 0) -> list[str]:
        return [problem.prompt for problem in load_problems(None, f"benchmark:mmlu_pro={copy}", limit=limit, seed=seed)]

    everything = prompts(None)
    assert len(everything) == 40
    assert [prompt.partition("\n")[0] for prompt in everything[:2]] == ["question 0", "question 1"]
    assert prompts(5) != everything[:5]
    assert prompts(9)[:5] == prompts(5) != prompts(5, seed=1)
    assert len(prompts(100)) == 40
    plain = write(tmp_path / "plain.jsonl", [{"problem": f"{number}?", "answer": "1"} for number in range(9)])
    assert [problem.prompt for problem in load_problems(None, f"benchmark:aime25={plain}", limit=2)] == ["0?", "1?"]


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("gsm8k", {"text": "x"}, 'line 1: no column "question", only text; pass a copy of openai/gsm8k'),
        ("gsm8k", {"question": "x", "answer": "13"}, r'line 1: "answer" is not an answer \(hashes\)'),
        ("math", {"problem": "x", "solution": "13"}, r'line 1: "solution" is not an answer \(boxed\)'),
        ("mmlu_pro", {"question": "x", "answer": "A"}, 'line 1: no column "options", only answer, question'),
        (
            "mmlu_pro",
            {"question": "x", "options": ["a", "b"], "answer": "C"},
            r'line 1: "answer" is not an answer \(the label of one of 2 options\)',
        ),
        ("arc_c", {"question": None, "choices": ["a", "b"], "answerKey": "A"}, 'line 1: no "prompt"'),
    ],
)
def test_a_copy_of_something_else_is_recognised(
    tmp_path: Path, name: str, row: dict[str, object], message: str
) -> None:
    copy = write(tmp_path / "copy.jsonl", [row])
    with pytest.raises(ProblemError, match=message):
        load_problems(None, f"benchmark:{name}={copy}")


def test_the_document_lists_every_benchmark_as_it_is() -> None:
    rows = {line.split("`")[1]: line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `benchmark:")}
    assert set(rows) == {f"benchmark:{name}" for name in BENCHMARKS}
    for name, benchmark in BENCHMARKS.items():
        data = benchmark.data
        assert (len(data.revision), int(data.revision, 16) > 0) == (40, True)  # a full commit hash
        told = (data.path, data.config or "", data.revision, data.split, f"{benchmark.n_problems:,}")
        assert all(word in rows[f"benchmark:{name}"] for word in (*told, benchmark.verifier, *benchmark.columns))


def test_golds_that_are_compared_as_text_are_told_by_their_numbers(tmp_path: Path) -> None:
    copy = tmp_path / "minerva.jsonl"
    golds = ["1.6", "E_{1}+E_{2}", "-3./2"]
    copy.write_text(
        "".join(json.dumps({"question": f"Number {n}?", "answer": gold}) + "\n" for n, gold in enumerate(golds))
    )
    task = f"benchmark:minerva={copy}"
    problems = load_problems(None, task)
    assert [problem.verifier for problem in problems] == ["math", "exact", "math"]
    assert str(text_answers_note(task, problems)).startswith("1 of 3 golds of benchmark:minerva ")
    assert str(text_answers_note(task, problems)).endswith(": problem 2")
    assert text_answers_note(task, problems[::2]) is None
    assert text_answers_note("countdown", problems) is None
