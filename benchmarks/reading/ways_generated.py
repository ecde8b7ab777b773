"""Generated word problems with three approaches, and solutions of each in many wordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

APPROACHES = 3
#: Rates in verbose solutions: in words only; two equations written as one; a check by another equation.
IN_WORDS, JOINED, CHECKED = 0.05, 0.2, 0.2
#: One equation of a solution: (left side as operands and signs, result).
Step = tuple[Sequence[str], str]
THINGS = ("cups", "pens", "lamps", "boxes of tea", "tickets", "bags of rice", "chairs")
OPENINGS = (
    "", "Let me think about what is asked.", "We are asked for one number, so it is worth going slowly.",
    "First I write down what is known, then I work it out.", "This is a matter of keeping the parts in order.",
)  # fmt: skip
JOINTS = (
    "So", "That gives", "From this it follows that", "Working it out,", "Now", "In the next step,", "Hence",
    "It is not hard to see that", "Putting this together,", "After that",
)  # fmt: skip
REMARKS = (
    "", "I check this once more before going on.", "This number will be needed again.", "Nothing was left out here.",
    "The units agree.", "This is as large as one would expect.", "That seems right.",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Buy ``many`` things at ``price`` less a ``cut`` each, and pay ``fee`` on top; all of it shared by ``people``."""

    many: int
    price: int
    cut: int
    fee: int
    people: int
    thing: str


def drawn_problem(rng: np.random.Generator) -> Problem:
    """Draw a problem with an integer answer."""
    people, many = int(rng.integers(2, 7)), int(rng.integers(7, 30))
    price, cut = int(rng.integers(12, 40)), int(rng.integers(2, 9))
    fee = people * int(rng.integers(5, 40)) - many * (price - cut) % people
    return Problem(many=many, price=price, cut=cut, fee=fee, people=people, thing=str(rng.choice(THINGS)))


def steps(problem: Problem, approach: int) -> list[Step]:
    """Return the equations of one approach. The order of terms and factors has no meaning."""
    m, p, c, f, n = problem.many, problem.price, problem.cut, problem.fee, problem.people
    total = m * (p - c) + f
    share = [((f"{total}", "/", f"{n}"), f"{total // n}")]
    if approach == 0:  # the reduced price first
        return [((f"{p}", "-", f"{c}"), f"{p - c}"), ((f"{m}", "*", f"{p - c}"), f"{m * (p - c)}"),
                ((f"{m * (p - c)}", "+", f"{f}"), f"{total}"), *share]  # fmt: skip
    if approach == 1:  # all things at the full price, minus all cuts
        return [((f"{m}", "*", f"{p}"), f"{m * p}"), ((f"{m}", "*", f"{c}"), f"{m * c}"),
                ((f"{m * p}", "-", f"{m * c}", "+", f"{f}"), f"{total}"), *share]  # fmt: skip
    unknown = [(("{v}", "*", f"{n}", "-", f"{f}"), f"{m * (p - c)}")]
    return [((f"{p}", "-", f"{c}"), f"{p - c}"), ((f"{m}", "*", f"{p - c}"), f"{m * (p - c)}"), *unknown]


def render(problem: Problem, approach: int, style: int, rng: np.random.Generator) -> str:
    """Write one wording. Style 0 is terse, style 1 verbose. Layout, names, order and splitting vary in both."""
    write = (_plain, _latex, _with_units)[int(rng.integers(0, 3))]
    name = str(rng.choice(list("xntsw")))
    lines = [str(rng.choice(OPENINGS))] if style else []
    made = steps(problem, approach)
    if style and rng.random() < IN_WORDS:
        return " ".join([*lines, f"I did the sums in my head, and the answer is {made[-1][1]}."])
    if style and rng.random() < JOINED:
        made = _joined_first(made)
    if approach == 2:
        lines.append(f"Let {name} be the share of each." if rng.random() < 0.5 else f"Call each share {name}.")
    for terms, result in made:
        joint = f"{rng.choice(JOINTS)} " if style or rng.random() < 0.3 else ""
        equations = _split(_shuffled([term.format(v=name) for term in terms], rng), result, rng)
        lines += [f"{joint}{write(*one, problem.thing)}." for one in equations]
        if style:
            lines += [str(rng.choice(REMARKS)), *_restated(result, rng)]
    answer = (problem.many * (problem.price - problem.cut) + problem.fee) // problem.people
    if style and rng.random() < CHECKED:
        lines.append(f"To check: {write((f'{answer}', '*', f'{problem.people}'), str(answer * problem.people), '')}.")
    ending = f"\\boxed{{{answer}}}" if write is _latex else f"{answer}"
    lines.append(f"The answer is {ending}.")
    return ("\n" if rng.random() < 0.5 else " ").join(line for line in lines if line)


def _shuffled(terms: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Shuffle the factors of a product, or the added terms."""
    if len(terms) == 3 and terms[1] in "+*" and rng.random() < 0.5:
        return [terms[2], terms[1], terms[0]]
    if len(terms) == 5 and terms[1] == "-" and terms[0].isdigit() and rng.random() < 0.5:
        return [terms[0], terms[3], terms[4], terms[1], terms[2]]
    return list(terms)


def _split(terms: list[str], result: str, rng: np.random.Generator) -> list[tuple[list[str], str]]:
    """Write a sum of three terms at once, or in two steps."""
    if len(terms) == 5 and terms[0].isdigit() and rng.random() < 0.5:
        between = int(terms[0]) + (1 if terms[1] == "+" else -1) * int(terms[2])
        return [(terms[:3], str(between)), ([str(between), *terms[3:]], result)]
    return [(terms, result)]


def _restated(result: str, rng: np.random.Generator) -> list[str]:
    return [f"We keep {result} in mind."] if rng.random() < 0.2 else []


def _joined_first(made: Sequence[Step]) -> list[Step]:
    """Join the first two equations, if the second uses the result of the first."""
    (one, result), (two, product), *rest = made
    if result not in two:
        return list(made)
    return [(tuple(f"({' '.join(one)})" if term == result else term for term in two), product), *rest]


Writer = Callable[[Sequence[str], str, str], str]


def _plain(terms: Sequence[str], result: str, thing: str) -> str:
    return f"{' '.join(terms)} = {result}"


def _latex(terms: Sequence[str], result: str, thing: str) -> str:
    if "/" in terms:
        return f"\\[ \\frac{{{terms[0]}}}{{{terms[2]}}} = {result} \\]"
    signs = {"*": "\\times", "/": "\\div"}
    return f"\\( {' '.join(signs.get(term, term) for term in terms)} = {result} \\)"


def _with_units(terms: Sequence[str], result: str, thing: str) -> str:
    if any(term.isalpha() for term in terms):
        return _plain(terms, result, thing)
    return f"{' '.join('x' if term == '*' else f'${term}' if term.isdigit() else term for term in terms)} = ${result}"
