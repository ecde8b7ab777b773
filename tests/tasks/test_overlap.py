"""Overlap of problems with other sets: same text, same words, a long run of words in common."""

import json
from pathlib import Path

import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks.overlap import check_problems, read_prompts

HOW = "Solve the problem below step by step and put the final answer of yours into a box at the end."
AUDITED = [
    "A farmer sells 12 eggs a day at 3 dollars each and buys feed for 5 dollars. What does he earn in a week?",
    "A train leaves the old station at noon and reaches the coast after four hours of steady travel at 60 km/h.",
    "What is 3 + 4?",
    "Two cards are drawn without replacement from a shuffled deck. What is the chance that both of them are red?",
]


def write(path: Path, prompts: list[object], field: str = "prompt") -> str:
    path.write_text("".join(json.dumps({field: prompt, "answer": "1"}) + "\n" for prompt in prompts))
    return str(path)


@pytest.fixture
def audited(tmp_path: Path) -> str:
    return write(tmp_path / "audit.jsonl", [f"{HOW} {prompt}" for prompt in AUDITED])


def test_same_text_same_words_and_a_shared_run_are_told_apart_and_each_problem_counts_once(
    audited: str, tmp_path: Path
) -> None:
    sharing = AUDITED[3].replace("Two cards", "Three coins").replace("red", "blue")
    train = [
        f"{HOW} {AUDITED[0]}",
        f"{HOW}  {AUDITED[1].upper()}",
        [{"role": "system", "content": AUDITED[2]}, {"role": "user", "content": sharing}],
        "Another problem altogether, which nobody who wrote the first four of them ever had a look at in his life.",
    ]
    result = check_problems(audited, [write(tmp_path / "train.jsonl", train)])
    [told] = result.sets
    assert (result.n, told.n, told.same_text, told.same_words, told.shared_run) == (4, 4, 1, 1, 1)
    assert [(one.place, one.other_place, one.how) for one in result.found] == [
        (1, 1, "same text"),
        (2, 2, "same words"),
        (4, 3, "shared run"),
    ]
    assert 0 < result.found[2].shared < 1


def test_how_the_audit_asks_is_no_run_that_is_shared(audited: str, tmp_path: Path) -> None:
    asked_alike = write(tmp_path / "train.jsonl", [f"{HOW} How many legs do {n} spiders have?" for n in range(5)])
    assert check_problems(audited, [asked_alike]).found == ()


def test_other_numbers_in_a_short_problem_are_another_problem(tmp_path: Path) -> None:
    audit = write(tmp_path / "audit.jsonl", ["What is 3 + 4?"])
    assert check_problems(audit, [write(tmp_path / "train.jsonl", ["What is 3 + 5?"])]).found == ()
    [found] = check_problems(audit, [write(tmp_path / "also.jsonl", ["what is 3+4"], field="question")]).found
    assert found.how == "same words"


def test_tasks_by_name_are_sets_too(tmp_path: Path) -> None:
    held = list(read_prompts("countdown"))
    result = check_problems(write(tmp_path / "audit.jsonl", [held[5], "something else"]), ["countdown"])
    assert [(one.place, one.other_place, one.how) for one in result.found] == [(1, 6, "same text")]


def test_the_command_prints_counts_and_pairs_and_ends_with_3_where_there_are_some(
    audited: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = write(tmp_path / "train.jsonl", [f"{HOW} {AUDITED[0]}"])
    for against, code in (([train], 3), ([write(tmp_path / "clean.jsonl", ["Why?"])], 0)):
        with pytest.raises(SystemExit) as ended:
            main(["problems", "check", audited, "--against", *against])
        assert ended.value.code == code
        said = capsys.readouterr().out
        assert ("problem 1: same text" in said) == (code == 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [('{"text": "x"}\n', r"train\.jsonl line 1: no prompt \(text or chat\)"), ("", "contains no prompt")],
)
def test_a_set_without_prompts_is_one_line(audited: str, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(content)
    with pytest.raises(ProblemError, match=message):
        check_problems(audited, [str(path)])
    with pytest.raises(ProblemError, match="--words 2: most prompts share n-grams this short"):
        check_problems(audited, [audited], words=2)
    with pytest.raises(ProblemError, match="no such file"):
        check_problems(audited, [str(tmp_path / "missing.jsonl")])
