"""The shortcut in front of math-verify must never change a verdict."""

from itertools import product

import pytest
from math_verify import verify

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
