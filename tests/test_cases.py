"""A test of many cases runs each of them and names all that fail."""

import inspect

import pytest

from tests.cases import each_case


def test_every_case_is_checked_and_each_that_fails_is_named() -> None:
    checked = []

    @each_case("number", [1, 2, 3, 4], name_of=lambda number: f"number {number}")
    def check(number: int, limit: int) -> None:
        checked.append(number)
        assert number < limit

    assert list(inspect.signature(check).parameters) == ["limit"]
    check(limit=5)
    assert checked == [1, 2, 3, 4]
    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as caught:
        check(limit=3)
    assert [failure.__notes__ for failure in caught.value.exceptions] == [["case: number 3"], ["case: number 4"]]


def test_a_test_without_cases_fails() -> None:
    with pytest.raises(AssertionError, match="no case"):
        each_case("number", [])(lambda number: None)()
