"""Benchmarks from a local copy, as machines without a network have them."""

from pathlib import Path

import datasets
import pytest

from diagnostics.errors import ProblemError
from diagnostics.tasks import load_problems
from diagnostics.tasks.benchmarks import BENCHMARKS, benchmark_answer

GSM8K = [
    {"question": "Six and seven?", "answer": "6 + 7 = <<6+7=13>>13\n#### 13"},
    {"question": "A thousand?", "answer": "Count.\n#### 1,000"},
    {"question": "Six and seven?", "answer": "Again.\n#### 13"},
]


@pytest.fixture(autouse=True)
def no_network_and_no_shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_saved_data_set_is_read_in_its_order_and_repeats_are_left_out(tmp_path: Path) -> None:
    datasets.Dataset.from_list(GSM8K).save_to_disk(tmp_path / "gsm8k")
    problems = load_problems(None, f"benchmark:gsm8k@{tmp_path}/gsm8k")
    assert [(problem.prompt, problem.gold) for problem in problems] == [
        ("Six and seven?", "13"),
        ("A thousand?", "1000"),
    ]
    assert {(problem.task, problem.verifier) for problem in problems} == {("benchmark:gsm8k", "math")}


def test_a_saved_dictionary_of_splits_gives_the_right_split(tmp_path: Path) -> None:
    splits = {"train": datasets.Dataset.from_list(GSM8K[:1]), "test": datasets.Dataset.from_list(GSM8K[1:2])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "gsm8k")
    [problem] = load_problems(None, f"benchmark:gsm8k@{tmp_path}/gsm8k", limit=5)
    assert problem.gold == "1000"


def test_a_single_file_with_the_original_columns_will_do(tmp_path: Path) -> None:
    path = tmp_path / "math.jsonl"
    datasets.Dataset.from_list(
        [
            {"problem": "x?", "answer": r"\frac{1}{2}", "level": 3, "solution": "long"},
            {"problem": "who?", "answer": "foo!@#", "level": 1, "solution": "long"},
        ]
    ).to_json(path)
    half, odd = load_problems(None, f"benchmark:math500@{path}")
    assert (half.gold, half.verifier, half.difficulty, dict(half.meta)) == (r"\frac{1}{2}", "math", 3.0, {})
    assert odd.verifier == "exact"  # nobody can mend a published benchmark


@pytest.mark.parametrize(
    ("value", "form", "answer"),
    [
        ("so\n#### -1,234", "hashes", "-1234"),
        ("no hashes", "hashes", None),
        (27.0, "plain", "27"),
        (0.5, "plain", "0.5"),
        (["$1$", "$2$"], "list", "$1$, $2$"),
        ([], "list", None),
        (None, "plain", None),
    ],
)
def test_answers_are_read_in_the_form_the_benchmark_has(value: object, form: str, answer: str | None) -> None:
    assert benchmark_answer(value, form) == answer


def test_a_list_of_formulas_is_a_gold_that_math_can_grade(tmp_path: Path) -> None:
    rows = [{"question": "roots?", "final_answer": ["$1$", "$\\sqrt{2}$"]}]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "olympiad")
    [problem] = load_problems(None, f"benchmark:olympiadbench@{tmp_path}/olympiad")
    assert problem.verifier == "math"


def test_without_a_network_the_message_says_how_to_make_a_local_copy() -> None:
    with pytest.raises(ProblemError, match=r"benchmark:gsm8k cannot be fetched .*save_to_disk.*benchmark:gsm8k@gsm8k"):
        load_problems(None, "benchmark:gsm8k")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "x"}], 'row 1: no column "question" among text; is this a copy of openai/gsm8k'),
        ([{"question": "x", "answer": "13"}], 'row 1: "answer" does not hold an answer'),
    ],
)
def test_a_copy_of_something_else_is_recognised(tmp_path: Path, rows: list[dict[str, str]], message: str) -> None:
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "gsm8k")
    with pytest.raises(ProblemError, match=message):
        load_problems(None, f"benchmark:gsm8k@{tmp_path}/gsm8k")


def test_paths_that_hold_no_data_set_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no local copy of gsm8k there"):
        load_problems(None, f"benchmark:gsm8k@{tmp_path}/none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemError, match="empty: cannot be read as a data set"):
        load_problems(None, f"benchmark:gsm8k@{tmp_path}/empty")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(GSM8K)}).save_to_disk(tmp_path / "wrong")
    with pytest.raises(ProblemError, match='no split "test" among train'):
        load_problems(None, f"benchmark:gsm8k@{tmp_path}/wrong")


def test_every_benchmark_says_where_it_lies() -> None:
    assert all(benchmark.path.count("/") == 1 for benchmark in BENCHMARKS.values())
