"""Problems from reasoning-gym's generators."""

import json
from dataclasses import replace

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks import load_problems


def test_a_generator_gives_the_same_problems_for_the_same_seed() -> None:
    once = load_problems(None, "reasoning_gym:simple_equations", limit=5, seed=1)
    again = load_problems(None, "reasoning_gym:simple_equations", limit=5, seed=1)
    other = load_problems(None, "reasoning_gym:simple_equations", limit=5, seed=2)
    assert once == again
    assert once != other
    assert len({problem.problem_id for problem in once}) == 5
    assert once[0].task == "reasoning_gym:simple_equations"
    assert once[0].verifier == "reasoning_gym"


def test_the_content_hash_survives_the_store() -> None:
    [problem] = load_problems(None, "reasoning_gym:maze", limit=1)
    stored = replace(problem, meta=json.loads(json.dumps(problem.meta)))
    assert stored.problem_id == problem.problem_id


@pytest.mark.parametrize("generator", ["knights_knaves", "boxnet"])  # NumPy strings; dots on standard output
def test_odd_generators_leave_plain_json_and_a_clean_output(generator: str, capsys: pytest.CaptureFixture[str]) -> None:
    [problem] = load_problems(None, f"reasoning_gym:{generator}", limit=1)
    assert replace(problem, meta=json.loads(json.dumps(problem.meta))).problem_id == problem.problem_id
    assert capsys.readouterr().out == ""


def test_a_generator_without_a_single_answer_has_an_empty_gold() -> None:
    [problem] = load_problems(None, "reasoning_gym:graph_color", limit=1)
    assert problem.gold == ""


@pytest.mark.slow
def test_repeated_entries_are_replaced_and_a_small_world_says_so() -> None:
    # 100 entries of coin_flip hold 79 different prompts
    problems = load_problems(None, "reasoning_gym:coin_flip", limit=100)
    assert len({problem.prompt for problem in problems}) == 100
    with pytest.raises(ProblemError, match=r"generated only \d+ distinct problems of 2000; lower the limit"):
        load_problems(None, "reasoning_gym:coin_flip", limit=2000)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("reasoning_gym:chain_sums", "is unknown; did you mean: reasoning_gym:chain_sum"),
        ("reasoning_gym", "is unknown"),
        ("reasoning_gym:composite", "cannot be generated with its default settings"),
    ],
)
def test_unknown_and_unusable_generators_are_named(task: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        load_problems(None, task)
