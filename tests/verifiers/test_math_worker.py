"""The shortcut in front of math-verify must never change a verdict."""

from itertools import product

import pytest
import sympy
from math_verify import parse, verify

from oversharp.diagnostics.verifiers import math_worker
from oversharp.diagnostics.verifiers.math_worker import _parse, canonical_key, clearly_different

# near misses, other forms of the same value, and whatever math-verify compares in a way of its own
ANSWERS = [
    *("7", "0.5", r"50\%", "50", r"\frac13", "0.333333", r"2\sqrt{3}", "3.464102", "x", "x=5", "5"),
    *("(x+1)^2", "x^2+2x+1", "(1,2)", r"\{1,2\}", "1<x<2", r"\text{Evelyn}", "Evelyn"),
    *(r"(-1)^{2n}", "1", r"\sqrt{x^2}", "100000000000000000001", r"10^{20}"),
]


@pytest.mark.slow
def test_what_the_shortcut_calls_different_is_different_for_math_verify() -> None:
    parsed = [_parse(f"\\boxed{{{answer}}}") for answer in ANSWERS]
    assert all(parsed)
    skipped = 0
    for gold, answer in product(parsed, repeat=2):
        if clearly_different(gold, answer):
            skipped += 1
            assert not verify(gold, answer, timeout_seconds=None), (gold, answer)
    assert skipped > len(parsed) ** 2 / 3  # and it is worth having


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_has_the_same_key_every_time(answer: str) -> None:
    candidate = f"\\boxed{{{answer}}}"
    assert canonical_key(_parse(candidate)[0]) == canonical_key(_parse(candidate)[0])


@pytest.mark.parametrize(
    "answer",
    [
        *("0", "-0", "00", "007", "-007", "12345678901234567890", "9" * 300, "-" + "9" * 299, "9" * 301, "+5", "5!"),
        *("1,234", "1{,}234", "12,345.67", "0.5", "12.50", "0.0050", "-3.14", "1.", "٣", "1 234", "x=5", "10^{12}"),
        *(r"\frac{3}{4}", r"\frac34", r"12\%", "2x+17", r"\sqrt[3]{27}", r"5\sqrt{3}", "x_{12}", "(1,2)", "[3, 4)"),
        *(r"\{1,2,3\}", r"5\text{ cm}", r"\binom{5}{2}", r"\log_{2} 8", r"\pi/2", "2^{100}", ""),
    ],
)
def test_a_whole_number_is_parsed_as_math_verify_does(answer: str) -> None:
    def shown(parsed: list[math_worker.Parsed]) -> list[str]:
        return [part if isinstance(part, str) else sympy.srepr(part) for part in parsed]

    boxed = f"\\boxed{{{answer}}}"
    unchanged = parse(boxed, extraction_config=math_worker._BOXED, extraction_mode="first_match", parsing_timeout=None)
    assert shown(_parse(boxed)) == shown(unchanged)
