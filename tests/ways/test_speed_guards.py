"""Fast paths of the parser give the results of the plain forms."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.ways import equations, programs

PLAIN_RELATION = re.compile(r"[=≈<>≤≥＝＜＞≦≧]|\\(?:approx|[lg]eq?\b)")
PLAIN_ARTICLE = re.compile(r"\b[aAI](?= [A-Za-z]{2})")
PIECES = ("＝", "=", "≈", "\\approx", "\\leq", "\\le", "\\lea", "\\geq", "\\", "<", " a bag", " A", "I am", "éa", "3",
          " ", "\n", "400 000", "1 234 567", "é a bc")  # fmt: skip


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_a_relation_and_an_article_are_found_where_they_stand(text: str) -> None:
    assert [m.span()[0] for m in equations.RELATION.finditer(text)] == [
        m.span()[0] for m in PLAIN_RELATION.finditer(text)
    ]
    assert equations._ARTICLE.sub("|", text) == PLAIN_ARTICLE.sub("|", text)


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_thousands_are_joined_wherever_there_are_any(text: str) -> None:
    found = equations._THOUSANDS.search(text) is not None
    assert not found or equations._AFTER_DIGIT.search(text) is not None


@pytest.mark.parametrize(
    "piece", ["a+", "-", "()+", "[a,", "a[:,:", "*a,", "a=", "a<", "~", "f'{a}'+", "lambda:", "@a\n"]
)
def test_no_program_has_more_nodes_than_its_characters_allow(piece: str) -> None:
    found = 0
    for n in (0, 1, 5, 40):
        for ending in ("a", "", "]", "a]", "]" * n, "a=1", "\ndef f():0"):
            source = piece * n + ending
            try:
                nodes = sum(1 for _ in ast.walk(ast.parse(source)))
            except SyntaxError:
                continue
            found += source != ""
            assert nodes <= max(1, programs._NODES_PER_CHARACTER * len(source)), source
    assert found > 0
