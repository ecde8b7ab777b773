"""Programs-mini: the list of correct programs against their execution."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from itertools import product

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems, suggested_max_tokens
from oversharp.diagnostics.tasks.countdown import value
from oversharp.diagnostics.tasks.programs import (
    CASES,
    MAX_RESULT,
    NUMBERS,
    OPERATORS,
    PARAMETERS,
    SHOWN,
    all_programs,
    modes,
    problem,
    problems,
    programs_by_results,
    prompt,
    split_functions,
)
from oversharp.diagnostics.verifiers.code.fields import read_code_fields
from oversharp.diagnostics.verifiers.programs.verifier import ProgramVerifier


def accepted(asked: Problem, texts: list[str]) -> list[str]:
    grades = ProgramVerifier().grade([(asked, text) for text in texts])
    return [text for text, grade in zip(texts, grades, strict=True) if grade.correct]


def test_all_25284_programs_are_listed_once() -> None:
    texts = list(all_programs())
    assert len(texts) == len(set(texts)) == 14**2 * 3 + 14**3 * 3**2 == 25_284
    assert sum(map(len, programs_by_results().values())) == len(texts)


def test_884_functions_of_which_176_are_held_out() -> None:
    train, held_out = split_functions()
    assert (len(train), len(held_out)) == (708, 176)
    assert not set(train) & set(held_out)
    for results in (*train, *held_out):
        assert len(set(results)) > 1
        assert all(0 <= result <= MAX_RESULT for result in results[: len(SHOWN)])


def test_the_shown_calls_determine_the_function() -> None:
    assert len({prompt(results) for part in split_functions() for results in part}) == 884


def test_the_default_split_never_moves() -> None:
    assert [one.prompt for one in problems(limit=2)] == [
        "f(2,1)= 8 f(1,3)= 72 f(4,2)= 32 f(a,b)=",
        "f(2,1)= 16 f(1,3)= 13 f(4,2)= 28 f(a,b)=",
    ]
    assert split_functions(seed=1) != split_functions(seed=0)


def test_audit_and_validation_are_separate_parts_of_the_held_out_split() -> None:
    audit, validation, held_out = problems(), problems("validation"), problems("held_out")
    assert (len(audit), len(validation)) == (100, 76)
    assert audit + validation == held_out
    assert len({one.problem_id for one in held_out}) == 176
    assert load_problems(None, "programs", limit=5) == audit[:5]


def test_the_programs_of_2a_plus_b_by_hand() -> None:
    by_hand = {"a + a + b", "a + b + a", "b + a + a", "a * 2 + b", "2 * a + b", "b + a * 2", "b + 2 * a"}
    assert set(modes(tuple(2 * a + b for a, b in CASES))) == by_hand


def test_listed_results_are_those_of_an_independent_evaluation() -> None:
    listed = {text: results for results, texts in programs_by_results().items() for text in texts}
    for text in random.Random(0).sample(list(all_programs()), 300):
        words = text.split()
        for place, (a, b) in enumerate(CASES):
            numbers = [{"a": a, "b": b}.get(word) or int(word) for word in words[::2]]
            assert listed[text][place] == value(numbers, words[1::2])


@pytest.mark.slow
def test_a_program_of_the_grammar_is_accepted_by_execution_if_and_only_if_it_is_listed() -> None:
    texts = list(all_programs())
    for asked in (problems()[0], *random.Random(0).sample(problems("train"), 2)):
        assert accepted(asked, texts) == list(asked.modes)


@pytest.mark.slow
def test_a_text_of_up_to_four_words_is_accepted_if_and_only_if_it_is_listed() -> None:
    """Every text of the world's words, also those outside the grammar."""
    words = [*PARAMETERS, *OPERATORS, "2", "3"]
    texts = [" ".join(own) for n in range(1, 5) for own in product(words, repeat=n)]
    asked = problem(tuple(a * b for a, b in CASES))
    assert set(accepted(asked, texts)) == set(asked.modes) & set(texts) == {"a * b", "b * a"}


def test_every_mode_of_the_audit_passes_all_cases_when_it_is_executed() -> None:
    for one in problems():
        assert accepted(one, list(one.modes)) == list(one.modes)
        assert len(one.meta["input_output"]["inputs"]) == len(one.meta["input_output"]["outputs"]) == 25


def test_the_cases_can_be_read_as_a_code_task() -> None:
    asked = problem(tuple(a + b for a, b in CASES))
    row = read_code_fields({"prompt": asked.prompt, "input_output": asked.meta["input_output"]})
    assert row is not None
    assert (row["code"]["form"], row["code"]["entry"]) == ("calls", "f")
    assert row["code"]["cases"][:2] == [[[2, 1], [3]], [[1, 3], [4]]]


def test_a_program_that_is_right_only_on_the_shown_calls_fails() -> None:
    meta = dict(problem(tuple(a + b for a, b in CASES)).meta)
    hidden = {"inputs": [*map(list, SHOWN), [5, 5]], "outputs": [3, 4, 6, 99]}
    planted = Problem(
        task="programs", prompt="", gold="a + b", verifier="program", meta={**meta, "input_output": hidden}
    )
    [grade] = ProgramVerifier().grade([(planted, "a + b")])
    assert (grade.correct, grade.reason) == (False, "returns 10 for (5, 5); expected 99")


def test_most_functions_have_several_programs() -> None:
    counts = Counter(len(one.modes) for one in problems("held_out"))
    assert counts[1] < 0.1 * counts.total()
    assert sum(n * count for n, count in counts.items()) / counts.total() > 4
    assert set(NUMBERS) == set(range(1, 13))


def test_the_longest_program_and_its_end_are_six_tokens() -> None:
    assert max(len(text.split()) for text in all_programs()) + 1 == suggested_max_tokens("programs") == 6


def test_an_unknown_split_or_empty_limit_is_rejected() -> None:
    with pytest.raises(ProblemError, match="programs: no split 'test'; choose from train, held_out, audit, validation"):
        problems("test")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="programs: limit 0"):
        problems(limit=0)


@pytest.mark.slow
def test_the_programs_are_listed_only_when_they_are_asked_for() -> None:
    code = (
        "from oversharp.diagnostics.tasks import load_problems, programs; load_problems(None, 'countdown', limit=1);"
        "print(programs.programs_by_results.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
