"""Word problems: correct, different, solvable in several ways, and disjoint between the splits."""

from __future__ import annotations

import re

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks import load_problems, suggested_max_tokens
from oversharp.diagnostics.tasks.word_problems import MOST, draw_stories
from oversharp.diagnostics.verifiers import Verifiers

DRAWN = draw_stories("train", 600, seed=0)


def test_every_equation_of_every_solution_is_true_and_ends_in_the_answer() -> None:
    n_equations = 0
    for story in DRAWN:
        for way in story.ways:
            for sentence in way.split(". "):
                sides = [one for one in sentence.rstrip(".").split(" = ") if re.fullmatch(r"[\d +*()-]+", one)]
                assert len({eval(side) for side in sides}) <= 1, way
                n_equations += len(sides) > 1
            assert str(story.answer) in re.findall(r"\d+", way)
    assert n_equations > 1200


@pytest.mark.slow
def test_every_story_has_three_different_solutions_or_more_that_the_grader_accepts() -> None:
    assert min(len(set(story.solutions)) for story in DRAWN) >= 3
    problems = load_problems(None, "word_problems:train", limit=60, seed=0)
    by_prompt = {story.prompt: story for story in DRAWN}
    items = [(one, said) for one in problems for said in by_prompt[one.prompt].solutions]
    with Verifiers() as verifiers:
        assert all(grade.correct for grade in verifiers.grade(items))


def test_numbers_stay_small_and_stories_differ() -> None:
    assert len({story.text for story in DRAWN}) == len(DRAWN)
    assert max(int(number) for story in DRAWN for number in re.findall(r"\d+", story.text)) == MOST
    assert len({re.sub(r"[A-Z][a-z]+|\d+", "", story.text).split()[0] for story in DRAWN}) > 2


def test_what_is_trained_on_is_never_asked_whatever_the_seeds() -> None:
    asked = {one.prompt for seed in range(3) for one in load_problems(None, "word_problems", limit=200, seed=seed)}
    assert not asked & {story.prompt for story in DRAWN}
    assert len(asked) > 400
    assert load_problems(None, "word_problems", limit=5, seed=1) == load_problems(
        None, "word_problems", limit=5, seed=1
    )


def test_another_side_of_the_split_is_refused() -> None:
    with pytest.raises(ProblemError, match="use word_problems or word_problems:train"):
        load_problems(None, "word_problems:test")
    assert suggested_max_tokens("word_problems:train") == suggested_max_tokens("word_problems") == 96
