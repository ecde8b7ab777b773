"""Steps parsed from a response, independent of wording, order and names."""

from __future__ import annotations

import time

import pytest

from oversharp.diagnostics.ways import get_reader
from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.reader import EMPTY, NO_STEP

READER = get_reader()


def read(text: str) -> Signature:
    return READER.read([text])[0]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("16 - 3 - 4 = 9 eggs, so 9 * $2 = $18.", "18 9"),
        (r"\[16 - 3 - 4 = 9\] and \(9 \times 2 = \boxed{18}\)", "18 9"),
        ("3 dozen x 12 eggs/dozen = 36 eggs. 36 eggs / 4 children = 9 eggs/child. 9 + 1 = 10", "10 9"),
        ("8000 pounds * 30% = 2400 pounds", "2400"),
        ("$1,350 + 6 * $350 = $3,450", "2100 3450"),
        ("400 000 x 3/100 = 12 000 dollars", "12000"),
        (r"\frac{\frac{1}{12}}{\frac{1}{36}} = 3", "3"),
        (r"3\frac{4}{5} \cdot 2 = \frac{38}{5}", "38/5"),
        (r"\sqrt{3^2 + 4^2} = \sqrt{25} = 5", "16 25 5 9"),
        (r"\sqrt{50} = 5\sqrt{2}", "5√2"),
        (r"\pi \cdot 4^2 = 16\pi", "16 16π"),
        (r"\binom{9}{2} = 36 and 4! = 24", "24 C(9,2)"),
        (r"180^\circ - 40^\circ = 140^\circ", "140"),
        ("0.40n = 1.20", "3 unknown"),
        ("4x + 5 = 6x + 7 so -2 = 2x and x = -1", "-1 unknown"),
        (r"9w^2 = 3600 \implies w = 20", "0=-400+1v^2 unknown"),
        ("3t - 6t + 7t = 4t", "4v"),
        ("He has 30 hours a month. That makes 25 * 30 = 750.", "750"),
        ("16 - 3 = <<16-3=13>>13 eggs", "13"),
    ],
)
def test_the_values_of_an_equation_are_its_steps(text: str, steps: str) -> None:
    assert " ".join(read(text).steps) == steps


@pytest.mark.parametrize(
    "texts",
    [
        ("4 * 5 = 20. Then 20 + 3 = 23.", "First 5 x 4 = 20, next 3 + 20 = 23!"),
        ("30 + 14 + 9 = 53", "14 + 9 = 23, and 23 + 30 = 53"),
        ("1 * 7 = 7. 7 * 3 = 21", "7 * 3 = 21"),
        ("Let x be it: 3x + 5 = 20, so 3x = 15 and x = 5.", "With n as the number, 20 = 5 + 3n. Thus n = 15/3 = 5."),
        (
            "```python\ndef f():\n    a = 16 - 3\n    b = 2\n    return a * b\nprint(f())\n```\n```output\n26\n```",
            "```python\nprice = 2  # dollars\neggs = -3 + 16\nprint(price * eggs)\n```",
        ),
        ("6*7 + 12", "12 + 7 * 6"),
        ("10 / 2 * 4 - 1", "(4*10)/2 - 1"),
    ],
)
def test_words_order_and_names_make_no_other_way(texts: tuple[str, str]) -> None:
    one, other = map(read, texts)
    assert one.why is None
    assert one.steps == other.steps


@pytest.mark.parametrize(
    "texts",
    [
        ("(40 - 20) * 6 = 120", "40 * 6 = 240, 20 * 6 = 120, 240 - 120 = 120"),
        ("x / 36 + 1/4 = 1/3 so x = 3", "(1/3 - 1/4) * 36 = 3"),
        ("10 - 2 * 3", "10 - 3 - 2 - 1"),
        ("8 - 4 + 2", "8 - 4 - 2"),
        ("8 / 4 * 2", "8 / 4 / 2"),
        ("```python\nprint((40 - 20) * 6)\n```", "```python\nprint(40 * 6 - 20 * 6)\n```"),
        ("```python\nfor i in r:\n    n += i * 2\n```", "```python\nn = sum(r)\n```"),
    ],
)
def test_other_operations_are_another_way(texts: tuple[str, str]) -> None:
    one, other = map(read, texts)
    assert one.steps != other.steps
    assert one.why is other.why is None


