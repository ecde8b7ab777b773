"""Verifiers: from response text to answer, reward and state.

Outside packages add a verifier through the entry-point group ``oversharp.verifiers``: a callable without arguments
that returns an object with the methods of ``oversharp.diagnostics.verifiers.contract.Verifier`` (and ``close()``
if it holds worker processes). A function in a file is one too, where the user names it: ``named_verifier``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType, TracebackType

from oversharp.diagnostics.records.errors import ConfigError, ProblemError, VerifierError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.contract import Verifier
from oversharp.diagnostics.verifiers.own_file import OwnFileVerifier, is_own, named_by_user
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.reading.golds import accepted_golds
from oversharp.diagnostics.verifiers.thoughts import SUFFIX, ThoughtsVerifier

ENTRY_POINT_GROUP = "oversharp.verifiers"

# name -> module and class; imported when asked for, so that --help never loads sympy
_BUILT_IN = {
    "choice": ("oversharp.diagnostics.verifiers.choice", "ChoiceVerifier"),
    "exact": ("oversharp.diagnostics.verifiers.exact", "ExactVerifier"),
    "expression": ("oversharp.diagnostics.verifiers.expression", "ExpressionVerifier"),
    "math": ("oversharp.diagnostics.verifiers.math", "MathVerifier"),
    "math_strict": ("oversharp.diagnostics.verifiers.math", "StrictMathVerifier"),
    "modes": ("oversharp.diagnostics.verifiers.modes", "ModesVerifier"),
    "reasoning_gym": ("oversharp.diagnostics.verifiers.reasoning_gym", "ReasoningGymVerifier"),
}
#: Those that read an answer out of a text: a gold may list several, and thoughts may hold the answer.
_READERS = ("choice", "exact", "math", "math_strict")
_RAISED = {"choice": 5, "exact": 5, "math": 6, "math_strict": 6}
#: By which rules each verifier grades today. Whoever changes what one accepts, or what it calls an answer, raises its
#: number: grades by other rules are made again before they are counted with new ones.
RULES: Mapping[str, int] = MappingProxyType(
    {name: _RAISED.get(name, 1) for name in _BUILT_IN} | {name + SUFFIX: _RAISED[name] for name in _READERS}
)
#: Share of wrong answers of real models that a verifier accepted, at most (95 %): 0 of 3,275 to GSM8K
#: (``benchmarks/results/grading.md``).
MEASURED_FALSE_ACCEPTS: Mapping[str, float] = MappingProxyType({"math": 0.0011, "math_strict": 0.0011})
_WITH_WORKERS = frozenset({"math", "math_strict", "reasoning_gym"})


def verifier_names() -> tuple[str, ...]:
    """All names that ``get_verifier`` knows, sorted.

    >>> verifier_names()[:3]
    ('choice', 'choice_thoughts', 'exact')
    """
    return tuple(sorted({*RULES, *find_callables(ENTRY_POINT_GROUP, _BUILT_IN)}))


def get_verifier(name: str, *, timeout_s: float = 5.0, workers: int | None = None) -> Verifier:
    """A fresh verifier. ``timeout_s`` (wall seconds per response) and ``workers`` concern those with processes.

    Whoever asks for one with a ``close()`` method calls it; ``Verifiers`` does so by itself.
    Raises ``VerifierError`` for an unknown name, and ``ConfigError`` for a broken or clashing plugin, or for a function
    in a file that this process's user did not name.

    >>> get_verifier("modes").name
    'modes'
    """
    outside = find_callables(ENTRY_POINT_GROUP, _BUILT_IN)
    if name in RULES and name not in _BUILT_IN:
        return ThoughtsVerifier(get_verifier(name.removesuffix(SUFFIX), timeout_s=timeout_s, workers=workers))
    if name in _BUILT_IN:
        module, class_name = _BUILT_IN[name]
        build = getattr(import_module(module), class_name)
        verifier: Verifier = build(timeout_s=timeout_s, workers=workers) if name in _WITH_WORKERS else build()
        return verifier
    if is_own(name):
        return OwnFileVerifier(name)
    if name not in outside:
        near = get_close_matches(name, verifier_names(), n=3) or verifier_names()
        raise VerifierError(f"verifier {name!r} is unknown; use one of: {', '.join(near)}")
    built: Verifier = load_callable(outside[name])()
    return built


def named_verifier(given: str, limits: GraderLimits | None = None) -> str:
    """The name of the verifier that a flag names: as given, or that of the function in a file, which is then loaded.

    To be called with what the user typed alone: it runs the file, in a process that ``limits`` bound (None: as before,
    else the default). Raises ``ConfigError`` where that cannot work.
    """
    return named_by_user(given, limits) if is_own(given) else given


def in_thoughts(verifier: str) -> str:
    """The name of the verifier that accepts a box in thoughts where nothing is stated behind them.

    Raises ``ConfigError`` for a verifier that has no such variant.

    >>> in_thoughts("math"), in_thoughts("math_thoughts")
    ('math_thoughts', 'math_thoughts')
    """
    if verifier in RULES and verifier.endswith(SUFFIX):
        return verifier
    if verifier not in _READERS:
        raise ConfigError(
            f"--answer-in-thoughts: verifier {verifier!r} has no such variant; {', '.join(_READERS)} have"
        )
    return verifier + SUFFIX


def guess_shares(verifier: str, problems: Iterable[Problem]) -> list[float | None]:
    r"""Of wrong responses to each problem, the share that ``verifier`` accepts by luck; None where it does not know.

    Raises nothing for a name that is unknown here, as that of another tool: nobody knows what it accepts.

    >>> options = Problem(task="t", prompt="Warm?\nA. blue\nB. red", gold="B", verifier="choice")
    >>> guess_shares("choice", [options]), guess_shares("math", [options]), guess_shares("recorded:verl", [options])
    ([0.5], [None], [None])
    """
    guess_share = None
    if verifier in verifier_names():
        with Verifiers() as verifiers:  # what grades in processes starts none for this
            guess_share = getattr(verifiers.named(verifier), "guess_share", None)
    return [None if guess_share is None else guess_share(problem) for problem in problems]


class Verifiers:
    """Grades problems of any mix of verifiers, each started when first needed and closed at the end.

    >>> problem = Problem(task="t", prompt="2 + 3", gold="5", verifier="exact")
    >>> with Verifiers() as verifiers:
    ...     verifiers.grade([(problem, "Answer: 5")])[0].correct
    True
    """

    def __init__(self, *, timeout_s: float = 5.0, workers: int | None = None) -> None:
        self._timeout_s = timeout_s
        self._workers = workers
        self._by_name: dict[str, Verifier] = {}

    def __enter__(self) -> Verifiers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes; a later call starts them afresh."""
        for verifier in self._by_name.values():
            close = getattr(verifier, "close", None)
            if close is not None:
                close()

    def of(self, problem: Problem) -> Verifier:
        """The verifier that grades ``problem``."""
        return self.named(problem.verifier)

    def named(self, name: str) -> Verifier:
        """The verifier called ``name``."""
        if name not in self._by_name:
            self._by_name[name] = get_verifier(name, timeout_s=self._timeout_s, workers=self._workers)
        return self._by_name[name]

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` if the problem's verifier cannot work with it, nor with any member of a gold list."""
        faults: list[ProblemError] = []
        variants = _variants(problem)
        for variant in variants:
            try:
                self.of(variant).check_gold(variant)
            except ProblemError as fault:
                faults.append(fault)
        if len(faults) == len(variants):
            raise faults[0]

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """One grade per (problem, response text), in order.

        A gold that lists several answers accepts any of them; a correct response gets the answer of the first.
        """
        variants = [_variants(problem) for problem, _ in items]
        if all(len(alternatives) == 1 for alternatives in variants):
            return self._grade(
                [(alternatives[0], text) for alternatives, (_, text) in zip(variants, items, strict=True)]
            )
        pairs: list[tuple[Problem, str]] = []
        for alternatives, (_, text) in zip(variants, items, strict=True):
            pairs += [(variant, text) for variant in alternatives]
            pairs.append((alternatives[0], f"\\boxed{{{alternatives[0].gold}}}"))  # for the name of a correct answer
        grades = iter(self._grade(pairs))
        return [_best([next(grades) for _ in alternatives], next(grades)) for alternatives in variants]

    def _grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        positions: dict[str, list[int]] = {}
        for position, (problem, _) in enumerate(items):
            positions.setdefault(problem.verifier, []).append(position)
        grade_at: dict[int, Grade] = {}
        for own in positions.values():
            grades = self.of(items[own[0]][0]).grade([items[position] for position in own])
            grade_at.update(zip(own, grades, strict=True))
        return [grade_at[position] for position in range(len(items))]


def _variants(problem: Problem) -> tuple[Problem, ...]:
    """The problem once for every answer that its gold accepts."""
    if problem.gold[:1] != "[" or problem.verifier.removesuffix(SUFFIX) not in _READERS:
        return (problem,)
    return tuple(replace(problem, gold=gold) for gold in accepted_golds(problem.gold))


def _best(grades: Sequence[Grade], of_first_gold: Grade) -> Grade:
    """The grade that accepts, under the name of the first gold, else that by the first gold."""
    right = next((grade for grade in grades if grade.correct), None)
    return grades[0] if right is None else replace(right, answer=of_first_gold.answer, mode=of_first_gold.mode)
