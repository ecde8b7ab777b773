from __future__ import annotations

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks.countdown import (
    NUMBERS,
    Query,
    expressions,
    modes,
    problems,
    split_queries,
    value,
    wrong_expressions,
)


def test_1998_queries_of_which_399_are_held_out() -> None:
    train, held_out = split_queries()
    assert (len(train), len(held_out)) == (1599, 399)
    assert not set(train) & set(held_out)


def test_the_audit_is_100_held_out_queries_with_390_modes() -> None:
    audit = problems()
    assert (len(audit), sum(len(problem.modes) for problem in audit)) == (100, 390)
    assert audit == problems("held_out")[:100]
    assert len({problem.problem_id for problem in problems("held_out")}) == 399


def test_the_default_split_never_moves() -> None:
    assert [problem.prompt for problem in problems(limit=3)] == ["6 7 12 = 54 :", "2 10 11 = 32 :", "5 9 11 = 94 :"]


def test_another_seed_gives_another_split() -> None:
    assert split_queries(seed=1) != split_queries(seed=0)


def test_triples_lie_on_both_sides_of_the_split() -> None:
    train, held_out = split_queries()
    shared = {query.numbers for query in train} & {query.numbers for query in held_out}
    assert len(shared) > 100


def test_every_triple_has_54_expressions_with_the_value_that_python_gives_them() -> None:
    for numbers in [(1, 2, 3), (6, 7, 12), (1, 11, 12)]:
        by_value = expressions(numbers)
        assert sum(map(len, by_value.values())) == 54
        for result, group in by_value.items():
            assert all(eval(expression) == result for expression in group)


@pytest.mark.parametrize(
    ("numbers", "operators", "result"),
    [
        ([2, 3, 4], "+*", 14),
        ([2, 3, 4], "*+", 10),
        ([2, 3, 4], "-*", -10),
        ([2, 3, 4], "--", -5),
        ([2, 3, 4], "**", 24),
    ],
)
def test_multiplication_binds_stronger(numbers: list[int], operators: str, result: int) -> None:
    assert value(numbers, operators) == result


def test_modes_of_one_query_listed_by_hand() -> None:
    by_hand = ("1 + 2 - 3", "1 - 3 + 2", "2 + 1 - 3", "2 - 3 + 1", "3 - 1 - 2", "3 - 2 - 1")
    assert modes(Query((1, 2, 3), 0)) == by_hand
    assert modes(Query((1, 2, 3), 50)) == ()


def test_wrong_expressions_and_modes_are_all_54_expressions() -> None:
    query = Query((6, 7, 12), 54)
    wrong = [expression for group in wrong_expressions(query) for expression in group]
    assert len(wrong) + len(modes(query)) == 54
    assert not set(wrong) & set(modes(query))


def test_numbers_are_distinct_ascending_and_in_range() -> None:
    for query in split_queries()[0]:
        assert list(query.numbers) == sorted(set(query.numbers))
        assert set(query.numbers) <= set(NUMBERS)
        assert 1 <= query.target <= 99


def test_an_unknown_split_or_empty_limit_is_refused() -> None:
    with pytest.raises(ProblemError, match="no split 'test'; choose from train, held_out, audit"):
        problems("test")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="limit 0"):
        problems(limit=0)