def test_a_product_on_the_way_to_a_longer_product_is_a_part() -> None:
    signature = read("4 * 5 = 20 and 20 * 3 = 60, less 8 is 60 - 8 = 52")
    assert (signature.steps, signature.parts) == (("52", "60"), ("20",))


@pytest.mark.parametrize(
    ("text", "strategy", "operations", "final"),
    [
        ("5 * 4 = 20, 20 + 3 = 23", "arithmetic", "*1 +1", "20 + 3 = 23"),
        ("2n = 8", "algebra", "=1", " = 4"),
        ("3t - 6t = -3t", "arithmetic", "~1", ""),
        ("```python\nprint(2 * 8)\n```", "code", "*1", "2 * 8 = 16"),
        ("2 * 8 - 1 * 1", "expression", "*2 +1", "(*1*1) + (*2*8) = +(*2*8)-(*1*1)"),
    ],
)
def test_coarser_levels_tell_the_operations_the_last_step_and_the_strategy(
    text: str, strategy: str, operations: str, final: str
) -> None:
    signature = read(text)
    assert (signature.strategy, signature.operations, signature.final) == (strategy, operations, final)


def test_an_expression_as_it_is_written_is_finer_than_its_way() -> None:
    one, other = read("6 * 7 + 12"), read("12 + 7 * 6")
    assert (one.written, other.written) == ("6*7+12", "12+7*6")


@pytest.mark.parametrize(
    "text",
    [
        "所以 16 - 3 = 13 個，13 個 × 2 = 26 個。",
        "１６－３＝１３，１３×２＝２６",
        "Итак, 16 - 3 = 13 кг, а 13 кг · 2 = 26 кг.",
        "16 - 3 = 13 pièces, 13 pièces ⋅ 2 = 26 pièces",
        "16 - 3 = 13 €, also 13 € ∗ 2 = 26 €",
        "따라서 16 - 3 = 13개, 13개 * 2 = 26개",
        "16 - 3 = 13 μg and 13 μg * 2 = 26 μg",
    ],
)
def test_other_languages_and_their_signs_make_no_other_way(text: str) -> None:
    assert read(text).steps == read("16 - 3 = 13 eggs, 13 eggs * 2 = 26 eggs").steps == ("13", "26")


@pytest.mark.parametrize(
    ("text", "why"), [(" \n", EMPTY), ("The answer is clearly 9.", NO_STEP), ("n = 5 and y = 7", NO_STEP)]
)
def test_a_way_that_is_not_known_has_a_reason_and_no_class(text: str, why: str) -> None:
    signature = read(text)
    assert (signature.why, signature.strategy, signature.steps) == (why, None, ())


HOSTILE = (
    *("1" * 10_000_000, "1+1=" * 2_500_000, "(" * 60_000 + "=1", "\\frac{" * 20_000 + "=1", "9^9^9^9^9=1"),
    *("60!^64=1", "x " * 40_000 + "=1", "12 abc def ghi " * 6_000 + "= 1", "\\text{" * 10_000 + "=1"),
    *("*".join(["(a+b+c+d)"] * 100) + "=1", "```python\n" + "(" * 15_000 + "\n```", "```" * 20_000),
    *("```python\nx=" + "-" * 15_000 + "1\n```", "```python\nx=9**9**9**9\n```", "\x00\ud800", "<<" * 30_000),
)


@pytest.mark.slow
def test_hostile_texts_are_read_in_bounded_time_and_depth() -> None:
    start = time.process_time()
    READER.read(HOSTILE)
    assert time.process_time() - start < 2.0  # 0.12 s where nothing else runs


def test_a_list_of_equations_in_one_long_line_is_read() -> None:
    line = ", ".join(f"{i} * 100 = {100 * i}" for i in range(2, 90))
    assert len(read(line).steps) == 88


def test_of_a_very_long_text_the_beginning_and_the_end_are_read() -> None:
    filler = "and so on, " * 10_000
    assert read(f"2 * 3 = 6. {filler}\n5 * 7 = 35. {filler}\n9 * 9 = 81.").steps == ("6", "81")
